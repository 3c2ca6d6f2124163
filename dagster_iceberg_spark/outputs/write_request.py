"""The write request of an output: its table, partitions, options and lineage."""

import datetime as dt
import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.addressing import asset_scope, plain_metadata, table_of
from dagster_iceberg_spark.dagster_private import StepFacts, run_started_at_ms, step_facts
from dagster_iceberg_spark.distribution import PACKAGE_VERSION
from dagster_iceberg_spark.errors import MetadataKeyError, PartitioningError
from dagster_iceberg_spark.ledger import LEDGER
from dagster_iceberg_spark.outputs.definition import table_request
from dagster_iceberg_spark.outputs.earlier_attempts import announce, earlier_attempts, record_of, token_candidates
from dagster_iceberg_spark.plan.environment import Environment
from dagster_iceberg_spark.plan.incremental import replacing_what_was_read_anew
from dagster_iceberg_spark.plan.merging import OF_RUN
from dagster_iceberg_spark.plan.options import parse_write_options
from dagster_iceberg_spark.plan.staging import RETENTION_DAYS, Staging, staged_branch
from dagster_iceberg_spark.plan.table_request import TableCreation
from dagster_iceberg_spark.plan.write_request import RetryLimits, WriteRequest
from dagster_iceberg_spark.table.audit import SHOWN_ROWS
from dagster_iceberg_spark.table.lineage import Materialization, commit_token

RUN_WITHOUT_STEP: Final = "no-run"
"""The run id of a context that was built by hand. The package never looks up such writes."""


def write_request(
    context: dg.OutputContext,
    *,
    namespace: str | None,
    configuration: Mapping[str, Any],
    creation: TableCreation,
    limits: RetryLimits,
    staged_retention_days: int = RETENTION_DAYS,
    audit_samples: int = SHOWN_ROWS,
    environment: Environment | None = None,
) -> WriteRequest:
    """Return the write request of an output. `configuration` has the IO manager's fields that metadata may override.

    If the output has audits or waits for a release, it is staged, in a branch that is retained for
    `staged_retention_days`.
    """
    asset_key = context.asset_key if context.has_asset_key else None
    definition, run = plain_metadata(context.definition_metadata), plain_metadata(context.output_metadata)
    facts = step_facts(context)
    subject = "/".join(asset_key.path) if asset_key else f"the output {context.name!r} of {context.step_key}"
    options = parse_write_options(definition, run, configuration, subject=subject)
    if asset_key is None:  # a release publishes assets
        options = replace(options, publish="step")
    if environment is not None:
        options = environment.options(options, subject=subject)
    identifier = table_of(asset_key, definition, namespace, mapping_key=context.mapping_key, subject=subject)
    scope = asset_scope(context, definition, subject)
    spec = context.asset_spec if asset_key and facts else None
    if spec is not None and spec.partitions_def is not None and scope.is_whole_table:
        raise _without_partitions(subject)
    output = "/".join(
        asset_key.path if asset_key else filter(None, (context.step_key, context.name, context.mapping_key))
    )
    reads = LEDGER.reads_of(facts.run_id, facts.step_key) if facts else ()
    options = replacing_what_was_read_anew(options, reads, subject=subject)
    materialization = Materialization(
        asset_key=output,
        run_id=facts.run_id if facts else RUN_WITHOUT_STEP,
        job=facts.job_name if facts else None,
        step_key=facts.step_key if facts else None,
        scope=scope,
        code_version=spec.code_version if spec else None,
        upstream=reads,
        write_disposition=options.write_disposition,
        commit_token=commit_token(
            run_id=facts.run_id if facts else str(uuid.uuid4()), output=output, scope=scope, branch=options.branch
        ),
        package_version=PACKAGE_VERSION,
        started_at=_started_at(facts) if options.merge.boundary == OF_RUN and options.merge.validity else None,
    )
    if options.publish == "step":
        for read in materialization.upstream:
            if read.is_staged:
                raise MetadataKeyError.refusing(
                    "write",
                    subject,
                    expected="`iceberg/publish`: `release`, because this step has read staged rows of "
                    f"{read.asset_key}",
                    found="`step`: the rows would be published before those that they were made from",
                    hint="add the asset to the release, or let it depend on the release instead.",
                )
    staging = None
    if options.audits or options.publish == "release":
        run_id = facts.root_run_id if facts else materialization.commit_token
        found_by = None if options.publish == "release" else scope
        branch = staged_branch(root_run_id=run_id, output=output, scope=found_by, target=options.branch)
        staging = Staging(
            branch,
            options.branch,
            staged_retention_days,
            published_by=options.publish,
            target_retention_days=None if environment is None else environment.retention_days,
        )
    table = table_request(identifier, asset_key, context.definition_metadata, options, creation)
    candidates = token_candidates(facts, output=output, scope=scope, branch=options.branch)
    return WriteRequest(
        table=replace(table, staging=staging, environment=environment),
        materialization=materialization,
        candidates=candidates,
        record_of=partial(record_of, facts, asset_key, scope, candidates),
        limits=limits,
        report=context.log.info,
        announce=partial(announce, facts, str(identifier)),
        earlier_attempts=partial(earlier_attempts, facts, candidates),
        audit_samples=audit_samples,
    )


def _without_partitions(subject: str) -> PartitioningError:
    """A run of a partitioned asset has no partition key, and would replace all partitions.

    Dagster's launchers require a partition key. `dg.materialize` does not, and treats an empty key as none.
    """
    return PartitioningError.refusing(
        "write",
        subject,
        expected="a run of some of the asset's partitions",
        found="a run without partitions",
        hint="pass `partition_key` to `dg.materialize`. Dagster treats an empty key as none.",
    )


def _started_at(facts: StepFacts | None) -> dt.datetime:
    """Return when the run was created, which is the same for every attempt of a step."""
    milliseconds = run_started_at_ms(facts.instance, facts.run_id) if facts else None
    now = dt.datetime.now(dt.timezone.utc)
    return now if milliseconds is None else dt.datetime.fromtimestamp(milliseconds / 1000, dt.timezone.utc)

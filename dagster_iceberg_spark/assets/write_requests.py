"""The write request of an output: its table, partitions, options and lineage, and the earlier attempts of its step."""

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.assets.address import partition_columns, plain_metadata, table_of
from dagster_iceberg_spark.assets.asking import OutputFacts, scope_of
from dagster_iceberg_spark.assets.dagster_private.context import StepFacts, resumed_runs
from dagster_iceberg_spark.assets.dagster_private.event_log import (
    engine_events,
    has_failed_blocking_check,
    recorded_snapshots,
)
from dagster_iceberg_spark.assets.dagster_private.runs import has_ended, run_started_at_ms
from dagster_iceberg_spark.assets.read_log import LEDGER
from dagster_iceberg_spark.distribution import PACKAGE_VERSION
from dagster_iceberg_spark.errors import ConfigurationError, MetadataKeyError, PartitioningError
from dagster_iceberg_spark.plan.options.output_options import TABLE, WriteOptions, parse_write_options
from dagster_iceberg_spark.plan.publication.branch import Environment
from dagster_iceberg_spark.plan.read.incremental import options_after_full_read
from dagster_iceberg_spark.plan.write.comparison import COLUMN_SCHEMA, DefinedTable
from dagster_iceberg_spark.plan.write.merging import OF_RUN
from dagster_iceberg_spark.plan.write.placement import TableCreation
from dagster_iceberg_spark.plan.write.write_request import (
    STAGED_RETENTION_DAYS,
    Record,
    RemoteAttempt,
    RetryLimits,
    Staging,
    TableRequest,
    TokenCandidate,
    WriteRequest,
    WriteTarget,
    staged_branch,
)
from dagster_iceberg_spark.table.audit import SHOWN_ROWS
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import RUN_WITHOUT_STEP, Materialization, commit_token
from dagster_iceberg_spark.table.scope import PartitionScope


def defined_table(
    spec: dg.AssetSpec,
    *,
    namespace: str | None,
    configuration: Mapping[str, Any],
    environment: Environment | None = None,
) -> DefinedTable:
    """Return the table that an asset's definition asks for, in an IO manager with this namespace and configuration."""
    definition, subject = plain_metadata(spec.metadata), "/".join(spec.key.path)
    options = parse_write_options(definition, None, configuration, subject=subject)
    target = WriteTarget()
    if environment is not None:
        options, target = environment.options(options, subject=subject), environment.target
    identifier = table_of(spec.key, definition, namespace, subject=subject)
    declared = _declared_schema(definition)
    return DefinedTable(
        request=replace(table_request(identifier, spec.key, definition, options), target=target),
        partition_columns=partition_columns(spec.partitions_def, definition, subject=subject),
        declared_types=None if declared is None else {column.name: column.type for column in declared.columns},
    )


def table_request(
    identifier: TableIdentifier,
    asset_key: dg.AssetKey | None,
    metadata: Mapping[str, Any] | None,
    options: WriteOptions,
    creation: TableCreation | None = None,
) -> TableRequest:
    """Return the table request of a definition. The output of an op has no asset key and owns no table."""
    declared = _declared_schema(metadata)
    columns = declared.columns if declared else ()
    return TableRequest(
        identifier=identifier,
        asset_key="/".join(asset_key.path) if asset_key else None,
        is_named_explicitly=(metadata or {}).get(TABLE) is not None,
        options=options,
        column_docs={column.name: column.description for column in columns if column.description},
        creation=creation or TableCreation(),
    )


def _declared_schema(metadata: Mapping[str, Any] | None) -> dg.TableSchema | None:
    """Return the `dagster/column_schema` of a definition, if it has one."""
    schema = (metadata or {}).get(COLUMN_SCHEMA)
    if schema is not None and not isinstance(schema, dg.TableSchema):
        raise ConfigurationError.refusing(
            "use", f"`{COLUMN_SCHEMA}`", expected="a dagster.TableSchema", found=type(schema).__name__
        )
    return schema


def write_request(
    facts: OutputFacts,
    *,
    namespace: str | None,
    configuration: Mapping[str, Any],
    creation: TableCreation,
    limits: RetryLimits,
    staged_retention_days: int = STAGED_RETENTION_DAYS,
    audit_samples: int = SHOWN_ROWS,
    environment: Environment | None = None,
) -> WriteRequest:
    """Return the write request of an output. `configuration` has the IO manager's fields that metadata may override.

    If the output has audits or waits for a release, it is staged, in a branch that is retained for
    `staged_retention_days`.
    """
    step, subject, definition = facts.step, facts.subject, plain_metadata(facts.definition)
    options = parse_write_options(definition, facts.run, configuration, subject=subject)
    if facts.asset_key is None:  # a release publishes assets
        options = options.model_copy(update={"publish": "step"})
    target = WriteTarget()
    if environment is not None:
        options, target = environment.options(options, subject=subject), environment.target
    identifier = table_of(facts.asset_key, definition, namespace, mapping_key=facts.mapping_key, subject=subject)
    scope, spec = scope_of(facts.partitions, definition, subject=subject), facts.spec
    if spec is not None and spec.partitions_def is not None and scope.is_whole_table:
        raise PartitioningError.refusing(
            "write",
            subject,
            expected="a run of some of the asset's partitions",
            found="a run without partitions",
            hint="pass `partition_key` to `dg.materialize`. Dagster treats an empty key as none.",
        )
    reads = LEDGER.reads_of(step.run_id, step.step_key) if step else ()
    options = options_after_full_read(options, reads, subject=subject)
    candidates = token_candidates(step, output=facts.name, scope=scope, branch=options.branch)
    materialization = Materialization(
        asset_key=facts.name,
        run_id=step.run_id if step else RUN_WITHOUT_STEP,
        job=step.job_name if step else None,
        step_key=step.step_key if step else None,
        scope=scope,
        code_version=spec.code_version if spec else None,
        upstream=reads,
        write_disposition=options.write_disposition,
        commit_token=commit_token(
            run_id=step.run_id if step else str(uuid.uuid4()), output=facts.name, scope=scope, branch=options.branch
        ),
        package_version=PACKAGE_VERSION,
        started_at=_started_at(step) if _needs_start(options) else None,
        resumes=tuple(candidate.token for candidate in candidates if not candidate.is_same_run),
    )
    if options.publish == "step":
        for read in materialization.upstream:
            if read.is_staged:
                raise MetadataKeyError.refusing(
                    "write",
                    subject,
                    expected="`iceberg/publish`: `release`, because this step has read staged rows of "
                    f"{read.asset_key}",
                    found="`step`: the rows would be published before those that they were derived from",
                    hint="add the asset to the release, or let it depend on the release instead.",
                )
    staging = None
    if options.audits or options.publish == "release":
        run_id = step.root_run_id if step else materialization.commit_token
        found_by = None if options.publish == "release" else scope
        branch = staged_branch(root_run_id=run_id, output=facts.name, scope=found_by, target=options.branch)
        staging = Staging(
            branch,
            options.branch,
            staged_retention_days,
            published_by=options.publish,
            target_retention_days=target.retention_days,
        )
    table = table_request(identifier, facts.asset_key, definition, options, creation)
    return WriteRequest(
        table=replace(table, staging=staging, target=target),
        materialization=materialization,
        candidates=candidates,
        record_of=partial(record_of, step, facts.asset_key, scope, candidates),
        limits=limits,
        report=facts.report,
        announce=partial(announce, step, str(identifier)),
        earlier_attempts=partial(earlier_attempts, step, candidates),
        has_ended=partial(has_ended, step.instance) if step else lambda _: False,
        audit_samples=audit_samples,
    )


def _needs_start(options: WriteOptions) -> bool:
    has_versions = options.merge.boundary == OF_RUN and bool(options.merge.validity)
    return has_versions or options.concurrent_writes == "first_wins"


def _started_at(facts: StepFacts | None) -> dt.datetime:
    """Return when the run was created, which is the same for every attempt of a step."""
    milliseconds = run_started_at_ms(facts.instance, facts.run_id) if facts else None
    now = dt.datetime.now(dt.timezone.utc)
    return now if milliseconds is None else dt.datetime.fromtimestamp(milliseconds / 1000, dt.timezone.utc)


_ATTEMPT: Final = {
    "tag": "iceberg/tag",
    "session_id": "iceberg/session",
    "user_id": "iceberg/user",
    "server": "iceberg/server",
}
"""Keys of the engine event that records where an attempt writes, by field of `RemoteAttempt`."""


def token_candidates(
    facts: StepFacts | None, *, output: str, scope: PartitionScope, branch: str
) -> tuple[TokenCandidate, ...]:
    """Return the commit tokens to look for: those of this run and of the runs that it resumes.

    On an ephemeral instance, in-process runs may repeat a fixed run id, so the first attempt looks for no token.
    """
    if facts is None or (facts.instance.is_ephemeral and facts.attempt == 0):
        return ()
    runs = [facts.run_id, *resumed_runs(facts)]
    return tuple(
        TokenCandidate(
            token=commit_token(run_id=run_id, output=output, scope=scope, branch=branch),
            run_id=run_id,
            run_started_at_ms=run_started_at_ms(facts.instance, run_id),
            is_same_run=run_id == facts.run_id,
            has_begun=run_id != facts.run_id or facts.attempt > 0,
        )
        for run_id in runs
    )


def record_of(
    facts: StepFacts | None,
    asset_key: dg.AssetKey | None,
    scope: PartitionScope,
    candidates: Sequence[TokenCandidate],
    snapshot_id: int,
) -> Record:
    """Return what the candidates' runs have recorded of a snapshot."""
    if facts is None or asset_key is None:
        return "none"
    runs = [candidate.run_id for candidate in candidates]
    recorded = [run for run in runs if snapshot_id in recorded_snapshots(facts.instance, run, asset_key, scope.keys)]
    if any(has_failed_blocking_check(facts.instance, run, asset_key) for run in recorded):
        return "rejected"
    return "recorded" if recorded else "none"


def announce(facts: StepFacts | None, table: str, attempt: RemoteAttempt) -> None:
    """Record where an attempt writes, so that a later attempt can stop it. A write without a step has none."""
    if facts is not None:
        facts.record_event(
            f"Writing {table} in session {attempt.session_id} of the Spark Connect server {attempt.server}.",
            {key: getattr(attempt, field) for field, key in _ATTEMPT.items()},
        )


def earlier_attempts(facts: StepFacts | None, candidates: Sequence[TokenCandidate]) -> Sequence[RemoteAttempt]:
    """Return the sessions in which earlier attempts of the step, or of the runs that it resumes, wrote."""
    if facts is None:
        return ()
    tags = {candidate.tag for candidate in candidates}
    events = (event for candidate in candidates for event in engine_events(facts.instance, candidate.run_id))
    return tuple(
        RemoteAttempt(**{field: event[key] for field, key in _ATTEMPT.items()})
        for event in events
        if event.get(_ATTEMPT["tag"]) in tags and set(_ATTEMPT.values()) <= set(event)
    )

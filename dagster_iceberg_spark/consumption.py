"""How far an asset has read an input whose changes it asks for: as its own tables say, or else Dagster's event log."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import dagster as dg

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.context import WriteQuestion
from dagster_iceberg_spark.dagster_private import latest_materializations, outputs_of, step_facts
from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.input_context import ReadQuestion, input_identity, reads_of_run
from dagster_iceberg_spark.plan.adoption import has_read_changes
from dagster_iceberg_spark.plan.incremental import Consumption, OwnTable, agreed, consumed
from dagster_iceberg_spark.plan.read_options import READ
from dagster_iceberg_spark.table.lineage import ASSET_KEY
from dagster_iceberg_spark.table.snapshot import Snapshot


class StoresTables(Protocol):
    """An IO manager of this package."""

    def question_of(self, context: dg.OutputContext) -> tuple[CatalogDescription, WriteQuestion]:
        """Return what an output asks for, and the catalog of its table."""


@dataclass(frozen=True, slots=True)
class ReadSoFar:
    """How far an asset has read an input.

    Args:
        consumption: How far.
        upon: The snapshot that each table of the step has, by its asset.
    """

    consumption: Consumption
    upon: tuple[tuple[str, int | None], ...] = ()


def read_so_far(
    context: dg.InputContext, question: ReadQuestion, *, as_ours: Callable[[Any], StoresTables | None]
) -> ReadSoFar:
    """Say how far the asset that asks for an input has read it.

    Args:
        context: Dagster's, of the input.
        question: What the input asks for.
        as_ours: Returns an IO manager of this package as what it is; None of any other.

    Raises:
        MetadataKeyError: The input is none of an asset's step.
        CatalogUnavailableError: The catalog of the asset's own table does not answer.
    """
    facts = step_facts(context)
    outputs = [] if facts is None else outputs_of(context)
    if facts is None or not outputs:
        raise MetadataKeyError.refusing(
            "use",
            f"`{READ}` of {question.asset}",
            expected="an input of an asset's run: how far it has been read is known of assets",
            found="an op or a script",
        )
    tables = own_tables(context, as_ours=as_ours)
    if not tables:
        return ReadSoFar(_by_event_log(facts.instance, context, question, [output for output, _ in outputs]))
    now = input_identity(context, question)
    return ReadSoFar(
        agreed([consumed(table, now, question.scope.keys) for table in tables]),
        tuple((table.asset, table.head) for table in tables),
    )


def own_tables(context: dg.InputContext, *, as_ours: Callable[[Any], StoresTables | None]) -> list[OwnTable]:
    """Return the tables that the input's step writes, as they are now.

    Args:
        context: Dagster's, of the input.
        as_ours: Returns an IO manager of this package as what it is; None of any other.
    """
    return [
        _own_table(output, manager) for output, item in outputs_of(context) if (manager := as_ours(item)) is not None
    ]


def _own_table(context: dg.OutputContext, manager: StoresTables) -> OwnTable:
    catalog, write = manager.question_of(context)
    asset = write.materialization.asset_key
    recorded: dict[str, int | None] = {}

    def is_recorded(snapshot: Snapshot) -> bool:
        keys = write.materialization.scope.keys
        if not recorded:
            recorded.update(latest_materializations(context, keys))
        return set(recorded.values()) == {snapshot.snapshot_id}

    return OwnTable(
        asset=asset,
        branch=write.table.options.branch,
        scope=write.materialization.scope,
        state=look(catalog, write.table.identifier, back_to=lambda item: item.summary.get(ASSET_KEY) == asset),
        is_pending=partial(has_read_changes, candidates=write.candidates),
        is_recorded=is_recorded,
    )


def _by_event_log(
    instance: dg.DagsterInstance, context: dg.InputContext, question: ReadQuestion, outputs: Sequence[dg.OutputContext]
) -> Consumption:
    """Ask for the runs that have last materialized what the step makes, and what these have read.

    What is stored elsewhere has no snapshot that says it: a run that fails between its effect and Dagster's record has
    not read anything.
    """
    return agreed([_of_runs(instance, context, question, output) for output in outputs])


def _of_runs(
    instance: dg.DagsterInstance, context: dg.InputContext, question: ReadQuestion, output: dg.OutputContext
) -> Consumption:
    keys: Sequence[str | None] = tuple(output.asset_partition_keys) if output.has_asset_partitions else (None,)
    found = [_of_partition(instance, context, question, output.asset_key, key) for key in keys]
    return agreed(found)


def _of_partition(
    instance: dg.DagsterInstance,
    context: dg.InputContext,
    question: ReadQuestion,
    asset_key: dg.AssetKey,
    partition: str | None,
) -> Consumption:
    records = dg.AssetRecordsFilter(asset_key=asset_key, asset_partitions=None if partition is None else [partition])
    cursor: str | None = None
    while True:
        answer = instance.fetch_materializations(records, limit=20, cursor=cursor)
        for record in answer.records:
            reads = reads_of_run(context, question, instance, record.run_id)
            same = [read for read in reads if read.is_same_partitions]
            if same:
                return Consumption(same[-1].snapshot_id)
            if reads:
                return Consumption(unclear=f"run {record.run_id}, which has read other partitions of it")
        if not answer.has_more:
            return Consumption()
        cursor = answer.cursor

"""How far an asset has read an input whose changes it asks for: as its own tables say, or else Dagster's event log."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import dagster as dg

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import data_files
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.context import WriteQuestion
from dagster_iceberg_spark.dagster_private import (
    is_stored_elsewhere,
    latest_materializations,
    materializations,
    outputs_of,
)
from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.input_context import ReadQuestion, input_identity, reads_of_run
from dagster_iceberg_spark.plan.adoption import has_read_changes
from dagster_iceberg_spark.plan.binding import bind_scope
from dagster_iceberg_spark.plan.incremental import Consumption, OwnTable, agreed, consumed, consumed_by, furthest
from dagster_iceberg_spark.plan.overwrite_filter import within_file
from dagster_iceberg_spark.plan.read import RecordedRead
from dagster_iceberg_spark.plan.read_options import READ
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState


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


@dataclass(frozen=True, slots=True)
class _Output:
    """An asset that the step makes.

    Args:
        context: Dagster's.
        stored: Its table, and the table's catalog; None: it is stored elsewhere, or not at all.
        is_ours: Whether it would be stored by this package, if there were anything to store.
    """

    context: dg.OutputContext
    stored: tuple[OwnTable, CatalogDescription] | None
    is_ours: bool = True


def read_so_far(
    context: dg.InputContext,
    question: ReadQuestion,
    *,
    as_ours: Callable[[Any], StoresTables | None],
    upstream: Callable[[], TableState | None],
) -> ReadSoFar:
    """Say how far the asset that asks for an input has read it.

    Args:
        context: Dagster's, of the input.
        question: What the input asks for.
        as_ours: Returns an IO manager of this package as what it is; None of any other.
        upstream: Returns the table that is read, as it is now.

    Raises:
        MetadataKeyError: The input is none of an asset's step.
        CatalogUnavailableError: The catalog of the asset's own table does not answer.
    """
    outputs = [_output(context, question, *each, as_ours=as_ours) for each in outputs_of(context)]
    log = _EventLog(context, question, upstream)
    if not outputs:
        raise MetadataKeyError.refusing(
            "use",
            f"`{READ}` of {question.asset}",
            expected="an input of an asset's run: how far it has been read is known of assets",
            found="an op or a script",
        )
    stored = [item for item in outputs if item.stored is not None]
    told = [_by_lineage(context, question, item, log) for item in stored] or [
        consumption or Consumption() for item in outputs for _, consumption in log.of_output(item)
    ]
    tables = [item.stored[0] for item in stored if item.stored is not None]
    return ReadSoFar(agreed(told), tuple((table.asset, table.head) for table in tables))


def own_tables(
    context: dg.InputContext, question: ReadQuestion, *, as_ours: Callable[[Any], StoresTables | None]
) -> list[OwnTable]:
    """Return the tables that the input's step writes, as they are now.

    Args:
        context: Dagster's, of the input.
        question: What the input asks for.
        as_ours: Returns an IO manager of this package as what it is; None of any other.
    """
    outputs = [_output(context, question, *each, as_ours=as_ours) for each in outputs_of(context)]
    return [item.stored[0] for item in outputs if item.stored is not None]


def _output(
    context: dg.InputContext,
    question: ReadQuestion,
    output: dg.OutputContext,
    manager: object,
    *,
    as_ours: Callable[[Any], StoresTables | None],
) -> _Output:
    ours = as_ours(manager)
    if ours is None:
        return _Output(output, None, is_ours=False)
    catalog, write = ours.question_of(output)
    recorded: dict[str, int | None] = {}

    def is_recorded(snapshot: Snapshot) -> bool:
        keys = write.materialization.scope.keys
        if not recorded:
            recorded.update(latest_materializations(output, keys))
        return set(recorded.values()) == {snapshot.snapshot_id}

    table = OwnTable(
        asset=write.materialization.asset_key,
        branch=write.table.options.branch,
        scope=write.materialization.scope,
        state=None,
        is_pending=partial(has_read_changes, candidates=write.candidates),
        is_recorded=is_recorded,
        former=write.table.options.takes_over,
    )
    now, keys = input_identity(context, question), question.scope.keys
    state = look(catalog, write.table.identifier, back_to=lambda item: consumed_by(item, table, now, keys) is not None)
    if state is None and is_stored_elsewhere(output):
        return _Output(output, None)  # by a function that returns no value, whatever its IO manager
    return _Output(output, (replace(table, state=state), catalog))


def _by_lineage(context: dg.InputContext, question: ReadQuestion, output: _Output, log: "_EventLog") -> Consumption:
    """Ask the snapshots of the asset's own table; where they have expired, Dagster's event log, if it knows."""
    if output.stored is None:
        return Consumption()
    table, catalog = output.stored
    found = consumed(table, input_identity(context, question), question.scope.keys)
    if not found.is_cut or table.state is None:
        return found
    logged = log.of_output(output)
    if not any(has_record for has_record, _ in logged):
        return found if _has_rows(table, table.state, catalog) else Consumption()
    if any(has_record and item is None for has_record, item in logged):
        return found
    said = agreed([item or Consumption() for _, item in logged])
    return found if said.unclear else said


def _has_rows(table: OwnTable, state: TableState, catalog: CatalogDescription) -> bool:
    """Say whether the table may have rows of the run's partitions."""
    bound = bind_scope(table.scope, state.schema, subject=str(state.identifier))
    if table.head is None or bound.is_whole_table:
        return table.head is not None
    files = data_files(catalog, state.identifier, table.head, bound.columns)
    return any(within_file(bound, file).boxes for file in files)


@dataclass(frozen=True, slots=True)
class _EventLog:
    """What Dagster's event log says of the runs that have last materialized each partition of the run.

    What is stored elsewhere has no snapshot that says it: a run that fails between its effect and Dagster's record has
    not read anything.

    Args:
        context: Dagster's, of the input.
        question: What the input asks for.
        upstream: Returns the table that is read, as it is now.
    """

    context: dg.InputContext
    question: ReadQuestion
    upstream: Callable[[], TableState | None]

    def of_output(self, output: _Output) -> list[tuple[bool, Consumption | None]]:
        """Return of each partition whether there is a materialization, and how far it has read the input."""
        of_output = output.context
        keys: Sequence[str | None] = (
            tuple(of_output.asset_partition_keys) if of_output.has_asset_partitions else (None,)
        )
        return [self._of_partition(output, key) for key in keys]

    def _of_partition(self, output: _Output, partition: str | None) -> tuple[bool, Consumption | None]:
        """Return what the last materialization has read that has read the input, or one that overlapped it.

        Of runs that overlap, the one that has read less may be recorded last.
        """
        has_record = False
        found: list[int] = []
        asked_at = math.inf
        for run_id, step_key, recorded_at in materializations(output.context, partition):
            if found and recorded_at < asked_at:
                break
            has_record = True
            read = self._last_read(output, run_id, step_key)
            if read is None or read.snapshot_id is None:
                continue
            is_partial = not read.is_of_changes and read.left_out not in (None, self.question.options.left_out)
            if read.share == "all" and not is_partial:
                found.append(read.snapshot_id)
                asked_at = min(asked_at, read.asked_at)
            elif not found:
                return True, Consumption(unclear=f"run {run_id}, which has read only some of what is read now")
        if not found:
            return has_record, None
        return True, Consumption(found[0] if len(set(found)) == 1 else furthest(self.upstream(), found))

    def _last_read(self, output: _Output, run_id: str, step_key: str | None) -> RecordedRead | None:
        """Return what a run has last read of the input.

        What another IO manager has stored of an asset that is to have a table now was made of whole reads.
        """
        has_nothing = output.is_ours and output.stored is None
        reads = reversed(reads_of_run(self.context, self.question, run_id, step_key=step_key))
        told = (read for read in reads if read.snapshot_id is not None and read.share != "none")
        return next((read for read in told if read.is_of_changes or not has_nothing), None)

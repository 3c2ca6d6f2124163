"""The position of an incremental read: how far an asset has read an input.

The position is in the lineage of the asset's table. If the table does not have it, Dagster's event log may.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import dagster as dg

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import data_files
from dagster_iceberg_spark.dagster_private import (
    materializations,
)
from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.inputs.output_tables import StepOutput
from dagster_iceberg_spark.inputs.read_log import reads_of_run
from dagster_iceberg_spark.inputs.read_request import ReadRequest, upstream_read
from dagster_iceberg_spark.plan.binding import bind_scope
from dagster_iceberg_spark.plan.incremental import OutputTable, ReadPosition, agreed, furthest, position_of
from dagster_iceberg_spark.plan.overwrite_filter import within_file
from dagster_iceberg_spark.plan.read import RecordedRead
from dagster_iceberg_spark.plan.read_options import READ
from dagster_iceberg_spark.table.snapshot import TableState


def read_position(
    context: dg.InputContext,
    request: ReadRequest,
    outputs: Sequence[StepOutput],
    upstream: Callable[[], TableState | None],
) -> ReadPosition:
    """Return how far the downstream asset has read an input.

    Args:
        context: Dagster's context of the input.
        request: The read request of the input.
        outputs: The assets that the step materializes.
        upstream: Returns the current state of the upstream table.

    Raises:
        MetadataKeyError: The step materializes no asset.
        CatalogUnavailableError: The catalog of the downstream asset's table does not respond.
    """
    if not outputs:
        raise MetadataKeyError.refusing(
            "use",
            f"`{READ}` of {request.asset}",
            expected="an input of an asset, because only assets track their progress",
            found="an op or a script",
        )
    log = _EventLog(context, request, upstream)
    positions = [
        _by_lineage(context, request, *output.stored, partial(log.of_output, output))
        for output in outputs
        if output.stored
    ]
    if not positions:
        positions = [found or ReadPosition() for output in outputs for _, found in log.of_output(output)]
    return agreed(positions)


def _by_lineage(
    context: dg.InputContext,
    request: ReadRequest,
    table: OutputTable,
    catalog: CatalogDescription,
    logged: Callable[[], list[tuple[bool, ReadPosition | None]]],
) -> ReadPosition:
    """Return the position from the asset's snapshots or, if these have expired, from Dagster's event log."""
    found = position_of(table, upstream_read(context, request), request.scope.keys)
    if not found.is_cut or table.state is None:
        return found
    recorded = logged()
    if not any(has_record for has_record, _ in recorded):
        return found if _has_rows(table, table.state, catalog) else ReadPosition()
    if any(has_record and item is None for has_record, item in recorded):
        return found
    by_log = agreed([item or ReadPosition() for _, item in recorded])
    return found if by_log.unclear else by_log


def _has_rows(table: OutputTable, state: TableState, catalog: CatalogDescription) -> bool:
    """Return whether the table may have rows of the run's partitions."""
    bound = bind_scope(table.scope, state.schema, subject=str(state.identifier))
    if table.head is None or bound.is_whole_table:
        return table.head is not None
    files = data_files(catalog, state.identifier, table.head, bound.columns)
    return any(within_file(bound, file).boxes for file in files)


@dataclass(frozen=True, slots=True)
class _EventLog:
    """The reads of the last materialization of each partition, from Dagster's event log.

    An asset that this package does not store has no snapshots to record its progress. If its run fails after the side
    effect but before Dagster records the materialization, nothing counts as read.

    Args:
        context: Dagster's context of the input.
        request: The read request of the input.
        upstream: Returns the current state of the upstream table.
    """

    context: dg.InputContext
    request: ReadRequest
    upstream: Callable[[], TableState | None]

    def of_output(self, output: StepOutput) -> list[tuple[bool, ReadPosition | None]]:
        """Return for each partition whether it has a materialization, and how far that has read the input."""
        context = output.context
        keys: Sequence[str | None] = tuple(context.asset_partition_keys) if context.has_asset_partitions else (None,)
        return [self._of_partition(output, key) for key in keys]

    def _of_partition(self, output: StepOutput, partition: str | None) -> tuple[bool, ReadPosition | None]:
        """Return how far the last materialization that read the input has read it.

        If runs overlapped it, the one that read furthest counts: it may not be the one that was recorded last.
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
            is_partial = not read.is_of_changes and read.left_out not in (None, self.request.options.left_out)
            if read.share == "all" and not is_partial:
                found.append(read.snapshot_id)
                asked_at = min(asked_at, read.asked_at)
            elif not found:
                return True, ReadPosition(
                    unclear=f"run {run_id}, which read only some of the rows that the input reads now"
                )
        if not found:
            return has_record, None
        return True, ReadPosition(found[0] if len(set(found)) == 1 else furthest(self.upstream(), found))

    def _last_read(self, output: StepOutput, run_id: str, step_key: str | None) -> RecordedRead | None:
        """Return the last read of the input by a run.

        If another IO manager has stored the asset so far, only incremental reads count: its rows are not in the table.
        """
        lacks_table = output.has_table_io_manager and output.stored is None
        reads = reversed(reads_of_run(self.context, self.request, run_id, step_key=step_key))
        known = (read for read in reads if read.snapshot_id is not None and read.share != "none")
        return next((read for read in known if read.is_of_changes or not lacks_table), None)

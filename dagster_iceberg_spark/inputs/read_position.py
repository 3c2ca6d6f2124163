"""The position of an incremental read: how far an asset has read an input.

The position is in the lineage of the asset's table. If the table does not have it, Dagster's event log may.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import dagster as dg

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import data_files
from dagster_iceberg_spark.dagster_private import materializations
from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.inputs.output_tables import StepOutput
from dagster_iceberg_spark.inputs.read_log import reads_of_run
from dagster_iceberg_spark.inputs.read_request import ReadRequest
from dagster_iceberg_spark.plan.binding import bind_scope
from dagster_iceberg_spark.plan.incremental import (
    OutputTable,
    Position,
    agreed,
    furthest,
    lost_history,
    may_have_rows,
    position_of,
    share_read,
)
from dagster_iceberg_spark.plan.read_options import READ
from dagster_iceberg_spark.table.lineage import UpstreamRead
from dagster_iceberg_spark.table.snapshot import TableState


def read_position(
    context: dg.InputContext,
    request: ReadRequest,
    outputs: Sequence[StepOutput],
    upstream: Callable[[], TableState | None],
) -> Position:
    """Return how far the assets that the step materializes have read an input.

    `upstream` returns the current state of the upstream table.
    """
    if not outputs:
        raise MetadataKeyError.refusing(
            "use",
            f"`{READ}` of {request.asset}",
            expected="an input of an asset, because only assets track their progress",
            found="an op or a script",
        )
    log = _EventLog(context, request, upstream)
    positions: list[Position | None] = [_by_lineage(output, *output.stored, log) for output in outputs if output.stored]
    positions = positions or [position for output in outputs for _, position in log.of_output(output)]
    return agreed(positions, request.upstream_read)


def _by_lineage(output: StepOutput, table: OutputTable, catalog: CatalogDescription, log: "_EventLog") -> Position:
    """Return the position from the asset's snapshots or, if these have expired, from Dagster's event log."""
    now = log.request.upstream_read
    found = position_of(table, now, log.request.scope.keys)
    if isinstance(found, UpstreamRead) or found != lost_history(table):
        return found
    recorded = log.of_output(output)
    if not any(has_record for has_record, _ in recorded):
        return found if _has_rows(table, catalog) else now
    if any(has_record and position is None for has_record, position in recorded):
        return found
    by_log = agreed([position for _, position in recorded], now)
    return found if isinstance(by_log, str) else by_log


def _has_rows(table: OutputTable, catalog: CatalogDescription) -> bool:
    """Return whether the table may have rows of the run's partitions."""
    if table.state is None or table.head is None or table.scope.is_whole_table:
        return table.head is not None
    identifier = table.state.identifier
    bound = bind_scope(table.scope, table.state.schema, subject=str(identifier))
    return may_have_rows(bound, data_files(catalog, identifier, table.head, bound.columns))


@dataclass(frozen=True, slots=True)
class _EventLog:
    """The reads of the last materialization of each partition, from Dagster's event log.

    An asset that this package does not store has no snapshots to record its progress. If its run fails after the side
    effect but before Dagster records the materialization, nothing counts as read.
    """

    context: dg.InputContext
    request: ReadRequest
    upstream: Callable[[], TableState | None]

    def of_output(self, output: StepOutput) -> list[tuple[bool, Position | None]]:
        """Return for each partition whether it has a materialization, and how far that has read the input."""
        context = output.context
        keys: Sequence[str | None] = tuple(context.asset_partition_keys) if context.has_asset_partitions else (None,)
        return [self._of_partition(output, key) for key in keys]

    def _of_partition(self, output: StepOutput, partition: str | None) -> tuple[bool, Position | None]:
        """Return how far the last materialization that read the input has read it.

        If runs overlapped it, the one that read furthest counts: it may not be the one that was recorded last.
        """
        now, has_record = self.request.upstream_read, False
        found: list[int] = []
        asked_at = math.inf
        for run_id, step_key, recorded_at in materializations(output.context, partition):
            if found and recorded_at < asked_at:
                break
            has_record = True
            read = self._last_read(output, run_id, step_key)
            if read is None or read.snapshot_id is None:
                continue
            is_partial = read.kind is None and read.left_out not in (None, now.left_out)
            if share_read(read, now, self.request.scope.keys) == "all" and not is_partial:
                found.append(read.snapshot_id)
                asked_at = min(asked_at, read.asked_at)
            elif not found:
                return True, f"run {run_id}, which read only some of the rows that the input reads now"
        if not found:
            return has_record, None
        since = found[0] if len(set(found)) == 1 else furthest(self.upstream(), found)
        return True, replace(now, since=since)

    def _last_read(self, output: StepOutput, run_id: str, step_key: str | None) -> UpstreamRead | None:
        """Return the last read of the input by a run.

        If another IO manager has stored the asset so far, only incremental reads count: its rows are not in the table.
        """
        now, keys = self.request.upstream_read, self.request.scope.keys
        for read in reversed(reads_of_run(self.context, self.request, run_id, step_key=step_key)):
            is_known = read.snapshot_id is not None and share_read(read, now, keys) != "none"
            if is_known and (read.kind is not None or not output.lacks_table):
                return read
        return None

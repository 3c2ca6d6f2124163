"""The position of an incremental read, how far an asset has read an input, and what has changed since.

The position is in the lineage of the asset's table. If the table does not have it, Dagster's event log may.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Protocol, runtime_checkable

import dagster as dg

from dagster_iceberg_spark.assets.asking import OutputFacts, output_facts
from dagster_iceberg_spark.assets.dagster_private.context import (
    is_stored_elsewhere,
    latest_materializations,
    materializations,
    outputs_of,
)
from dagster_iceberg_spark.assets.read_log import reads_of_run
from dagster_iceberg_spark.assets.read_requests import ReadRequest
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import data_files, removed_files
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.errors import ChangesUnknownError, ConfigurationError, MetadataKeyError
from dagster_iceberg_spark.plan.partitions.binding import bind_scope
from dagster_iceberg_spark.plan.read.incremental import (
    Changes,
    OutputTable,
    Position,
    common_position,
    furthest,
    has_delete_files,
    lost_history,
    may_have_rows,
    position_in,
    position_of,
    scan_of,
    share_read,
    to_be_read,
)
from dagster_iceberg_spark.plan.read.read_options import CHANGES_FALLBACK, READ
from dagster_iceberg_spark.plan.read.read_plan import ReadPlan, at_snapshot, later_snapshots, schemas_at
from dagster_iceberg_spark.plan.write.adoption import has_read_changes
from dagster_iceberg_spark.plan.write.write_request import WriteRequest
from dagster_iceberg_spark.table.change import may_remove_rows
from dagster_iceberg_spark.table.lineage import RUN_ID, ReadKind, UpstreamRead
from dagster_iceberg_spark.table.schema import is_orderable
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState


@runtime_checkable
class StoresTables(Protocol):
    """An IO manager of this package."""

    def write_request_of(self, facts: OutputFacts) -> tuple[CatalogDescription, WriteRequest]:
        """Return the catalog of an output's table, and the write request of the output."""


@dataclass(frozen=True, slots=True)
class StepOutput:
    """An asset that the step materializes.

    Args:
        context: Dagster's context of the output.
        stored: The asset's table and its catalog, or None if this package does not store the asset.
        lacks_table: Whether the asset's IO manager is one of this package, but another one has stored the asset so far.
    """

    context: dg.OutputContext
    stored: tuple[OutputTable, CatalogDescription] | None = None
    lacks_table: bool = False


def step_outputs(context: dg.InputContext, request: ReadRequest) -> list[StepOutput]:
    """Return the assets that the input's step materializes, with the current state of their tables."""
    return [_step_output(request, *each) for each in outputs_of(context)]


def _step_output(request: ReadRequest, output: dg.OutputContext, io_manager: object) -> StepOutput:
    if not isinstance(io_manager, StoresTables):
        return StepOutput(output)
    catalog, write = io_manager.write_request_of(output_facts(output))
    recorded = cache(partial(latest_materializations, output, write.materialization.scope.keys))
    table = OutputTable(
        asset=write.materialization.asset_key,
        branch=write.table.options.branch,
        scope=write.materialization.scope,
        state=None,
        is_pending=partial(has_read_changes, candidates=write.candidates),
        is_recorded=lambda snapshot: set(recorded().values()) == {snapshot.snapshot_id},
        former=write.table.options.takes_over,
    )
    now, keys = request.upstream_read, request.scope.keys
    state = look(catalog, write.table.identifier, back_to=lambda item: position_in(item, table, now, keys) is not None)
    if state is None and is_stored_elsewhere(output):
        return StepOutput(output, lacks_table=True)  # the function returns no value, whatever its IO manager
    return StepOutput(output, (replace(table, state=state), catalog))


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
    return common_position(positions, request.upstream_read)


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
    by_log = common_position([position for _, position in recorded], now)
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


def with_changes(
    state: TableState,
    plan: ReadPlan,
    position: Position,
    kind: ReadKind,
    *,
    request: ReadRequest,
    catalog: CatalogDescription,
    warn: Callable[[str], None],
) -> ReadPlan:
    """Return the plan, limited to what has changed since the position. `warn` writes to the run's log."""
    if kind == "changelog":
        _require_orderable(state, plan)
    found: Changes | str
    if isinstance(position, str):
        found = position
    else:
        plan = plan if position.snapshot_id is None else at_snapshot(state, plan, position.snapshot_id)
        if position.since is None:
            found = Changes(kind, None, is_repeated=position.is_repeated)
        else:
            found = _changes_since(state, plan, kind, position.since, is_head=request.options.is_head, catalog=catalog)
    if isinstance(found, Changes):
        return replace(plan, changes=found)
    if request.options.changes_fallback == "error":
        raise _unclear_changes(str(plan.identifier), request.asset, kind, found)
    warn(f"Reading all rows of {plan.identifier} (`{CHANGES_FALLBACK}`) because of {found}.")
    return replace(plan, changes=Changes(kind, None, is_repeated=True))


def _changes_since(
    state: TableState, plan: ReadPlan, kind: ReadKind, since: int, *, is_head: bool, catalog: CatalogDescription
) -> Changes | str:
    """Return the changes since a snapshot, or why they cannot be determined."""
    passed = later_snapshots(state, plan, since, is_head=is_head)
    if passed is None:
        return (
            f"a history without snapshot {since}, which was read last: it has expired, was rolled back, or is on "
            "another branch"
        )
    snapshots = to_be_read(passed, kind)
    obstacle = _obstacle(plan, kind, snapshots, catalog)
    if obstacle is not None:
        return obstacle
    scan = scan_of(kind, snapshots, passed)
    stored = schemas_at(state, snapshots) if scan == "files" else ()
    return Changes(kind, since, tuple(snapshot.snapshot_id for snapshot in snapshots), stored, scan)


def _require_orderable(state: TableState, plan: ReadPlan) -> None:
    """Reject columns that cannot be sorted: Iceberg sorts rows to find those that a commit rewrote unchanged."""
    maps = [field.name for field in plan.schema if not is_orderable(field.type)]
    if maps and not state.identifier_fields:
        raise ConfigurationError.refusing(
            "read every change of",
            str(plan.identifier),
            expected="columns that can be sorted, or identifier fields",
            found=f"the column {maps[0]!r}, which contains a map or a variant",
            hint="read `changes`, or set identifier fields. An asset that merges sets them to its merge keys.",
        )


def _obstacle(plan: ReadPlan, kind: ReadKind, snapshots: Sequence[Snapshot], catalog: CatalogDescription) -> str | None:
    """Return the first snapshot whose changes cannot be determined, in words, or None."""
    if kind == "changelog":
        unclear = next((item for item in snapshots if has_delete_files(item)), None)
        reason = "has delete files, which Iceberg's changelog does not support"
    else:
        unclear = next((item for item in snapshots if may_remove_rows(item) and _deletes(plan, item, catalog)), None)
        reason = "removed or rewrote rows that the input reads"
    if unclear is None:
        return None
    run = f" of run {unclear.summary[RUN_ID]}" if unclear.summary.get(RUN_ID) else ""
    return f"snapshot {unclear.snapshot_id} ({unclear.operation}{run}), which {reason}"


def _deletes(plan: ReadPlan, snapshot: Snapshot, catalog: CatalogDescription) -> bool:
    scope, schema_id = plan.scope, plan.schema.schema_id
    return scope.is_whole_table or may_have_rows(
        scope, removed_files(catalog, plan.identifier, snapshot.snapshot_id, scope.columns, schema_id=schema_id)
    )


def _unclear_changes(subject: str, asset: str, read: ReadKind, found: str) -> ChangesUnknownError:
    """The changes of a table cannot be determined."""
    hint = (
        f'set `"{CHANGES_FALLBACK}": "partitions"` in the input\'s metadata, which then reads all rows of the run\'s '
        "partitions: an asset that appends replaces its own partitions by them."
    )
    if read == "changes":
        expected = f"to know which rows of {asset} were added, as `{READ}` asks"
        hint += " `changelog` also contains rows that were removed."
    else:
        expected = f"to know every change of {asset}, as `{READ}` asks"
    return ChangesUnknownError.refusing("read what is new in", subject, expected=expected, found=found, hint=hint)

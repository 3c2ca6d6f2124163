"""What an input reads: one snapshot, some rows, some columns."""

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final, Literal

from dagster_iceberg_spark.plan import read_refusals
from dagster_iceberg_spark.plan.binding import BoundScope, bind_each_partition, bind_scope
from dagster_iceberg_spark.plan.incremental import Changes, snapshots_since
from dagster_iceberg_spark.plan.overwrite_filter import DataFile
from dagster_iceberg_spark.plan.partition_files import partition_files
from dagster_iceberg_spark.plan.read_options import ROW_FILTER, ReadOptions
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import RUN_ID, STEP_KEY, UPSTREAM, upstream_reads
from dagster_iceberg_spark.table.predicate import EVERY_ROW, Predicate, all_of
from dagster_iceberg_spark.table.schema import Field, Schema, are_same_columns
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, Snapshot, TableState

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """One read, decided.

    Args:
        identifier: The table.
        snapshot_id: The snapshot; None: the table has none yet, so there are no rows.
        scope: The rows of which partitions.
        columns: Which columns, by the table's own names and in order.
        schema: The columns to read it by: the table's own at the head of a branch, else those of the snapshot.
        stored: The columns that the snapshot has. Which is which, the field ids tell.
        is_whole_row: Whether all columns are read.
        row_filter: Which of the partitions' rows.
        limit: How many of them at most; None: all.
        is_current: Whether the table has columns of these names now, and they are the same.
        changes: Which changes are read; None: the snapshot's rows.
    """

    identifier: TableIdentifier
    snapshot_id: int | None
    scope: BoundScope
    columns: tuple[str, ...]
    schema: Schema
    stored: Schema
    is_whole_row: bool
    row_filter: Predicate = EVERY_ROW
    limit: int | None = None
    is_current: bool = True
    changes: Changes | None = None

    @property
    def predicate(self) -> Predicate:
        """Which rows, as a predicate."""
        return all_of([self.scope.predicate(), self.row_filter])

    @property
    def is_filtered(self) -> bool:
        """Whether less than the partitions' whole rows is read."""
        return (
            not self.is_whole_row
            or self.row_filter != EVERY_ROW
            or self.limit is not None
            or (self.changes is not None and self.changes.scan != "rows")
        )

    @property
    def is_as_stored(self) -> bool:
        """Whether the snapshot's columns are still the table's."""
        return are_same_columns(self.schema.fields, self.stored.fields)


@dataclass(frozen=True, slots=True)
class EarlierRead:
    """What an earlier run has read of the table.

    Args:
        run_id: The run.
        snapshot_id: The snapshot; None: there was none yet.
        since: The snapshot after which the changes begin that it has read; None: it has read all rows.
    """

    run_id: str
    snapshot_id: int | None
    since: int | None = None


def plan_read(
    state: TableState, scope: PartitionScope, options: ReadOptions, earlier: EarlierRead | None = None
) -> ReadPlan:
    """Decide one read.

    Args:
        state: A fresh look at the table.
        scope: The partitions to read.
        options: What the input asks for.
        earlier: What the run has read that it asks for, if it asks for one.

    Raises:
        MetadataKeyError: The row filter is none of the table's columns, or a column is asked for twice.
        UpstreamMissingError: The snapshot, ref or column that is asked for is not there.
        PartitioningError: The partitions cannot be told apart by the table's columns.
    """
    subject = str(state.identifier)
    snapshot_id = _resolve_snapshot(state, options) if earlier is None else _read_before(state, earlier)
    is_head = options.is_head and (options.ref or MAIN_BRANCH) in state.branches
    is_head = is_head or options.kind is not None  # the engine has the table's columns for what is new
    stored = _schema_at(state, snapshot_id)
    schema = state.schema if is_head else stored
    columns = schema.names if options.columns is None else _exact_names(options.columns, schema, subject)
    bound = bind_scope(_as_named_then(scope, state.schema, schema), schema, subject=subject)
    kept: Predicate = EVERY_ROW
    if options.row_filter is not None:
        from dagster_iceberg_spark.plan.row_filter import row_filter  # which loads a parser of SQL

        kept = row_filter(options.row_filter, schema, key=ROW_FILTER, subject=subject)
    return ReadPlan(
        identifier=state.identifier,
        snapshot_id=snapshot_id,
        scope=bound,
        columns=columns,
        schema=schema,
        stored=stored,
        is_whole_row=options.columns is None,
        row_filter=kept,
        limit=options.limit,
        is_current=all(_is_known(field, state.schema) for field in schema),
    )


def schemas_at(state: TableState, snapshots: Sequence[Snapshot]) -> tuple[Schema, ...]:
    """Return the columns that the engines read each of the snapshots by."""
    return tuple(_schema_at(state, snapshot.snapshot_id) for snapshot in snapshots)


def at_snapshot(state: TableState, plan: ReadPlan, snapshot_id: int) -> ReadPlan:
    """Return the plan for another snapshot of the table, under the same columns.

    Raises:
        UpstreamMissingError: There is none of that id.
    """
    known = _known_snapshot(state, snapshot_id)
    return replace(plan, snapshot_id=known, stored=_schema_at(state, known))


def by_partition(state: TableState, plan: ReadPlan, scope: PartitionScope) -> Mapping[str, ReadPlan]:
    """Return the reads of one partition each, by the partitions' keys."""
    named = _as_named_then(scope, state.schema, plan.schema)
    bound = bind_each_partition(named, plan.schema, subject=str(plan.identifier))
    return {key: replace(plan, scope=of_partition) for key, of_partition in bound}


def partitions_without_files(
    plan: ReadPlan, scope: PartitionScope, keys: AbstractSet[str], files: Sequence[DataFile]
) -> tuple[str, ...]:
    """Return those of the partitions that no file can have rows of.

    Args:
        plan: The read.
        scope: The partitions that are read.
        keys: Some of their keys.
        files: The snapshot's data files that may have rows of the scope, with the bounds of its columns.
    """
    bound = bind_each_partition(scope, plan.schema, subject=str(plan.identifier))
    asked = [(key, of_partition) for key, of_partition in bound if key in keys]
    found = partition_files([of_partition for _, of_partition in asked], files)
    return tuple(key for (key, _), of_partition in zip(asked, found, strict=True) if not of_partition)


def read_of_run(
    state: TableState,
    run_id: str,
    *,
    step_key: str | None,
    asset: str,
    table: str,
    scope: str | None,
    input_name: str,
) -> EarlierRead | None:
    """Return what a run has read of another table, by the lineage of what it has written to this one.

    Args:
        state: The table that the run has written.
        run_id: The run.
        step_key: Its step.
        asset: The upstream asset.
        table: The upstream table.
        scope: The partitions of it, as the lineage names them.
        input_name: The step's input.
    """
    return chosen_read(
        run_id,
        [
            RecordedRead("all" if read.scope == scope else "some", read.snapshot_id, read.since)
            for snapshot in state.snapshots.values()
            if (snapshot.summary.get(RUN_ID), snapshot.summary.get(STEP_KEY)) == (run_id, step_key)
            for read in upstream_reads(snapshot.summary.get(UPSTREAM, ""))
            if (read.asset_key, read.table) == (asset, table) and read.input_name in (None, input_name)
        ],
    )


@dataclass(frozen=True, slots=True)
class RecordedRead:
    """What a run has read, as it is on record.

    Args:
        share: How many of the partitions that are asked for it was of.
        snapshot_id: The snapshot; None: there was none yet.
        since: The snapshot after which the changes begin that it has read; None: it has read all rows.
        is_of_changes: Whether changes were asked for.
        left_out: What left rows of the snapshot out; None: nothing did.
        asked_at: When the load began, in seconds since 1970; infinite where it is not on record.
    """

    share: Literal["all", "some", "none"]
    snapshot_id: int | None
    since: int | None = None
    is_of_changes: bool = False
    left_out: str | None = None
    asked_at: float = math.inf


def chosen_read(run_id: str, reads: Sequence[RecordedRead]) -> EarlierRead | None:
    """Choose what a run has read: the last of the very partitions, else what is without doubt.

    Args:
        run_id: The run.
        reads: What is on record of it, oldest first.
    """
    same = [read for read in reads if read.share == "all"]
    ranges = {(read.snapshot_id, read.since) for read in same[-1:] or reads}
    if len(ranges) != 1:
        return None
    snapshot_id, since = ranges.pop()
    return EarlierRead(run_id, snapshot_id, since)


def new_snapshots(state: TableState, plan: ReadPlan, since: int, *, is_head: bool) -> tuple[Snapshot, ...] | None:
    """Return the snapshots after one until the plan's, oldest first, that changed rows; None: it is no ancestor.

    Args:
        state: The table.
        plan: The read.
        since: The snapshot.
        is_head: Whether the plan's is the newest one, which may be older where the table was rolled back.

    Raises:
        UpstreamMissingError: The plan's was asked for, and is older than the one.
    """
    if not is_head and plan.snapshot_id != since and snapshots_since(state, plan.snapshot_id or 0, since) is not None:
        raise read_refusals.earlier_than_read(str(state.identifier), plan.snapshot_id, since)
    snapshots = snapshots_since(state, since, plan.snapshot_id)
    return None if snapshots is None else tuple(item for item in snapshots if not item.is_compaction)


def reads_everything(plan: ReadPlan) -> bool:
    """Say whether no row is left out."""
    return plan.predicate == EVERY_ROW


def _resolve_snapshot(state: TableState, options: ReadOptions) -> int | None:
    if options.snapshot_id is not None:
        return _known_snapshot(state, options.snapshot_id)
    if options.ref not in (None, MAIN_BRANCH, *state.refs):
        raise read_refusals.unknown_ref(str(state.identifier), options.ref, state.refs)
    branch = options.ref or MAIN_BRANCH
    if options.as_of is None:
        return state.refs.get(branch)
    found = _head_at(state, branch, (options.as_of - _EPOCH) // dt.timedelta(milliseconds=1))
    if found in state.snapshots:
        return found
    raise read_refusals.no_snapshot_then(str(state.identifier), branch, options.as_of)


def _head_at(state: TableState, branch: str, instant_ms: int) -> int | None:
    """Return the snapshot that a branch had at an instant; None if it cannot be told.

    Only `main` has a log (Iceberg spec, "snapshot-log"). On another branch each snapshot counts from its commit.
    """
    if branch != MAIN_BRANCH or not state.snapshot_log:
        commits = ((item.committed_at_ms, item.snapshot_id) for item in state.ancestors(branch))
        return next((snapshot_id for since_ms, snapshot_id in commits if since_ms <= instant_ms), None)
    log = state.snapshot_log
    last = max((place for place, (since_ms, _) in enumerate(log) if since_ms <= instant_ms), default=None)
    if last is None or (last + 1 < len(log) and _has_lost_parent(state, log[last + 1][1])):
        return None
    return log[last][1]


def _has_lost_parent(state: TableState, snapshot_id: int) -> bool:
    """Return whether a snapshot that came after another one has no parent.

    pyiceberg takes expired snapshots out of the log, and out of their children. Iceberg's Java library removes all
    older entries of the log too.
    """
    snapshot = state.snapshots.get(snapshot_id)
    is_first = snapshot_id == state.snapshot_log[0][1]
    return snapshot is not None and snapshot.parent_snapshot_id is None and not is_first


def _read_before(state: TableState, earlier: EarlierRead) -> int | None:
    return None if earlier.snapshot_id is None else _known_snapshot(state, earlier.snapshot_id, of_run=earlier.run_id)


def _known_snapshot(state: TableState, snapshot_id: int, *, of_run: str | None = None) -> int:
    if snapshot_id in state.snapshots:
        return snapshot_id
    raise read_refusals.unknown_snapshot(str(state.identifier), snapshot_id, of_run, others=len(state.snapshots))


def _schema_at(state: TableState, snapshot_id: int | None) -> Schema:
    """Return the columns that the engines read: those of the snapshot's own schema."""
    snapshot = None if snapshot_id is None else state.snapshots.get(snapshot_id)
    if snapshot is None or snapshot.schema_id is None:
        return state.schema
    return state.schemas.get(snapshot.schema_id, state.schema)


def _as_named_then(scope: PartitionScope, now: Schema, then: Schema) -> PartitionScope:
    """Return the scope under the names that its columns had: `partition_expr` says those that they have now."""
    return replace(
        scope,
        dimensions=tuple(
            replace(dimension, column=_name_then(dimension.column, now, then)) for dimension in scope.dimensions
        ),
    )


def _name_then(column: str, now: Schema, then: Schema) -> str:
    field = now.field(column)
    return column if field is None or field.field_id is None else then.name_of(field.field_id) or column


def _is_known(field: Field, schema: Schema) -> bool:
    known = schema.field(field.name)
    return known is not None and (known.field_id, known.name, known.type) == (field.field_id, field.name, field.type)


def _exact_names(names: tuple[str, ...], schema: Schema, subject: str) -> tuple[str, ...]:
    fields = {name: schema.field(name) for name in names}
    missing = [name for name, field in fields.items() if field is None]
    if missing:
        raise read_refusals.unknown_columns(subject, missing, schema.names)
    exact = [field.name for field in fields.values() if field is not None]
    if len(set(exact)) < len(names):
        raise read_refusals.repeated_columns(subject, names)
    return tuple(exact)

"""The plan of a read: one snapshot, the rows and the columns."""

import datetime as dt
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any, Final

from dagster_iceberg_spark.errors import MetadataKeyError, UpstreamMissingError
from dagster_iceberg_spark.plan.partitions.binding import BoundScope, Intervals, Values, bind_each_partition, bind_scope
from dagster_iceberg_spark.plan.read.incremental import Changes, snapshots_since
from dagster_iceberg_spark.plan.read.read_options import COLUMNS, ROW_FILTER, ReadOptions
from dagster_iceberg_spark.plan.write.overwrite_filter import DataFile, within_file
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import RUN_ID, STEP_KEY, UPSTREAM, UpstreamRead, upstream_reads
from dagster_iceberg_spark.table.predicate import EVERY_ROW, Predicate, all_of
from dagster_iceberg_spark.table.schema import Field, Schema, are_same_columns
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, Snapshot, TableState

_cannot_read = partial(UpstreamMissingError.refusing, "read")


def partition_files(partitions: Sequence[BoundScope], files: Sequence[DataFile]) -> list[list[int]]:
    """Return the positions of the files that may have rows of each partition.

    A file is compared only with partitions that overlap its bounds of the first partition column.
    """
    column = next((box[0].column for scope in partitions for box in scope.boxes if box), "")
    ranges = [(edges, number) for number, scope in enumerate(partitions) for edges in _edges(scope, column)]
    anywhere = {number for edges, number in ranges if edges is None}
    placed = sorted((*edges, number) for edges, number in ranges if edges is not None)
    starts = [start for start, _, _ in placed]
    ends = list(accumulate((end for _, end, _ in placed), max))
    found: list[list[int]] = [[] for _ in partitions]
    for position, file in enumerate(files):
        bounds = file.bounds.get(column)
        near = placed
        if bounds is not None and bounds.lower is not None and bounds.upper is not None:
            near = placed[bisect_left(ends, bounds.lower) : bisect_right(starts, bounds.upper)]
        for number in sorted(anywhere.union(number for _, _, number in near)):
            if within_file(partitions[number], file).boxes:
                found[number].append(position)
    return found


def _edges(scope: BoundScope, column: str) -> Iterator[tuple[Any, Any] | None]:
    """Yield the least and the greatest value of each part of a partition in the column, or None for any value."""
    for box in scope.boxes:
        match next((item for item in box if item.column == column), None):
            case Values(_, values, has_null=False):
                yield from ((value, value) for value in values)
            case Intervals(_, intervals):
                yield from (None if start is None or end is None else (start, end) for start, end in intervals)
            case _:
                yield None


_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The plan of one read.

    Args:
        snapshot_id: The snapshot, or None if the table has none yet and therefore no rows.
        columns: The columns to read, by the table's names, in order.
        schema: The schema to read with: the table's at the head of a branch, else the snapshot's.
        stored: The schema of the snapshot. Field ids match its columns with those of `schema`.
        is_current: Whether the table still has the same columns under these names.
        changes: The changes to read, or None for the snapshot's rows.
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
        """The predicate of the rows to read."""
        return all_of([self.scope.predicate(), self.row_filter])

    @property
    def is_filtered(self) -> bool:
        """Whether the plan reads less than all rows and columns of the partitions."""
        return (
            not self.is_whole_row
            or self.row_filter != EVERY_ROW
            or self.limit is not None
            or (self.changes is not None and self.changes.scan != "rows")
        )

    @property
    def is_as_stored(self) -> bool:
        """Whether the snapshot's columns equal those of the schema to read with."""
        return are_same_columns(self.schema.fields, self.stored.fields)


def plan_read(
    state: TableState, scope: PartitionScope, options: ReadOptions, earlier: UpstreamRead | None = None
) -> ReadPlan:
    """Plan one read.

    Args:
        state: The current state of the table.
        scope: The partitions to read.
        options: The options of the input.
        earlier: The read of the run `as_of_run`, if the input repeats it.
    """
    subject = str(state.identifier)
    snapshot_id = _resolve_snapshot(state, options, earlier)
    is_head = options.is_head and (options.ref or MAIN_BRANCH) in state.branches
    is_head = is_head or options.kind is not None  # the engine reads changes with the table's schema
    stored = _schema_at(state, snapshot_id)
    schema = state.schema if is_head else stored
    columns = schema.names if options.columns is None else _exact_names(options.columns, schema, subject)
    bound = bind_scope(_renamed_scope(scope, state.schema, schema), schema, subject=subject)
    kept: Predicate = EVERY_ROW
    if options.row_filter is not None:
        from dagster_iceberg_spark.plan.read.row_filter import row_filter  # loads a parser of SQL

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
    """Return the schema that the engines use for each snapshot."""
    return tuple(_schema_at(state, snapshot.snapshot_id) for snapshot in snapshots)


def at_snapshot(state: TableState, plan: ReadPlan, snapshot_id: int) -> ReadPlan:
    """Return the plan for another snapshot of the table, with the same columns."""
    known = _known_snapshot(state, snapshot_id)
    return replace(plan, snapshot_id=known, stored=_schema_at(state, known))


def by_partition(state: TableState, plan: ReadPlan, scope: PartitionScope) -> Mapping[str, ReadPlan]:
    """Return the plan of each partition by key."""
    named = _renamed_scope(scope, state.schema, plan.schema)
    bound = bind_each_partition(named, plan.schema, subject=str(plan.identifier))
    return {key: replace(plan, scope=of_partition) for key, of_partition in bound}


def partitions_without_files(
    plan: ReadPlan, scope: PartitionScope, keys: AbstractSet[str], files: Sequence[DataFile]
) -> tuple[str, ...]:
    """Return the partitions of `keys` that no file can have rows of.

    `files` are the snapshot's data files that may have rows of the scope, with the bounds of its columns.
    """
    bound = bind_each_partition(scope, plan.schema, subject=str(plan.identifier))
    wanted = [(key, of_partition) for key, of_partition in bound if key in keys]
    found = partition_files([of_partition for _, of_partition in wanted], files)
    return tuple(key for (key, _), of_partition in zip(wanted, found, strict=True) if not of_partition)


def read_of_run(state: TableState, run_id: str, step_key: str | None, now: UpstreamRead) -> UpstreamRead | None:
    """Return a run's read like the one that is asked for now, from the lineage of a table that the run's step wrote."""
    reads = [
        read
        for snapshot in state.snapshots.values()
        if (snapshot.summary.get(RUN_ID), snapshot.summary.get(STEP_KEY)) == (run_id, step_key)
        for read in upstream_reads(snapshot.summary.get(UPSTREAM, ""))
        if (read.asset_key, read.table) == (now.asset_key, now.table) and read.input_name in (None, now.input_name)
    ]
    return chosen_read(reads, [read for read in reads if read.scope == now.scope])


def chosen_read(reads: Sequence[UpstreamRead], same: Sequence[UpstreamRead]) -> UpstreamRead | None:
    """Choose a run's read: the last of the same partitions, else any, if all reads are of one range."""
    chosen = same[-1:] or reads
    return chosen[0] if len({(read.snapshot_id, read.since) for read in chosen}) == 1 else None


def later_snapshots(state: TableState, plan: ReadPlan, since: int, *, is_head: bool) -> tuple[Snapshot, ...] | None:
    """Return the snapshots after `since` up to the plan's snapshot, oldest first.

    Return None if `since` is not an ancestor of that snapshot: the head of a branch or a tag may be older than it after
    a rollback. An input that itself selects an older snapshot is an error.
    """
    if not is_head and plan.snapshot_id != since and snapshots_since(state, plan.snapshot_id or 0, since) is not None:
        raise UpstreamMissingError.refusing(
            "read what is new in",
            str(state.identifier),
            expected=f"a snapshot that is not older than {since}, which the asset has read",
            found=f"{plan.snapshot_id}",
            hint="to read an earlier state again, set `iceberg/read` to `snapshot`, or roll the asset's own table "
            "back.",
        )
    return snapshots_since(state, since, plan.snapshot_id)


def reads_everything(plan: ReadPlan) -> bool:
    """Return whether the plan reads all rows."""
    return plan.predicate == EVERY_ROW


def _resolve_snapshot(state: TableState, options: ReadOptions, earlier: UpstreamRead | None) -> int | None:
    refused = partial(_cannot_read, str(state.identifier))
    if earlier is not None:
        known = earlier.snapshot_id
        return None if known is None else _known_snapshot(state, known, of_run=options.as_of_run)
    if options.snapshot_id is not None:
        return _known_snapshot(state, options.snapshot_id)
    if options.as_of_release is not None:
        tags = sorted(state.refs.keys() - set(state.branches))
        if options.as_of_release not in tags:
            expected = f"the tag of the release {options.as_of_release!r}"
            raise refused(expected=expected, found=f"the tags {', '.join(tags) or 'none'}")
        return state.refs[options.as_of_release]
    if options.ref not in (None, MAIN_BRANCH, *state.refs):
        raise refused(
            expected=f"a branch or tag {options.ref!r}", found=f"the refs {', '.join(sorted(state.refs)) or 'none'}"
        )
    branch = options.ref or MAIN_BRANCH
    if options.as_of is None:
        return state.refs.get(branch)
    found = _head_at(state, branch, (options.as_of - _EPOCH) // dt.timedelta(milliseconds=1))
    if found in state.snapshots:
        return found
    raise refused(
        expected=f"the snapshot that {branch!r} had at {options.as_of.isoformat()}",
        found="none: the table is younger, its older snapshots have expired, or the catalog shows only the newest",
    )


def _head_at(state: TableState, branch: str, instant_ms: int) -> int | None:
    """Return the snapshot that was current on a branch at an instant, or None if it is unknown.

    Only `main` has a log (Iceberg spec, "snapshot-log"). On other branches, each snapshot counts from its commit.
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
    """Return whether a snapshot has lost its parent although it followed another one.

    When snapshots expire, pyiceberg removes them from the log and from their children. Iceberg's Java library also
    removes all older entries of the log.
    """
    snapshot = state.snapshots.get(snapshot_id)
    is_first = snapshot_id == state.snapshot_log[0][1]
    return snapshot is not None and snapshot.parent_snapshot_id is None and not is_first


def _known_snapshot(state: TableState, snapshot_id: int, *, of_run: str | None = None) -> int:
    if snapshot_id in state.snapshots:
        return snapshot_id
    raise _cannot_read(
        str(state.identifier),
        expected=f"the snapshot {snapshot_id}" + (f" that the run {of_run} has read" if of_run else ""),
        found=f"{len(state.snapshots)} other snapshots",
        hint="it may have expired, or the catalog shows only the newest; `iceberg/as_of` takes an instant.",
    )


def _schema_at(state: TableState, snapshot_id: int | None) -> Schema:
    """Return the schema that the engines use for a snapshot, which is the snapshot's own."""
    snapshot = None if snapshot_id is None else state.snapshots.get(snapshot_id)
    if snapshot is None or snapshot.schema_id is None:
        return state.schema
    return state.schemas.get(snapshot.schema_id, state.schema)


def _renamed_scope(scope: PartitionScope, now: Schema, then: Schema) -> PartitionScope:
    """Return the scope with the columns' names in another schema. `partition_expr` uses their current names."""
    return replace(
        scope,
        dimensions=tuple(
            replace(dimension, column=_renamed_column(dimension.column, now, then)) for dimension in scope.dimensions
        ),
    )


def _renamed_column(column: str, now: Schema, then: Schema) -> str:
    field = now.field(column)
    return column if field is None or field.field_id is None else then.name_of(field.field_id) or column


def _is_known(field: Field, schema: Schema) -> bool:
    known = schema.field(field.name)
    return known is not None and (known.field_id, known.name, known.type) == (field.field_id, field.name, field.type)


def _exact_names(names: tuple[str, ...], schema: Schema, subject: str) -> tuple[str, ...]:
    fields = {name: schema.field(name) for name in names}
    missing = [name for name, field in fields.items() if field is None]
    if missing:
        raise _cannot_read(
            subject,
            expected=f"the columns {', '.join(missing)} of `{COLUMNS}`",
            found=f"the columns {', '.join(schema.names)}",
        )
    exact = [field.name for field in fields.values() if field is not None]
    if len(set(exact)) < len(names):
        raise MetadataKeyError.of_value(COLUMNS, subject, expected="each column once", found=", ".join(names))
    return tuple(exact)

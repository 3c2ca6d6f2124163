"""Incremental reads (`iceberg/read`): what has changed in an upstream table since an asset last read it.

The lineage of the asset's snapshots records how far it has read. Rows and the range that they come from are one commit,
so neither can exist without the other.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from dagster_iceberg_spark.errors import ChangesConsumedError, ConcurrentWriteError, ConfigurationError
from dagster_iceberg_spark.plan.options.output_options import CONCURRENT_WRITES, WriteOptions
from dagster_iceberg_spark.plan.partitions.binding import BoundScope
from dagster_iceberg_spark.plan.read.read_options import CHANGES_FALLBACK, READ
from dagster_iceberg_spark.plan.write.overwrite_filter import DataFile, within_file
from dagster_iceberg_spark.table.change import may_change_rows, outdates_derived_rows, reason_of, with_undone
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import (
    ASSET_KEY,
    PARTITION_DIGEST,
    PARTITION_KEYS,
    RUN_ID,
    UPSTREAM,
    Materialization,
    ReadKind,
    UpstreamRead,
    has_all_reads,
    undone_by,
    upstream_reads,
)
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.scope import PartitionScope, share_of
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

CHANGE_COLUMNS: Final = ("_change_type", "_change_ordinal", "_commit_snapshot_id")
"""The columns that Iceberg's changelog scan adds to each row."""
INSERT: Final = "INSERT"

Scan: TypeAlias = Literal["rows", "nothing", "appends", "inserts", "files", "changelog"]

Position: TypeAlias = UpstreamRead | str
"""How far an asset has read an input: the read that continues there, or why that is unclear, in words after "found".

The read has an end if an earlier attempt of this materialization has read up to it. That attempt's rows may already be
in one table, and the other tables need the rows of the same range.
"""


@dataclass(frozen=True, slots=True)
class OutputTable:
    """A table that the reading step writes.

    Args:
        asset: The asset, as its snapshots name it.
        is_pending: Returns whether an earlier attempt of this materialization wrote a snapshot.
        is_recorded: Returns whether a snapshot is the last one that Dagster recorded for each of the partitions.
        former: The former key of the asset, as older snapshots name it.
    """

    asset: str
    branch: str
    scope: PartitionScope
    state: TableState | None
    is_pending: Callable[[Snapshot], bool]
    is_recorded: Callable[[Snapshot], bool]
    former: str | None = None

    @property
    def history(self) -> Iterator[Snapshot]:
        """The ancestors of a write, newest first."""
        return iter(()) if self.state is None else self.state.base_ancestors(self.branch)

    @property
    def head(self) -> int | None:
        """The parent snapshot of a write."""
        return next((snapshot.snapshot_id for snapshot in self.history), None)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a table that an input reads.

    Args:
        since: The snapshot after which the changes begin, or None if all rows of the snapshot are new.
        snapshots: The later snapshots that changed rows, oldest first.
        stored: The columns of each of these snapshots, if each is read separately.
        scan: The scan that reads the changes. `rows` reads the snapshot's rows. `appends` is the engine's incremental
            scan, which skips overwrites. `inserts` is its changelog scan, which does not support delete files. `files`
            reads the files that were added.
        is_repeated: Whether all rows are read, although some were read before.
    """

    kind: ReadKind
    since: int | None
    snapshots: tuple[int, ...] = ()
    stored: tuple[Schema, ...] = ()
    scan: Scan = "rows"
    is_repeated: bool = False


def position_of(table: OutputTable, now: UpstreamRead, keys: Collection[str]) -> Position:
    """Return how far an asset has read an upstream table, by the lineage of the asset's table.

    `now` is the read that is asked for, `keys` are its partitions, or empty for all rows.
    """
    found = (position_in(snapshot, table, now, keys) for snapshot in table.history)
    return next((position for position in found if position is not None), None) or lost_history(table) or now


def lost_history(table: OutputTable) -> str | None:
    """Return where the history of an asset's table begins, in words, or None if it has lost no snapshot."""
    history = [*table.history]
    if not history or history[-1].parent_snapshot_id is None:
        return None
    oldest = history[-1].snapshot_id
    return f"a history of the asset's own table that begins with snapshot {oldest}: older ones have expired"


def position_in(snapshot: Snapshot, table: OutputTable, now: UpstreamRead, keys: Collection[str]) -> Position | None:
    """Return how far one snapshot of the asset's table has read, or None if the snapshot does not record it."""
    share, reads = share_of_run(snapshot, table), _reads_of(snapshot, now)
    if share == "none":
        return None
    if table.is_pending(snapshot):
        same = [
            replace(now, since=read.since, snapshot_id=read.snapshot_id, is_repeated=read.is_repeated)
            for read in reads
            if read.kind is not None
        ]
        return same[0] if len(same) == len(reads) == 1 else None
    if not reads and not has_all_reads(snapshot.summary.get(UPSTREAM, "")):
        return f"snapshot {snapshot.snapshot_id} of the asset, which has too many inputs to list"
    # A read of a table that did not exist, or had no snapshot, read nothing. After an undo, nothing counts as read.
    is_undo = reason_of(snapshot) == "undo"
    recorded = (read for read in reads if is_undo or read.snapshot_id is not None)
    read = next((read for read in recorded if share_read(read, now, keys) != "none"), None)
    if read is None:
        return None
    partial = next((item for item in reads if item.kind is None and item.left_out not in (None, now.left_out)), None)
    is_one = partial is None and len({item.snapshot_id for item in reads}) == 1
    if is_one and share == share_read(read, now, keys) == "all":
        return replace(now, since=read.snapshot_id)
    what = (
        f"read {_shown(read.scope)} for {_shown(snapshot.summary.get(PARTITION_KEYS))}: only some of the rows "
        "that the input reads now, or more than one state of them"
        if partial is None
        else f"not read all rows of {partial.table} ({partial.left_out})"
    )
    return f"snapshot {snapshot.snapshot_id} of the asset, which has {what}"


def common_position(positions: Sequence[Position | None], now: UpstreamRead) -> Position:
    """Return the position on which the tables of one step agree. Without a position, a table has read nothing yet."""
    found = [position or now for position in positions] or [now]
    reads = {position for position in found if isinstance(position, UpstreamRead)}
    pending = next((read for read in reads if read.snapshot_id is not None), None)
    if pending is not None and set(found) <= {pending, replace(now, since=pending.since)}:
        return pending
    if len(set(found)) == 1:
        return found[0]
    unclear = next((position for position in found if isinstance(position, str)), None)
    ends = sorted(str(read.snapshot_id or read.since or "nothing") for read in reads)
    return unclear or (
        f"what the step makes, parts of which have not read equally far: {', '.join(ends)} (a run that failed between "
        "them is re-executed from its failure)"
    )


def snapshots_since(state: TableState, since: int, until: int | None) -> tuple[Snapshot, ...] | None:
    """Return the snapshots after `since` up to `until`, oldest first, or None if `since` is not an ancestor."""
    found: list[Snapshot] = []
    for snapshot in state.history(until):
        if snapshot.snapshot_id == since:
            return tuple(reversed(found))
        found.append(snapshot)
    return None


def furthest(state: TableState | None, snapshot_ids: Sequence[int]) -> int:
    """Return the latest of the snapshots in the table's history, or the first if the history does not order them."""
    found, *others = snapshot_ids
    for other in others:
        if state is not None and snapshots_since(state, found, other) is not None:
            found = other
    return found


def may_have_rows(scope: BoundScope, files: Sequence[DataFile]) -> bool:
    """Return whether one of the files may have rows of the scope."""
    return any(within_file(scope, file).boxes for file in files)


def to_be_read(passed: Sequence[Snapshot], kind: ReadKind) -> tuple[Snapshot, ...]:
    """Return the snapshots that have something to read, of those that have been made since, oldest first.

    A changelog has every change. What was undone since, and what undid it, is otherwise as if it had never been.
    """
    if kind == "changelog":
        return tuple(filter(may_change_rows, passed))
    ids, left = {snapshot.snapshot_id for snapshot in passed}, list[Snapshot]()
    for snapshot, is_undone in with_undone(reversed(passed)):
        undone = undone_by(snapshot.summary)
        has_effect = not is_undone and not (undone and undone <= ids)
        if has_effect and outdates_derived_rows(snapshot):
            left.append(snapshot)
    return tuple(reversed(left))


def scan_of(kind: ReadKind, snapshots: Sequence[Snapshot], passed: Sequence[Snapshot]) -> Scan:
    """Return the scan that reads the changes of snapshots. For `changes`, none of them has removed rows.

    `passed` are these and the others between them, such as the end of a retention. The scans `appends` and `inserts`
    would read what those have written.
    """
    if not snapshots:
        return "nothing"
    if kind == "changelog":
        return "changelog"
    own = {snapshot.snapshot_id for snapshot in snapshots}
    others = [item for item in passed if item.snapshot_id not in own and may_change_rows(item)]
    if all(item.operation == "append" for item in snapshots) and all(item.operation != "append" for item in others):
        return "appends"
    return "files" if others or any(map(has_delete_files, snapshots)) else "inserts"


def has_delete_files(snapshot: Snapshot) -> bool:
    """Return whether the snapshot may have delete files, which the engine's changelog does not support."""
    return snapshot.summary.get("total-delete-files") != "0"


def options_after_full_read(options: WriteOptions, reads: Sequence[UpstreamRead], *, subject: str) -> WriteOptions:
    """Return the options, with `replace` if an asset that appends has read all rows of an input anew.

    Raises:
        ConfigurationError: The rows of the partitions cannot be replaced by those that were read.
    """
    anew = next((read for read in reads if read.is_repeated), None)
    if anew is None or options.write_disposition != "append":
        return options
    partial = next((read for read in reads if read.kind is not None and not read.is_repeated), None)
    if partial is not None:
        raise ConfigurationError.refusing(
            "replace the partitions of",
            subject,
            expected=f"all rows of each input, because {anew.asset_key} is read anew (`{CHANGES_FALLBACK}`)",
            found=f"only the changes of {partial.asset_key}",
            hint=f'read {partial.asset_key} with `"{READ}": "snapshot"`.',
        )
    return options.model_copy(update={"write_disposition": "replace"})


def refuse_loss(options: WriteOptions, materialization: Materialization, identifier: TableIdentifier) -> None:
    """Reject a write that would replace rows by those of an incremental read."""
    reads = materialization.upstream
    changes = [read for read in reads if read.kind is not None]
    if all(read.is_repeated for read in changes):
        return
    names = ", ".join(dict.fromkeys(read.asset_key for read in changes))
    whole = [read for read in reads if read.kind is None and not read.is_pinned and read.left_out is None]
    reads_itself = any(read.table == str(identifier) and _holds(read, materialization.scope) for read in whole)
    has_all = reads_itself or all(
        any((other.table, other.scope) in ((read.table, None), (read.table, read.scope)) for other in whole)
        for read in changes
    )
    if _replaces(options) and not has_all:
        strategy = f" ({options.merge.strategy})" if options.write_disposition == "merge" else ""
        raise ConfigurationError.refusing(
            "write",
            str(identifier),
            expected=f"an asset that adds to its table what it makes of the changes of {names}",
            found=f"`iceberg/write_disposition` {options.write_disposition!r}{strategy}, which removes what was "
            "derived from earlier ones",
            hint="use `append` or `merge`, or read the asset's own rows of the run's partitions too.",
        )


def refuse_consumed(
    state: TableState | None,
    materialization: Materialization,
    options: WriteOptions,
    *,
    is_pending: Callable[[Snapshot], bool],
    subject: str,
) -> None:
    """Reject a write whose changes another materialization of the asset has consumed since."""
    table = OutputTable(
        asset=materialization.asset_key,
        branch=options.branch,
        scope=materialization.scope,
        state=state,
        is_pending=is_pending,
        is_recorded=lambda _: False,
        former=options.takes_over,
    )
    for read in materialization.upstream:
        heads = dict(read.output_heads)
        if read.kind is None or table.asset not in heads:
            continue
        if (found := _consumer(table, read, heads[table.asset])) is not None:
            raise ChangesConsumedError.refusing(
                "write",
                subject,
                expected=f"this run alone to have read {read.asset_key} "
                f"{f'after snapshot {read.since}' if read.since else 'from its beginning'}",
                found=found,
                hint="run it again: it reads what is new then.",
            )


def _consumer(table: OutputTable, read: UpstreamRead, known: int | None) -> str | None:
    """Return what has consumed the changes since the asset's table had the known snapshot, or None."""
    for snapshot in table.history:
        if snapshot.snapshot_id == known:
            return None
        if table.is_pending(snapshot) or share_of_run(snapshot, table) == "none":
            continue
        if _reads_of(snapshot, read) or not has_all_reads(snapshot.summary.get(UPSTREAM, "")):
            return f"snapshot {snapshot.snapshot_id} of the same asset, which has read them too"
    return None if known is None else f"a table without the snapshot {known} that it had when they were read"


def refuse_second(
    state: TableState | None, materialization: Materialization, options: WriteOptions, *, subject: str
) -> None:
    """Reject a write if another run has written some of its partitions since this one began, and the first run wins."""
    if options.concurrent_writes != "first_wins" or materialization.started_at is None:
        return
    table = OutputTable(
        asset=materialization.asset_key,
        branch=options.branch,
        scope=materialization.scope,
        state=state,
        is_pending=lambda _: False,
        is_recorded=lambda _: False,
        former=options.takes_over,
    )
    for snapshot in table.history:
        if snapshot.committed_at < materialization.started_at:
            return
        run = snapshot.summary.get(RUN_ID)
        if run in (None, materialization.run_id) or share_of_run(snapshot, table) == "none":
            continue
        raise ConcurrentWriteError.refusing(
            "write",
            subject,
            expected=f"no other run of the same partitions since this run began (`{CONCURRENT_WRITES}`)",
            found=f"snapshot {snapshot.snapshot_id} of run {run}, committed at {snapshot.committed_at:%H:%M:%S} UTC",
            hint="if its rows are outdated, materialize the partitions again.",
        )


def share_of_run(snapshot: Snapshot, table: OutputTable) -> str:
    """Return how many of the run's partitions a snapshot wrote; `none` if another asset wrote it."""
    summary = snapshot.summary
    if summary.get(ASSET_KEY) not in {table.asset, table.former} - {None}:
        return "none"
    if table.scope.is_whole_table or summary.get(PARTITION_DIGEST) == table.scope.digest:
        return "all"
    described = summary.get(PARTITION_KEYS)
    share = "all" if described is None else share_of(described, table.scope.keys)
    return share or ("all" if table.is_recorded(snapshot) else "some")


def _reads_of(snapshot: Snapshot, now: UpstreamRead) -> list[UpstreamRead]:
    """Return the snapshot's reads of the upstream table, by the same input if inputs can be distinguished.

    A read by the same input also counts if the upstream asset or its table has been renamed.
    """
    every = upstream_reads(snapshot.summary.get(UPSTREAM, ""))
    by_input = [read for read in every if read.kind is not None and read.input_name == now.input_name]
    same = [read for read in every if (read.asset_key, read.table) == (now.asset_key, now.table)]
    renamed = [read for read in by_input if read.asset_key == now.asset_key or read.table == now.table]
    return [read for read in same if read in by_input] or same or renamed


def share_read(earlier: UpstreamRead, now: UpstreamRead, keys: Collection[str]) -> Literal["all", "some", "none"]:
    """Return how many of the partitions of this read an earlier read covers."""
    if earlier.scope is None or (earlier.digest is not None and earlier.digest == now.digest):
        return "all"
    if now.scope is None:
        return "some"
    return share_of(earlier.scope, keys) or "some"


def _replaces(options: WriteOptions) -> bool:
    if options.write_disposition in ("replace", "overwrite_partitions"):
        return True
    rules = options.merge
    return options.write_disposition == "merge" and (
        rules.changes_absent_keys or rules.strategy in ("replace_where", "delete_insert")
    )


def _holds(read: UpstreamRead, scope: PartitionScope) -> bool:
    """Return whether the read covers the partitions of the scope."""
    return read.scope is None or (not scope.is_whole_table and share_of(read.scope, scope.keys) == "all")


def _shown(described: str | None) -> str:
    return "all rows" if described is None else f"the partitions {described}"

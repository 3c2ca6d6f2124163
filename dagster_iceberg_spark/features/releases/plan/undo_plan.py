"""Decides how the snapshots of a run are undone, and which others were derived from them."""

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Final

from dagster_iceberg_spark.errors import CommitConflictError, UpstreamMissingError
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.change import reason_of, with_undone
from dagster_iceberg_spark.table.lineage import UpstreamRead, upstream_reads
from dagster_iceberg_spark.table.scope import listed_keys, share_of
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class TableUndo:
    """The undo of some snapshots of a table.

    Args:
        snapshots: The snapshots, newest first.
        later: The snapshots of `main` that stay and are newer than one of these, newest first. Those that are undone
            already are left out, and so is what undid them: together they have changed nothing.
    """

    state: TableState
    snapshots: tuple[Snapshot, ...]
    later: tuple[Snapshot, ...] = ()

    @property
    def appends(self) -> bool:
        """Whether the snapshots have only appended rows."""
        return all(snapshot.summary.get(lineage.WRITE_DISPOSITION) == "append" for snapshot in self.snapshots)

    @property
    def has_base(self) -> bool:
        """Whether the files before the snapshots are still there, or there were none."""
        oldest = self.snapshots[-1]
        is_first = oldest.count("total-data-files") == oldest.count("added-data-files")
        return oldest.parent_snapshot_id in self.state.snapshots or (oldest.parent_snapshot_id is None and is_first)

    def lost_columns(self) -> tuple[str, ...]:
        """Return the columns that the table had before the snapshots and lacks now: dropped or renamed ones."""
        before = self.state.snapshots.get(self.snapshots[-1].parent_snapshot_id or 0)
        schema = None if before is None or before.schema_id is None else self.state.schemas.get(before.schema_id)
        return tuple(name for name in (schema.names if schema else ()) if self.state.schema.field(name) is None)

    def restored_snapshot(self) -> Snapshot | None:
        """Return the newest snapshot of exactly these partitions before those that are undone, if there is one."""
        oldest = self.snapshots[-1]
        keys = (lineage.ASSET_KEY, lineage.PARTITION_DIGEST)
        before = self.state.history(oldest.parent_snapshot_id)
        return next(
            (item for item in before if all(item.summary.get(key) == oldest.summary.get(key) for key in keys)), None
        )

    def properties(self, by: str) -> dict[str, str]:
        """Return the lineage of the snapshot that undoes. The restored rows keep their inputs.

        An input that these snapshots were the first to read incrementally counts as not read.
        """
        newest, restored = self.snapshots[0].summary, self.restored_snapshot()
        known = {item.input_name for item in _incremental_reads(restored)}
        first = {
            item.input_name: item
            for snapshot in self.snapshots
            for item in _incremental_reads(snapshot)
            if item.input_name not in known
        }
        kept = (lineage.ASSET_KEY, lineage.PARTITION_KEYS, lineage.PARTITION_DIGEST)
        ids = [snapshot.snapshot_id for snapshot in self.snapshots]
        upstream = "" if restored is None else restored.summary.get(lineage.UPSTREAM, "")
        return {
            **{key: newest[key] for key in kept if key in newest},
            lineage.RUN_ID: by,
            lineage.WRITE_DISPOSITION: lineage.UNDO,
            lineage.UNDOES: json.dumps(ids, separators=(",", ":")),
            lineage.UPSTREAM: lineage.with_forgotten_reads(upstream, first.values()),
        }


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """The tables in which a run is undone, dependents first, and in words what is left out."""

    tables: tuple[TableUndo, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedSnapshot:
    """A snapshot that Dagster has recorded of a run.

    Args:
        asset: The asset, with slashes between the parts of its key.
        token: The commit token, if the rows waited for a release, which may have published them in another snapshot.
    """

    snapshot_id: int
    asset: str
    token: str | None = None


@dataclass(frozen=True, slots=True)
class Dependent:
    """A snapshot of a table that was derived from rows to be undone of the source, or has replaced them."""

    table: str
    snapshot: Snapshot
    source: str

    def __str__(self) -> str:
        run = self.snapshot.summary.get(lineage.RUN_ID)
        writer = f"run {run}" if run else "another writer"
        return f"snapshot {self.snapshot.snapshot_id} of {self.table} by {writer}"


@dataclass(frozen=True)
class _Line:
    """The snapshots of `main`, newest first, with the place of each, from 0.

    Args:
        undone: Those that a later one has undone.
        without_effect: These, and those that have undone some.
    """

    snapshots: tuple[Snapshot, ...]
    places: Mapping[int, int]
    undone: frozenset[int]
    without_effect: frozenset[int]

    @classmethod
    def of(cls, state: TableState) -> "_Line":
        """Read the line."""
        passed = tuple(with_undone(state.ancestors()))
        places = {snapshot.snapshot_id: place for place, (snapshot, _) in enumerate(passed)}
        undone = frozenset(snapshot.snapshot_id for snapshot, is_undone in passed if is_undone)
        undoing = frozenset(snapshot.snapshot_id for snapshot, _ in passed if reason_of(snapshot) == "undo")
        return cls(tuple(snapshot for snapshot, _ in passed), places, undone, undone | undoing)

    @property
    def oldest_of_a_cut(self) -> Snapshot | None:
        """The oldest snapshot, if older ones have expired."""
        oldest = self.snapshots[-1] if self.snapshots else None
        return None if oldest is None or oldest.parent_snapshot_id is None else oldest


def plan_undo(
    states: Sequence[TableState],
    run_id: str,
    *,
    others: Sequence[TableState] = (),
    unread: Sequence[str] = (),
    recorded: Sequence[RecordedSnapshot] | None = None,
    cascade: bool = False,
    partial: bool = False,
) -> UndoPlan:
    """Plan the undo of a run in these tables, dependents first.

    Args:
        states: The tables of the code location.
        run_id: The run, or the id of an undo.
        others: The other tables of the catalog.
        unread: The tables that could not be read.
        recorded: What Dagster has recorded of the run, or None if it does not know the run.
        cascade: Whether to undo as well what was derived from the run's rows, or has replaced them.
        partial: Whether to leave out what cannot be undone.

    Raises:
        CommitConflictError: Other snapshots were derived from those of the run, or have replaced their rows.
    """
    tables = {str(state.identifier): state for state in (*states, *others)}
    lines = {name: _Line.of(state) for name, state in tables.items()}
    own = {str(state.identifier) for state in states}
    chosen = {name: _made_by(run_id, line) for name, line in lines.items()}
    left_out = [
        *(
            f"{name}, which no asset of this code location stores"
            for name in chosen
            if chosen[name] and name not in own
        ),
        *_lost_writes(run_id, tables, own, lines, chosen, recorded),
        *(f"{name}, which cannot be read and may have been derived from the rows" for name in unread),
    ]
    chosen = {name: ids if name in own else set() for name, ids in chosen.items()}
    while found := list(_dependents(lines, chosen)):
        if not cascade:
            raise _has_dependents(run_id, found[0].source, list(map(str, found)))
        for dependent in found:
            if dependent.table not in own:
                raise CommitConflictError.refusing(
                    "undo",
                    f"the run {run_id}",
                    expected=f"what was derived from its rows of {dependent.source} to be in this code location",
                    found=str(dependent),
                    hint="undo that run in its own code location first.",
                )
            chosen[dependent.table].add(dependent.snapshot.snapshot_id)
    undos = [_of_table(tables[name], lines[name], ids) for name, ids in chosen.items() if ids]
    left_out += [
        f"{undo.state.identifier}: the snapshot before {undo.snapshots[-1].snapshot_id}, which it would go back to, "
        "has expired"
        for undo in undos
        if not undo.has_base
    ]
    undos = [undo for undo in undos if undo.has_base]
    if left_out and not (partial and undos):
        raise _incomplete(run_id, left_out)
    if not undos:
        raise unknown_run(run_id)
    return UndoPlan(tuple(_dependents_first(undos)), tuple(left_out))


def _made_by(run_id: str, line: _Line) -> set[int]:
    """Return the snapshots of a line that a run has made and that are not undone."""
    made = (item.snapshot_id for item in line.snapshots if item.summary.get(lineage.RUN_ID) == run_id)
    return {snapshot_id for snapshot_id in made if snapshot_id not in line.undone}


def _lost_writes(
    run_id: str,
    tables: Mapping[str, TableState],
    own: Collection[str],
    lines: Mapping[str, _Line],
    chosen: Mapping[str, AbstractSet[int]],
    recorded: Sequence[RecordedSnapshot] | None,
) -> Iterator[str]:
    """Yield in words what the run has written, or may have written, and no history of a `main` has any longer."""
    found = [lines[name].snapshots[lines[name].places[item]] for name, ids in chosen.items() for item in ids]
    began_ms = min((item.committed_at_ms for item in found), default=0)
    tokens = {item.summary.get(lineage.COMMIT_TOKEN) for line in lines.values() for item in line.snapshots}
    for item in recorded or ():
        is_known = any(item.snapshot_id in state.snapshots for state in tables.values())
        if not is_known and (item.token is None or item.token not in tokens):
            yield f"snapshot {item.snapshot_id} of {item.asset}, which no table of the catalog has any longer"
    for name, line in lines.items():
        begins, state = line.oldest_of_a_cut, tables[name]
        if begins is None:
            continue
        lost = state.once_current - line.places.keys()
        below = (state.snapshots[item] for item in lost if item in state.snapshots)
        for snapshot in below:
            is_of_run = snapshot.summary.get(lineage.RUN_ID) == run_id
            if is_of_run and snapshot.committed_at_ms <= begins.committed_at_ms:
                yield f"snapshot {snapshot.snapshot_id} of {name}, after which snapshots have expired"
        if not recorded and name in own and found and begins.committed_at_ms > began_ms:
            yield f"{name}, whose history begins with snapshot {begins.snapshot_id}, after the run"


def _of_table(state: TableState, line: _Line, chosen: AbstractSet[int]) -> TableUndo:
    snapshots = tuple(item for item in line.snapshots if item.snapshot_id in chosen)
    newer = line.snapshots[: line.places[snapshots[-1].snapshot_id]]
    left_out = chosen | line.without_effect
    return TableUndo(state, snapshots, tuple(item for item in newer if item.snapshot_id not in left_out))


def _dependents_first(undos: Sequence[TableUndo]) -> list[TableUndo]:
    """Order the tables, so that an undo that is interrupted can be tried again: the run itself is undone last."""
    by_table = {str(undo.state.identifier): undo for undo in undos}
    readers: dict[str, set[str]] = {name: set() for name in by_table}
    for name, undo in by_table.items():
        for snapshot in undo.snapshots:
            for read in upstream_reads(snapshot.summary.get(lineage.UPSTREAM, "")):
                if read.table in by_table and read.table != name:
                    readers[read.table].add(name)
    try:
        return [by_table[name] for name in TopologicalSorter(readers).static_order()]
    except CycleError:
        return list(undos)


def _dependents(lines: Mapping[str, _Line], chosen: Mapping[str, AbstractSet[int]]) -> Iterator[Dependent]:
    begun_ms = min(
        (
            lines[name].snapshots[lines[name].places[item]].committed_at_ms
            for name, ids in chosen.items()
            for item in ids
        ),
        default=0,
    )
    sources = {name: _chosen(lines[name], ids) for name, ids in chosen.items() if ids}
    for name, line in lines.items():
        for place, snapshot in enumerate(line.snapshots):
            if snapshot.snapshot_id in chosen[name] or snapshot.snapshot_id in line.without_effect:
                continue
            upstream = snapshot.summary.get(lineage.UPSTREAM, "")
            found = next((read.table for read in upstream_reads(upstream) if _has_read(read, lines, sources)), None)
            if found is None and not lineage.has_all_reads(upstream) and snapshot.committed_at_ms > begun_ms:
                found = next(iter(sources), None)  # it has too many inputs to list
            if found is None and _has_replaced(
                snapshot, [own for own_place, own in sources.get(name, ()) if own_place > place]
            ):
                found = name
            if found is not None:
                yield Dependent(name, snapshot, found)


def _chosen(line: _Line, ids: AbstractSet[int]) -> list[tuple[int, Snapshot]]:
    return [(line.places[item], line.snapshots[line.places[item]]) for item in ids]


def _has_read(
    read: UpstreamRead, lines: Mapping[str, _Line], sources: Mapping[str, Sequence[tuple[int, Snapshot]]]
) -> bool:
    """Return whether a read may have read rows of a chosen snapshot: one at or before the snapshot that was read."""
    if read.table not in sources or read.snapshot_id is None:
        return False
    places = lines[read.table].places
    newest, oldest = places.get(read.snapshot_id), math.inf if read.since is None else places.get(read.since, math.inf)
    if newest is None:
        return False
    return any(newest <= place < oldest and _overlaps(read.scope, item) for place, item in sources[read.table])


def _has_replaced(snapshot: Snapshot, older: Sequence[Snapshot]) -> bool:
    """Return whether a snapshot has written partitions of older ones again, or read on where they had read to."""
    described = snapshot.summary.get(lineage.PARTITION_KEYS)
    if snapshot.is_compaction or lineage.RUN_ID not in snapshot.summary:
        return False
    for item in older:
        appends = all(each.summary.get(lineage.WRITE_DISPOSITION) == "append" for each in (snapshot, item))
        reads_on = _incremental_reads(snapshot) and _incremental_reads(item)
        if (not appends or reads_on) and _overlaps(described, item):
            return True
    return False


def _incremental_reads(snapshot: Snapshot | None) -> list[UpstreamRead]:
    document = "" if snapshot is None else snapshot.summary.get(lineage.UPSTREAM, "")
    return [read for read in upstream_reads(document) if read.kind is not None]


def _overlaps(described: str | None, snapshot: Snapshot) -> bool:
    """Return whether partitions, in the form of a summary, may be some of those that a snapshot wrote."""
    own = snapshot.summary.get(lineage.PARTITION_KEYS)
    keys = None if own is None else listed_keys(own)
    return described is None or keys is None or share_of(described, keys) != "none"


def _has_dependents(run_id: str, source: str, dependents: Sequence[str]) -> CommitConflictError:
    """Other snapshots were derived from those of the run, or have replaced their rows."""
    more = f" and {len(dependents) - _SHOWN} more" if len(dependents) > _SHOWN else ""
    return CommitConflictError.refusing(
        "undo",
        f"the run {run_id}",
        expected=f"no later snapshot that was derived from its rows of {source} or has replaced them",
        found=f"{', '.join(dependents[:_SHOWN])}{more}",
        hint="undo these runs first, or all of them with `--cascade`.",
    )


def _incomplete(run_id: str, left_out: Sequence[str]) -> UpstreamMissingError:
    """A part of the run cannot be undone."""
    more = f"; and {len(left_out) - _SHOWN} more" if len(left_out) > _SHOWN else ""
    return UpstreamMissingError.refusing(
        "undo",
        f"the run {run_id}",
        expected="all that it has written in the history of `main` of the tables of this code location",
        found=f"{'; '.join(left_out[:_SHOWN])}{more}",
        hint="run the assets again instead, or undo the rest with `--partial`.",
    )


def unknown_run(run_id: str) -> UpstreamMissingError:
    """No table has a snapshot of the run."""
    return UpstreamMissingError.refusing(
        "undo",
        f"the run {run_id}",
        expected="a snapshot of it in the history of `main` of a table",
        found="none: it has published nothing, is undone already, or its snapshots have expired",
    )

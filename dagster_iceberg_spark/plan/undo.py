"""Decides how the snapshots of a run are undone, and which others were made from them."""

import datetime as dt
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, Literal, TypeAlias

from dagster_iceberg_spark.plan import undo_refusals
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.lineage import UpstreamRead, upstream_reads
from dagster_iceberg_spark.table.scope import listed_keys, share_of
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, Snapshot, TableState

How: TypeAlias = Literal["rollback", "revert", "restore"]
"""`main` moves back; a new snapshot takes the files back; or `main` moves forward again, which undoes an undo."""
_KEPT_RECORDS: Final = 20


@dataclass(frozen=True, slots=True)
class TableUndo:
    """The undo of some snapshots of a table.

    Args:
        snapshots: The snapshots, newest first.
        target_id: The snapshot that `main` moves to, or None for a revert.
        later: The snapshots of `main` that stay and are newer than one of these, newest first. Those that are undone
            already are left out, and so is what undid them: together they have changed nothing.
    """

    state: TableState
    snapshots: tuple[Snapshot, ...]
    how: How
    target_id: int | None = None
    later: tuple[Snapshot, ...] = ()

    @property
    def appends(self) -> bool:
        """Whether the snapshots have only appended rows."""
        return all(snapshot.summary.get(lineage.WRITE_DISPOSITION) == "append" for snapshot in self.snapshots)

    def restored(self) -> Snapshot | None:
        """Return the newest snapshot of exactly these partitions before those that are undone, if there is one."""
        oldest = self.snapshots[-1]
        keys = (lineage.ASSET_KEY, lineage.PARTITION_DIGEST)
        before = self.state.history(oldest.parent_snapshot_id)
        return next(
            (item for item in before if all(item.summary.get(key) == oldest.summary.get(key) for key in keys)), None
        )

    def properties(self, by: str) -> dict[str, str]:
        """Return the lineage of the snapshot that reverts. The restored rows keep their inputs.

        Raises:
            ConfigurationError: The snapshots are the first that read an input incrementally. A snapshot cannot record
                that nothing has been read.
        """
        newest, restored = self.snapshots[0].summary, self.restored()
        read = {item.input_name for snapshot in self.snapshots for item in _incremental_reads(snapshot)}
        if not read <= {item.input_name for item in _incremental_reads(restored)}:
            raise undo_refusals.first_read(self.state.identifier)
        kept = (lineage.ASSET_KEY, lineage.PARTITION_KEYS, lineage.PARTITION_DIGEST)
        ids = [snapshot.snapshot_id for snapshot in self.snapshots]
        return {
            **{key: newest[key] for key in kept if key in newest},
            lineage.RUN_ID: by,
            lineage.WRITE_DISPOSITION: lineage.UNDO,
            lineage.UNDOES: json.dumps(ids, separators=(",", ":")),
            lineage.UPSTREAM: "[]" if restored is None else restored.summary.get(lineage.UPSTREAM, "[]"),
        }

    def record(self, run_id: str, by: str, at: dt.datetime) -> str:
        """Return the table property that records the move of `main`, with the records before it."""
        own = {
            "run": run_id,
            "by": by,
            "at": at.isoformat(timespec="seconds"),
            "from": self.state.refs.get(MAIN_BRANCH),
            "to": self.target_id,
        }
        return json.dumps([*records_of(self.state), own][-_KEPT_RECORDS:], separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Dependent:
    """A snapshot of a table that was made from rows to be undone of the source, or has replaced them."""

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
        undone: Those that a revert has undone.
        without_effect: These, and the reverts.
    """

    snapshots: tuple[Snapshot, ...]
    places: Mapping[int, int]
    undone: frozenset[int]
    without_effect: frozenset[int]

    @classmethod
    def of(cls, state: TableState) -> "_Line":
        """Read the line. A revert that is undone itself has no effect."""
        snapshots, undone, undoing = tuple(state.ancestors()), set[int](), set[int]()
        for snapshot in snapshots:
            ids = snapshot.summary.get(lineage.UNDOES)
            if ids is not None and snapshot.snapshot_id not in undone:
                undone |= set(json.loads(ids))
                undoing.add(snapshot.snapshot_id)
        places = {snapshot.snapshot_id: place for place, snapshot in enumerate(snapshots)}
        return cls(snapshots, places, frozenset(undone & places.keys()), frozenset(undone | undoing))


def records_of(state: TableState) -> list[Mapping[str, Any]]:
    """Return the records of undos that moved `main` back."""
    try:
        records = json.loads(state.properties.get(lineage.UNDONE_PROPERTY, "[]"))
    except ValueError:  # somebody else has set the property
        return []
    return [item for item in records if isinstance(item, dict)] if isinstance(records, list) else []


def plan_undo(states: Sequence[TableState], run_id: str, *, cascade: bool = False) -> tuple[TableUndo, ...]:
    """Plan the undo of a run in these tables, dependents first. `cascade` also undoes what was made from its rows.

    Raises:
        UpstreamMissingError: No table has a snapshot of the run, or it is undone already.
        CommitConflictError: Other snapshots were made from those of the run, or have replaced their rows.
    """
    tables = {str(state.identifier): state for state in states}
    lines = {name: _Line.of(state) for name, state in tables.items()}
    chosen = {
        name: {
            item.snapshot_id
            for item in line.snapshots
            if item.summary.get(lineage.RUN_ID) == run_id and item.snapshot_id not in line.undone
        }
        for name, line in lines.items()
    }
    restored = [undo for state in states if (undo := _restored(state, run_id)) is not None]
    if not any(chosen.values()) and not restored:
        raise undo_refusals.unknown_run(run_id)
    while found := list(_dependents(lines, chosen)):
        if not cascade:
            raise undo_refusals.has_dependents(run_id, found[0].source, list(map(str, found)))
        for dependent in found:
            chosen[dependent.table].add(dependent.snapshot.snapshot_id)
    for undo in restored:
        if chosen[str(undo.state.identifier)]:
            raise undo_refusals.cannot_restore(undo.state.identifier, undo.target_id or 0, 0)
    undone = [_of_table(tables[name], lines[name], ids) for name, ids in chosen.items() if ids]
    return (*restored, *_dependents_first(undone))


def _restored(state: TableState, run_id: str) -> TableUndo | None:
    """Return the undo of an undo that moved `main` back."""
    record = next((item for item in reversed(records_of(state)) if item.get("by") == run_id), None)
    if record is None:
        return None
    undone, target = record.get("from"), record.get("to")
    if not isinstance(undone, int) or state.refs.get(MAIN_BRANCH) != target or undone not in state.snapshots:
        raise undo_refusals.cannot_restore(state.identifier, undone, target)
    return TableUndo(state, (), "restore", undone)


def _of_table(state: TableState, line: _Line, chosen: AbstractSet[int]) -> TableUndo:
    snapshots = tuple(item for item in line.snapshots if item.snapshot_id in chosen)
    oldest = snapshots[-1]
    target = oldest.parent_snapshot_id
    is_first = target is None and oldest.count("total-data-files") == oldest.count("added-data-files")
    if target not in state.snapshots and not is_first:
        raise undo_refusals.expired(state.identifier, oldest.snapshot_id)
    if snapshots == line.snapshots[: len(snapshots)] and target is not None:
        return TableUndo(state, snapshots, "rollback", target)
    newer = line.snapshots[: line.places[oldest.snapshot_id]]
    left_out = chosen | line.without_effect
    later = tuple(item for item in newer if item.snapshot_id not in left_out)
    return TableUndo(state, snapshots, "revert", later=later)


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

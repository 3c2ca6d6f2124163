"""Decides how the snapshots of a run are undone, and which others were made of them."""

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
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
    """

    state: TableState
    snapshots: tuple[Snapshot, ...]
    how: How
    target_id: int | None = None

    @property
    def appends(self) -> bool:
        """Whether the snapshots have only appended rows."""
        return all(snapshot.summary.get(lineage.WRITE_DISPOSITION) == "append" for snapshot in self.snapshots)

    @property
    def later(self) -> tuple[Snapshot, ...]:
        """The snapshots of `main` that stay and are newer than one that is undone, newest first."""
        undone = {snapshot.snapshot_id for snapshot in self.snapshots}
        line = list(self.state.ancestors())
        oldest = max((place for place, item in enumerate(line) if item.snapshot_id in undone), default=0)
        return tuple(item for item in line[:oldest] if item.snapshot_id not in undone)

    def restored(self) -> Snapshot | None:
        """Return the newest snapshot of the same asset before those that are undone, if there is one."""
        oldest = self.snapshots[-1]
        asset = oldest.summary.get(lineage.ASSET_KEY)
        before = self.state.history(oldest.parent_snapshot_id)
        return next((item for item in before if item.summary.get(lineage.ASSET_KEY) == asset), None)

    def properties(self, by: str) -> dict[str, str]:
        """Return the lineage of the snapshot that reverts. The restored rows keep their inputs.

        Raises:
            ConfigurationError: The snapshots are the first that read an input incrementally. A snapshot cannot record
                that nothing has been read.
        """
        newest, restored = self.snapshots[0].summary, self.restored()
        if restored is None and any(lineage.changes_read(snapshot.summary) for snapshot in self.snapshots):
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
    """A snapshot that was made of one that is to be undone, or has replaced its rows."""

    state: TableState
    snapshot: Snapshot
    source: TableState
    of: Snapshot

    def __str__(self) -> str:
        summary = self.snapshot.summary
        run = summary.get(lineage.RUN_ID)
        writer = f"run {run}" if run else "another writer"
        return f"snapshot {self.snapshot.snapshot_id} of {self.state.identifier} by {writer}"


def records_of(state: TableState) -> list[Mapping[str, Any]]:
    """Return the records of undos that moved `main` back."""
    records: list[Mapping[str, Any]] = json.loads(state.properties.get(lineage.UNDONE_PROPERTY, "[]"))
    return records


def plan_undo(states: Sequence[TableState], run_id: str, *, cascade: bool = False) -> tuple[TableUndo, ...]:
    """Plan the undo of a run in these tables. `cascade` also undoes what was made of its rows.

    Raises:
        UpstreamMissingError: No table has a snapshot of the run.
        CommitConflictError: Other snapshots were made of those of the run, or have replaced their rows.
    """
    chosen = {
        state.identifier: {item.snapshot_id for item in state.ancestors() if item.summary.get(lineage.RUN_ID) == run_id}
        for state in states
    }
    restored = [undo for state in states if (undo := _restored(state, run_id)) is not None]
    if not any(chosen.values()) and not restored:
        raise undo_refusals.unknown_run(run_id)
    while found := list(_dependents(states, chosen)):
        if not cascade:
            raise undo_refusals.has_dependents(run_id, found[0].source.identifier, list(map(str, found)))
        for dependent in found:
            chosen[dependent.state.identifier].add(dependent.snapshot.snapshot_id)
    undone = (_of_table(state, chosen[state.identifier]) for state in states if chosen[state.identifier])
    return (*restored, *undone)


def _restored(state: TableState, run_id: str) -> TableUndo | None:
    """Return the undo of an undo that moved `main` back."""
    record = next((item for item in reversed(records_of(state)) if item["by"] == run_id), None)
    if record is None:
        return None
    if state.refs.get(MAIN_BRANCH) != record["to"] or record["from"] not in state.snapshots:
        raise undo_refusals.cannot_restore(state.identifier, record["from"], record["to"])
    return TableUndo(state, (), "restore", record["from"])


def _of_table(state: TableState, chosen: AbstractSet[int]) -> TableUndo:
    line = list(state.ancestors())
    snapshots = tuple(item for item in line if item.snapshot_id in chosen)
    is_newest = snapshots == tuple(line[: len(snapshots)])
    target = snapshots[-1].parent_snapshot_id
    if is_newest and target in state.snapshots:
        return TableUndo(state, snapshots, "rollback", target)
    return TableUndo(state, snapshots, "revert")


def _dependents(states: Sequence[TableState], chosen: Mapping[Any, AbstractSet[int]]) -> Iterator[Dependent]:
    by_name = {str(state.identifier): state for state in states}
    for state in states:
        for snapshot in state.ancestors():
            if snapshot.snapshot_id in chosen[state.identifier]:
                continue
            for read in upstream_reads(snapshot.summary.get(lineage.UPSTREAM, "")):
                source = by_name.get(read.table)
                of = None if source is None else _read_of(read, source, chosen[source.identifier])
                if source is not None and of is not None:
                    yield Dependent(state, snapshot, source, of)
                    break
            else:
                of = _replaced_by(snapshot, state, chosen[state.identifier])
                if of is not None:
                    yield Dependent(state, snapshot, state, of)


def _read_of(read: UpstreamRead, source: TableState, chosen: AbstractSet[int]) -> Snapshot | None:
    """Return a chosen snapshot whose rows a read may have read: one at or before the snapshot that was read."""
    if not chosen or read.snapshot_id is None:
        return None
    for snapshot in source.history(read.snapshot_id):
        if snapshot.snapshot_id == read.since:  # an incremental read began after it
            return None
        if snapshot.snapshot_id in chosen and _overlaps(read.scope, snapshot):
            return snapshot
    return None


def _replaced_by(snapshot: Snapshot, state: TableState, chosen: AbstractSet[int]) -> Snapshot | None:
    """Return a chosen snapshot of the same table whose partitions a newer snapshot has written again."""
    described = snapshot.summary.get(lineage.PARTITION_KEYS)
    if not chosen or snapshot.is_compaction or lineage.RUN_ID not in snapshot.summary:
        return None
    for older in state.history(snapshot.parent_snapshot_id):
        appends = all(item.summary.get(lineage.WRITE_DISPOSITION) == "append" for item in (snapshot, older))
        if older.snapshot_id in chosen and not appends and _overlaps(described, older):
            return older
    return None


def _overlaps(described: str | None, snapshot: Snapshot) -> bool:
    """Return whether partitions, in the form of a summary, may be some of those that a snapshot wrote."""
    own = snapshot.summary.get(lineage.PARTITION_KEYS)
    keys = None if own is None else listed_keys(own)
    return described is None or keys is None or share_of(described, keys) != "none"

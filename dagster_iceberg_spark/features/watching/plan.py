"""What is new in a table that others write, since a sensor looked last."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from typing_extensions import Self

from dagster_iceberg_spark.table.change import outdates_derived_rows, runs_behind
from dagster_iceberg_spark.table.lineage import ASSET_KEY, PARTITION_KEYS, UPSTREAM, upstream_reads
from dagster_iceberg_spark.table.scope import share_of
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, Snapshot, TableState

EventKind: TypeAlias = Literal["written", "rolled back", "recreated", "history expired"]
"""What has happened to the branch: others have committed to it, it has moved back, the table is another one, or the
snapshot that was seen last has expired."""


NO_TABLE: Final = ""
"""The identity of a table that does not exist yet."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a sensor has seen of a table.

    Args:
        uuid: The identity of the table, or `NO_TABLE`.
        snapshot_id: The newest snapshot of the branch, or None without any.
        pointer: The location of the metadata file, if the catalog shows it cheaply.
    """

    uuid: str
    snapshot_id: int | None
    pointer: str | None = None

    @classmethod
    def of(cls, state: TableState | None, branch: str, pointer: str | None) -> Self:
        """Return what is to be seen now."""
        return cls(NO_TABLE, None) if state is None else cls(state.uuid, state.refs.get(branch), pointer)

    @classmethod
    def parse(cls, document: Any) -> Self:
        """Return what a cursor has recorded."""
        snapshot_id = document["snapshot_id"]
        return cls(document["uuid"], None if snapshot_id is None else int(snapshot_id), document["pointer"])

    def document(self) -> dict[str, str | None]:
        """Return the form that a cursor records."""
        snapshot_id = None if self.snapshot_id is None else str(self.snapshot_id)
        return {"uuid": self.uuid, "snapshot_id": snapshot_id, "pointer": self.pointer}


@dataclass(frozen=True, slots=True)
class TableEvent:
    """What is new in a table.

    Args:
        head: The newest snapshot of the branch.
        snapshots: The snapshots that others have committed, oldest first. Empty if all rows may have changed.
    """

    kind: EventKind
    head: Snapshot
    snapshots: tuple[Snapshot, ...] = ()


def event_of(
    state: TableState, seen: Seen, branch: str = MAIN_BRANCH, *, is_known_run: Callable[[str], bool] = lambda _: False
) -> TableEvent | None:
    """Return what is new, or None.

    The snapshots of known runs, and their undos, are no events: this Dagster instance has recorded them itself.
    Those of another instance are, although they have a lineage too.
    """
    head = state.head(branch)
    if head is None:
        return None
    if seen.uuid not in (state.uuid, NO_TABLE):
        return TableEvent("recreated", head)
    if head.snapshot_id == seen.snapshot_id:
        return None
    passed: list[Snapshot] = []
    for snapshot in state.ancestors(branch):
        if snapshot.snapshot_id == seen.snapshot_id:
            break
        passed.append(snapshot)
    else:
        if seen.snapshot_id is not None and passed[-1].parent_snapshot_id is None:
            return TableEvent("rolled back", head)
        if seen.snapshot_id is not None:
            was_ahead = any(item.snapshot_id == head.snapshot_id for item in state.history(seen.snapshot_id))
            return TableEvent("rolled back" if was_ahead else "history expired", head)
    found = tuple(
        item
        for item in reversed(passed)
        if outdates_derived_rows(item) and not any(map(is_known_run, runs_behind(state, item)))
    )
    return TableEvent("written", head, found) if found else None


def has_read(
    downstream: TableState | None, asset: str, partition: str, upstream: TableState, snapshot: Snapshot
) -> bool:
    """Return whether the newest materialization of a partition was derived from a snapshot, or from a later one.

    Args:
        downstream: The table of the asset, or None if it does not exist.
        asset: The asset, with slashes between the parts of its key.
        partition: The partition.
        upstream: The table that the asset reads.
        snapshot: A snapshot of that table.
    """
    for made in downstream.ancestors() if downstream is not None else ():
        described = made.summary.get(PARTITION_KEYS)
        if made.summary.get(ASSET_KEY) != asset or (described and share_of(described, [partition]) != "all"):
            continue
        reads = [
            read.snapshot_id
            for read in upstream_reads(made.summary.get(UPSTREAM, ""))
            if read.table == str(upstream.identifier)
        ]
        return bool(reads) and all(_includes(upstream, read, snapshot) for read in reads)
    return False


def _includes(state: TableState, snapshot_id: int | None, snapshot: Snapshot) -> bool:
    return any(item.snapshot_id == snapshot.snapshot_id for item in state.history(snapshot_id))


def stray_snapshot(state: TableState) -> Snapshot | None:
    """Return the newest snapshot if no branch or tag has it and `main` never had it, or None.

    A writer that adds snapshots, but does not move `main`, looks healthy and is not.
    """
    if not state.snapshots:
        return None
    newest = max((state.snapshots[item] for item in state.snapshots), key=lambda item: item.committed_at_ms)
    reached = {item.snapshot_id for ref in state.refs for item in state.ancestors(ref)}
    return None if newest.snapshot_id in reached | state.once_current else newest

"""Decides which snapshots an expiry removes, as Iceberg does (`RemoveSnapshots` of 1.12)."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, RefRetention, Snapshot, TableState

_NO_RETENTION: Final = RefRetention()
_MAX_REF_AGE: Final = "history.expire.max-ref-age-ms"


@dataclass(frozen=True, slots=True)
class Expiry:
    """What an expiry of snapshots removes from the metadata of a table.

    Args:
        snapshots: The ids of the snapshots that go, oldest first.
        refs: The branches and tags that go, sorted.
        freed_bytes: The size of the data files that no snapshot needs afterwards, as far as summaries tell. Files that
            were rewritten several times between two kept snapshots are not counted.
    """

    snapshots: tuple[int, ...]
    refs: tuple[str, ...]
    freed_bytes: int


def planned_expiry(
    state: TableState, *, now_ms: int, older_than_ms: int, retain_last: int, tagged: Collection[int] = ()
) -> Expiry:
    """Return what an expiry removes.

    Args:
        state: The state of the table.
        now_ms: The current time, in milliseconds since 1970.
        older_than_ms: Snapshots that are at least as young are kept.
        retain_last: The number of snapshots of each branch that are kept, unless the branch has a number of its own.
        tagged: Snapshots that a tag is going to keep.
    """
    refs = {name: snapshot_id for name, snapshot_id in state.refs.items() if _is_kept(state, name, now_ms)}
    kept = set(tagged) | {snapshot_id for name, snapshot_id in refs.items() if not state.has_branch(name)}
    referenced = set(kept)
    for name in filter(state.has_branch, refs):
        kept |= _kept_of_branch(state, name, now_ms, older_than_ms, retain_last)
        referenced |= {snapshot.snapshot_id for snapshot in state.ancestors(name)}
    expired = [
        snapshot
        for snapshot in (state.snapshots[snapshot_id] for snapshot_id in state.snapshots)
        if snapshot.snapshot_id not in kept
        and (snapshot.snapshot_id in referenced or snapshot.committed_at_ms < older_than_ms)
    ]
    expired.sort(key=lambda snapshot: snapshot.committed_at_ms)
    ids = tuple(snapshot.snapshot_id for snapshot in expired)
    history = [*state.ancestors(MAIN_BRANCH)][::-1]
    return Expiry(ids, tuple(sorted(state.refs.keys() - refs.keys())), _freed_bytes(history, frozenset(ids)))


def _is_kept(state: TableState, ref: str, now_ms: int) -> bool:
    """Return whether an expiry keeps a branch or tag. It drops one whose snapshot is gone."""
    head = state.snapshots.get(state.refs[ref])
    age = state.retention.get(ref, _NO_RETENTION).max_ref_age_ms
    if age is None and _MAX_REF_AGE in state.properties:
        age = int(state.properties[_MAX_REF_AGE])
    return ref == MAIN_BRANCH or (head is not None and (age is None or now_ms - head.committed_at_ms <= age))


def _kept_of_branch(state: TableState, branch: str, now_ms: int, older_than_ms: int, retain_last: int) -> set[int]:
    own = state.retention.get(branch, _NO_RETENTION)
    oldest_ms = older_than_ms if own.max_snapshot_age_ms is None else now_ms - own.max_snapshot_age_ms
    least = retain_last if own.min_snapshots_to_keep is None else own.min_snapshots_to_keep
    kept = set[int]()
    for snapshot in state.ancestors(branch):
        if len(kept) >= least and snapshot.committed_at_ms < oldest_ms:
            break
        kept.add(snapshot.snapshot_id)
    return kept


def held_by_refs(
    state: TableState, expiry: Expiry, *, now_ms: int, older_than_ms: int, retain_last: int
) -> dict[str, tuple[int, int]]:
    """Return what an expiry keeps only because of each branch and tag: the numbers of snapshots and of bytes.

    The bytes are those of data files. The arguments are those of the expiry.
    """
    kept = {
        name: _kept_of_branch(state, name, now_ms, older_than_ms, retain_last)
        if state.has_branch(name)
        else {state.refs[name]}
        for name in state.refs
        if name not in expiry.refs
    }
    keepers = Counter(snapshot_id for ids in kept.values() for snapshot_id in ids)
    lines = {
        name: {snapshot.snapshot_id for snapshot in state.ancestors(name)} for name in filter(state.has_branch, kept)
    }
    in_lines = Counter(snapshot_id for line in lines.values() for snapshot_id in line)
    gone, history = frozenset(expiry.snapshots), [*state.ancestors(MAIN_BRANCH)][::-1]

    def is_held(name: str, snapshot_id: int) -> bool:
        others = in_lines[snapshot_id] - (snapshot_id in lines.get(name, ()))
        is_old = snapshot_id in state.snapshots and state.snapshots[snapshot_id].committed_at_ms < older_than_ms
        return keepers[snapshot_id] == 1 and (others > 0 or is_old)

    held: dict[str, tuple[int, int]] = dict.fromkeys(expiry.refs, (0, 0))
    for name, ids in kept.items():
        own = frozenset(snapshot_id for snapshot_id in ids if is_held(name, snapshot_id))
        frees = bool(own) and next((item.snapshot_id in own for item in history if item.snapshot_id not in gone), False)
        held[name] = (len(own), _freed_bytes(history, gone | own) - expiry.freed_bytes if frees else 0)
    return held


def _freed_bytes(history: Sequence[Snapshot], expired: Collection[int]) -> int:
    """Return the size of the files that were removed from `main` after expired snapshots, before a kept one follows.

    A file that a snapshot removed is part of its ancestors only. The history is that of `main`, oldest first.
    """
    first_kept = next((place for place, item in enumerate(history) if item.snapshot_id not in expired), len(history))
    after_expired = history[1 : first_kept + 1]
    return sum(snapshot.count("removed-files-size") for snapshot in after_expired if first_kept)

"""Who still needs which snapshots of a table, the tags that keep them, and which snapshots an expiry removes.

A tag keeps a snapshot also when another engine expires the table. The tags that this module decides on are *pins*.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dagster_iceberg_spark.features.maintenance.options import MaintenancePolicy
from dagster_iceberg_spark.plan.publication.branch import branch_start, is_environment_branch
from dagster_iceberg_spark.plan.write.write_request import is_staged_branch
from dagster_iceberg_spark.table.lineage import (
    ASSET_KEY,
    COMMIT_TOKEN,
    PARTITION_DIGEST,
    PARTITION_KEYS,
    UPSTREAM,
    WRITE_DISPOSITION,
    UpstreamRead,
    upstream_reads,
)
from dagster_iceberg_spark.table.snapshot import DAY_MS, MAIN_BRANCH, RefRetention, Snapshot, TableState
from dagster_iceberg_spark.table.updates import DropTag, SetTag, tag_days

PARTITIONS_OF_AN_ASSET: Final = 100
"""The newest partitions of a downstream asset that keep what they were derived from, whatever their age."""
_PREFIX: Final = "dagster_keep_"
_LIFETIME_MS: Final = 14 * DAY_MS
"""A pin outlives this time without maintenance."""
_RENEWED_MS: Final = 7 * DAY_MS
"""A pin that is about to end within this time is renewed."""


@dataclass(frozen=True, slots=True)
class Need:
    """A snapshot that is needed.

    Args:
        snapshot_id: The snapshot.
        by: Who needs it and what for, in words.
        keeps_later: Whether the snapshots of `main` after it are needed as well.
        is_owner: Whether an asset of the table itself needs it, and only until the asset is written again.
    """

    snapshot_id: int
    by: str
    keeps_later: bool = False
    is_owner: bool = False


@dataclass(frozen=True, slots=True)
class RunNeed:
    """A run that may still read what was current when it began.

    Args:
        started_at_ms: When it began, in milliseconds since 1970.
        by: The run and its state, in words.
    """

    started_at_ms: int
    by: str


@dataclass(frozen=True, slots=True)
class Pins:
    """The pins of a table.

    Args:
        needed: Who needs each old snapshot, in words, by the id of the snapshot.
        changes: The tags to set and to drop.
    """

    needed: Mapping[int, tuple[str, ...]]
    changes: tuple[SetTag | DropTag, ...]


def needs_of_readers(states: Iterable[TableState], policy: MaintenancePolicy, now_ms: int) -> dict[str, list[Need]]:
    """Return the snapshots that the assets which were derived from them need, by the name of their table.

    An asset needs what its newest materialization has read, and what the newest of each of its newest partitions has
    read. A materialization that may be replayed needs it too. After an incremental read, the next one continues there:
    it needs all later snapshots.

    Args:
        states: The tables of the downstream assets.
        policy: How long materializations can be replayed.
        now_ms: The current time, in milliseconds since 1970.
    """
    found: dict[str, list[Need]] = {}
    for state in states:
        for snapshot, is_newest in _readers(state, now_ms - int(policy.replayable_for.total_seconds() * 1000)):
            for read in upstream_reads(snapshot.summary.get(UPSTREAM, "")):
                found.setdefault(read.table, []).extend(_needs_of_read(state, snapshot, read, is_newest=is_newest))
    return found


def needs_of_table(state: TableState, runs: Sequence[RunNeed] = ()) -> list[Need]:
    """Return the snapshots of a table that its own assets and the runs need."""
    needs = [*_own_positions(state), *_append_tokens(state), *_branch_starts(state)]
    history = sorted(state.snapshot_log)
    for run in runs if history else ():
        # If the table is younger than the run, the run may read any of its snapshots.
        current = [snapshot_id for at, snapshot_id in history if at <= run.started_at_ms]
        needs.append(Need(current[-1] if current else history[0][1], run.by, keeps_later=True))
    return needs


def planned_pins(state: TableState, needs: Sequence[Need], policy: MaintenancePolicy, now_ms: int) -> Pins:
    """Return who needs each old snapshot, and the tags that keep them.

    A snapshot is old if it has reached half of the age at which it is expired. Younger ones need no tag yet.
    """
    old_ms = now_ms - int(policy.older_than.total_seconds() * 1000) // 2
    needed: dict[int, list[str]] = {}
    by_readers = set[int]()
    history = [*state.ancestors(MAIN_BRANCH)]
    places = {snapshot.snapshot_id: place for place, snapshot in enumerate(history)}
    for need in needs:
        first = state.snapshots.get(need.snapshot_id)
        later = history[: places.get(need.snapshot_id, 0)] if need.keeps_later else []
        for snapshot in (*(() if first is None else (first,)), *later):
            if snapshot.committed_at_ms >= old_ms:
                continue
            by = needed.setdefault(snapshot.snapshot_id, [])
            by += [need.by] if need.by not in by else []
            by_readers |= set() if need.is_owner else {snapshot.snapshot_id}
    # A reader still needs the newest snapshot of a branch when it is no longer the newest.
    heads = {snapshot_id for ref, snapshot_id in state.refs.items() if state.has_branch(ref)}
    pinned = needed.keys() - (heads - by_readers)
    return Pins({key: tuple(by) for key, by in needed.items()}, tuple(_changes(state, pinned, now_ms)))


def pin_name(snapshot_id: int) -> str:
    """Return the name of the tag that keeps a snapshot."""
    return f"{_PREFIX}{snapshot_id}"


def is_pin(ref: str) -> bool:
    """Return whether a ref is a tag that keeps a snapshot that is needed."""
    return ref.startswith(_PREFIX)


def refs_in_words(state: TableState) -> dict[int, list[str]]:
    """Return the other branches and tags, in words, by the id of the snapshot that they point to."""
    found: dict[int, list[str]] = {}
    for name, snapshot_id in sorted(state.refs.items()):
        if name == MAIN_BRANCH or is_pin(name):
            continue
        kind = "the branch" if state.has_branch(name) else "the tag"
        if is_staged_branch(name):
            kind = "the staged branch"
        elif is_environment_branch(name):
            kind = "the environment's branch"
        found.setdefault(snapshot_id, []).append(f"{kind} {name!r}")
    return found


def _readers(state: TableState, since_ms: int) -> Iterator[tuple[Snapshot, bool]]:
    """Yield the snapshots whose inputs are needed, and whether each is the newest of its partitions in a branch."""
    visited = set[int]()
    for branch in sorted(state.branches & state.refs.keys(), key=lambda name: (name != MAIN_BRANCH, name)):
        known, partitions = set[tuple[str, str]](), Counter[str]()
        for snapshot in state.ancestors(branch):
            if snapshot.snapshot_id in visited:
                break
            visited.add(snapshot.snapshot_id)
            asset, digest = snapshot.summary.get(ASSET_KEY), snapshot.summary.get(PARTITION_DIGEST, "")
            if asset is None:
                continue
            is_newest = (asset, digest) not in known and partitions[asset] < PARTITIONS_OF_AN_ASSET
            if is_newest:
                known.add((asset, digest))
                partitions[asset] += 1
            if is_newest or snapshot.committed_at_ms >= since_ms:
                yield snapshot, is_newest


def _needs_of_read(state: TableState, snapshot: Snapshot, read: UpstreamRead, *, is_newest: bool) -> Iterator[Need]:
    asset = snapshot.summary[ASSET_KEY]
    partitions = snapshot.summary.get(PARTITION_KEYS)
    who = f"{asset}{f' ({partitions})' if partitions else ''}, snapshot {snapshot.snapshot_id} of {state.identifier}"
    if read.snapshot_id is not None:
        if read.kind is not None and is_newest:
            yield Need(read.snapshot_id, f"{who}, which continues to read {read.kind} after it", keeps_later=True)
        else:
            yield Need(read.snapshot_id, f"{who}, which was derived from it")
    if read.since is not None:
        yield Need(read.since, f"{who}, which was derived from what changed after it")


def _own_positions(state: TableState) -> Iterator[Need]:
    """Yield the newest snapshot of each asset that says how far the asset has read incrementally."""
    known = set[str]()
    for snapshot in state.ancestors(MAIN_BRANCH):
        asset = snapshot.summary.get(ASSET_KEY)
        if asset is None or asset in known:
            continue
        if any(read.kind is not None for read in upstream_reads(snapshot.summary.get(UPSTREAM, ""))):
            known.add(asset)
            yield Need(
                snapshot.snapshot_id, f"{asset}, whose next read continues from it", keeps_later=True, is_owner=True
            )


def _append_tokens(state: TableState) -> Iterator[Need]:
    """Yield the newest append of each asset: a run that is re-executed looks for its token."""
    known = set[str]()
    for snapshot in state.ancestors(MAIN_BRANCH):
        asset, summary = snapshot.summary.get(ASSET_KEY), snapshot.summary
        if asset in known or COMMIT_TOKEN not in summary or summary.get(WRITE_DISPOSITION) != "append":
            continue
        known.add(str(asset))
        yield Need(snapshot.snapshot_id, f"{asset}, whose newest append it is", is_owner=True)


def _branch_starts(state: TableState) -> Iterator[Need]:
    """Yield where the branches of environments began: what they change is shown in comparison with it."""
    for branch in sorted(filter(is_environment_branch, state.refs)):
        start = branch_start(state, branch)
        if start is not None:
            yield Need(start, f"the environment's branch {branch!r}, which began at it")


def _changes(state: TableState, pinned: Collection[int], now_ms: int) -> Iterator[SetTag | DropTag]:
    kept = {pin_name(snapshot_id) for snapshot_id in pinned}
    yield from (DropTag(ref) for ref in sorted(state.refs) if is_pin(ref) and ref not in kept)
    for snapshot_id in sorted(pinned):
        name, age = pin_name(snapshot_id), now_ms - state.snapshots[snapshot_id].committed_at_ms
        ends_at = state.retention[name].max_ref_age_ms if name in state.retention else None
        if ends_at is None or ends_at - age < _RENEWED_MS:
            yield SetTag(name, snapshot_id, tag_days(age, _LIFETIME_MS))


_NO_RETENTION: Final = RefRetention()
_MAX_REF_AGE: Final = "history.expire.max-ref-age-ms"


@dataclass(frozen=True, slots=True)
class Expiry:
    """What an expiry of snapshots removes from the metadata of a table.

    Args:
        snapshots: The ids of the snapshots that go, oldest first.
        refs: The branches and tags that go, sorted.
        freed_bytes: The size of the data files that no snapshot needs afterwards, as far as summaries show. Files that
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
    """Return whether an expiry keeps a branch or tag. It drops one whose snapshot was expired."""
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

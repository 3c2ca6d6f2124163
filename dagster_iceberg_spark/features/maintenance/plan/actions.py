"""Plans the maintenance of a table: which actions are due, and who needs the old snapshots that stay."""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, Final, Literal, TypeAlias

from dagster_iceberg_spark.features.maintenance.options import MaintenancePolicy
from dagster_iceberg_spark.features.maintenance.plan.health import (
    PartitionFiles,
    TableFiles,
    compactable_partitions,
    milliseconds,
    needs_new_manifests,
    needs_statistics,
    readable_bytes,
    target_bytes,
    with_noun,
)
from dagster_iceberg_spark.features.maintenance.plan.pins import (
    Expiry,
    Need,
    Pins,
    is_pin,
    planned_expiry,
    planned_pins,
    refs_in_words,
)
from dagster_iceberg_spark.table.identifier import TableIdentifier, directory_place, places_of
from dagster_iceberg_spark.table.partitioning import PartitionField
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, TableState
from dagster_iceberg_spark.table.updates import SetTag

_SHOWN_PARTITIONS: Final = 5
_GC_ENABLED: Final = "gc.enabled"
"""Table property: whether Iceberg may delete files of the table. Otherwise, its procedures fail."""
_DELETE_GRANULARITY: Final = "write.delete.granularity"


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Delete the rows of an asset's partitions that are not retained any longer.

    Args:
        asset: The asset.
        partitions: The partitions, in words.
    """

    asset: str
    partitions: str

    def __str__(self) -> str:
        return f"delete the rows of {self.asset} {self.partitions}"


@dataclass(frozen=True, slots=True)
class Compact:
    """Compact the data files of partitions.

    Args:
        partitions: The partitions.
        field: The time field of the spec, by whose column the partitions are selected, or None for the whole table.
        start: The earliest start of their time windows.
        end: The latest end of their time windows.
        strategy: How rows are arranged: as they are (`binpack`), by the table's order, or by a z-order.
        zorder_by: The columns of the z-order.
        target_bytes: The size of the new files, in bytes.
        min_input_files: The number of files of a partition from which on Iceberg compacts it.
        delete_ratio: The share of rows in delete files from which on Iceberg compacts a file.
    """

    partitions: tuple[str, ...]
    field: PartitionField | None
    start: dt.datetime | None
    end: dt.datetime | None
    strategy: Literal["binpack", "sort", "zorder"]
    zorder_by: tuple[str, ...]
    target_bytes: int
    min_input_files: int
    delete_ratio: float

    name: ClassVar = "compact"

    def __str__(self) -> str:
        named = [partition or "the whole table" for partition in self.partitions[:_SHOWN_PARTITIONS]]
        more = len(self.partitions) - len(named)
        how = {"binpack": "", "sort": ", sorted", "zorder": f", by the z-order of {', '.join(self.zorder_by)}"}
        return f"compact {', '.join(named)}{f' and {more} more partitions' if more else ''}{how[self.strategy]}"


@dataclass(frozen=True, slots=True)
class RewritePositionDeletes:
    """Compact the delete files that name rows by position, and drop those of rows that were removed."""

    files: int
    min_input_files: int

    name: ClassVar = "rewrite the position deletes of"

    def __str__(self) -> str:
        return f"rewrite {with_noun(self.files, 'position delete file')}"


@dataclass(frozen=True, slots=True)
class RewriteManifests:
    """Join small manifests."""

    manifests: int

    name: ClassVar = "rewrite the manifests of"

    def __str__(self) -> str:
        return f"rewrite {with_noun(self.manifests, 'manifest')}"


@dataclass(frozen=True, slots=True)
class ComputeStatistics:
    """Compute statistics of columns, and of partitions if there are any."""

    has_partitions: bool

    name: ClassVar = "compute the statistics of"

    def __str__(self) -> str:
        return f"compute the statistics of columns{' and partitions' if self.has_partitions else ''}"


@dataclass(frozen=True, slots=True)
class ExpireSnapshots:
    """Expire snapshots, and delete the files that no other snapshot has."""

    older_than_ms: int
    retain_last: int
    expiry: Expiry
    keeps_lineage: bool

    name: ClassVar = "expire the snapshots of"

    def __str__(self) -> str:
        freed = self.expiry.freed_bytes
        return (
            f"expire {with_noun(len(self.expiry.snapshots), 'snapshot')}"
            f"{f', which frees {readable_bytes(freed)} of data files' if freed else ''}"
        )


@dataclass(frozen=True, slots=True)
class RemoveOrphans:
    """Remove files that belong to no snapshot: those that the previous maintenance has listed."""

    older_than_ms: int

    name: ClassVar = "remove the orphan files of"

    def __str__(self) -> str:
        return "look for files that belong to no snapshot"


Rewrite: TypeAlias = Compact | RewritePositionDeletes | RewriteManifests | ComputeStatistics
Procedure: TypeAlias = Rewrite | ExpireSnapshots | RemoveOrphans
"""An action that Iceberg's procedures do."""
Action: TypeAlias = DeleteRows | Procedure


@dataclass(frozen=True, slots=True)
class KeptSnapshot:
    """An old snapshot that stays, and who needs it."""

    snapshot_id: int
    committed_at: dt.datetime
    needed_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MaintenancePlan:
    """The maintenance of a table.

    Args:
        actions: The actions that are due, in the order in which they are done.
        pins: The tags that keep snapshots.
        kept: The snapshots beyond the policy's age that stay, oldest first.
        notes: What is not done, and why.
    """

    table: TableIdentifier
    actions: tuple[Action, ...]
    pins: Pins
    kept: tuple[KeptSnapshot, ...]
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the plan for JSON."""
        return {
            "table": str(self.table),
            "actions": [str(action) for action in self.actions],
            "kept": [
                {
                    "snapshot_id": str(item.snapshot_id),
                    "committed_at": item.committed_at.isoformat(timespec="seconds"),
                    "needed_by": list(item.needed_by),
                }
                for item in self.kept
            ],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class OrphanGuards:
    """What protects files that belong to no snapshot.

    Args:
        obstacle: Why none of them must be removed, or None.
        run_ms: When the oldest run in progress began, in milliseconds since 1970, or None without any. Younger files
            may be its own.
    """

    obstacle: str | None = None
    run_ms: int | None = None


def orphan_obstacle(state: TableState, others: Iterable[TableState], unread: Sequence[str]) -> str | None:
    """Return why no file of a table's location must be removed because it belongs to no snapshot, or None.

    Args:
        state: The table.
        others: The tables of the catalog. Their files must not lie inside of the location.
        unread: The tables of the catalog that could not be read. Where their files are cannot be determined.
    """
    if state.properties.get(_GC_ENABLED, "true").lower() == "false":
        return f"the table has `{_GC_ENABLED}` = `false`"
    location = directory_place(state.location)
    for other in others:
        if other.identifier == state.identifier:
            continue
        for place in places_of(other.location, other.properties):
            if directory_place(place).startswith(location):
                where = "is" if place == other.location else "has files"
                return f"the table {other.identifier} {where} inside of its location"
    return f"where the files of {', '.join(unread)} are cannot be determined" if unread else None


def plan_maintenance(
    state: TableState,
    files: TableFiles,
    needs: Sequence[Need],
    policy: MaintenancePolicy,
    now: dt.datetime,
    *,
    not_retained: Sequence[DeleteRows] = (),
    unread: Sequence[str] = (),
    orphan_guards: OrphanGuards | None = None,
) -> MaintenancePlan:
    """Plan the maintenance of a table.

    Args:
        state: The state of the table.
        files: Its files.
        needs: The snapshots that are needed.
        policy: What is kept, and the thresholds.
        now: The current time, with a zone.
        not_retained: The rows that are not retained any longer.
        unread: The tables of the catalog that could not be read. What they still need cannot be determined.
        orphan_guards: What protects files that belong to no snapshot.
    """
    pins = planned_pins(state, needs, policy, milliseconds(now))
    if unread:
        pins = replace(pins, changes=tuple(change for change in pins.changes if isinstance(change, SetTag)))
    pinned = {change.snapshot_id for change in pins.changes if isinstance(change, SetTag)}
    dropped = {change.name for change in pins.changes if not isinstance(change, SetTag)}
    pinned |= {snapshot_id for ref, snapshot_id in state.refs.items() if is_pin(ref) and ref not in dropped}
    older_than_ms = milliseconds(now - policy.older_than)
    expiry = planned_expiry(
        state.without_refs(dropped),
        now_ms=milliseconds(now),
        older_than_ms=older_than_ms,
        retain_last=policy.retain_last,
        tagged=pinned,
    )
    deletes_files = state.properties.get(_GC_ENABLED, "true").lower() != "false"
    has_many = len(state.snapshots) >= policy.min_snapshots
    is_expiring = deletes_files and not unread and has_many and bool(expiry.snapshots or expiry.refs)
    actions: list[Action] = [*not_retained, *_rewrites(state, files, policy, now)]
    actions += [ExpireSnapshots(older_than_ms, policy.retain_last, expiry, policy.keep_lineage)] if is_expiring else []
    notes = [] if deletes_files else [f"all snapshots stay: the table has `{_GC_ENABLED}` = `false`"]
    if unread:
        notes.append(
            f"all snapshots stay, because what {', '.join(unread)} needs cannot be determined: it could not be read"
        )
    guards = orphan_guards or OrphanGuards()
    if policy.remove_orphans and guards.obstacle is None:
        before_ms = milliseconds(now - policy.orphans_older_than)
        actions.append(RemoveOrphans(min(before_ms, before_ms if guards.run_ms is None else guards.run_ms)))
    elif policy.remove_orphans:
        notes.append(f"files that belong to no snapshot stay: {guards.obstacle}")
    kept = _kept(state, pins, expiry, older_than_ms, policy.retain_last)
    return MaintenancePlan(state.identifier, tuple(actions), pins, tuple(kept), tuple(notes))


def _rewrites(state: TableState, files: TableFiles, policy: MaintenancePolicy, now: dt.datetime) -> Iterator[Rewrite]:
    compactable = compactable_partitions(state, files, policy, now) if policy.compact else ()
    if compactable:
        yield _compaction(state, compactable, policy)
    left = [partition for partition in files.partitions if partition not in compactable]
    many = [item.position_deletes for item in left if _needs_fewer_deletes(state, item, policy)]
    if policy.compact and many:
        yield RewritePositionDeletes(sum(many), policy.min_input_files)
    if needs_new_manifests(state, files, policy):
        yield RewriteManifests(len(files.manifests))
    if policy.statistics and needs_statistics(state, files):
        yield ComputeStatistics(bool(state.spec.live_fields))


def _needs_fewer_deletes(state: TableState, partition: PartitionFiles, policy: MaintenancePolicy) -> bool:
    """Return whether a rewrite leaves fewer position delete files: one for each data file, or for the partition."""
    is_for_partition = state.properties.get(_DELETE_GRANULARITY, "file").lower() == "partition"
    least = 1 if is_for_partition else len(partition.sizes)
    return partition.position_deletes >= policy.min_input_files and partition.position_deletes > least


def _compaction(state: TableState, partitions: Sequence[PartitionFiles], policy: MaintenancePolicy) -> Compact:
    starts = [item.start for item in partitions if item.start is not None]
    ends = [item.end for item in partitions if item.end is not None]
    has_windows = len(starts) == len(ends) == len(partitions)
    times = [field for field in state.spec.live_fields if field.transform.kind == "time"]
    is_selected = has_windows and bool(times)
    return Compact(
        partitions=tuple(item.partition for item in partitions),
        field=times[0] if is_selected else None,
        start=min(starts) if is_selected else None,
        end=max(ends) if is_selected else None,
        strategy="zorder" if policy.zorder_by else "sort" if state.sort_order else "binpack",
        zorder_by=policy.zorder_by,
        target_bytes=target_bytes(state, policy),
        min_input_files=policy.min_input_files,
        delete_ratio=policy.delete_ratio,
    )


def _kept(
    state: TableState, pins: Pins, expiry: Expiry, older_than_ms: int, retain_last: int
) -> Iterator[KeptSnapshot]:
    """Yield the old snapshots that stay, oldest first."""
    gone, words = frozenset(expiry.snapshots), _words(state, pins, retain_last)
    old = [
        snapshot
        for snapshot in (state.snapshots[snapshot_id] for snapshot_id in state.snapshots)
        if snapshot.committed_at_ms < older_than_ms and snapshot.snapshot_id not in gone
    ]
    for snapshot in sorted(old, key=lambda item: item.committed_at_ms):
        yield KeptSnapshot(snapshot.snapshot_id, snapshot.committed_at, tuple(words.get(snapshot.snapshot_id, ())))


def _words(state: TableState, pins: Pins, retain_last: int) -> Mapping[int, list[str]]:
    words: dict[int, list[str]] = {snapshot_id: [*by] for snapshot_id, by in pins.needed.items()}
    for snapshot_id, refs in refs_in_words(state).items():
        words.setdefault(snapshot_id, []).extend(refs)
    for branch in sorted(state.branches & state.refs.keys()):
        own = state.retention[branch].min_snapshots_to_keep if branch in state.retention else None
        where = "`main`" if branch == MAIN_BRANCH else f"the branch {branch!r}"
        for snapshot in islice(state.ancestors(branch), retain_last if own is None else own):
            words.setdefault(snapshot.snapshot_id, []).append(f"one of the newest snapshots of {where}")
    return words

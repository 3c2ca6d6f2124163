"""The health of a table: figures from its metadata and manifests, and the work that they call for."""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

from dagster_iceberg_spark.features.maintenance.options import MaintenancePolicy
from dagster_iceberg_spark.features.maintenance.plan.pins import Expiry, held_by_refs, planned_expiry
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import MAINTAINED_PROPERTY
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, TableState

TARGET_FILE_SIZE: Final = "write.target-file-size-bytes"
DEFAULT_TARGET_BYTES: Final = 512 * 1024 * 1024
SMALL_SHARE: Final = 0.75
"""A smaller file is one that compaction rewrites (`min-file-size-bytes` of Iceberg's `rewrite_data_files`)."""


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The files of one partition.

    Args:
        partition: The partition, such as `ts_day=2024-01-31`, or an empty text in a table without partitions.
        spec_id: The partition spec of the files.
        sizes: The sizes of the data files, in bytes.
        rows: The rows of the data files.
        delete_files: The number of delete files. A delete vector counts as one.
        deleted_rows: The rows that the delete files name. An equality delete may remove more.
        position_deletes: The number of delete files that name rows by position. Delete vectors are not among them.
        newest_snapshot: The snapshot that added the newest file.
        start: Where the time window of the partition begins, in UTC or as a wall clock. None without one.
        end: Where it ends.
    """

    partition: str
    spec_id: int
    sizes: tuple[int, ...]
    rows: int
    delete_files: int
    deleted_rows: int
    position_deletes: int
    newest_snapshot: int | None
    start: dt.datetime | None = None
    end: dt.datetime | None = None

    def small_files(self, target_bytes: int) -> int:
        """Return how many data files are smaller than compaction leaves them."""
        return sum(size < target_bytes * SMALL_SHARE for size in self.sizes)

    @property
    def delete_ratio(self) -> float:
        """The share of the rows that delete files name."""
        return min(self.deleted_rows / self.rows, 1.0) if self.rows else float(self.delete_files > 0)


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table.

    Args:
        partitions: The data and delete files by partition.
        manifests: The sizes of the manifests, in bytes.
        metadata_bytes: The size of the metadata file, in bytes, or None if it is unknown.
        statistics: The snapshots that a file of statistics describes (Iceberg spec, "Table Statistics").
    """

    partitions: tuple[PartitionFiles, ...] = ()
    manifests: tuple[int, ...] = ()
    metadata_bytes: int | None = None
    statistics: frozenset[int] = frozenset()

    @property
    def sizes(self) -> Sequence[int]:
        """The sizes of all data files, in bytes."""
        return [size for partition in self.partitions for size in partition.sizes]

    @property
    def median_bytes(self) -> int:
        """The median size of a data file, in bytes."""
        return int(median(self.sizes)) if self.sizes else 0

    @property
    def delete_files(self) -> int:
        """The number of delete files."""
        return sum(partition.delete_files for partition in self.partitions)

    @property
    def delete_ratio(self) -> float:
        """The share of all rows that delete files name."""
        rows = sum(partition.rows for partition in self.partitions)
        deleted = sum(partition.deleted_rows for partition in self.partitions)
        return min(deleted / rows, 1.0) if rows else 0.0


MANIFEST_TARGET: Final = "commit.manifest.target-size-bytes"
_DEFAULT_MANIFEST_BYTES: Final = 8 * 1024 * 1024
_SHOWN_PARTITIONS: Final = 5
_THOUSAND: Final = 1000


@dataclass(frozen=True, slots=True)
class RefHealth:
    """A branch or tag, and what it keeps.

    Args:
        kind: `branch` or `tag`.
        snapshots: The number of snapshots that an expiry keeps only because of it.
        bytes: The size of the data files that an expiry keeps only because of it, as far as summaries show.
    """

    name: str
    kind: str
    snapshots: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TableHealth:
    """The health of a table.

    Args:
        target_bytes: The size of data files that compaction aims at, in bytes.
        small_files: The number of data files below 75 % of it.
        compactable: The partitions that deserve compaction.
        oldest_snapshot: When the oldest snapshot was committed.
        expiry: What an expiry by the policy would remove. Snapshots that are needed may be among them.
        refs: The branches and tags besides `main`.
        maintained_at: When the package maintained the table last.
        statistics_at: When the newest snapshot with statistics was committed.
        needs: The work that the table needs, in words. Empty for a healthy table.
    """

    table: TableIdentifier
    files: TableFiles
    target_bytes: int
    small_files: int
    compactable: tuple[PartitionFiles, ...]
    snapshots: int
    oldest_snapshot: dt.datetime | None
    expiry: Expiry
    refs: tuple[RefHealth, ...]
    maintained_at: dt.datetime | None
    statistics_at: dt.datetime | None
    needs: tuple[str, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether the table needs no work."""
        return not self.needs

    def figures(self) -> dict[str, int | float | None]:
        """Return the figures that are worth a plot over time, by name."""
        files = self.files
        return {
            "files": len(files.sizes),
            "bytes": sum(files.sizes),
            "median_file_bytes": files.median_bytes,
            "small_files": self.small_files,
            "delete_files": files.delete_files,
            "delete_ratio": round(files.delete_ratio, 4),
            "manifests": len(files.manifests),
            "average_manifest_bytes": average(files.manifests),
            "snapshots": self.snapshots,
            "metadata_bytes": files.metadata_bytes,
            "compactable_partitions": len(self.compactable),
            "expirable_snapshots": len(self.expiry.snapshots),
            "expirable_bytes": self.expiry.freed_bytes,
        }

    def document(self) -> dict[str, Any]:
        """Return the health for JSON."""
        return {
            "table": str(self.table),
            "is_healthy": self.is_healthy,
            "needs": list(self.needs),
            **self.figures(),
            "target_file_bytes": self.target_bytes,
            "oldest_snapshot": _text(self.oldest_snapshot),
            "maintained_at": _text(self.maintained_at),
            "statistics_at": _text(self.statistics_at),
            "compact": [item.partition for item in self.compactable],
            "refs": [
                {"name": ref.name, "kind": ref.kind, "snapshots": ref.snapshots, "bytes": ref.bytes}
                for ref in self.refs
            ],
        }


def table_health(state: TableState, files: TableFiles, policy: MaintenancePolicy, now: dt.datetime) -> TableHealth:
    """Return the health of a table.

    Args:
        state: The state of the table.
        files: Its files.
        policy: The thresholds.
        now: The current time, with a zone.
    """
    state = replace(state, snapshots=dict(state.snapshots))  # each is converted once
    target = target_bytes(state, policy)
    compactable = compactable_partitions(state, files, policy, now)
    expiry = expiry_by(policy, state, now)
    committed = [state.snapshots[snapshot_id].committed_at_ms for snapshot_id in state.snapshots]
    maintained = state.properties.get(MAINTAINED_PROPERTY)
    return TableHealth(
        table=state.identifier,
        files=files,
        target_bytes=target,
        small_files=sum(partition.small_files(target) for partition in files.partitions),
        compactable=compactable,
        snapshots=len(committed),
        oldest_snapshot=dt.datetime.fromtimestamp(min(committed) / 1000, dt.timezone.utc) if committed else None,
        expiry=expiry,
        refs=tuple(_refs(state, expiry, policy, now)),
        maintained_at=dt.datetime.fromisoformat(maintained) if maintained else None,
        statistics_at=next(
            (item.committed_at for item in state.ancestors(MAIN_BRANCH) if item.snapshot_id in files.statistics), None
        ),
        needs=tuple(_needs(state, files, policy, compactable, expiry)),
    )


def needs_statistics(state: TableState, files: TableFiles) -> bool:
    """Return whether rows have changed since the newest statistics, or there are none. Compaction changes no row."""
    for snapshot in state.ancestors(MAIN_BRANCH):
        if snapshot.snapshot_id in files.statistics:
            return False
        if not snapshot.is_compaction:
            return True
    return True


def target_bytes(state: TableState, policy: MaintenancePolicy) -> int:
    """Return the size of data files that compaction aims at, in bytes."""
    return policy.target_file_bytes or int(state.properties.get(TARGET_FILE_SIZE, DEFAULT_TARGET_BYTES))


def compactable_partitions(
    state: TableState, files: TableFiles, policy: MaintenancePolicy, now: dt.datetime
) -> tuple[PartitionFiles, ...]:
    """Return the closed partitions with enough small files, or rows in delete files, that others wrote since.

    A partition whose newest file was written by compaction has not changed since.
    """
    target = target_bytes(state, policy)
    return tuple(
        partition
        for partition in files.partitions
        if (
            partition.small_files(target) >= policy.min_input_files
            or (partition.delete_files and partition.delete_ratio >= policy.delete_ratio)
        )
        and is_closed(partition, policy, now)
        and not _is_compacted(state, partition)
    )


def is_closed(partition: PartitionFiles, policy: MaintenancePolicy, now: dt.datetime) -> bool:
    """Return whether the time window of a partition, if it has one, ended long enough ago. Wall clocks count as UTC."""
    if partition.end is None:
        return True
    return partition.end.replace(tzinfo=dt.timezone.utc) + policy.settle <= now


def needs_new_manifests(state: TableState, files: TableFiles, policy: MaintenancePolicy) -> bool:
    """Return whether there are many manifests that are small on average."""
    target = int(state.properties.get(MANIFEST_TARGET, _DEFAULT_MANIFEST_BYTES))
    return len(files.manifests) >= policy.min_manifests and average(files.manifests) < target


def expiry_by(policy: MaintenancePolicy, state: TableState, now: dt.datetime) -> Expiry:
    """Return what an expiry by the policy removes, if nothing needs older snapshots."""
    older_than_ms = milliseconds(now - policy.older_than)
    return planned_expiry(state, now_ms=milliseconds(now), older_than_ms=older_than_ms, retain_last=policy.retain_last)


def milliseconds(instant: dt.datetime) -> int:
    """Return an instant in milliseconds since 1970."""
    return int(instant.timestamp() * 1000)


def average(sizes: Sequence[int]) -> int:
    """Return the average size, or 0 without any."""
    return sum(sizes) // len(sizes) if sizes else 0


def readable_bytes(size: float) -> str:
    """Return a size in bytes for people, such as `1.5 MB`."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < _THOUSAND:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= _THOUSAND / 10 else f"{size:.1f} {unit}"
        size /= _THOUSAND
    return f"{size:.1f} TB"


def _is_compacted(state: TableState, partition: PartitionFiles) -> bool:
    newest = state.snapshots.get(partition.newest_snapshot or 0)
    return newest is not None and newest.is_compaction


def _refs(state: TableState, expiry: Expiry, policy: MaintenancePolicy, now: dt.datetime) -> Iterator[RefHealth]:
    older_than_ms = milliseconds(now - policy.older_than)
    held = held_by_refs(
        state, expiry, now_ms=milliseconds(now), older_than_ms=older_than_ms, retain_last=policy.retain_last
    )
    for name in sorted(state.refs.keys() - {MAIN_BRANCH}):
        snapshots, size = held[name]
        yield RefHealth(name, "branch" if state.has_branch(name) else "tag", snapshots, size)


def _needs(
    state: TableState,
    files: TableFiles,
    policy: MaintenancePolicy,
    compactable: Sequence[PartitionFiles],
    expiry: Expiry,
) -> Iterator[str]:
    if policy.compact and compactable:
        named = [item.partition or "the whole table" for item in compactable[:_SHOWN_PARTITIONS]]
        more = len(compactable) - len(named)
        listed = f"{', '.join(named)}{f' and {more} more' if more else ''}"
        yield f"compaction of {with_noun(len(compactable), 'partition')}: {listed}"
    if needs_new_manifests(state, files, policy):
        size = readable_bytes(average(files.manifests))
        yield f"fewer manifests: {len(files.manifests)} of {size} on average"
    if len(state.snapshots) >= policy.min_snapshots and expiry.snapshots:
        freed = f", which frees {readable_bytes(expiry.freed_bytes)} of data files" if expiry.freed_bytes else ""
        yield f"expiry of {len(expiry.snapshots)} of {with_noun(len(state.snapshots), 'snapshot')}{freed}"


def with_noun(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 snapshot` and `2 snapshots`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _text(instant: dt.datetime | None) -> str | None:
    return None if instant is None else instant.isoformat(timespec="seconds")

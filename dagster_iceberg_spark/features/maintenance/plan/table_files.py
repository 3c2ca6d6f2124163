"""The files of a table's current snapshot, as its metadata and manifests describe them."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

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
    """

    partitions: tuple[PartitionFiles, ...] = ()
    manifests: tuple[int, ...] = ()
    metadata_bytes: int | None = None

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

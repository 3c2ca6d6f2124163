"""Session settings for a MERGE, chosen by its size."""

from dataclasses import dataclass
from typing import Final

GROUP_FILTER: Final = "spark.sql.optimizer.runtime.rowLevelOperationGroupFilter.enabled"
"""Whether a copy-on-write MERGE first runs a query to find the files with matching rows (Spark, `SQLConf`)."""
SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"

MAXIMUM_LISTED_FILES: Final = 5000
"""The maximum number of data files in a table whose manifests are read to find the size of a MERGE."""
PARTITION_BYTES: Final = 16 * 1024 * 1024
MINIMUM_PARTITIONS: Final = 8


@dataclass(frozen=True, slots=True)
class MergeSize:
    """The size of a MERGE.

    Args:
        files: The number of data files that may hold rows with keys of the batch, by their metadata.
        batch_bytes: The approximate size of the batch's values in memory, in bytes, or None if it is unknown.
        column_ratio: The number of the table's columns for each column of the batch.
    """

    files: int
    stored_rows: int
    batch_rows: int
    batch_bytes: int | None
    column_ratio: float = 1.0

    @property
    def shuffled_bytes(self) -> int | None:
        """The maximum size that the join shuffles, in bytes, if stored rows are as wide as those of the batch."""
        if self.batch_bytes is None or not self.batch_rows:
            return None
        stored_bytes = self.stored_rows * self.batch_bytes / self.batch_rows * self.column_ratio
        return round(self.batch_bytes + stored_bytes)


def merge_settings(size: MergeSize, *, changed_files: int, shuffle_partitions: int) -> dict[str, str]:
    """Return the settings to change in the session for a MERGE that changes rows of so many files."""
    settings = {}
    if changed_files >= size.files:
        # Every planned file is rewritten, so the query would exclude none.
        settings[GROUP_FILTER] = "false"
    if size.shuffled_bytes is not None:
        enough = max(MINIMUM_PARTITIONS, -(-size.shuffled_bytes // PARTITION_BYTES))
        if enough < shuffle_partitions:
            settings[SHUFFLE_PARTITIONS] = str(enough)
    return settings

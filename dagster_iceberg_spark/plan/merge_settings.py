"""How Spark carries out a MERGE, by what is known of it before it runs."""

from dataclasses import dataclass
from typing import Final

GROUP_FILTER: Final = "spark.sql.optimizer.runtime.rowLevelOperationGroupFilter.enabled"
"""Whether a copy-on-write MERGE first runs a query that finds the files in which a row matches (Spark, `SQLConf`)."""
SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"

MAXIMUM_LISTED_FILES: Final = 5000
"""The manifests of a table of more data files are not read to find out what a MERGE has to do."""
PARTITION_BYTES: Final = 16 * 1024 * 1024
MINIMUM_PARTITIONS: Final = 8


@dataclass(frozen=True, slots=True)
class MergeSize:
    """What a MERGE has to do.

    Args:
        files: How many data files may hold rows with keys of the batch, by their metadata.
        stored_rows: How many rows these files have.
        batch_rows: How many rows the batch has.
        batch_bytes: How many bytes the values of the batch take in memory, about; None: that is not known.
        column_ratio: Columns of the table for each column of the batch.
    """

    files: int
    stored_rows: int
    batch_rows: int
    batch_bytes: int | None
    column_ratio: float = 1.0

    @property
    def shuffled_bytes(self) -> int | None:
        """How many bytes the join shuffles at most, if stored rows are as wide as those of the batch."""
        if self.batch_bytes is None or not self.batch_rows:
            return None
        stored_bytes = self.stored_rows * self.batch_bytes / self.batch_rows * self.column_ratio
        return round(self.batch_bytes + stored_bytes)


def merge_settings(size: MergeSize, *, changed_files: int, shuffle_partitions: int) -> dict[str, str]:
    """Return the settings of the session that runs the MERGE, where they are to differ from what the session has.

    Args:
        size: What the MERGE has to do.
        changed_files: How many files hold a row that changes.
        shuffle_partitions: How many partitions the session's shuffles have.
    """
    settings = {}
    if changed_files >= size.files:
        # Each file that is planned is rewritten: there is none to be found out.
        settings[GROUP_FILTER] = "false"
    if size.shuffled_bytes is not None:
        enough = max(MINIMUM_PARTITIONS, -(-size.shuffled_bytes // PARTITION_BYTES))
        if enough < shuffle_partitions:
            settings[SHUFFLE_PARTITIONS] = str(enough)
    return settings

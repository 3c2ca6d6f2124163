"""Compares the files of each write with the size that the asset wants."""

from collections.abc import Mapping
from typing import Any, Final

from dagster_iceberg_spark.assets.observers import ObservedWrite, Observer
from dagster_iceberg_spark.features.file_sizes.options import FileSizeOptions
from dagster_iceberg_spark.plan.options.metadata_key import read_metadata

AVERAGE_FILE_BYTES: Final = "iceberg/average_file_bytes"
_FEW_FILES: Final = 10
"""Below this number, small files are no problem yet: maintenance compacts them."""


class FileSizeObserver(Observer):
    """Reports the average size of the files that a write adds, and warns if they are small."""

    action = "compare the sizes of files"

    def wrote(self, write: ObservedWrite) -> Mapping[str, Any]:
        """Return the average size as metadata, if the asset names one that it wants."""
        wanted = read_metadata(FileSizeOptions, write.table.metadata, subject=write.table.subject).min_file_size
        files, size = (write.commit.snapshot.count(name) for name in ("added-data-files", "added-files-size"))
        if wanted is None or not files:
            return {}
        average = size // files
        if files >= _FEW_FILES and average < wanted:
            write.context.log.warning(
                f"The write added {files} files to {write.table.identifier}, of {average:,} bytes on average. Readers "
                'open each of them. Partition the table less finely, or set `"distribution-mode": "hash"` in '
                "`iceberg/write_options`, so that Spark collects the rows of a partition before it writes them."
            )
        return {AVERAGE_FILE_BYTES: average}

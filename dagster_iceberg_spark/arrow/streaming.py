"""Reads record batches of files on demand.

pyiceberg's reader submits all files to its threads at once and keeps the results. If the consumer is slower than the
disk, the whole table is in memory (https://github.com/apache/iceberg-python/issues/3036, closed as stale).
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
from pyiceberg.table import FileScanTask

READ_AHEAD_BYTES: Final = 16 * 1024 * 1024
"""Files of up to this total size on disk are read in parallel, so many small files take as long as one."""
READ_AHEAD_DECODED_BYTES: Final = 64 * 1024 * 1024
"""They are also limited to this estimated size in memory: a few kilobytes on disk may decode to much more."""
_BYTES_OF_UNKNOWN_ROW: Final = 512


def batches_of(scan: ArrowScan, io: FileIO, tasks: Iterable[FileScanTask]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the files in their order: large files batch by batch, small files several at a time."""
    left, bytes_of_row = deque(tasks), 0
    while left:
        for batch in _read(scan, io, _next_group(left, bytes_of_row or _BYTES_OF_UNKNOWN_ROW)):
            bytes_of_row = max(bytes_of_row, batch.nbytes // max(batch.num_rows, 1))
            yield batch


def _read(scan: ArrowScan, io: FileIO, group: list[FileScanTask]) -> Iterator[pa.RecordBatch]:
    if len(group) > 1:
        yield from scan.to_record_batches(group)
    else:
        deletes = _read_all_delete_files(io, group)
        yield from scan._record_batches_from_scan_tasks_and_deletes(group, deletes)  # noqa: SLF001 - none is public


def _next_group(left: deque[FileScanTask], bytes_of_row: int) -> list[FileScanTask]:
    """Take the files to read next: one, and more within the limits."""
    group: list[FileScanTask] = []
    stored = decoded = 0
    while left:
        stored += left[0].file.file_size_in_bytes
        decoded += left[0].file.record_count * bytes_of_row
        if group and (stored > READ_AHEAD_BYTES or decoded > READ_AHEAD_DECODED_BYTES):
            break
        group.append(left.popleft())
    return group

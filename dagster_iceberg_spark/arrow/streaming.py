"""Record batches of files that are read when they are asked for.

pyiceberg's own reader hands all files to its threads at once and keeps what they return: a consumer that is slower than
the disk has the whole table in memory.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
from pyiceberg.table import FileScanTask

READ_AHEAD_BYTES: Final = 16 * 1024 * 1024
"""Files that are together no larger, as they are stored, are read side by side: many small ones take as long as one."""


def batches_of(scan: ArrowScan, io: FileIO, tasks: Iterable[FileScanTask]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the files, in their order: a large file batch by batch, small ones some at a time.

    Args:
        scan: What is read of each file.
        io: What opens them.
        tasks: The files, with their deletes.
    """
    for group in _groups(tasks):
        if len(group) > 1:
            yield from scan.to_record_batches(group)
        else:
            deletes = _read_all_delete_files(io, group)
            yield from scan._record_batches_from_scan_tasks_and_deletes(group, deletes)  # noqa: SLF001 - none is public


def _groups(tasks: Iterable[FileScanTask]) -> Iterator[list[FileScanTask]]:
    group: list[FileScanTask] = []
    size = 0
    for task in tasks:
        if group and size + task.file.file_size_in_bytes > READ_AHEAD_BYTES:
            yield group
            group, size = [], 0
        group.append(task)
        size += task.file.file_size_in_bytes
    if group:
        yield group

"""Finds data files that a failed write may have left: new files that belong to no snapshot.

Iceberg deletes them only after a commit conflict. If a write is cancelled or fails, the files of its finished tasks
stay. If the catalog rejects a commit, all files of the write stay. The file names contain an id that Spark generates
for each write and does not reveal, so the files are found by their age.
"""

import datetime as dt
import re
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import added_files
from dagster_iceberg_spark.catalog.look import find_table, translated_answers
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.timeouts import LISTING_SECONDS

MAXIMUM_ENTRIES: Final = 10_000
_DATA_FILE = re.compile(r"\d{5,}-\d+-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-")
"""File names of Iceberg's OutputFileFactory: partition, task, id of the write and epoch, number of the file."""


def leftovers(
    description: CatalogDescription,
    identifier: TableIdentifier,
    since: dt.datetime,
    *,
    maximum_seconds: float = LISTING_SECONDS,
    maximum_entries: int = MAXIMUM_ENTRIES,
) -> list[str]:
    """Return the paths of data files that are newer than `since`, when the write began, but belong to no snapshot.

    A write in progress by another process looks the same. Report these files, but never delete them.
    """
    table = find_table(description, identifier)
    if table is None or not isinstance(table.io, PyArrowFileIO):
        return []
    committed = {
        file.path
        for snapshot in table.snapshots()
        if snapshot.timestamp_ms >= since.timestamp() * 1000
        for file in added_files(description, identifier, snapshot.snapshot_id, ())
    }
    names = {path.rsplit("/", 1)[-1] for path in committed}
    with translated_answers(description, action=f"list the files of {identifier} in"):
        return sorted(
            info.path
            for info in _entries(table, deadline=time.monotonic() + maximum_seconds, most=maximum_entries)
            if _DATA_FILE.match(info.base_name) and info.mtime and info.mtime >= since and info.base_name not in names
        )


def _entries(table: Table, *, deadline: float, most: int) -> Iterator[FileInfo]:
    """Yield the files below the data directory, level by level, until a limit is reached."""
    root = table.properties.get("write.data.path", f"{table.location().rstrip('/')}/data")
    scheme, netloc, path = PyArrowFileIO.parse_location(root)
    store: FileSystem = table.io.fs_by_scheme(scheme, netloc)  # type: ignore[attr-defined]
    directories, seen = deque([path]), 0
    while directories and seen < most and time.monotonic() < deadline:
        for info in store.get_file_info(FileSelector(directories.popleft(), allow_not_found=True)):
            seen += 1
            if info.type == FileType.Directory:
                directories.append(info.path)
            elif info.type == FileType.File:
                yield info

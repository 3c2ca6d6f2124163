"""Reads manifests with the fields of all format versions.

pyiceberg 0.12 reads manifests as those of format 2: without the ids of rows, and without what distinguishes the
deletion vectors of one file (apache/iceberg-python #1551).
"""

from typing import Any, Final, TypeAlias

from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    _inherit_from_manifest,
)
from pyiceberg.table.snapshots import Snapshot

NEWEST_FORMAT: Final = 3
"""The version whose records have the fields of all versions. Those of version 2 are at the same places."""
FIRST_ROW_ID_OF_MANIFEST: Final = 15
FIRST_ROW_ID, REFERENCED_DATA_FILE, CONTENT_OFFSET = 16, 17, 18
"""The places of fields of a data file for which pyiceberg has no name."""
_PATH_BOUND: Final = 2147483546
"""The id of the column with the data file, in files of deleted positions (Iceberg spec, "Reserved Field IDs")."""

FileKey: TypeAlias = tuple[str, int | None]
"""Tells files apart: the path and, of a deletion vector, where it begins. One file holds those of many data files."""


def file_key(file: DataFile) -> FileKey:
    """Return what identifies a file of a manifest."""
    return file.file_path, _value(file, CONTENT_OFFSET)


def masked_file(file: DataFile) -> str | None:
    """Return the path of the only data file whose rows a file deletes, or None if there may be several."""
    if file.content != DataFileContent.POSITION_DELETES:
        return None
    known = _value(file, REFERENCED_DATA_FILE)
    if known is not None:
        return str(known)
    lower, upper = ((bounds or {}).get(_PATH_BOUND) for bounds in (file.lower_bounds, file.upper_bounds))
    return lower.decode(errors="replace") if lower is not None and lower == upper else None


def manifests_of(io: FileIO, snapshot: Snapshot | None) -> list[ManifestFile]:
    """Return the manifests of a snapshot, with the ids of their rows; none without a snapshot."""
    if snapshot is None:
        return []
    with AvroFile[ManifestFile](
        io.new_input(snapshot.manifest_list),
        MANIFEST_LIST_FILE_SCHEMAS[NEWEST_FORMAT],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as reader:
        return list(reader)


def read_entries(io: FileIO, manifest: ManifestFile, *, discard_deleted: bool = True) -> list[ManifestEntry]:
    """Return the entries of a manifest, with what they inherit from it.

    The rows of a file without an id of its first row have the next ids of the manifest (Iceberg spec, "First Row ID
    Inheritance").
    """
    next_row_id = _value(manifest, FIRST_ROW_ID_OF_MANIFEST)
    entries = list[ManifestEntry]()
    with AvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[NEWEST_FORMAT],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        for entry in reader:
            file = entry.data_file
            is_live = entry.status != ManifestEntryStatus.DELETED
            if is_live and next_row_id is not None and _value(file, FIRST_ROW_ID) is None:
                file[FIRST_ROW_ID] = next_row_id
                next_row_id += file.record_count
            if is_live or not discard_deleted:
                entries.append(_inherit_from_manifest(entry, manifest))
    return entries


def _value(record: Any, place: int) -> Any:
    return record[place] if len(record) > place else None  # pyiceberg's records of version 2 end before

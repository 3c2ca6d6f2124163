"""Writes the manifests of a new snapshot, in all format versions, with delete files and the ids of rows.

pyiceberg 0.12 writes manifests neither of format 3 nor of delete files (apache/iceberg-python #1551).
"""

import itertools
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriterV1,
    ManifestListWriterV2,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.utils.concurrent import ExecutorFactory
from typing_extensions import Self

from dagster_iceberg_spark.catalog.files import discard
from dagster_iceberg_spark.catalog.manifests import (
    FIRST_ROW_ID_OF_MANIFEST,
    NEWEST_FORMAT,
    FileKey,
    file_key,
    manifests_of,
    read_entries,
)
from dagster_iceberg_spark.table.snapshot import ROW_LINEAGE_VERSION

_WIDTH_OF_FILE: Final = 20
_WIDTH_OF_MANIFEST: Final = 16
"""The numbers of fields that format 3 has."""
_DELETES_VERSION: Final = 2
_OF_ROW_LINEAGE: Final = frozenset((142, 144, 145))
"""The ids of the fields that only format 3 has: `first_row_id`, `content_offset` and `content_size_in_bytes`."""


class _ManifestWriter(ManifestWriterV2):
    """Writes a manifest of data files or of delete files, of any version."""

    def __init__(self, version: Any, content: ManifestContent, **more: Any) -> None:
        super().__init__(**more)
        self._version, self._content = version, content

    def content(self) -> ManifestContent:
        return self._content

    @property
    def version(self) -> Any:
        return self._version

    @property
    def _meta(self) -> dict[str, str]:
        meta = {**super()._meta, "content": self._content.name.lower()}
        return {key: value for key, value in meta.items() if key != "content" or self._version > 1}

    def new_writer(self) -> Any:
        fields = self._with_partition(NEWEST_FORMAT)
        written = self._with_partition(self._version)
        if (
            self._version == _DELETES_VERSION
        ):  # it may have the data file that deletes refer to, which pyiceberg leaves out
            written = _without(fields, _OF_ROW_LINEAGE)
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=written,
            record_schema=fields,
            schema_name="manifest_entry",
            metadata=self._meta,
        )

    def prepare_entry(self, entry: ManifestEntry) -> ManifestEntry:
        *fields, file = cast("Iterable[Any]", super().prepare_entry(entry))
        return ManifestEntry(*fields, _padded(file, _WIDTH_OF_FILE))

    def to_manifest_file(self) -> ManifestFile:
        manifest: ManifestFile = _padded(super().to_manifest_file(), _WIDTH_OF_MANIFEST)
        return manifest


def _padded(record: Any, width: int) -> Any:
    """Return a copy of a record, with the fields that version 3 adds at the end."""
    return type(record)(*record, *[None] * (width - len(record)))


def _without(entry: Schema, field_ids: Collection[int]) -> Schema:
    """Return the schema of manifest entries without some fields of the file."""
    *others, file = entry.fields
    struct: Any = file.field_type
    kept = [field for field in struct.fields if field.field_id not in field_ids]
    return Schema(*others, file.model_copy(update={"field_type": type(struct)(*kept)}))


class _ListWriter(ManifestListWriterV2):
    """Writes the list of manifests of format 3, which assigns ids to rows, or of format 2."""

    def __init__(self, version: int, next_row_id: int | None, output: OutputFile, **more: Any) -> None:
        super().__init__(output, **more)
        self._format_version: Any = version
        self.next_row_id = next_row_id
        self._meta["format-version"] = str(version)
        if next_row_id is not None:
            self._meta["first-row-id"] = str(next_row_id)

    def __enter__(self) -> Self:
        self._writer = AvroOutputFile[ManifestFile](
            output_file=self._output_file,
            record_schema=MANIFEST_LIST_FILE_SCHEMAS[NEWEST_FORMAT],
            file_schema=MANIFEST_LIST_FILE_SCHEMAS[self._format_version],
            schema_name="manifest_file",
            metadata=self._meta,
        )
        self._writer.__enter__()
        return self

    def prepare_manifest(self, manifest_file: ManifestFile) -> ManifestFile:
        """Return the manifest with its sequence number and the id of its first row (`ManifestListWriter.V3Writer`)."""
        prepared = _padded(super().prepare_manifest(manifest_file), _WIDTH_OF_MANIFEST)
        is_new = prepared.content == ManifestContent.DATA and prepared[FIRST_ROW_ID_OF_MANIFEST] is None
        if self.next_row_id is not None and is_new:
            prepared[FIRST_ROW_ID_OF_MANIFEST] = self.next_row_id
            self.next_row_id += prepared.existing_rows_count + prepared.added_rows_count
        return prepared  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Base:
    """What a new snapshot is added to.

    Args:
        parent: Its parent, or None if the branch has no snapshot.
        sequence_number: The last one of the table; None in format 1.
        next_row_id: The first id that no row has; None before format 3.
    """

    parent: Snapshot | None
    sequence_number: int | None
    next_row_id: int | None

    @classmethod
    def of(cls, table: Table, parent: Snapshot | None) -> "Base":
        """Return the table as it is, with this parent."""
        metadata: Any = table.metadata
        version = metadata.format_version
        return cls(
            parent,
            metadata.last_sequence_number if version > 1 else None,
            (metadata.next_row_id or 0) if version >= ROW_LINEAGE_VERSION else None,
        )

    def after(self, snapshot: Snapshot, *, parent: Snapshot | None) -> "Base":
        """Return the table with a new snapshot, and the parent of the next one."""
        next_row_id = None if self.next_row_id is None else self.next_row_id + (snapshot.added_rows or 0)
        return Base(parent, None if self.sequence_number is None else snapshot.sequence_number, next_row_id)


@dataclass(frozen=True, slots=True)
class FileChange:
    """The files that a snapshot adds and removes.

    Args:
        added: The files that it adds, each with the sequence number of its rows, or None for that of the snapshot.
        removed: The files that it removes.
    """

    added: Sequence[tuple[DataFile, int | None]]
    removed: Sequence[DataFile]

    def snapshot(self, files: "SnapshotFiles", properties: Mapping[str, str], operation: Operation) -> Snapshot | None:
        """Write the snapshot. Return None if its parent lacks a file to remove."""
        going = {file_key(file) for file in self.removed}
        kinds = {(file.spec_id, file.content == DataFileContent.DATA) for file in self.removed}
        io, kept, found = files.table.io, list[ManifestFile](), set[FileKey]()

        def read(manifest: ManifestFile) -> list[ManifestEntry]:
            kind = (manifest.partition_spec_id, manifest.content == ManifestContent.DATA)
            return read_entries(io, manifest) if kind in kinds else []

        manifests = manifests_of(io, files.base.parent)
        for manifest, entries in zip(manifests, ExecutorFactory.get_or_create().map(read, manifests), strict=True):
            held = going.intersection(file_key(entry.data_file) for entry in entries)
            found |= held
            kept.append(files.without(manifest, entries, held) if held else manifest)
        if found != going:
            return None
        added = [file for file, _ in self.added]
        return files.snapshot([*files.adding(self.added), *kept], operation, added, self.removed, properties)


class SnapshotFiles:
    """The manifests and the manifest list of a new snapshot. It is also what pyiceberg merges manifests for."""

    def __init__(self, table: Table, base: Base) -> None:
        """Choose the id of the snapshot. Nothing is written yet."""
        self.table, self.base = table, base
        self.snapshot_id = table.metadata.new_snapshot_id()
        self._paths = list[str]()
        self._commit_id = uuid.uuid4()
        self._numbers: Iterator[int] = itertools.count()

    def snapshot(
        self,
        manifests: Sequence[ManifestFile],
        operation: Operation,
        added: Iterable[DataFile],
        removed: Iterable[DataFile],
        properties: Mapping[str, str],
    ) -> Snapshot:
        """Write the list of manifests, and return the snapshot. The files are those that it adds and removes."""
        metadata, base = self.table.metadata, self.base
        sequence_number = None if base.sequence_number is None else base.sequence_number + 1
        parent_id = None if base.parent is None else base.parent.snapshot_id
        path = self._new_path(f"snap-{self.snapshot_id}-0-{self._commit_id}.avro")
        output = self.table.io.new_output(path)
        ids: Any = {"snapshot_id": self.snapshot_id, "parent_snapshot_id": parent_id, "compression": self._compression}
        writer: ManifestListWriterV1 | _ListWriter
        if sequence_number is None:
            writer = ManifestListWriterV1(output, **ids)
        else:
            ids["sequence_number"] = sequence_number
            writer = _ListWriter(metadata.format_version, base.next_row_id, output, **ids)
        with writer:
            writer.add_manifests(list(manifests))
        next_row_id = writer.next_row_id if isinstance(writer, _ListWriter) else None
        return Snapshot.model_validate(
            {
                "snapshot-id": self.snapshot_id,
                "parent-snapshot-id": parent_id,
                "sequence-number": sequence_number,
                "manifest-list": path,
                "summary": self._summary(operation, added, removed, properties),
                "schema-id": metadata.current_schema_id,
                "first-row-id": base.next_row_id,
                "added-rows": None if next_row_id is None else next_row_id - (base.next_row_id or 0),
            }
        )

    def delete(self) -> None:
        """Delete the files, which no snapshot of the table has."""
        discard(self.table.io, self._paths)

    def without(
        self, manifest: ManifestFile, entries: Sequence[ManifestEntry], going: Collection[FileKey]
    ) -> ManifestFile:
        """Return a manifest with some of its files marked as deleted by this snapshot."""
        with self._writer(self.spec(manifest.partition_spec_id), ManifestContent(manifest.content)) as writer:
            for entry in entries:
                is_going = file_key(entry.data_file) in going
                writer.add_entry(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.DELETED if is_going else ManifestEntryStatus.EXISTING,
                        snapshot_id=self.snapshot_id if is_going else entry.snapshot_id,
                        sequence_number=entry.sequence_number,
                        file_sequence_number=entry.file_sequence_number,
                        data_file=entry.data_file,
                    )
                )
        return writer.to_manifest_file()

    def adding(self, entries: Iterable[tuple[DataFile, int | None]]) -> list[ManifestFile]:
        """Return new manifests of files, each with the sequence number of its rows, or None for the snapshot's own."""
        by_kind = dict[tuple[int, ManifestContent], list[tuple[DataFile, int | None]]]()
        for file, number in entries:
            is_data = file.content == DataFileContent.DATA
            content = ManifestContent.DATA if is_data else ManifestContent.DELETES
            by_kind.setdefault((file.spec_id, content), []).append((file, number))
        return [self._added(*kind, files) for kind, files in by_kind.items()]

    def _added(
        self, spec_id: int, content: ManifestContent, files: Sequence[tuple[DataFile, int | None]]
    ) -> ManifestFile:
        with self._writer(self.spec(spec_id), content) as writer:
            for file, number in files:
                writer.add_entry(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self.snapshot_id,
                        sequence_number=number,
                        file_sequence_number=None,
                        data_file=file,
                    )
                )
        return writer.to_manifest_file()

    def _summary(
        self,
        operation: Operation,
        added: Iterable[DataFile],
        removed: Iterable[DataFile],
        properties: Mapping[str, str],
    ) -> Summary:
        metadata = self.table.metadata
        schema, specs = metadata.schema(), metadata.specs()
        limit = int(metadata.properties.get(TableProperties.WRITE_PARTITION_SUMMARY_LIMIT, 0))
        counts = SnapshotSummaryCollector(limit)
        for file in added:
            counts.add_file(data_file=file, partition_spec=specs[file.spec_id], schema=schema)
        for file in removed:
            counts.remove_file(data_file=file, partition_spec=specs[file.spec_id], schema=schema)
        return update_snapshot_summaries(
            summary=Summary(operation=operation, **counts.build(), **properties),
            previous_summary=None if self.base.parent is None else self.base.parent.summary,
        )

    # What pyiceberg's merging of manifests asks a producer for.

    def spec(self, spec_id: int) -> PartitionSpec:
        """Return a partition spec."""
        return self.table.metadata.specs()[spec_id]

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriterV2:
        """Return a writer of a manifest of data files."""
        return self._writer(spec, ManifestContent.DATA)

    def fetch_manifest_entry(self, manifest: ManifestFile, *, discard_deleted: bool = True) -> list[ManifestEntry]:
        """Return the entries of a manifest."""
        return read_entries(self.table.io, manifest, discard_deleted=discard_deleted)

    def _writer(self, spec: PartitionSpec, content: ManifestContent) -> _ManifestWriter:
        metadata = self.table.metadata
        return _ManifestWriter(
            metadata.format_version,
            content,
            spec=spec,
            schema=metadata.schema(),
            output_file=self.table.io.new_output(self._new_path(f"{self._commit_id}-m{next(self._numbers)}.avro")),
            snapshot_id=self.snapshot_id,
            avro_compression=self._compression,
        )

    @property
    def _compression(self) -> Any:
        properties = self.table.metadata.properties
        return properties.get(TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT)

    def _new_path(self, name: str) -> str:
        path = self.table.location_provider().new_metadata_location(name)
        self._paths.append(path)
        return path

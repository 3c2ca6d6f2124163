"""The Iceberg side of a mirror: a table at its newest snapshot, and the files that differ from an earlier one."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.snapshots import Snapshot as PyIcebergSnapshot
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import DoubleType, FloatType, NestedField, PrimitiveType

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.document import document_of, snapshot_of
from dagster_iceberg_spark.catalog.files import entries_in, files_of_either
from dagster_iceberg_spark.catalog.look import find_table, paused_collection, translated_answers
from dagster_iceberg_spark.errors import ConfigurationError, UpstreamMissingError
from dagster_iceberg_spark.features.mirror.ducklake_columns import bound_text, statistics_paths
from dagster_iceberg_spark.features.mirror.options import MirrorMode
from dagster_iceberg_spark.features.mirror.plan import (
    ColumnStatistics,
    FileChange,
    MirrorDeletes,
    MirrorFile,
    MirrorRecord,
    SourceFile,
)
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import Snapshot

_FILE_PATH: Final = 2147483546
"""The field id of `file_path` in position delete files (Iceberg spec, "Reserved Field IDs")."""
_PARQUET: Final = "write the table again without `write.format.default`. DuckDB reads no other files of Iceberg."
_OTHER_MODES: Final = 'use the mode "view" or "copy".'


@dataclass(frozen=True)  # without slots, because `partition_fields` is cached
class Source:
    """An Iceberg table at its newest snapshot of `main`.

    Args:
        catalog: The catalog.
        identifier: The table.
        table: The table, as pyiceberg has loaded it.
        head: The snapshot.
    """

    catalog: CatalogDescription
    identifier: TableIdentifier
    table: Table
    head: PyIcebergSnapshot

    @property
    def schema(self) -> Schema:
        """The current schema."""
        return self.table.schema()

    @property
    def origin(self) -> Snapshot:
        """The snapshot, with its summary."""
        return snapshot_of(document_of(self.head))

    def record(self, mode: MirrorMode) -> MirrorRecord:
        """Return what a mirror of the table says that it shows."""
        return MirrorRecord(
            catalog=self.catalog.name,
            endpoint=self.catalog.endpoint,
            table=str(self.identifier),
            table_uuid=str(self.table.metadata.table_uuid),
            snapshot_id=self.head.snapshot_id,
            schema_id=self.table.metadata.current_schema_id,
            metadata_location=self.table.metadata_location,
            mode=mode,
        )

    def require_scans(self) -> None:
        """Refuse what `iceberg_scan` of DuckDB 1.5.5 cannot read: it would end the process of the reader.

        Raises:
            ConfigurationError: A column is dropped by which the table was partitioned once.
        """
        for spec in self.table.specs().values():
            for field in spec.fields:
                if field.source_id not in self.schema.field_ids and not isinstance(field.transform, VoidTransform):
                    raise ConfigurationError.refusing(
                        "mirror",
                        str(self.identifier),
                        expected="partition specs, old ones included, whose columns still exist",
                        found=f"the partition field {field.name!r} of a column that was dropped",
                        hint='use the mode "register".',
                    )

    @cached_property
    def partition_fields(self) -> tuple[tuple[int, NestedField], ...]:
        """The columns that partition the table as they are, each with its place in the spec.

        DuckLake's other transforms differ from Iceberg's: its `month` is that of the year.
        """
        return tuple(
            (place, self.schema.find_field(field.source_id))
            for place, field in enumerate(self.table.spec().fields)
            if isinstance(field.transform, IdentityTransform)
        )

    def differences(self, mirrored: MirrorRecord | None) -> tuple[list[DataFile] | None, list[DataFile]]:
        """Return the files that only the mirrored snapshot has, or None if they are unknown, and the new files.

        Manifests that both snapshots have are not read.
        """
        before = None if mirrored is None else self.table.snapshot_by_id(mirrored.snapshot_id)
        action = f"read the manifests of {self.identifier} in"
        with translated_answers(self.catalog, action=action), paused_collection():
            if before is None:
                return None, self._files_of(self.head.manifests(self.table.io))
            return files_of_either(self.table, before.manifests(self.table.io), self.head.manifests(self.table.io))

    def only_compacted_since(self, snapshot_id: int) -> bool:
        """Return whether the rows are still those of an ancestor, because all later snapshots are compactions."""
        current: PyIcebergSnapshot | None = self.head
        while current is not None and current.snapshot_id != snapshot_id:
            if current.summary is None or current.summary.operation != Operation.REPLACE:
                return False
            parent = current.parent_snapshot_id
            current = None if parent is None else self.table.snapshot_by_id(parent)
        return current is not None

    def metadata_files(self) -> set[str]:
        """Return the metadata files of the table that Iceberg keeps."""
        return {self.table.metadata_location, *(item.metadata_file for item in self.table.metadata.metadata_log)}

    def at(self, snapshot_id: int) -> "Source | None":
        """Return the table at another snapshot, or None if that has expired."""
        snapshot = self.table.snapshot_by_id(snapshot_id)
        return None if snapshot is None else replace(self, head=snapshot)

    def data_paths(self) -> set[str]:
        """Return the paths of all data files of the snapshot."""
        return {file.file_path for file in self.live_files() if file.content == DataFileContent.DATA}

    def live_files(self) -> list[DataFile]:
        """Return all files of the snapshot."""
        with translated_answers(self.catalog, action=f"read the manifests of {self.identifier} in"):
            return self._files_of(self.head.manifests(self.table.io))

    def delete_files(self) -> list[DataFile]:
        """Return all delete files of the snapshot."""
        with translated_answers(self.catalog, action=f"read the manifests of {self.identifier} in"):
            manifests = self.head.manifests(self.table.io)
            return self._files_of(item for item in manifests if item.content == ManifestContent.DELETES)

    def source_file(self, file: DataFile) -> SourceFile:
        """Return a file with the text that identifies its partition."""
        return SourceFile(
            path=file.file_path,
            partition=self.partition_of(file),
            is_deletes=file.content != DataFileContent.DATA,
            is_global=file.content == DataFileContent.EQUALITY_DELETES and not self.table.specs()[file.spec_id].fields,
        )

    def partition_of(self, file: DataFile) -> str:
        """Return a text that identifies the spec and the partition of a file."""
        values = [file.partition[place] for place in range(len(file.partition))]
        return hashlib.sha256(f"{file.spec_id}/{values!r}".encode()).hexdigest()[:16]

    def registered_change(
        self, gone: Collection[str], new: Iterable[DataFile], known_deletes: Collection[str]
    ) -> FileChange:
        """Return the change that registers the new data files, ends those that were removed, and replaces the deletes.

        All delete files are compared, because one that does not change may apply again to a data file that returns.

        Args:
            gone: The paths of data files that the DuckLake has and the snapshot has not.
            new: The data files that the snapshot has and the DuckLake has not, among other files.
            known_deletes: The paths of the delete files that the DuckLake has.
        """
        added = tuple(self._mirror_file(file) for file in new if file.content == DataFileContent.DATA)
        deletes = {file.file_path: self._mirror_deletes(file) for file in self.delete_files()}
        return FileChange(
            ended=frozenset(gone),
            added=added,
            ended_deletes=frozenset(known_deletes) - deletes.keys(),
            added_deletes=tuple(item for path, item in deletes.items() if path not in known_deletes),
        )

    def _files_of(self, manifests: Iterable[ManifestFile]) -> list[DataFile]:
        return list(entries_in(self.table, manifests, lambda entry: entry.data_file))

    def _mirror_file(self, file: DataFile) -> MirrorFile:
        if file.file_format != FileFormat.PARQUET:
            raise self._refusal("Parquet files", f"a file in {file.file_format.value}", hint=_PARQUET)
        if file.key_metadata is not None:
            raise self._refusal("files that Iceberg has not encrypted", "an encrypted one")
        return MirrorFile(
            path=file.file_path,
            rows=file.record_count,
            size_bytes=file.file_size_in_bytes,
            statistics=tuple(self._statistics(file)),
            partition=self._partition_values(file),
        )

    def _partition_values(self, file: DataFile) -> tuple[str | None, ...] | None:
        if not self.partition_fields or file.spec_id != self.table.metadata.default_spec_id:
            return None
        values = ((file.partition[place], field.field_type) for place, field in self.partition_fields)
        return tuple(None if value is None else bound_text(value, kind) for value, kind in values)

    def _mirror_deletes(self, file: DataFile) -> MirrorDeletes:
        if file.content == DataFileContent.EQUALITY_DELETES:
            raise self._refusal("no equality deletes", "some")
        if file.file_format == FileFormat.PUFFIN:
            raise self._refusal("no deletion vectors, which DuckLake does not read", "some")
        if file.file_format != FileFormat.PARQUET:
            raise self._refusal("Parquet files", f"a delete file in {file.file_format.value}", hint=_PARQUET)
        bounds = [(of or {}).get(_FILE_PATH) for of in (file.lower_bounds, file.upper_bounds)]
        if bounds[0] is None or bounds[0] != bounds[1]:
            raise self._refusal(
                "delete files that cover one data file each",
                "one that covers several",
                hint="compact the table with `rewrite_position_delete_files`, or " + _OTHER_MODES,
            )
        return MirrorDeletes(file.file_path, bounds[0].decode(), file.record_count, file.file_size_in_bytes)

    def _statistics(self, file: DataFile) -> Iterator[ColumnStatistics]:
        counts, nulls, nans = file.value_counts or {}, file.null_value_counts or {}, file.nan_value_counts or {}
        for _, field in statistics_paths(self.schema.fields):
            column_id = field.field_id
            if column_id not in counts:
                continue
            is_floating = isinstance(field.field_type, DoubleType | FloatType)
            yield ColumnStatistics(
                column_id=column_id,
                size_bytes=(file.column_sizes or {}).get(column_id),
                values=counts[column_id],
                nulls=nulls.get(column_id),
                lower=_bound(file.lower_bounds, field),
                upper=_bound(file.upper_bounds, field),
                has_nan=nans.get(column_id, 1) > 0 if is_floating else None,
            )

    def _refusal(self, expected: str, found: str, *, hint: str = _OTHER_MODES) -> ConfigurationError:
        return ConfigurationError.refusing(
            "register the files of", str(self.identifier), expected=expected, found=found, hint=hint
        )


def newest(catalog: CatalogDescription, identifier: TableIdentifier) -> Source | None:
    """Return a table at its newest snapshot, or None if it has no snapshot yet.

    Raises:
        UpstreamMissingError: The table does not exist.
    """
    table = find_table(catalog, identifier)
    if table is None:
        raise UpstreamMissingError.refusing(
            "mirror", str(identifier), expected=f"a table in the {catalog}", found="none"
        )
    head = table.current_snapshot()
    return None if head is None else Source(catalog, identifier, table, head)


def _bound(bounds: Mapping[int, bytes] | None, field: NestedField) -> str | None:
    if not bounds or field.field_id not in bounds or not isinstance(field.field_type, PrimitiveType):
        return None
    value: Any = from_bytes(field.field_type, bounds[field.field_id])
    return bound_text(value, field.field_type)

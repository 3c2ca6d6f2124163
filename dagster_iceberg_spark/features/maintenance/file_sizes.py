"""Reads the sizes of a table's files from its metadata and manifests. No data is read."""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import entries_in, granule_window
from dagster_iceberg_spark.catalog.look import known_table, paused_collection, translated_answers
from dagster_iceberg_spark.features.maintenance.plan.table_files import PartitionFiles, TableFiles
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.partitioning import parse_transform


def table_files(description: CatalogDescription, identifier: TableIdentifier) -> TableFiles:
    """Return the files of the newest snapshot of `main`.

    Memory holds a few numbers of each file.
    """
    table = known_table(description, identifier, action="list the files of")
    with translated_answers(description, action=f"read the manifests of {identifier} in"), paused_collection():
        snapshot = table.current_snapshot()
        manifests = [] if snapshot is None else snapshot.manifests(table.io)
        return TableFiles(
            partitions=_grouped(table, entries_in(table, manifests, _described)),
            manifests=tuple(manifest.manifest_length for manifest in manifests),
            metadata_bytes=len(table.io.new_input(table.metadata_location)) if table.metadata_location else None,
        )


@dataclass(frozen=True, slots=True)
class _File:
    spec_id: int
    partition: Record
    content: DataFileContent
    is_vector: bool
    size: int
    rows: int
    snapshot_id: int | None
    sequence_number: int


def _described(entry: ManifestEntry) -> _File:
    file = entry.data_file
    return _File(
        spec_id=file.spec_id,
        partition=file.partition,
        content=file.content,
        is_vector=file.file_format == FileFormat.PUFFIN,
        size=file.file_size_in_bytes,
        rows=file.record_count,
        snapshot_id=entry.snapshot_id,
        sequence_number=entry.sequence_number or 0,
    )


@dataclass(slots=True)
class _Group:
    """The files of one partition while they are counted."""

    sizes: list[int] = field(default_factory=list)
    rows: int = 0
    delete_files: int = 0
    deleted_rows: int = 0
    position_deletes: int = 0
    newest: tuple[int, int | None] = (-1, None)

    def add(self, file: _File) -> None:
        if file.content == DataFileContent.DATA:
            self.sizes.append(file.size)
            self.rows += file.rows
        else:
            self.delete_files += 1
            self.deleted_rows += file.rows
            self.position_deletes += file.content == DataFileContent.POSITION_DELETES and not file.is_vector
        if file.sequence_number > self.newest[0]:
            self.newest = (file.sequence_number, file.snapshot_id)


def _grouped(table: Table, files: Iterable[_File]) -> tuple[PartitionFiles, ...]:
    groups: dict[tuple[int, Record], _Group] = {}
    for file in files:
        groups.setdefault((file.spec_id, file.partition), _Group()).add(file)
    named = [_named(table, *key, group) for key, group in groups.items()]
    return tuple(sorted(named, key=lambda item: (item.partition, item.spec_id)))


def _named(table: Table, spec_id: int, partition: Record, group: _Group) -> PartitionFiles:
    spec = table.specs()[spec_id]
    start, end = _window(spec, partition)
    return PartitionFiles(
        partition=spec.partition_to_path(partition, table.schema()),
        spec_id=spec_id,
        sizes=tuple(group.sizes),
        rows=group.rows,
        delete_files=group.delete_files,
        deleted_rows=group.deleted_rows,
        position_deletes=group.position_deletes,
        newest_snapshot=group.newest[1],
        start=start,
        end=end,
    )


def _window(spec: PartitionSpec, partition: Record) -> tuple[dt.datetime | None, dt.datetime | None]:
    """Return the time window of a partition, by its finest time field."""
    values = [
        (parse_transform(str(item.transform)).name, partition[place])
        for place, item in enumerate(spec.fields)
        if partition[place] is not None
    ]
    windows = [window for name, value in values if (window := granule_window(name, value)) is not None]
    return max(windows, default=(None, None), key=lambda window: window[0])

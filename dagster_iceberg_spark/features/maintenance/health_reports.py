"""The health of the tables of a code location, or of a catalog, by metadata and manifests. No data is read."""

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from dagster_iceberg_spark.assets.address import plain_metadata
from dagster_iceberg_spark.assets.stored_tables import stored_members, tables_of_assets
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import entries_in, granule_window
from dagster_iceberg_spark.catalog.look import known_table, paused_collection, translated_answers
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.features.maintenance.options import MaintenanceOptions, MaintenancePolicy
from dagster_iceberg_spark.features.maintenance.plan.health import (
    PartitionFiles,
    TableFiles,
    TableHealth,
    readable_bytes,
    table_health,
)
from dagster_iceberg_spark.plan.options.metadata_key import read_metadata
from dagster_iceberg_spark.resource import IcebergSparkResource
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.partitioning import parse_transform


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """A table with its health, or with the error that kept its metadata from being read."""

    table: str
    health: TableHealth | None
    error: str | None = None

    @property
    def is_healthy(self) -> bool:
        """Whether the table needs no work."""
        return self.health is not None and self.health.is_healthy

    def lines(self) -> Iterator[str]:
        """Yield what the table needs and what its branches and tags keep, for people."""
        if self.health is None:
            yield f"unknown. {self.error}"
            return
        yield from (f"needs {need}." for need in self.health.needs)
        for ref in self.health.refs:
            if ref.snapshots:
                held = f"{ref.snapshots:,} snapshots" if ref.snapshots > 1 else "a snapshot"
                yield f"the {ref.kind} {ref.name!r} keeps {held} and {readable_bytes(ref.bytes)} of data files."

    def document(self) -> dict[str, Any]:
        """Return the table for JSON."""
        return {"table": self.table, "error": self.error} if self.health is None else self.health.document()


def stored_health(
    definitions: dg.Definitions, tables: Collection[str] = (), policy: MaintenancePolicy | None = None
) -> Iterator[CheckedTable]:
    """Yield the health of the tables of a code location's assets, or of those with these names."""
    given = policy or MaintenancePolicy()
    with stored_members(definitions, action="show the health of") as members:
        for table in tables_of_assets(members, tables):
            chosen = policy_of(table.specs, given) or given
            checked = health_of(table.io_manager.spark.catalog_description, table.identifier, chosen)
            if checked is not None:
                yield checked


def catalog_health(
    resource: IcebergSparkResource, tables: Collection[str] = (), policy: MaintenancePolicy | None = None
) -> Iterator[CheckedTable]:
    """Yield the health of all tables of a catalog, or of those with these names."""
    from dagster_iceberg_spark.catalog.tables import tables_of

    catalog = resource.catalog_description
    for identifier in [TableIdentifier.parse(name) for name in tables] or tables_of(catalog):
        checked = health_of(catalog, identifier, policy or MaintenancePolicy())
        if checked is not None:
            yield checked
        elif tables:
            yield CheckedTable(str(identifier), None, "The table does not exist.")


def policy_of(specs: Sequence[dg.AssetSpec], policy: MaintenancePolicy) -> MaintenancePolicy | None:
    """Return the policy with the settings of the assets of a table, or None if one of them excludes the table."""
    for spec in specs:
        settings = maintenance_of(spec).maintenance
        if settings is None:
            return None
        policy = policy.overridden_by(settings)
    return policy


def health_of(
    catalog: CatalogDescription, identifier: TableIdentifier, policy: MaintenancePolicy
) -> CheckedTable | None:
    """Return the health of a table, or None if it does not exist."""
    from dagster_iceberg_spark.catalog.look import look

    try:
        state = look(catalog, identifier)
        if state is None:
            return None
        files = table_files(catalog, identifier)
    except IcebergSparkError as error:
        return CheckedTable(str(identifier), None, str(error))
    now = dt.datetime.now(dt.timezone.utc)
    return CheckedTable(str(identifier), table_health(state, files, policy, now))


def maintenance_of(spec: dg.AssetSpec) -> MaintenanceOptions:
    """Return how the table of an asset is maintained."""
    return read_metadata(MaintenanceOptions, plain_metadata(spec.metadata), subject="/".join(spec.key.path))


def table_files(description: CatalogDescription, identifier: TableIdentifier) -> TableFiles:
    """Return the files of the newest snapshot of `main`.

    Memory holds a few numbers of each file.
    """
    table = known_table(description, identifier, action="list the files of")
    with translated_answers(description, action=f"read the manifests of {identifier} in"), paused_collection():
        snapshot = table.current_snapshot()
        manifests = [] if snapshot is None else snapshot.manifests(table.io)
        return TableFiles(
            partitions=_group(table, entries_in(table, manifests, _describe)),
            manifests=tuple(manifest.manifest_length for manifest in manifests),
            metadata_bytes=len(table.io.new_input(table.metadata_location)) if table.metadata_location else None,
            statistics=frozenset(item.snapshot_id for item in table.metadata.statistics),
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


def _describe(entry: ManifestEntry) -> _File:
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


def _group(table: Table, files: Iterable[_File]) -> tuple[PartitionFiles, ...]:
    groups: dict[tuple[int, Record], _Group] = {}
    for file in files:
        groups.setdefault((file.spec_id, file.partition), _Group()).add(file)
    named = [_name(table, *key, group) for key, group in groups.items()]
    return tuple(sorted(named, key=lambda item: (item.partition, item.spec_id)))


def _name(table: Table, spec_id: int, partition: Record, group: _Group) -> PartitionFiles:
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

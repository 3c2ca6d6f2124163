"""Reads the metadata of a table's data files from manifests. No data is read."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionSpec as PyIcebergSpec
from pyiceberg.table import ManifestGroupPlanner, Table
from pyiceberg.table.snapshots import Snapshot as PyIcebergSnapshot
from pyiceberg.types import PrimitiveType as PyIcebergPrimitive

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import find_table, translated_answers
from dagster_iceberg_spark.catalog.values import bounds_of_value, python_value
from dagster_iceberg_spark.errors import CommitConflictError
from dagster_iceberg_spark.failure_kinds import FailureKind
from dagster_iceberg_spark.plan.overwrite_filter import ColumnBounds, DataFile
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.partitioning import Transform, parse_transform

EVERY_ROW: Final = AlwaysTrue()


def data_files(
    description: CatalogDescription,
    identifier: TableIdentifier,
    snapshot_id: int,
    columns: Iterable[str],
    *,
    schema_id: int | None = None,
    rows: BooleanExpression = EVERY_ROW,
) -> tuple[DataFile, ...]:
    """Return the data files of the snapshot with the bounds of these columns, from manifests only.

    The columns are those of the schema `schema_id`, or of the current one. Files that are known to have no row that
    matches `rows` are left out.
    """

    def listed(table: Table) -> Iterator[ManifestDataFile]:
        # A scan would also find the deletes of each file, and does not support equality deletes.
        metadata = table.metadata
        if schema_id is not None:
            metadata = metadata.model_copy(update={"current_schema_id": schema_id})
        manifests = _known_snapshot(table, snapshot_id).manifests(table.io)
        planner = ManifestGroupPlanner(metadata, table.io, row_filter=rows)
        for entry in chain.from_iterable(planner.plan_manifest_entries(manifests)):
            if entry.data_file.content == DataFileContent.DATA:
                yield entry.data_file

    return _described_files(description, identifier, snapshot_id, columns, listed, schema_id)


def added_files(
    description: CatalogDescription, identifier: TableIdentifier, snapshot_id: int, columns: Iterable[str]
) -> tuple[DataFile, ...]:
    """Return the data files that the snapshot added, from its own manifests only."""
    return _described_files(
        description, identifier, snapshot_id, columns, lambda table: files_added_by(table, snapshot_id)
    )


def removed_files(
    description: CatalogDescription,
    identifier: TableIdentifier,
    snapshot_id: int,
    columns: Iterable[str],
    *,
    schema_id: int | None = None,
) -> tuple[DataFile, ...]:
    """Return the data files that the snapshot removed, and the delete files that remove rows of other files."""

    def listed(table: Table) -> Iterator[ManifestDataFile]:
        for entry in _entries_of(table, snapshot_id):
            is_deletion = entry.data_file.content != DataFileContent.DATA
            if is_deletion == (entry.status == ManifestEntryStatus.ADDED):
                yield entry.data_file

    return _described_files(description, identifier, snapshot_id, columns, listed, schema_id)


def files_added_by(table: Table, snapshot_id: int) -> Iterator[ManifestDataFile]:
    """Yield the data files that the snapshot added, from its own manifests only."""
    for entry in _entries_of(table, snapshot_id):
        if entry.status == ManifestEntryStatus.ADDED and entry.data_file.content == DataFileContent.DATA:
            yield entry.data_file


def _entries_of(table: Table, snapshot_id: int) -> Iterator[ManifestEntry]:
    """Yield the files that a snapshot added and removed."""
    for manifest in _known_snapshot(table, snapshot_id).manifests(table.io):
        if manifest.added_snapshot_id == snapshot_id:
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                if entry.status != ManifestEntryStatus.EXISTING and entry.snapshot_id == snapshot_id:
                    yield entry


def _known_snapshot(table: Table, snapshot_id: int) -> PyIcebergSnapshot:
    """Return the snapshot."""
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise CommitConflictError.refusing(
            "read the manifests of",
            ".".join(table.name()),
            expected=f"the snapshot {snapshot_id} that was there a moment ago",
            found="none of that id: it has expired",
            hint="run it again.",
        )
    return snapshot


def _described_files(
    description: CatalogDescription,
    identifier: TableIdentifier,
    snapshot_id: int,
    columns: Iterable[str],
    listed: Callable[[Table], Iterable[ManifestDataFile]],
    schema_id: int | None = None,
) -> tuple[DataFile, ...]:
    table = find_table(description, identifier, snapshot_id=snapshot_id)
    if table is None:
        raise FailureKind.TABLE_VANISHED.refusal("list the data files of", str(identifier), "none")
    wanted = tuple(columns)
    with translated_answers(description, action=f"read the manifests of {identifier} in"):
        return tuple(describe_file(file, table, wanted, schema_id=schema_id) for file in listed(table))


def describe_file(
    file: ManifestDataFile, table: Table, columns: Iterable[str], *, schema_id: int | None = None
) -> DataFile:
    """Return the bounds of the columns in the data file, from its metrics and its partition."""
    spec = table.metadata.specs()[file.spec_id]
    schema = table.schema() if schema_id is None else table.schemas()[schema_id]
    return DataFile(
        path=file.file_path,
        bounds={column: _column_bounds(file, spec, schema.find_field(column)) for column in columns},
        rows=file.record_count,
    )


def _column_bounds(file: ManifestDataFile, spec: PyIcebergSpec, field: Any) -> ColumnBounds:
    """Return the tighter of the bounds from metrics and from partition values."""
    lower, upper = _metric(file.lower_bounds, field), _metric(file.upper_bounds, field)
    nulls: Mapping[int, int] = file.null_value_counts or {}
    may_hold_null = not field.required and nulls.get(field.field_id, 1) > 0
    is_null = file.record_count > 0 and nulls.get(field.field_id, 0) == file.record_count
    partitions: dict[Transform, Any] = {}
    for transform, value in _partition_values(file, spec, field):
        if transform.argument is not None:
            partitions[transform] = value
        bounds = bounds_of_value(transform, value, field.field_type)
        if bounds is not None:
            lower = bounds[0] if lower is None else max(lower, bounds[0])
            upper = bounds[1] if upper is None else min(upper, bounds[1])
            may_hold_null = False
    return ColumnBounds(lower=lower, upper=upper, may_hold_null=may_hold_null, is_null=is_null, partitions=partitions)


def _metric(bounds: Mapping[int, bytes] | None, field: Any) -> Any:
    if not bounds or field.field_id not in bounds or not isinstance(field.field_type, PyIcebergPrimitive):
        return None
    return python_value(from_bytes(field.field_type, bounds[field.field_id]), field.field_type)


def _partition_values(file: ManifestDataFile, spec: PyIcebergSpec, field: Any) -> Iterator[tuple[Transform, Any]]:
    for position, partition_field in enumerate(spec.fields):
        value = file.partition[position]
        if partition_field.source_id == field.field_id and value is not None:
            yield parse_transform(str(partition_field.transform)), value

"""Reads the metadata of a table's data files from manifests. No data is read."""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any, Final, TypeAlias, TypeVar

from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec as PyIcebergSpec
from pyiceberg.table import ManifestGroupPlanner, Table
from pyiceberg.table.snapshots import Snapshot as PyIcebergSnapshot
from pyiceberg.types import DateType, DoubleType, FloatType, PrimitiveType, TimestampType, TimestamptzType
from pyiceberg.types import PrimitiveType as PyIcebergPrimitive
from pyiceberg.utils.concurrent import ExecutorFactory

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import known_table, paused_collection, translated_answers
from dagster_iceberg_spark.catalog.manifests import file_key, manifests_of, read_entries
from dagster_iceberg_spark.errors import CommitConflictError
from dagster_iceberg_spark.plan.publication.audit_metrics import ColumnMetrics, FileMetrics
from dagster_iceberg_spark.plan.write.overwrite_filter import ColumnBounds, DataFile
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.partitioning import TIME_TRANSFORMS, Transform, granule_start, parse_transform

_EPOCH_DATE: Final = dt.date(1970, 1, 1)
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock by design
_RESOLUTION: Final = dt.timedelta(microseconds=1)


def python_value(value: Any, column_type: PrimitiveType) -> Any:
    """Return a bound of the metrics as a literal of a predicate, or None if there is none for its type.

    Dates are stored as days, timestamps as microseconds since 1970 (Iceberg spec, appendix D).
    """
    try:
        if isinstance(column_type, DateType):
            return _EPOCH_DATE + dt.timedelta(days=value)
        if isinstance(column_type, TimestampType):
            return _EPOCH + dt.timedelta(microseconds=value)
        if isinstance(column_type, TimestamptzType):
            return (_EPOCH + dt.timedelta(microseconds=value)).replace(tzinfo=dt.timezone.utc)
    except OverflowError:
        return None
    return value if isinstance(value, str | bool | int | Decimal) else None


def granule_window(transform: str, value: int) -> tuple[dt.datetime, dt.datetime] | None:
    """Return where a year, month, day or hour begins and ends. Return None for others, and beyond the year 9999."""
    if transform not in TIME_TRANSFORMS:
        return None
    try:
        return granule_start(transform, value), granule_start(transform, value + 1)
    except (OverflowError, ValueError):
        return None


def bounds_of_value(transform: Transform, value: Any, column_type: PrimitiveType) -> tuple[Any, Any] | None:
    """Return the lowest and highest source value of a partition, or None if the partition value does not show them."""
    if transform.name == "identity":
        exact = python_value(value, column_type)
        return None if exact is None else (exact, exact)
    window = granule_window(transform.name, value)
    if window is None:
        return None
    start, end = window[0], window[1] - _RESOLUTION
    if isinstance(column_type, DateType):
        return start.date(), end.date()
    if isinstance(column_type, TimestamptzType):
        return start.replace(tzinfo=dt.timezone.utc), end.replace(tzinfo=dt.timezone.utc)
    return start, end


_ItemT = TypeVar("_ItemT")

EVERY_ROW: Final = AlwaysTrue()
_DATA: Final = ManifestContent.DATA


@dataclass(frozen=True, slots=True)
class PartitionFile:
    """A data file with its partition, such as `day=2024-01-31`, and its number of rows."""

    path: str
    partition: str
    rows: int


@dataclass(frozen=True, slots=True)
class DifferingFiles:
    """The data files that only one of two snapshots has, and whether they have different delete files."""

    removed: tuple[PartitionFile, ...]
    added: tuple[PartitionFile, ...]
    has_deletes: bool


Description: TypeAlias = Callable[[ManifestDataFile], DataFile]
"""Returns the bounds of some columns in a data file."""


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

    def listed(table: Table) -> Iterable[DataFile]:
        described = description_of(table, columns, schema_id=schema_id)
        if rows == EVERY_ROW:
            return _all_files(table, snapshot_id, described)
        # A scan would also find the deletes of each file, and does not support equality deletes.
        metadata = table.metadata
        if schema_id is not None:
            metadata = metadata.model_copy(update={"current_schema_id": schema_id})
        planner = ManifestGroupPlanner(metadata, table.io, row_filter=rows)
        manifests = _known_snapshot(table, snapshot_id).manifests(table.io)
        entries = chain.from_iterable(planner.plan_manifest_entries(manifests))
        return (described(entry.data_file) for entry in entries if entry.data_file.content == DataFileContent.DATA)

    return _from_manifests(description, identifier, snapshot_id, listed)


def _all_files(table: Table, snapshot_id: int, described: Callable[[ManifestDataFile], _ItemT]) -> Iterator[_ItemT]:
    """Return all data files of the snapshot. Memory holds what describes them, but not the whole manifests.

    pyiceberg's planner would keep the manifests and evaluate an empty filter for each file.
    """
    manifests = data_manifests(table, _known_snapshot(table, snapshot_id))
    return entries_in(table, manifests, lambda entry: described(entry.data_file))


def discard(io: FileIO, paths: Iterable[str]) -> None:
    """Delete files that no table needs. One that cannot be deleted takes up space and does no other harm."""
    for path in paths:
        with suppress(Exception):  # of any store
            io.delete(path)


def data_manifests(table: Table, snapshot: PyIcebergSnapshot | None) -> list[ManifestFile]:
    """Return the manifests of a snapshot that list data files, or none without a snapshot."""
    return [manifest for manifest in manifests_of(table.io, snapshot) if manifest.content == ManifestContent.DATA]


def entries_in(
    table: Table, manifests: Iterable[ManifestFile], described: Callable[[ManifestEntry], _ItemT]
) -> Iterator[_ItemT]:
    """Return what describes the live files of manifests, which are read side by side."""

    def described_in(manifest: ManifestFile) -> list[_ItemT]:
        return [described(entry) for entry in read_entries(table.io, manifest)]

    return chain.from_iterable(ExecutorFactory.get_or_create().map(described_in, manifests))


def files_of_either(
    table: Table, before: Iterable[ManifestFile], after: Iterable[ManifestFile]
) -> tuple[list[ManifestDataFile], list[ManifestDataFile]]:
    """Return the files that are only in the first manifests, and those that are only in the second.

    Manifests that are among both are not read.
    """
    manifests = [{item.manifest_path: item for item in each} for each in (before, after)]
    first, second = (
        {file_key(file): file for file in entries_in(table, own, _data_file)}
        for own in ([each[path] for path in each.keys() - other.keys()] for each, other in (manifests, manifests[::-1]))
    )
    return (
        [file for key, file in first.items() if key not in second],
        [file for key, file in second.items() if key not in first],
    )


def _data_file(entry: ManifestEntry) -> ManifestDataFile:
    return entry.data_file


def added_files(
    description: CatalogDescription, identifier: TableIdentifier, snapshot_id: int, columns: Iterable[str]
) -> tuple[DataFile, ...]:
    """Return the data files that the snapshot added, from its own manifests only."""

    def listed(table: Table) -> Iterator[DataFile]:
        return map(description_of(table, columns), files_added_by(table, snapshot_id))

    return _from_manifests(description, identifier, snapshot_id, listed)


def removed_files(
    description: CatalogDescription,
    identifier: TableIdentifier,
    snapshot_id: int,
    columns: Iterable[str],
    *,
    schema_id: int | None = None,
) -> tuple[DataFile, ...]:
    """Return the data files that the snapshot removed, and the delete files that remove rows of other files."""

    def listed(table: Table) -> Iterator[DataFile]:
        described = description_of(table, columns, schema_id=schema_id)
        for entry in entries_of(table, snapshot_id):
            is_deletion = entry.data_file.content != DataFileContent.DATA
            if is_deletion == (entry.status == ManifestEntryStatus.ADDED):
                yield described(entry.data_file)

    return _from_manifests(description, identifier, snapshot_id, listed)


def changed_files(
    description: CatalogDescription, identifier: TableIdentifier, snapshot_ids: Sequence[int], columns: Iterable[str]
) -> tuple[DataFile, ...]:
    """Return the data files that the snapshots added and removed, and the delete files that they added."""
    if not snapshot_ids:
        return ()

    def listed(table: Table) -> Iterator[DataFile]:
        described = description_of(table, columns)
        for entry in (entry for snapshot_id in snapshot_ids for entry in entries_of(table, snapshot_id)):
            if entry.data_file.content == DataFileContent.DATA or entry.status == ManifestEntryStatus.ADDED:
                yield described(entry.data_file)

    return _from_manifests(description, identifier, snapshot_ids[-1], listed)


def files_added_by(table: Table, snapshot_id: int) -> Iterator[ManifestDataFile]:
    """Yield the data files that the snapshot added, from its own manifests only."""
    for entry in entries_of(table, snapshot_id):
        if entry.status == ManifestEntryStatus.ADDED and entry.data_file.content == DataFileContent.DATA:
            yield entry.data_file


def entries_of(table: Table, snapshot_id: int) -> Iterator[ManifestEntry]:
    """Yield the files that a snapshot added and removed."""
    for manifest in manifests_of(table.io, _known_snapshot(table, snapshot_id)):
        if manifest.added_snapshot_id == snapshot_id:
            for entry in read_entries(table.io, manifest, discard_deleted=False):
                if entry.status != ManifestEntryStatus.EXISTING and entry.snapshot_id == snapshot_id:
                    yield entry


def differing_files(
    description: CatalogDescription, identifier: TableIdentifier, before_id: int | None, after_id: int
) -> DifferingFiles:
    """Return the data files that only the first snapshot has, and those that only the second has.

    Manifests that both have are not read. Without a first snapshot, all files of the second are new.
    """
    table = known_table(description, identifier, action="read")
    with translated_answers(description, action=f"read the manifests of {identifier} in"):
        both = [_manifests_of(table, item) for item in (before_id, after_id)]
        removed, added = files_of_either(table, *([item for item in each if item.content == _DATA] for each in both))
        deletes = [{item.manifest_path for item in each if item.content != _DATA} for each in both]
    return DifferingFiles(
        removed=tuple(_partition_files(table, removed)),
        added=tuple(_partition_files(table, added)),
        has_deletes=deletes[0] != deletes[1],
    )


def files_between(
    table: Table, before_id: int | None, after_id: int
) -> tuple[list[ManifestDataFile], list[ManifestDataFile]]:
    """Return the data and delete files that only the first snapshot has, and those that only the second has."""
    return files_of_either(table, _manifests_of(table, before_id), _manifests_of(table, after_id))


def _manifests_of(table: Table, snapshot_id: int | None) -> Sequence[ManifestFile]:
    """Return the manifests of a snapshot; none without a snapshot."""
    return () if snapshot_id is None else manifests_of(table.io, _known_snapshot(table, snapshot_id))


def _partition_files(table: Table, files: Iterable[ManifestDataFile]) -> Iterator[PartitionFile]:
    specs, schema = table.specs(), table.schema()
    for file in files:
        partition = specs[file.spec_id].partition_to_path(file.partition, schema)
        yield PartitionFile(file.file_path, partition, file.record_count)


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


def _from_manifests(
    description: CatalogDescription,
    identifier: TableIdentifier,
    snapshot_id: int,
    listed: Callable[[Table], Iterable[_ItemT]],
) -> tuple[_ItemT, ...]:
    """Return what `listed` finds in the manifests of the table as of the snapshot."""
    table = known_table(description, identifier, action="list the data files of", snapshot_id=snapshot_id)
    action = f"read the manifests of {identifier} in"
    with translated_answers(description, action=action), paused_collection():
        return tuple(listed(table))


def description_of(table: Table, columns: Iterable[str], *, schema_id: int | None = None) -> Description:
    """Return a function that returns the bounds of the columns in a data file, from its metrics and its partition."""
    schema = table.schema() if schema_id is None else table.schemas()[schema_id]
    fields = {column: schema.find_field(column) for column in columns}
    partitions = {
        spec.spec_id: {column: _partition_fields(spec, field) for column, field in fields.items()}
        for spec in table.metadata.partition_specs
    }

    def described(file: ManifestDataFile) -> DataFile:
        of_spec = partitions[file.spec_id]
        bounds = {column: _column_bounds(file, field, of_spec[column]) for column, field in fields.items()}
        return DataFile(path=file.file_path, bounds=bounds, rows=file.record_count)

    return described


def _partition_fields(spec: PyIcebergSpec, field: Any) -> tuple[tuple[int, Transform], ...]:
    """Return the positions of the partition values of a column, each with its transform."""
    return tuple(
        (position, parse_transform(str(partition_field.transform)))
        for position, partition_field in enumerate(spec.fields)
        if partition_field.source_id == field.field_id
    )


def _column_bounds(
    file: ManifestDataFile, field: Any, partition_fields: Iterable[tuple[int, Transform]]
) -> ColumnBounds:
    """Return the tighter of the bounds from metrics and from partition values."""
    lower, upper = _metric(file.lower_bounds, field), _metric(file.upper_bounds, field)
    nulls: Mapping[int, int] = file.null_value_counts or {}
    may_hold_null = not field.required and nulls.get(field.field_id, 1) > 0
    is_null = file.record_count > 0 and nulls.get(field.field_id, 0) == file.record_count
    partitions: dict[Transform, Any] = {}
    for position, transform in partition_fields:
        value = file.partition[position]
        if value is None:
            continue
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


def file_metrics(
    description: CatalogDescription,
    identifier: TableIdentifier,
    snapshot_id: int,
    columns: Iterable[str],
    *,
    scope_columns: Iterable[str] | None = None,
) -> tuple[tuple[DataFile, FileMetrics], ...]:
    """Return the metrics of these columns in data files of the snapshot, and the bounds of the scope's columns.

    Without `scope_columns`, these are the files that the snapshot added, otherwise all of them. Only the bounds of the
    added files are known to be exact: other writers may have recorded wider ones.
    """
    is_own = scope_columns is None

    def listed(table: Table) -> Iterable[tuple[DataFile, FileMetrics]]:
        fields = {column: table.schema().find_field(column) for column in columns}
        described = description_of(table, scope_columns or ())

        def read(file: ManifestDataFile) -> tuple[DataFile, FileMetrics]:
            metrics = {column: _column_metrics(file, field, is_exact=is_own) for column, field in fields.items()}
            return described(file), FileMetrics(file.record_count, metrics)

        return map(read, files_added_by(table, snapshot_id)) if is_own else _all_files(table, snapshot_id, read)

    return _from_manifests(description, identifier, snapshot_id, listed)


def _column_metrics(file: ManifestDataFile, field: Any, *, is_exact: bool) -> ColumnMetrics:
    nulls: Mapping[int, int] = file.null_value_counts or {}
    nans: Mapping[int, int] = file.nan_value_counts or {}
    return ColumnMetrics(
        lower=_value_of(file.lower_bounds, field),
        upper=_value_of(file.upper_bounds, field),
        nulls=nulls.get(field.field_id),
        nans=nans.get(field.field_id),
        is_exact=is_exact,
    )


def _value_of(bounds: Mapping[int, bytes] | None, field: Any) -> Any:
    """Return a bound as a value of the column. Unlike other bounds, it may be a floating-point number."""
    if bounds and field.field_id in bounds and isinstance(field.field_type, DoubleType | FloatType):
        return from_bytes(field.field_type, bounds[field.field_id])
    return _metric(bounds, field)

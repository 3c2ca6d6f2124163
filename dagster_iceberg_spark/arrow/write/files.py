"""Writes rows to data files as Spark would: by partition, sorted, up to the target size, with metrics.

The rows of a chunk are split by partition. If there are several chunks and partitions, the parts go to a file of this
machine first, so that one data file after the other is written, however the rows are ordered.
"""

import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyiceberg.io.pyarrow import (
    _get_parquet_writer_kwargs,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey, partition_record_value
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.typedef import Record
from pyiceberg.utils.concurrent import ExecutorFactory

from dagster_iceberg_spark.arrow.write.rows import size_of
from dagster_iceberg_spark.catalog.files import discard
from dagster_iceberg_spark.errors import EngineUnfitError
from dagster_iceberg_spark.pyiceberg_fixes.lists_and_maps import with_parts

_ROWS_OF_GROUP: Final = 1024 * 1024
_LEVELED: Final = ("brotli", "gzip", "zstd")
_TASKS: Final = min(4, os.cpu_count() or 1)
_SPLIT_BYTES: Final = 128 * 1024 * 1024
_FLOATS: Final = (pa.float32(), pa.float64())


def stored_schema(table: Table) -> pa.Schema:
    """Return the table's columns as Arrow types with field ids."""
    return _arrow_schema(table.schema())


def slim(rows: pa.Table) -> pa.Table:
    """Return the rows that pyiceberg has read with 32-bit offsets."""
    return rows.cast(pa.schema([_slim_field(item) for item in rows.schema]))


def _arrow_schema(schema: Schema) -> pa.Schema:
    return pa.schema([_slim_field(item) for item in schema_to_pyarrow(schema, include_field_ids=True)])


def _slim_field(item: pa.Field) -> pa.Field:
    """Return the field with 32-bit offsets, which the rows of a chunk fit in, in place of pyiceberg's 64-bit ones."""
    return item.with_type(_slim(item.type))


def _slim(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([_slim_field(part) for part in kind])
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_slim_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_slim_field(kind.key_field), _slim_field(kind.item_field))
    return kind


@dataclass
class DataFiles:
    """Writes the data files of one snapshot.

    Args:
        table: The table, with the columns and the spec that the rows are written with.
        properties: The table's properties, with the options of the write.
    """

    table: Table
    properties: Mapping[str, str]
    is_sorted: bool = True
    _id: uuid.UUID = field(default_factory=uuid.uuid4)
    _numbers: Iterator[int] = field(default_factory=count)
    paths: list[str] = field(default_factory=list)

    @cached_property
    def stored(self) -> Schema:
        """The columns, as Spark names them in files."""
        return sanitize_column_names(self.table.schema())

    @cached_property
    def parquet_schema(self) -> pa.Schema:
        """The same columns in Arrow's types."""
        return _arrow_schema(self.stored)

    @cached_property
    def parquet_options(self) -> dict[str, Any]:
        """What the table's properties ask of Parquet files."""
        options = _get_parquet_writer_kwargs(dict(self.properties))
        if options["compression"].lower() not in _LEVELED:
            options["compression_level"] = None  # Spark ignores the level; pyarrow would reject it
        return {**options, "store_decimal_as_integer": True}

    @cached_property
    def statistics(self) -> dict[str, Any]:
        """What pyiceberg needs for the statistics of a file."""
        columns, paths = (
            compute_statistics_plan(self.stored, dict(self.properties)),
            parquet_path_to_id_mapping(self.stored),
        )
        return {"stats_columns": columns, "parquet_column_mapping": paths}

    def write(self, chunks: Iterator[pa.Table]) -> list[DataFile]:
        """Write the rows, which have the columns of `stored_schema`. Rows are held up to two chunks at a time."""
        first, second = next(chunks, None), next(chunks, None)
        if first is None:
            return []
        if second is None:
            keys, parts = zip(*self._split(first), strict=True) if first.num_rows else ((), ())
            written = ExecutorFactory.get_or_create().map(self._write_partition, keys, ([part] for part in parts))
            return [file for files in written for file in files]
        if self.table.spec().is_unpartitioned():
            return self._write_partition(None, chain([first, second], chunks))
        with _spooled(first.schema) as spool:
            for chunk in chain([first, second], chunks):
                for key, part in self._split(chunk):
                    spool.add(key, part)
            return [file for key, parts in spool.parts() for file in self._write_partition(key, parts)]

    def delete(self) -> None:
        """Delete the files, which no snapshot has."""
        discard(self.table.io, self.paths)

    def _split(self, rows: pa.Table) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
        """Yield the rows of each partition. Many rows without partitions are split, to be written in parallel."""
        if not rows.num_rows:
            return
        if self.table.spec().is_unpartitioned():
            is_small = size_of(rows) < _SPLIT_BYTES
            size = rows.num_rows if is_small else -(-rows.num_rows // _TASKS)
            yield from ((None, rows.slice(start, size)) for start in range(0, rows.num_rows, size))
            return
        schema, spec = self.table.schema(), self.table.spec()
        columns, codes = [], pa.array(np.zeros(rows.num_rows, np.int64))
        for item in spec.fields:
            source = schema.find_field(item.source_id)
            values = item.transform.pyarrow_transform(source.field_type)(_column(rows, schema, item.source_id))
            encoded = _whole(as_numbers(values)).dictionary_encode(null_encoding="encode")
            columns.append(encoded)
            codes = pc.add(pc.multiply(codes, len(encoded.dictionary)), encoded.indices.cast(pa.int64()))
        if pc.any(pc.less(codes[1:], codes[:-1])).as_py():
            order = pc.sort_indices(codes)
            rows, codes = rows.take(order), codes.take(order)
            columns = [column.take(order) for column in columns]
        start = 0
        for run in pc.run_end_encode(codes).run_ends.to_pylist():
            values = [column[start].as_py() for column in columns]
            pairs = zip(spec.fields, values, strict=True)
            key = _Partition([PartitionFieldValue(item, value) for item, value in pairs], spec, schema)
            yield key, rows.slice(start, run - start)
            start = run

    def _write_partition(self, key: PartitionKey | None, chunks: Iterable[pa.Table]) -> list[DataFile]:
        """Write the rows of one partition to files of up to the target size."""
        target = int(self.properties.get(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, 512 * 1024 * 1024))
        files, writer = list[DataFile](), None
        try:
            for chunk in chunks:
                for rows in _row_groups(self._sorted(chunk)):
                    writer = writer or _FileWriter.open(self, key)
                    writer.write(rows)
                    if writer.size >= target:
                        files.append(writer.close())
                        writer = None
            if writer is not None:
                files.append(writer.close())
                writer = None
        finally:
            if writer is not None:
                writer.abandon()
        return files

    def _sorted(self, rows: pa.Table) -> pa.Table:
        """Return the rows in the table's order. A file of several chunks has the order in each row group."""
        order = self.table.sort_order()
        if not (self.is_sorted and order.fields and rows.num_rows):
            return rows
        schema = self.table.schema()
        for item in reversed(order.fields):  # each sort keeps the order of equal values
            nulls = "at_start" if item.null_order == NullOrder.NULLS_FIRST else "at_end"
            direction = "ascending" if item.direction == SortDirection.ASC else "descending"
            values = _whole(_column(rows, schema, item.source_id))
            rows = rows.take(pc.array_sort_indices(values, order=direction, null_placement=nulls))
        return rows

    def new_path(self, key: PartitionKey | None) -> str:
        """Return the path of a new file of the partition."""
        name = f"{next(self._numbers):05d}-0-{self._id}-00001.parquet"
        path = self.table.location_provider().new_data_location(name, key)
        self.paths.append(path)
        return path


class _Partition(PartitionKey):
    """A partition of a spec that may have several fields of one column, which pyiceberg 0.12.0 refuses."""

    @cached_property
    def partition(self) -> Record:
        """The values of the fields."""
        values = ((item.field, item.value) for item in self.field_values)
        return Record(*(partition_record_value(field, value, self.schema) for field, value in values))


def as_numbers(values: Any) -> Any:
    """Return dates as days since 1970, and timestamps as microseconds since then."""
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


@dataclass(slots=True)
class _FileWriter:
    """One data file."""

    files: DataFiles
    key: PartitionKey | None
    path: str
    stream: Any
    writer: parquet.ParquetWriter
    nans: dict[int, int] = field(default_factory=dict)

    @classmethod
    def open(cls, files: DataFiles, key: PartitionKey | None) -> "_FileWriter":
        path = files.new_path(key)
        stream: Any = files.table.io.new_output(path).create(overwrite=True)
        return cls(
            files, key, path, stream, parquet.ParquetWriter(stream, files.parquet_schema, **files.parquet_options)
        )

    @property
    def size(self) -> int:
        """The bytes that are written."""
        return int(self.stream.tell())

    def write(self, rows: pa.Table) -> None:
        """Write a row group."""
        for item, values in zip(rows.schema, rows.columns, strict=True):
            if item.type in _FLOATS:
                field_id = int(item.metadata[b"PARQUET:field_id"])
                self.nans[field_id] = self.nans.get(field_id, 0) + (pc.sum(pc.is_nan(values)).as_py() or 0)
        schema = self.files.parquet_schema
        if not rows.schema.equals(schema):
            columns = [_renamed(_whole(values), item.type) for item, values in zip(schema, rows.columns, strict=True)]
            rows = pa.Table.from_arrays(columns, schema=schema)
        self.writer.write_table(rows, row_group_size=_ROWS_OF_GROUP)

    def close(self) -> DataFile:
        """Finish the file. Return what describes it in a manifest."""
        self.writer.close()
        size = self.size
        self.stream.close()
        table, metadata = self.files.table, self.writer.writer.metadata
        try:
            statistics = data_file_statistics_from_parquet_metadata(metadata, **self.files.statistics)
        except (OverflowError, UnicodeDecodeError) as error:
            subject, reason = ".".join(table.name()), f"pyiceberg cannot compute the bounds of a data file ({error})"
            raise EngineUnfitError.because(subject, reason) from error
        described = statistics.to_serialized_dict()
        counted = described["value_counts"]
        described["nan_value_counts"] = {item: number for item, number in self.nans.items() if item in counted}
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=Record() if self.key is None else self.key.partition,
            file_size_in_bytes=size,
            sort_order_id=None,
            spec_id=table.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **described,
        )

    def abandon(self) -> None:
        """Close the file, which is deleted."""
        self.writer.close()
        self.stream.close()


@dataclass(slots=True)
class _Spool:
    """Parts of partitions in a local file, which are read again partition by partition."""

    path: Path
    writer: Any
    places: dict[tuple[Any, ...], tuple[PartitionKey | None, list[int]]] = field(default_factory=dict)
    number: int = 0

    def add(self, key: PartitionKey | None, rows: pa.Table) -> None:
        values = () if key is None else tuple(item.value for item in key.field_values)
        for batch in rows.combine_chunks().to_batches():
            self.writer.write_batch(batch)
            self.places.setdefault(values, (key, []))[1].append(self.number)
            self.number += 1

    def parts(self) -> Iterator[tuple[PartitionKey | None, Iterator[pa.Table]]]:
        self.writer.close()
        with pa.memory_map(str(self.path)) as source, pa.ipc.open_file(source) as reader:
            for key, places in self.places.values():
                yield key, (pa.Table.from_batches([reader.get_batch(place)]) for place in places)


@contextmanager
def _spooled(schema: pa.Schema) -> Iterator[_Spool]:
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dagster-iceberg-")), "parts.arrow")
        sink = stack.enter_context(pa.OSFile(str(path), "wb"))
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        yield _Spool(path, pa.ipc.new_file(sink, schema, options=options))


def _column(rows: pa.Table, schema: Schema, field_id: int) -> Any:
    """Return a column, or a field of structs."""
    accessor: Any = schema.accessor_for_field(field_id)
    values = rows.column(accessor.position)
    while (accessor := accessor.inner) is not None:
        values = pc.struct_field(values, [accessor.position])
    return values


def _whole(values: Any) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _renamed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values with the names of the fields that another type of the same structure has."""
    if values.type.equals(kind):
        return values
    mask = values.is_null() if values.null_count else None
    if pa.types.is_struct(kind):
        parts = [_renamed(part, field.type) for part, field in zip(values.flatten(), kind, strict=True)]
        fields = [field.with_nullable(True) for field in kind]  # noqa: FBT003 - NULL where the struct is
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    if pa.types.is_map(kind):
        parts = [_renamed(values.keys, kind.key_type), _renamed(values.items, kind.item_type)]
        return with_parts(values, parts, kind)
    return with_parts(values, [_renamed(values.values, kind.value_type)], kind)


def _row_groups(rows: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, rows.num_rows, _ROWS_OF_GROUP):
        yield rows.slice(start, _ROWS_OF_GROUP)

"""Converts the rows that an asset returns with Arrow, pandas, polars, DuckDB or ibis to Arrow batches for Spark.

A long stream is staged as Parquet on a store that this process and Spark both reach, which is faster than sending it.
The file is next to the tables of the warehouse. Its name does not begin with an underscore, because Spark ignores such
files, and it has no directory of its own, which a Hadoop catalog would list as a namespace.
"""

import logging
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet, types
from pyiceberg.io import FileIO, load_file_io

from dagster_iceberg_spark.arrow.scan import texts_in, with_texts
from dagster_iceberg_spark.catalog.description import CatalogDescription, first_line
from dagster_iceberg_spark.catalog.look import translated_answers
from dagster_iceberg_spark.errors import OutputTypeError

_Refused = Callable[..., OutputTypeError]
OUTPUT_TYPES: Final = (
    "pyarrow.Table",
    "pyarrow.RecordBatch",
    "pyarrow.RecordBatchReader",
    "pandas.DataFrame",
    "polars.DataFrame",
    "polars.LazyFrame",
    "duckdb.DuckDBPyRelation",
    "ibis.Table",
    "an iterator of Arrow batches or tables",
)
"""Types that may be returned besides a Spark DataFrame. Any other object that exports an Arrow stream (Arrow PyCapsule
interface) is accepted too."""


def arrow_rows(obj: Any, *, subject: str) -> pa.RecordBatchReader | None:
    """Return the rows batch by batch in types that Spark and Iceberg have, or None for an object without rows.

    Values do not change. A type that Iceberg lacks is replaced by one that holds all of its values. A value that the
    new type does not hold, such as a nanosecond, is rejected when its batch is read. UUIDs become texts, as Spark has
    them. Errors in the code of an iterator or a lazy frame are raised unchanged.
    """
    refused = partial(OutputTypeError.refusing, "write", subject)
    obj = obj.collect() if _is_a("polars", "LazyFrame", obj) else obj
    try:
        given = _reader(obj, refused)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, OutputTypeError):
            raise
        raise refused(
            expected="rows that Arrow can hold",
            found=f"{type_name(obj)}: {first_line(error)}",
            hint="give each column one type, and each a name of its own.",
        ) from error
    if given is None and isinstance(obj, Iterator):
        given = _reader_of_iterator(obj, refused)
    if given is None:
        return None
    names = given.schema.names
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise refused(expected="each column's name once", found=f"{', '.join(repeated)} more than once")
    if "" in names:
        raise refused(expected="a name for each column", found="a column without one", hint="name it in the asset.")
    columns = texts_in(given.schema)
    schema = pa.schema([pa.field(field.name, _storable(field.type, field.name, refused)) for field in columns])
    return pa.RecordBatchReader.from_batches(schema, (_cast(with_texts(batch), schema, refused) for batch in given))


def unknown_output(obj: Any, *, subject: str) -> OutputTypeError:
    """Return the error for an output that is neither a Spark DataFrame nor rows."""
    return OutputTypeError.refusing(
        "write",
        subject,
        expected=f"a pyspark.sql.DataFrame, {', '.join(OUTPUT_TYPES[:-1])} or {OUTPUT_TYPES[-1]}",
        found="None" if obj is None else type_name(obj),
        hint="annotate the asset `-> None` if it never returns rows, or yield no `Output` with "
        "`output_required=False` if it sometimes has none; otherwise return the DataFrame."
        if obj is None
        else "return one of these, or give the asset another IO manager.",
    )


def type_name(obj: object) -> str:
    """Return the dotted name of the object's class."""
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


def _reader(obj: Any, refused: _Refused) -> pa.RecordBatchReader | None:
    if isinstance(obj, pa.RecordBatchReader):
        return obj
    if isinstance(obj, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(obj.schema, [obj])
    if _is_a("pandas", "DataFrame", obj):
        return _reader_of_pandas(obj, refused)
    if _is_a("polars", "DataFrame", obj):
        import polars as pl

        opaque = [name for name, kind in obj.schema.items() if kind == pl.Object]
        if opaque:
            raise _unknown_type(opaque[0], "Object", refused)
        # Use Arrow's cast of categories, because it cannot look up views in a dictionary.
        return obj.to_arrow(compat_level=pl.CompatLevel.oldest()).to_reader()
    return pa.RecordBatchReader.from_stream(obj) if hasattr(obj, "__arrow_c_stream__") else None


def _reader_of_pandas(frame: Any, refused: _Refused) -> pa.RecordBatchReader:
    """Return the rows. An index with a name becomes a column, and a numeric index without a name is left out."""
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    elif frame.index.nlevels > 1 or frame.index.dtype.kind not in "iu":
        raise refused(
            expected="a pandas index of numbers, or with a name, under which it becomes a column",
            found=f"one of type {frame.index.dtype} without a name",
            hint="name it by `rename_axis`, or drop it by `reset_index(drop=True)`.",
        )
    return pa.Table.from_pandas(frame, preserve_index=False).to_reader()


def _is_a(module: str, name: str, obj: object) -> bool:
    """Return whether the object is of this class, without importing its module."""
    known = getattr(sys.modules.get(module), name, None)
    return known is not None and isinstance(obj, known)


def _reader_of_iterator(parts: Iterator[Any], refused: _Refused) -> pa.RecordBatchReader:
    batches = chain.from_iterable(_batches(part, refused) for part in parts)
    first = next(batches, None)
    if first is None:
        raise refused(
            expected="at least one Arrow batch, which has the columns",
            found="an iterator that yields none",
            hint="yield a batch without rows where there are none.",
        )
    same = _same_columns(chain([first], batches), first.schema, refused)
    return pa.RecordBatchReader.from_batches(first.schema, same)


def _batches(part: Any, refused: _Refused) -> Iterable[pa.RecordBatch]:
    if isinstance(part, pa.RecordBatch):
        return [part]
    if isinstance(part, pa.Table):
        return part.to_batches() or [pa.RecordBatch.from_pylist([], schema=part.schema)]
    expected = "an iterator of pyarrow.RecordBatch or pyarrow.Table"
    raise refused(expected=expected, found=f"{type_name(part)} among what it yields")


def _same_columns(batches: Iterator[pa.RecordBatch], schema: pa.Schema, refused: _Refused) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if (batch.schema.names, batch.schema.types) != (schema.names, schema.types):
            first, other = (", ".join(f"{field.name} {field.type}" for field in it) for it in (schema, batch.schema))
            raise refused(expected=f"the columns of the first batch in all of them: {first}", found=other)
        yield batch


def _cast(batch: pa.RecordBatch, schema: pa.Schema, refused: _Refused) -> pa.RecordBatch:
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        try:
            columns.append(column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise refused(
                expected=f"values of {field.name!r} that the type {field.type} holds",
                found=first_line(error),
                hint="round them in the asset, if that is meant.",
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _storable(kind: pa.DataType, column: str, refused: _Refused) -> pa.DataType:
    """Return a type that Spark and Iceberg have and that holds every value of the given type."""

    def stored_part(part: pa.DataType) -> pa.DataType:
        if types.is_null(part):
            raise _unknown_type(column, "nothing but NULL inside", refused)
        return _storable(part, column, refused)

    for applies, stored in _RULES:
        if applies(kind):
            return stored(kind, stored_part)
    raise _unknown_type(column, str(kind), refused)


def _unknown_type(column: str, kind: str, refused: _Refused) -> OutputTypeError:
    return refused(
        expected="columns of types that Iceberg has",
        found=f"{column!r} of type {kind}",
        hint="cast the column to a type that Iceberg has (Iceberg spec, primitive types), or leave it out.",
    )


_Stored = Callable[[pa.DataType], pa.DataType]
_MAXIMUM_PRECISION: Final = 38
_Test = Callable[[pa.DataType], bool]


def _any_of(*tests: _Test) -> _Test:
    return lambda kind: any(test(kind) for test in tests)


_RULES: Final[tuple[tuple[_Test, Callable[[pa.DataType, _Stored], pa.DataType]], ...]] = (
    (
        _any_of(types.is_boolean, types.is_signed_integer, types.is_float32, types.is_float64, types.is_date32),
        lambda kind, _: kind,
    ),
    (types.is_null, lambda kind, _: kind),
    (lambda kind: isinstance(kind, pa.Bool8Type), lambda _, __: pa.bool_()),
    (lambda kind: isinstance(kind, pa.JsonType), lambda kind, stored: stored(kind.storage_type)),
    (types.is_dictionary, lambda kind, stored: stored(kind.value_type)),
    (_any_of(types.is_string, types.is_large_string, types.is_string_view), lambda _, __: pa.string()),
    (_any_of(types.is_binary, types.is_large_binary, types.is_binary_view), lambda _, __: pa.binary()),
    (types.is_fixed_size_binary, lambda _, __: pa.binary()),
    (types.is_uint8, lambda _, __: pa.int16()),
    (types.is_uint16, lambda _, __: pa.int32()),
    (types.is_uint32, lambda _, __: pa.int64()),
    (types.is_uint64, lambda _, __: pa.decimal128(20, 0)),
    (types.is_float16, lambda _, __: pa.float32()),
    (types.is_date64, lambda _, __: pa.date32()),
    (types.is_timestamp, lambda kind, _: pa.timestamp("us", "UTC" if kind.tz else None)),
    (
        lambda kind: types.is_decimal(kind) and kind.precision <= _MAXIMUM_PRECISION and kind.scale >= 0,
        lambda kind, _: pa.decimal128(kind.precision, kind.scale),
    ),
    (
        _any_of(types.is_list, types.is_large_list, types.is_fixed_size_list),
        lambda kind, stored: pa.list_(stored(kind.value_type)),
    ),
    (types.is_map, lambda kind, stored: pa.map_(stored(kind.key_type), stored(kind.item_type))),
    (
        lambda kind: types.is_struct(kind) and len(kind.fields) > 0,
        lambda kind, stored: pa.struct([pa.field(field.name, stored(field.type)) for field in kind]),
    ),
)
"""The types that replace other types. The first match applies."""

PREFIX: Final = "dagster-staged-"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Store:
    """A store for staged files.

    Args:
        location: The URI of the directory.
        properties: The properties of pyiceberg's FileIO.
        catalog: The catalog whose warehouse this is, or None for a directory of this machine.
    """

    location: str
    properties: Mapping[str, Any]
    catalog: CatalogDescription | None = None

    def new_file(self) -> "StagedFile":
        """Return a file that does not exist yet."""
        uri = f"{self.location.rstrip('/')}/{PREFIX}{uuid.uuid4().hex}.parquet"
        return StagedFile(uri, load_file_io(dict(self.properties), uri), self.catalog)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file with rows, for Spark to read."""

    uri: str
    _io: FileIO
    _catalog: CatalogDescription | None

    def write(self, schema: pa.Schema, chunks: Iterable[pa.Table]) -> None:
        """Write each chunk as a row group. Errors of the chunks themselves are raised as they are."""
        with self._translation():
            stream = self._io.new_output(self.uri).create()
            writer = parquet.ParquetWriter(stream, schema, version="2.6")
        try:
            for chunk in chunks:
                with self._translation():
                    writer.write_table(chunk)
        finally:
            with self._translation():
                writer.close()
                stream.close()

    def delete(self) -> None:
        """Delete the file. If this fails, the file stays: its rows are written, and no reader lists it."""
        try:
            self._io.delete(self.uri)
        except FileNotFoundError:
            pass
        except Exception as error:  # noqa: BLE001 - of the store's client
            _log.warning("Could not delete the staged file %s: %s", self.uri, first_line(error))

    def _translation(self) -> AbstractContextManager[None]:
        if self._catalog is None:
            return nullcontext()
        return translated_answers(self._catalog, action="stage rows in the warehouse of")


def warehouse_of(catalog: CatalogDescription) -> Store | None:
    """Return the warehouse as a store, or None if the catalog does not say where it is."""
    if catalog.warehouse is None or ":/" not in catalog.warehouse:
        return None
    return Store(catalog.warehouse, catalog.pyiceberg_properties, catalog)


@contextmanager
def local_store() -> Iterator[Store]:
    """Yield a directory of this machine, which is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="dagster-iceberg-") as directory:
        yield Store(Path(directory).as_uri(), {})

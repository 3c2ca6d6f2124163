"""Holds the rows of an asset, so that they can be read again for another attempt or by another engine."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import types

from dagster_iceberg_spark.table import schema as vocabulary

CHUNK_BYTES: Final = 64 * 1024 * 1024
"""The size of a chunk of rows in memory, in bytes."""
_PRIMITIVES: Final = {
    pa.bool_(): vocabulary.BOOLEAN,
    pa.int8(): vocabulary.INT,
    pa.int16(): vocabulary.INT,
    pa.int32(): vocabulary.INT,
    pa.int64(): vocabulary.LONG,
    pa.float32(): vocabulary.FLOAT,
    pa.float64(): vocabulary.DOUBLE,
    pa.date32(): vocabulary.DATE,
    pa.string(): vocabulary.STRING,
    pa.binary(): vocabulary.BINARY,
    pa.timestamp("us"): vocabulary.TIMESTAMP,
    pa.timestamp("us", "UTC"): vocabulary.TIMESTAMPTZ,
    pa.null(): vocabulary.PrimitiveType("unknown"),
}
"""Iceberg's types for the types of `arrow_rows`."""


@dataclass(slots=True)
class HeldRows:
    """The rows of an asset: in memory up to a limit, the others in a file of this machine.

    Args:
        held: The first batches.
        rest: The batches that have not been read, if the rows exceed the limit, else None.
        left_out: The columns that are not written.
    """

    given: pa.Schema
    held: list[pa.RecordBatch]
    rest: Iterator[pa.RecordBatch] | None
    left_out: tuple[str, ...] = ()
    _spilled: Path | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def of(cls, rows: pa.RecordBatchReader, *, limit: int) -> "HeldRows":
        """Read batches until there are no more, or until they exceed the limit in bytes."""
        batches, held, size = iter(rows), list[pa.RecordBatch](), 0
        for batch in batches:
            held.append(batch)
            size += size_of(batch)
            if size > limit:
                return cls(rows.schema, held, batches)
        return cls(rows.schema, held, None)

    @property
    def exceeds(self) -> bool:
        """Whether there are more rows than the limit allowed to hold."""
        return self.rest is not None

    @property
    def schema(self) -> pa.Schema:
        """The columns that are written."""
        return pa.schema([field for field in self.given if field.name not in self.left_out])

    def given_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows with all columns. They can be read again: what is not held in memory is spilled."""
        yield from self.held
        if self.rest is not None:
            self._spill(self.rest)
        if self._spilled is not None:
            with pa.memory_map(str(self._spilled)) as source, pa.ipc.open_stream(source) as reader:
                yield from reader

    def all_once(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows, for another engine. Those that are not held are read from the asset."""
        yield from self.held
        yield from self.rest or ()

    def chunks(self) -> Iterator[pa.Table]:
        """Yield all rows in tables of about `CHUNK_BYTES`, or one empty table if there are none."""
        names = self.schema.names
        yield from in_chunks((batch.select(names) for batch in self.given_batches()), self.schema, CHUNK_BYTES)

    def close(self) -> None:
        """Delete what is spilled."""
        self._stack.close()

    def _spill(self, rest: Iterator[pa.RecordBatch]) -> None:
        directory = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="dagster-iceberg-"))
        self._spilled = Path(directory, "rows.arrow")
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.OSFile(str(self._spilled), "wb") as sink, pa.ipc.new_stream(sink, self.given, options=options) as file:
            for batch in rest:
                file.write_batch(batch)
        self.rest = None


def in_chunks(batches: Iterable[pa.RecordBatch], schema: pa.Schema, size: int) -> Iterator[pa.Table]:
    """Yield the rows in tables of at least this size in bytes, or one empty table if there are no rows."""
    held, held_bytes, is_first = list[pa.RecordBatch](), 0, True
    for batch in batches:
        held.append(batch)
        held_bytes += size_of(batch)
        if held_bytes >= size:
            yield pa.Table.from_batches(held, schema)
            held, held_bytes, is_first = [], 0, False
    if held or is_first:
        yield pa.Table.from_batches(held, schema)


def size_of(rows: pa.RecordBatch | pa.Table) -> int:
    """Return the size of the rows as they are sent, in bytes.

    `nbytes` crashes on Spark's nested columns without elements (SPARK-55056).
    """
    batches = [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches()
    return sum(pa.ipc.get_record_batch_size(batch) for batch in batches)


def schema_of(rows: pa.Schema, *, is_case_sensitive: bool) -> vocabulary.Schema:
    """Return the columns as Iceberg would store them."""
    fields = tuple(vocabulary.Field(field.name, _type_of(field.type)) for field in rows)
    return vocabulary.Schema(fields, is_case_sensitive=is_case_sensitive)


def _type_of(kind: pa.DataType) -> vocabulary.IcebergType:
    if types.is_decimal(kind):
        return vocabulary.DecimalType(kind.precision, kind.scale)
    if types.is_struct(kind):
        return vocabulary.StructType(tuple(vocabulary.Field(part.name, _type_of(part.type)) for part in kind))
    if types.is_list(kind):
        return vocabulary.ListType(_type_of(kind.value_type))
    if types.is_map(kind):
        return vocabulary.MapType(_type_of(kind.key_type), _type_of(kind.item_type))
    return _PRIMITIVES[kind]

"""Turns Arrow batches into a Spark DataFrame."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, StructField, StructType

from dagster_iceberg_spark.arrow.staging import StagedFile, Store, local_store, warehouse_of
from dagster_iceberg_spark.catalog.first_line import first_line
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.spark.columns import functions_of, named_column
from dagster_iceberg_spark.spark.connect import is_connect, is_in_process
from dagster_iceberg_spark.spark.engine_failure import ENGINE_ERRORS
from dagster_iceberg_spark.spark.session import IcebergSession, active
from dagster_iceberg_spark.spark.versions import version_of

CHUNK_BYTES: Final = 64 * 1024 * 1024
"""The size of a chunk in this process's memory, in bytes."""
SENT_BYTES: Final = 16 * 1024 * 1024
"""The size of a chunk sent to a driver, in bytes. The driver briefly needs some hundred MB for it."""
_CHUNKS_OF_PARTITION: Final = CHUNK_BYTES // SENT_BYTES
_INLINE_LIMIT: Final = "spark.sql.session.localRelationCacheThreshold"
"""A Spark Connect server keeps tables of this size as files until the session ends. Smaller ones are part of a plan."""
_DEFAULT_INLINE_LIMIT: Final = 1024 * 1024
_PACKED: Final = "rows"
_RowsT = TypeVar("_RowsT", pa.RecordBatch, pa.Table)
_log = logging.getLogger(__name__)


@contextmanager
def frame_of(session: IcebergSession, rows: pa.RecordBatchReader) -> Iterator[DataFrame]:
    """Yield the rows as a DataFrame, which can be evaluated repeatedly until the end of the block.

    Spark on this machine reads the rows from a local Parquet file, so only one chunk is in memory. Any other Spark
    reads a Parquet file in the warehouse. A Spark that has no access to the warehouse by Hadoop's file systems, and any
    Spark with few rows, receives the rows in chunks, which its executors keep on their disks. The engine's errors are
    not translated.
    """
    spark, typed = session.spark, _with_types(rows)
    with ExitStack() as stack:
        if rows.schema.names and (session.is_on_this_machine or is_in_process(spark)):
            store = stack.enter_context(local_store())
            frame = _staged(stack, spark, store, typed.schema, _chunks(typed, CHUNK_BYTES))
        else:
            chunks = _chunks(typed, SENT_BYTES)
            first, second = next(chunks), next(chunks, None)
            every = [first] if second is None else chain([first, second], chunks)
            warehouse = None if second is None else warehouse_of(session.catalog)
            if warehouse is not None and _reads_from(warehouse, spark, typed.schema):
                frame = _staged(stack, spark, warehouse, typed.schema, every)
            else:
                frame = _sent(spark, every, is_one=second is None)
        yield _without_types(frame, rows.schema)


def _with_types(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the rows with a type for columns of only NULL. Parquet has no such type, and Spark reads one row of it."""
    fields = [field.with_type(pa.bool_()) if pa.types.is_null(field.type) else field for field in rows.schema]
    schema = pa.schema(fields)
    return rows if schema == rows.schema else rows.from_batches(schema, (batch.cast(schema) for batch in rows))


def _without_types(frame: DataFrame, given: pa.Schema) -> DataFrame:
    """Return the DataFrame with columns of only NULL restored to the type `void`, which fits any column."""
    if not any(pa.types.is_null(field.type) for field in given):
        return frame
    functions = functions_of(frame.sparkSession)
    columns = (
        functions.lit(None).alias(field.name) if pa.types.is_null(field.type) else named_column(functions, field.name)
        for field in given
    )
    return frame.select(*columns)


def _staged(
    stack: ExitStack, spark: SparkSession, store: Store, schema: pa.Schema, chunks: Iterable[pa.Table]
) -> DataFrame:
    """Return the rows of a Parquet file, which is deleted when the stack is closed."""
    file = store.new_file()
    stack.callback(file.delete)
    file.write(schema, chunks)
    return _rows_of(file, spark, schema)


def _rows_of(file: StagedFile, spark: SparkSession, schema: pa.Schema) -> DataFrame:
    reader = spark.read.schema(from_arrow_schema(schema, prefer_timestamp_ntz=True))
    # Unchanged, whatever the session's setting for dates of old writers; by URI, whatever its default file system.
    return reader.option("datetimeRebaseMode", "CORRECTED").parquet(file.uri)


def _reads_from(store: Store, spark: SparkSession, schema: pa.Schema) -> bool:
    """Return whether Spark reads what this process writes to the store. Iceberg's own access does not imply Spark's."""
    try:
        probe = store.new_file()
        try:
            probe.write(schema, [schema.empty_table()])
            return bool(_rows_of(probe, spark, schema).isEmpty())
        finally:
            probe.delete()
    except (IcebergSparkError, OSError, ValueError, ImportError, *ENGINE_ERRORS) as error:
        reason = first_line(error)
        _log.debug("Sending the rows, because Spark or this process cannot use %s: %s", store.location, reason)
        return False


def _sent(spark: SparkSession, chunks: Iterable[pa.Table], *, is_one: bool) -> DataFrame:
    """Return the rows as a DataFrame that the executors store. A single chunk is part of the plan instead."""
    limit = int(spark.conf.get(_INLINE_LIMIT, None) or _DEFAULT_INLINE_LIMIT) if is_connect(spark) else SENT_BYTES
    frames = (_chunk_sent(spark, chunk, limit) for chunk in chunks)
    if is_one:
        return next(frames)
    with active(spark):  # as Spark Connect names a checkpoint's
        kept = [version_of(spark).on_disk(frame) for frame in frames]
    return _united(kept).coalesce(-(-len(kept) // _CHUNKS_OF_PARTITION))


def _chunk_sent(spark: SparkSession, chunk: pa.Table, limit: int) -> DataFrame:
    """Return a chunk as one partition.

    Spark creates an object for each row that it receives, several times as large as in Arrow, and forwards them one by
    one. The chunk is therefore sent as one row with an array, which executors unfold.
    """
    struct = from_arrow_schema(chunk.schema, prefer_timestamp_ntz=True)
    if not chunk.schema.names:
        return spark.createDataFrame([], struct)
    packed = StructType([StructField(_PACKED, ArrayType(struct))])
    size = limit * 9 // 10  # with a margin for the overhead of an array
    version = version_of(spark)
    pieces = [version.frame_of(spark, _as_one_row(piece), packed) for piece in _parts(chunk, size)]
    return _united(pieces).selectExpr(f"inline({_PACKED})").coalesce(1)


def _as_one_row(rows: pa.Table) -> pa.Table:
    columns = [column.combine_chunks() for column in rows.columns]
    array = pa.StructArray.from_arrays(columns, names=rows.schema.names)
    return pa.table({_PACKED: pa.ListArray.from_arrays(pa.array([0, len(array)], pa.int32()), array)})


def _united(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the union as a balanced tree. A chain of thousands would be too deep for recursion over the plan."""
    if len(frames) == 1:
        return frames[0]
    middle = len(frames) // 2
    return _united(frames[:middle]).unionAll(_united(frames[middle:]))


def _chunks(rows: pa.RecordBatchReader, size: int) -> Iterator[pa.Table]:
    """Yield the rows in tables of about this size in bytes, or one empty table if there are no rows."""
    held: list[pa.RecordBatch] = []
    held_bytes, is_first = 0, True
    for batch in chain.from_iterable(_parts(batch, size) for batch in rows):
        held.append(batch)
        held_bytes += _size_of(batch)
        if held_bytes >= size:
            yield pa.Table.from_batches(held, rows.schema)
            held, held_bytes, is_first = [], 0, False
    if held or is_first:
        yield pa.Table.from_batches(held, rows.schema)


def _parts(whole: _RowsT, size: int) -> Iterator[_RowsT]:
    """Yield the rows in parts of about this size in bytes, if the rows have similar sizes."""
    rows = max(1, whole.num_rows * size // max(_size_of(whole), 1))
    for start in range(0, max(whole.num_rows, 1), rows):
        yield whole.slice(start, rows)


def _size_of(rows: pa.RecordBatch | pa.Table) -> int:
    """Return the size of the rows as they are sent, in bytes.

    `nbytes` crashes on Spark's own nested columns without elements (SPARK-55056).
    """
    batches = [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches()
    return sum(pa.ipc.get_record_batch_size(batch) for batch in batches)

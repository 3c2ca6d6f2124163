"""Arrow batches as a Spark DataFrame."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
from pyarrow import parquet
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, StructField, StructType

from dagster_iceberg_spark.spark.columns import functions_of, is_connect, named_column
from dagster_iceberg_spark.spark.session import active

CHUNK_BYTES: Final = 64 * 1024 * 1024
"""How much is held here at a time."""
SENT_BYTES: Final = 16 * 1024 * 1024
"""How much is sent to a driver at a time, which takes some hundred MB for it, for a moment."""
_CHUNKS_OF_PARTITION: Final = CHUNK_BYTES // SENT_BYTES
_INLINE_LIMIT: Final = "spark.sql.session.localRelationCacheThreshold"
"""Tables of so many bytes are files on a Spark Connect server until the session ends, smaller ones part of a plan."""
_DEFAULT_INLINE_LIMIT: Final = 1024 * 1024
_PACKED: Final = "rows"
_RowsT = TypeVar("_RowsT", pa.RecordBatch, pa.Table)


@contextmanager
def frame_of(spark: SparkSession, rows: pa.RecordBatchReader) -> Iterator[DataFrame]:
    """Yield the rows as a frame, which may be evaluated again and again until the end of the block.

    A Spark on this machine reads them from a Parquet file beside it, so that no more than a chunk is held in memory.
    Any other is sent them chunk by chunk, and its executors keep them on their disks.

    Args:
        spark: The session.
        rows: The rows, in types that Spark has.

    Raises:
        PySparkException, Py4JError: What the engine says, untranslated, of rows that it is sent.
    """
    is_local = not is_connect(spark) and str(spark.sparkContext.master).partition("[")[0] == "local"
    typed, names = _with_types(rows), rows.schema.names
    if is_local and names:
        with tempfile.TemporaryDirectory(prefix="dagster-iceberg-") as directory:
            yield _without_types(_from_parquet(spark, typed, Path(directory) / "rows.parquet"), rows.schema)
    else:
        yield _without_types(_sent(spark, typed), rows.schema)


def _with_types(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the rows with a type for columns of nothing but NULL: Parquet has none, and Spark takes one row of it."""
    schema = pa.schema(
        [field.with_type(pa.bool_()) if pa.types.is_null(field.type) else field for field in rows.schema]
    )
    return rows if schema == rows.schema else rows.from_batches(schema, (batch.cast(schema) for batch in rows))


def _without_types(frame: DataFrame, given: pa.Schema) -> DataFrame:
    """Return the frame, whose columns of nothing but NULL have a type, without it: such a column fits any other."""
    if not any(pa.types.is_null(field.type) for field in given):
        return frame
    functions = functions_of(frame.sparkSession)
    return frame.select(
        *(
            functions.lit(None).alias(field.name)
            if pa.types.is_null(field.type)
            else named_column(functions, field.name)
            for field in given
        )
    )


def _from_parquet(spark: SparkSession, rows: pa.RecordBatchReader, file: Path) -> DataFrame:
    with parquet.ParquetWriter(file, rows.schema, version="2.6") as writer:
        for chunk in _chunks(rows, CHUNK_BYTES):  # each is a row group, whose description is kept until the end
            writer.write_table(chunk)
    reader = spark.read.schema(from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))
    # As they are, whatever the session makes of dates of old writers; on this machine, whatever its default store is.
    return reader.option("datetimeRebaseMode", "CORRECTED").parquet(file.as_uri())


def _sent(spark: SparkSession, rows: pa.RecordBatchReader) -> DataFrame:
    """Return the rows as the executors keep them; a few are in the plan of whatever is done with them."""
    limit = int(spark.conf.get(_INLINE_LIMIT, None) or _DEFAULT_INLINE_LIMIT) if is_connect(spark) else SENT_BYTES
    frames = (_chunk_sent(spark, chunk, limit) for chunk in _chunks(rows, SENT_BYTES))
    first, second = next(frames), next(frames, None)
    if second is None:
        return first
    with active(spark):  # as a checkpoint's own on Spark Connect
        kept = [frame.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY) for frame in chain([first, second], frames)]
    return _united(kept).coalesce(-(-len(kept) // _CHUNKS_OF_PARTITION))


def _chunk_sent(spark: SparkSession, chunk: pa.Table, limit: int) -> DataFrame:
    """Return a chunk as one partition.

    Spark makes an object of each row that it is sent, several times as large as in Arrow, and sends them on one by one.
    So all of them are one row, an array, which executors unfold.
    """
    struct = from_arrow_schema(chunk.schema, prefer_timestamp_ntz=True)
    if not chunk.schema.names:
        return spark.createDataFrame([], struct)
    packed = StructType([StructField(_PACKED, ArrayType(struct))])
    size = limit * 9 // 10  # with a margin, for what an array adds
    pieces = [spark.createDataFrame(_as_one_row(piece), packed) for piece in _parts(chunk, size)]
    return _united(pieces).selectExpr(f"inline({_PACKED})").coalesce(1)


def _as_one_row(rows: pa.Table) -> pa.Table:
    columns = [column.combine_chunks() for column in rows.columns]
    array = pa.StructArray.from_arrays(columns, names=rows.schema.names)
    return pa.table({_PACKED: pa.ListArray.from_arrays(pa.array([0, len(array)], pa.int32()), array)})


def _united(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the union, put together by halves: a plan of thousands in a row is deeper than its readers can go."""
    if len(frames) == 1:
        return frames[0]
    middle = len(frames) // 2
    return _united(frames[:middle]).unionAll(_united(frames[middle:]))


def _chunks(rows: pa.RecordBatchReader, size: int) -> Iterator[pa.Table]:
    """Yield the rows in tables of about so many bytes; one without rows where there are none."""
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
    """Yield rows in parts of so many bytes, if they are about as large as each other."""
    rows = max(1, whole.num_rows * size // max(_size_of(whole), 1))
    for start in range(0, max(whole.num_rows, 1), rows):
        yield whole.slice(start, rows)


def _size_of(rows: pa.RecordBatch | pa.Table) -> int:
    """Return the bytes of the rows as they are sent.

    `nbytes` crashes on what Spark itself makes of nested columns without elements (SPARK-55056).
    """
    batches = [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches()
    return sum(pa.ipc.get_record_batch_size(batch) for batch in batches)

"""Arrow batches as a Spark DataFrame."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from dagster_iceberg_spark.spark.columns import functions_of, is_connect, named_column

CHUNK_BYTES: Final = 64 * 1024 * 1024
"""How much is held here at a time."""


@contextmanager
def frame_of(spark: SparkSession, rows: pa.RecordBatchReader) -> Iterator[DataFrame]:
    """Yield the rows as a frame, which may be evaluated again and again until the end of the block.

    A Spark on this machine reads them from a Parquet file beside it, so that no more than a chunk is held in memory.
    Any other is sent them chunk by chunk, and its driver holds them as rows, several times as large as in Arrow.

    Args:
        spark: The session.
        rows: The rows, in types that Spark has.
    """
    is_local = not is_connect(spark) and str(spark.sparkContext.master).partition("[")[0] == "local"
    has_types = not all(pa.types.is_null(field.type) for field in rows.schema)
    if is_local and has_types:
        with tempfile.TemporaryDirectory(prefix="dagster-iceberg-") as directory:
            yield _from_parquet(spark, rows, Path(directory) / "rows.parquet")
    else:
        yield _from_chunks(spark, rows)


def _from_parquet(spark: SparkSession, rows: pa.RecordBatchReader, file: Path) -> DataFrame:
    # There is no column without a type in Parquet.
    typed = pa.schema([field for field in rows.schema if not pa.types.is_null(field.type)])
    with parquet.ParquetWriter(file, typed, version="2.6") as writer:
        for chunk in _chunks(rows):  # each is a row group, whose description is kept until the end
            writer.write_table(chunk.select(typed.names))
    reader = spark.read.schema(from_arrow_schema(typed, prefer_timestamp_ntz=True))
    # As they are, whatever the session makes of dates of old writers; on this machine, whatever its default store is.
    frame = reader.option("datetimeRebaseMode", "CORRECTED").parquet(file.as_uri())
    if len(typed) == len(rows.schema):
        return frame
    functions = functions_of(spark)
    known = set(typed.names)
    return frame.select(
        *(
            named_column(functions, name) if name in known else functions.lit(None).alias(name)
            for name in rows.schema.names
        )
    )


def _from_chunks(spark: SparkSession, rows: pa.RecordBatchReader) -> DataFrame:
    schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    frames = [spark.createDataFrame(chunk, schema) for chunk in _chunks(rows)]
    # A batch of some thousand rows is a partition of its own.
    return reduce(lambda whole, frame: whole.unionAll(frame), frames).coalesce(max(1, len(frames)))


def _chunks(rows: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield the rows in tables of about so many bytes; one without rows where there are none."""
    held: list[pa.RecordBatch] = []
    size, is_first = 0, True
    for batch in rows:
        held.append(batch)
        size += batch.nbytes
        if size >= CHUNK_BYTES:
            yield pa.Table.from_batches(held, rows.schema)
            held, size, is_first = [], 0, False
    if held or is_first:
        yield pa.Table.from_batches(held, rows.schema)

"""Spark DataFrames as inputs and outputs, also from Arrow batches."""

import hashlib
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, StructField, StructType

from dagster_iceberg_spark.arrow.outputs import StagedFile, Store, arrow_rows, local_store, unknown_output, warehouse_of
from dagster_iceberg_spark.arrow.write.rows import in_chunks, size_of
from dagster_iceberg_spark.catalog.description import first_line
from dagster_iceberg_spark.catalog.files import added_files
from dagster_iceberg_spark.errors import IcebergSparkError, OutputTypeError
from dagster_iceberg_spark.plan.read.incremental import CHANGE_COLUMNS, INSERT
from dagster_iceberg_spark.plan.read.read_plan import ReadPlan, reads_everything
from dagster_iceberg_spark.plan.schema.schema_evolution import OWN_PREFIX
from dagster_iceberg_spark.spark import expressions, sql
from dagster_iceberg_spark.spark.columns import column_of, functions_of, named_column, project
from dagster_iceberg_spark.spark.failures import ENGINE_ERRORS, translate, translating
from dagster_iceberg_spark.spark.session.runtime import is_connect, is_in_process
from dagster_iceberg_spark.spark.session.session import IcebergSession, active
from dagster_iceberg_spark.spark.tables import added_between, refresh
from dagster_iceberg_spark.spark.versions import version_of
from dagster_iceberg_spark.table.schema import fold
from dagster_iceberg_spark.table.sql_text import table_name

_FRAME_MODULES: Final = ("pyspark.sql.dataframe", "pyspark.sql.classic.dataframe", "pyspark.sql.connect.dataframe")


def is_frame_annotation(annotation: object) -> bool:
    """Return whether an input with this annotation, or without one, loads as a Spark DataFrame."""
    if annotation is None or annotation is Any or annotation is object:
        return True
    return isinstance(annotation, type) and (
        issubclass(annotation, DataFrame) or annotation.__module__ in _FRAME_MODULES
    )


@contextmanager
def frame_to_write(obj: Any, session: Callable[[], IcebergSession], *, subject: str) -> Iterator[DataFrame]:
    """Yield an asset's output as a DataFrame while it is written. Only rows of another library start the session."""
    refused = partial(OutputTypeError.refusing, "write", subject)
    if isinstance(obj, DataFrame) or type(obj).__module__ in _FRAME_MODULES:
        if obj.isStreaming:
            raise refused(
                expected="a DataFrame with an end",
                found="a streaming DataFrame",
                hint="read the source with `spark.read`, or write the stream with `writeStream` and annotate the asset "
                "`-> None`.",
            )
        yield obj
        return
    own_errors: list[Exception] = []
    given = _noting(obj, own_errors) if isinstance(obj, Generator) else obj
    rows = arrow_rows(given, subject=subject)
    if rows is None:
        raise unknown_output(obj, subject=subject)
    held = session()
    if not held.is_case_sensitive and (repeated := _repeated_names(rows.schema.names)):
        raise refused(
            expected="columns whose names differ in more than their case",
            found=", ".join(repeated),
            hint="rename one of them, or set `spark.sql.caseSensitive` to true.",
        )
    with ExitStack() as stack:
        try:
            frame = stack.enter_context(frame_of(held, rows))
        except ENGINE_ERRORS as error:
            if any(error is own for own in own_errors):
                raise
            raise translate(error, action="write", subject=subject, redact=held.catalog.redact) from error
        yield frame


def _repeated_names(names: Sequence[str]) -> list[str]:
    seen = Counter(map(fold, names))
    return [name for name in names if seen[fold(name)] > 1]


def _noting(parts: Iterator[Any], errors: list[Exception]) -> Iterator[Any]:
    """Yield the parts and record their errors, so that an error of the asset's code is not attributed to the write."""
    try:
        yield from parts
    except Exception as error:
        errors.append(error)
        raise


_RESOLVED: Final = f"{OWN_PREFIX}resolved"
"""The alias of a DataFrame that is written. No struct column has the name, so it takes no field's place."""


@contextmanager
def in_session(frame: DataFrame, spark: SparkSession, *, subject: str) -> Iterator[DataFrame]:
    """Yield the DataFrame in the session, because a write goes to the catalog of the DataFrame's session.

    A classic writer resolves the text of a query again. The views that stood for DataFrames in it, as in
    `spark.sql("SELECT * FROM {df}", df=df)`, do not exist by then. An alias keeps what they were resolved to.
    """
    if frame.sparkSession is spark:
        yield frame if is_connect(spark) else frame.alias(_RESOLVED)
        return
    if is_connect(spark) or is_connect(frame.sparkSession):
        raise OutputTypeError.refusing(
            "write",
            subject,
            expected="a DataFrame of the IO manager's Spark session",
            found="one of another session, which a Spark Connect server keeps apart",
            hint="make it with `spark.spark_session` of the same resource configuration as the IO manager's.",
        )
    view = f"iceberg_frame_{uuid.uuid4().hex}"
    frame.createGlobalTempView(view)
    try:
        yield spark.table(f"global_temp.{view}")
    finally:
        spark.catalog.dropGlobalTempView(view)


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
            frame = _stage(stack, spark, store, typed.schema, _chunks(typed, CHUNK_BYTES))
        else:
            chunks = _chunks(typed, SENT_BYTES)
            first, second = next(chunks), next(chunks, None)
            every = [first] if second is None else chain([first, second], chunks)
            warehouse = None if second is None else warehouse_of(session.catalog)
            if warehouse is not None and _reads_from(warehouse, spark, typed.schema):
                frame = _stage(stack, spark, warehouse, typed.schema, every)
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


def _stage(
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
    return _unite(kept).coalesce(-(-len(kept) // _CHUNKS_OF_PARTITION))


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
    return _unite(pieces).selectExpr(f"inline({_PACKED})").coalesce(1)


def _as_one_row(rows: pa.Table) -> pa.Table:
    columns = [column.combine_chunks() for column in rows.columns]
    array = pa.StructArray.from_arrays(columns, names=rows.schema.names)
    return pa.table({_PACKED: pa.ListArray.from_arrays(pa.array([0, len(array)], pa.int32()), array)})


def _unite(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the union as a balanced tree. A chain of thousands would be too deep for recursion over the plan."""
    if len(frames) == 1:
        return frames[0]
    middle = len(frames) // 2
    return _unite(frames[:middle]).unionAll(_unite(frames[middle:]))


def _chunks(rows: pa.RecordBatchReader, size: int) -> Iterator[pa.Table]:
    parts = chain.from_iterable(_parts(batch, size) for batch in rows)
    return in_chunks(parts, rows.schema, size)


def _parts(whole: _RowsT, size: int) -> Iterator[_RowsT]:
    """Yield the rows in parts of about this size in bytes, if the rows have similar sizes."""
    rows = max(1, whole.num_rows * size // max(size_of(whole), 1))
    for start in range(0, max(whole.num_rows, 1), rows):
        yield whole.slice(start, rows)


def read(session: IcebergSession, plan: ReadPlan) -> DataFrame:
    """Return the plan's rows, pinned to its snapshot however late Spark evaluates them."""
    refresh(session, plan.identifier)
    functions = functions_of(session.spark)
    with translating(session.catalog, action="read", subject=str(plan.identifier)):
        frame = _rows(session, plan)
        if plan.snapshot_id is not None:
            if not reads_everything(plan):
                frame = frame.where(column_of(functions, plan.predicate))
            if plan.limit is not None:
                frame = frame.limit(plan.limit)
        if plan.is_whole_row:
            return frame
        said = CHANGE_COLUMNS if plan.changes is not None and plan.changes.kind == "changelog" else ()
        return frame.select(*(named_column(functions, name) for name in (*plan.columns, *said)))


def _rows(session: IcebergSession, plan: ReadPlan) -> DataFrame:
    """Return the rows that the plan reads, before its filter."""
    functions, changes = functions_of(session.spark), plan.changes
    name = table_name(session.catalog.name, plan.identifier)
    scan = "rows" if changes is None else changes.scan
    is_changelog = changes is not None and changes.kind == "changelog"
    if plan.snapshot_id is None or scan == "nothing":
        frame = session.spark.table(name).where(functions.lit(False))  # noqa: FBT003
        return _as_insertions(frame, None) if is_changelog else frame
    if scan == "files":
        return _of_added_files(session, plan)
    if scan == "rows" or changes is None or changes.since is None:
        frame = session.spark.sql(sql.rows_at(name, plan.snapshot_id))
        frame = project(frame, plan.stored, plan.schema, is_current=plan.is_current)
        return _as_insertions(frame, plan.snapshot_id) if is_changelog else frame
    if scan == "changelog":
        ends = {"start-snapshot-id": str(changes.since), "end-snapshot-id": str(plan.snapshot_id)}
        return _changelog(session, plan, ends)
    if scan == "appends":
        return added_between(session, plan.identifier, changes.since, plan.snapshot_id)
    inserts = added_between(session, plan.identifier, changes.since, plan.snapshot_id, view=".changes")
    change = functions.expr(expressions.held_back(CHANGE_COLUMNS[0]))  # Iceberg cannot evaluate the filter
    return inserts.where(change == INSERT).drop(*CHANGE_COLUMNS)


def _as_insertions(frame: DataFrame, snapshot_id: int | None) -> DataFrame:
    functions = functions_of(frame.sparkSession)
    values = (functions.lit(INSERT), functions.lit(0), functions.lit(snapshot_id).cast("long"))
    return frame.withColumns(dict(zip(CHANGE_COLUMNS, values, strict=True)))


def _changelog(session: IcebergSession, plan: ReadPlan, ends: Mapping[str, str]) -> DataFrame:
    """Return insertions and deletions, without rows that a commit rewrote unchanged.

    Iceberg creates a view of the changes. Its name identifies the range, so another read of the range reuses the view.
    """
    catalog, identifier = session.catalog.name, plan.identifier
    changes = f"{catalog}.{identifier} {' '.join(ends.values())}"
    view = f"changes_{hashlib.sha256(changes.encode()).hexdigest()[:32]}"
    session.spark.sql(sql.create_changelog_view(catalog, identifier, view=view, ends=ends))
    return session.spark.table(view)


def _of_added_files(session: IcebergSession, plan: ReadPlan) -> DataFrame:
    """Return the rows of the files that each of the plan's snapshots added, as of that snapshot."""
    functions, changes = functions_of(session.spark), plan.changes
    name = table_name(session.catalog.name, plan.identifier)
    frame = None
    for snapshot_id, stored in zip(changes.snapshots, changes.stored, strict=True) if changes else ():
        paths = [file.path for file in added_files(session.catalog, plan.identifier, snapshot_id, ())]
        if paths:
            added = session.spark.sql(sql.rows_at(name, snapshot_id))
            added = added.where(functions.col("_file").isin(paths))
            added = project(added, stored, plan.schema, is_current=plan.is_current)
            frame = added if frame is None else frame.unionByName(added)
    return session.spark.table(name).where(functions.lit(False)) if frame is None else frame  # noqa: FBT003


def no_rows(session: IcebergSession) -> DataFrame:
    """Return a DataFrame without rows and columns."""
    return session.spark.createDataFrame([], types.StructType([]))

"""Spark DataFrames as inputs and outputs."""

import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from dagster_iceberg_spark.arrow.outputs import OUTPUT_TYPES, arrow_rows, type_name
from dagster_iceberg_spark.errors import OutputTypeError
from dagster_iceberg_spark.plan.schema_evolution import OWN_PREFIX
from dagster_iceberg_spark.spark.arrow_frames import frame_of
from dagster_iceberg_spark.spark.connect import is_connect
from dagster_iceberg_spark.spark.engine_failure import ENGINE_ERRORS
from dagster_iceberg_spark.spark.failures import translated
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.table.schema import folded

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
        raise refused(
            expected=f"a pyspark.sql.DataFrame, {', '.join(OUTPUT_TYPES[:-1])} or {OUTPUT_TYPES[-1]}",
            found="None" if obj is None else type_name(obj),
            hint="annotate the asset `-> None` if it never returns rows, or yield no `Output` with "
            "`output_required=False` if it sometimes has none; otherwise return the DataFrame."
            if obj is None
            else "return one of these, or give the asset another IO manager.",
        )
    held = session()
    if not held.is_case_sensitive and (repeated := _repeated(rows.schema.names)):
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
            raise translated(error, action="write", subject=subject, redact=held.catalog.redact) from error
        yield frame


def _repeated(names: Sequence[str]) -> list[str]:
    seen = Counter(map(folded, names))
    return [name for name in names if seen[folded(name)] > 1]


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
    `spark.sql("SELECT * FROM {df}", df=df)`, are gone by then. An alias keeps what they were resolved to.
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

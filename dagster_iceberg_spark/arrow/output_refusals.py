"""The errors for outputs of assets that cannot be written.

Each function returns the error of one case. The caller raises it.
"""

from collections.abc import Sequence

import pyarrow as pa

from dagster_iceberg_spark.catalog.first_line import first_line
from dagster_iceberg_spark.errors import OutputTypeError


def no_rows(subject: str, obj: object, types: Sequence[str]) -> OutputTypeError:
    """The type of the object cannot be written."""
    return _cannot_write(
        subject,
        expected=f"a pyspark.sql.DataFrame, {', '.join(types[:-1])} or {types[-1]}",
        found="None" if obj is None else _type_name(obj),
        hint="annotate the asset `-> None` if it returns nothing on purpose; otherwise return the DataFrame."
        if obj is None
        else "return one of these, or give the asset another IO manager.",
    )


def stream(subject: str) -> OutputTypeError:
    """The DataFrame is a stream."""
    return _cannot_write(
        subject,
        expected="a DataFrame with an end",
        found="a streaming DataFrame",
        hint="read the source with `spark.read`, or write the stream with `writeStream` and annotate the asset "
        "`-> None`.",
    )


def frame_of_another_session(subject: str) -> OutputTypeError:
    """The DataFrame belongs to a Spark session that is unrelated to the IO manager's."""
    return _cannot_write(
        subject,
        expected="a DataFrame of the IO manager's Spark session",
        found="one of another session, which a Spark Connect server keeps apart",
        hint="make it with `spark.spark_session` of the same resource configuration as the IO manager's.",
    )


def not_for_arrow(subject: str, obj: object, error: Exception) -> OutputTypeError:
    """Arrow cannot take the object's values."""
    return _cannot_write(
        subject,
        expected="rows that Arrow can hold",
        found=f"{_type_name(obj)}: {first_line(error)}",
        hint="give each column one type, and each a name of its own.",
    )


def unnamed_index(subject: str, dtype: object) -> OutputTypeError:
    """The index of a pandas DataFrame holds values, but has no name for their column."""
    return _cannot_write(
        subject,
        expected="a pandas index of numbers, or with a name, under which it becomes a column",
        found=f"one of type {dtype} without a name",
        hint="name it by `rename_axis`, or drop it by `reset_index(drop=True)`.",
    )


def repeated_names(subject: str, names: Sequence[str]) -> OutputTypeError:
    """Several columns have the same name."""
    return _cannot_write(subject, expected="each column's name once", found=f"{', '.join(names)} more than once")


def no_batches(subject: str) -> OutputTypeError:
    """An iterator ends before it yields any columns."""
    return _cannot_write(
        subject,
        expected="at least one Arrow batch, which tells the columns",
        found="an iterator that yields none",
        hint="yield a batch without rows where there are none.",
    )


def not_a_batch(subject: str, part: object) -> OutputTypeError:
    """An iterator yields something other than rows."""
    return _cannot_write(
        subject,
        expected="an iterator of pyarrow.RecordBatch or pyarrow.Table",
        found=f"{_type_name(part)} among what it yields",
    )


def other_columns(subject: str, first: pa.Schema, batch: pa.Schema) -> OutputTypeError:
    """A batch and the first batch have different columns."""
    return _cannot_write(
        subject, expected=f"the columns of the first batch in all of them: {_shown(first)}", found=_shown(batch)
    )


def unfit_value(subject: str, field: pa.Field, error: Exception) -> OutputTypeError:
    """A value does not fit the type that stores its column."""
    return _cannot_write(
        subject,
        expected=f"values of {field.name!r} that the type {field.type} holds",
        found=first_line(error),
        hint="round them in the asset, if that is meant.",
    )


def unknown_type(subject: str, column: str, kind: str) -> OutputTypeError:
    """A column has a type that Iceberg lacks."""
    return _cannot_write(
        subject,
        expected="columns of types that Iceberg has",
        found=f"{column!r} of type {kind}",
        hint="cast the column to a type that Iceberg has (Iceberg spec, primitive types), or leave it out.",
    )


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _type_name(obj: object) -> str:
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


def _cannot_write(subject: str, *, expected: str, found: str, hint: str | None = None) -> OutputTypeError:
    return OutputTypeError.refusing("write", subject, expected=expected, found=found, hint=hint)

"""The errors for partitions, `partition_expr`, partition specs and columns that do not fit together.

Each function returns the error of one case. The caller raises it.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from dagster_iceberg_spark.errors import PartitioningError
from dagster_iceberg_spark.table.partitioning import PartitionField, PartitionSpec
from dagster_iceberg_spark.table.schema import Field

_cannot_partition = partial(PartitioningError.refusing, "partition")
_cannot_write = partial(PartitioningError.refusing, "write")


def unknown_partition_column(subject: str, column: str, columns: Sequence[str]) -> PartitioningError:
    """`partition_expr` names a column that does not exist."""
    return _cannot_partition(
        subject,
        expected=f"the column {column!r} that `partition_expr` names",
        found=_columns(columns),
        hint="give `partition_expr` the plain name of a column of the DataFrame; transforms belong in "
        "`iceberg/partition_by`.",
    )


def not_for_time_windows(subject: str, field: Field, timezone: str) -> PartitioningError:
    """The column's type cannot hold times."""
    return _cannot_partition(
        subject,
        expected="a column of type timestamp, timestamp_ntz, date, string or integer for the time windows of "
        f"{timezone}",
        found=f"{field.name!r} of type {field.type}",
        hint="cast the column, or name another one in `partition_expr`.",
    )


def ambiguous_wall_clock(subject: str, field: Field, window: str) -> PartitioningError:
    """A clock change repeats or skips an edge of the window."""
    return _cannot_partition(
        subject,
        expected=f"edges that a wall clock tells apart for the {field.type} column {field.name!r}",
        found=f"the window {window}",
        hint="use a column of type timestamp (with time zone), which tells apart the hour that a clock change repeats.",
    )


def not_whole_days(subject: str, field: Field, window: str) -> PartitioningError:
    """The window begins or ends within a day."""
    return _cannot_partition(
        subject,
        expected=f"partitions made of whole days for the {field.type} column {field.name!r}",
        found=f"the window {window}",
        hint="use a timestamp column, or partitions of days, weeks or months.",
    )


def key_not_of_digits(subject: str, field: Field, key: str, key_format: str) -> PartitioningError:
    """A time window's key is not an integer."""
    return _cannot_partition(
        subject,
        expected=f"keys made of digits for the {field.type} column {field.name!r}",
        found=f"the key {key!r} of the format {key_format!r}",
        hint='give the partitions definition `fmt="%Y%m%d"`, or use a date or timestamp column.',
    )


def key_not_a_value(subject: str, key: str, field: Field) -> PartitioningError:
    """A partition key cannot be a value of the column."""
    return _cannot_partition(
        subject,
        expected=f"partition keys that are values of {field.name!r}, of type {field.type}",
        found=f"the key {key!r}",
        hint="use a string column for any key, an integer column for keys such as '42' that fit it, a date column "
        "for keys such as '2024-01-31', a boolean column for 'true' and 'false'.",
    )


def other_spec(subject: str, wanted: Sequence[PartitionField], spec: PartitionSpec) -> PartitioningError:
    """The definition asks for another spec than the table's, and its policy forbids the change."""
    return _cannot_write(
        subject,
        expected=f"the partition spec {', '.join(map(str, wanted)) or 'unpartitioned'} of `iceberg/partition_by`",
        found=f"the table's own, {spec}",
        hint='set `iceberg/partition_evolution` to "evolve" to partition new files differently, or leave '
        "`iceberg/partition_by` out to keep the table's spec.",
    )


def redundant_field(subject: str, other: PartitionField, field: PartitionField) -> PartitioningError:
    """Two fields are redundant."""
    return PartitioningError.refusing(
        "create",
        subject,
        expected=f"one {field.transform.kind} of the column {field.column!r} in `iceberg/partition_by`",
        found=f"{other} and {field}",
        hint="keep the finer one: filters by the coarser one use it too.",
    )


def name_of_field(subject: str, field: PartitionField) -> PartitioningError:
    """A new column has the name of a partition field."""
    return PartitioningError.refusing(
        "add a column to",
        subject,
        expected="a name that no partition field of the table has or had",
        found=f"{field.name!r}, the name of {replace(field, name=None)}",
        hint="give the column another name in the asset. Only a table that is created anew can have both.",
    )


def taken_field_name(subject: str, name: str, field: PartitionField, other: PartitionField | None) -> PartitioningError:
    """A partition field has the name of another field or of a column."""
    return _cannot_partition(
        subject,
        expected="names of partition fields that differ from each other and from columns",
        found=f"{name!r} of {field}, a column" if other is None else f"{name!r} of {other} and of {field}",
        hint=f'give the field another name, as in "{replace(field, name=None)} as ...".',
    )


def repeated_field(subject: str, field: PartitionField) -> PartitioningError:
    """A partition field occurs twice in the definition."""
    return _cannot_partition(subject, expected="each field of `iceberg/partition_by` once", found=f"{field} twice")


def unknown_source_column(subject: str, field: PartitionField, columns: Sequence[str]) -> PartitioningError:
    """The column of a partition field does not exist."""
    return _cannot_partition(
        subject, expected=f"the column {field.column!r} of `iceberg/partition_by`", found=_columns(columns)
    )


def unfit_transform(subject: str, field: PartitionField, column: Field) -> PartitioningError:
    """A transform does not apply to the column's type."""
    return _cannot_partition(
        subject,
        expected=f"a column that {field.transform.name} can be applied to",
        found=f"{column.name!r} of type {column.type}",
        hint="see the table of transforms in the Iceberg specification; identity takes any primitive type.",
    )


def partition_of_every_instant(subject: str, column: Field) -> PartitioningError:
    """A table would be partitioned by the bare value of a timestamp."""
    return _cannot_partition(
        subject,
        expected="a transform for a timestamp column",
        found=f"the bare column {column.name!r}, which makes a partition of every instant",
        hint=f'write "day({column.name})".',
    )


def untold_partitions(subject: str, field: PartitionField, column: Field | None) -> PartitioningError:
    """Spark cannot compute the partitions of a field from the DataFrame."""
    found = "no such column in the DataFrame" if column is None else f"a column of type {column.type}"
    return _cannot_write(
        subject,
        expected="partitions that Spark can tell from a column of the DataFrame, for `iceberg/write_disposition` = "
        "`overwrite_partitions`",
        found=f"the partition field {field}, of {found}",
        hint="use `replace` with a partitions definition, or `merge`.",
    )


def partition_out_of_years(subject: str, field: PartitionField) -> PartitioningError:
    """A partition lies before the year 1 or after the year 9999."""
    return _cannot_write(subject, expected="partitions of the years 1 to 9999", found=f"one of {field} outside of them")


def _columns(columns: Sequence[str]) -> str:
    return f"the columns {', '.join(columns) or 'none'}"

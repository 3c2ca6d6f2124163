"""SQL expressions of rows: partition values, and filters that reject rows."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from pyspark.sql import DataFrame

from dagster_iceberg_spark.plan.write.write_plan import Guard
from dagster_iceberg_spark.spark.failures import MICROSECONDS, OUTSIDE_END, OUTSIDE_MARKER
from dagster_iceberg_spark.spark.sql import type_name
from dagster_iceberg_spark.table import predicate
from dagster_iceberg_spark.table.partitioning import PartitionField
from dagster_iceberg_spark.table.schema import DATE, TIMESTAMP, TIMESTAMPTZ, Field, fold
from dagster_iceberg_spark.table.sql_text import condition, constant_text, literal, partition_function, quote

_MICROS_OF_DAY: Final = "86400000000L"
_MICROS_OF_HOUR: Final = "3600000000L"


def by_reference(value: predicate.LiteralValue) -> str:
    """Return the literal in a form that generated code refers to, so Spark compiles the same code once for all values.

    Spark writes numbers, dates and instants into the code, but refers to an array. The index of its first element must
    be unknown until the task runs, or the optimizer would replace the expression with the literal.
    """
    if isinstance(value, str | bytes | Decimal):
        return literal(value)
    return f"array({literal(value)})[CAST(spark_partition_id() < 0 AS INT)]"


def partition_value(field: PartitionField, column: Field, catalog: str) -> str:  # noqa: PLR0911 - one for each
    """Return the value of a partition field independent of the session's time zone: an ordinal or the value itself.

    Dates are days, and instants and wall clocks are microseconds since 1970. Years, months, days and hours are counted
    from 1970 in UTC (Iceberg spec, "Partition Transforms"). The column is cast to the table's type first, because
    `bucket` and `truncate` have other values for a narrower decimal.
    """
    name = f"CAST({quote(column.name)} AS {type_name(column.type)})"
    if field.transform.argument is not None:
        return partition_function(catalog, field.transform, name)
    if column.type == DATE:
        value = day = f"unix_date({name})"
    elif column.type in (TIMESTAMP, TIMESTAMPTZ):
        value = f"unix_micros({name})" if column.type == TIMESTAMPTZ else _wall_clock_micros(name)
        day = _floor(value, _MICROS_OF_DAY)
    else:
        return name
    date = f"date_from_unix_date(CAST({day} AS INT))"
    match field.transform.name:
        case "year":
            return f"year({date}) - 1970"
        case "month":
            return f"(year({date}) - 1970) * 12 + month({date}) - 1"
        case "day":
            return day
        case "hour":
            return _floor(value, _MICROS_OF_HOUR)
        case _:
            return value


def _wall_clock_micros(column: str) -> str:
    time_of_day = f"(hour({column}) * 60 + minute({column})) * 60000000L + date_part('SECOND', {column}) * 1000000"
    return f"unix_date(CAST({column} AS DATE)) * {_MICROS_OF_DAY} + CAST({time_of_day} AS BIGINT)"


def _floor(micros: str, unit: str) -> str:
    """Return the number of whole units, rounded down also before 1970. `/` would be a floating-point division."""
    return f"(({micros}) - pmod({micros}, {unit})) DIV {unit}"


def refusal_of_others(owned: predicate.Predicate, message: Sequence[str]) -> str:
    """Return a filter that keeps owned rows and raises an error for any other row.

    The filter reads the task's number so that it is not deterministic. The optimizer pushes deterministic filters below
    joins, aggregates and limits, where this filter would reject rows that are not even in the DataFrame.
    """
    kept = f"({condition(owned, constant=by_reference)}) AND spark_partition_id() >= 0"
    return f"CASE WHEN {kept} THEN TRUE ELSE raise_error(concat({', '.join(message)})) END"


def shown_value(column: str, *, is_instant: bool) -> str:
    """Return a column as text for a message. An instant is in microseconds, independent of time zones."""
    name = quote(column)
    value = f"unix_micros({name})" if is_instant else name
    return f"coalesce(CAST({value} AS STRING), 'NULL')"


def refusal_of_nulls(column: str, message: str) -> str:
    """Return a filter that raises an error if the column is NULL. Like `refusal_of_others`, it is not pushed down."""
    kept = f"{quote(column)} IS NOT NULL AND spark_partition_id() >= 0"
    return f"CASE WHEN {kept} THEN TRUE ELSE raise_error({constant_text(message)}) END"


def held_back(column: str) -> str:
    """Return the column as an expression that no filter is pushed through.

    Iceberg resolves the column of a pushed filter in the table's newest schema, even if it reads an older snapshot in
    which the column has another name.
    """
    return f"CASE WHEN spark_partition_id() >= 0 THEN {quote(column)} END"


def refusal(frame: DataFrame, guard: Guard) -> str:
    """Return the filter that rejects rows that the run does not own. Spark compiles it with the rest of the stage."""
    types = {fold(field.name): field.dataType.typeName() for field in frame.schema.fields}
    message: list[str] = []
    label = f"{OUTSIDE_MARKER}{guard.partitions}: "
    for column in guard.columns:
        is_instant = types.get(fold(column)) == "timestamp"
        message += [constant_text(f"{label}{column}="), shown_value(column, is_instant=is_instant)]
        label = f"{MICROSECONDS if is_instant else ''}, "
    return refusal_of_others(guard.owned, [*message, constant_text(f"{label[:-2]}{OUTSIDE_END}")])

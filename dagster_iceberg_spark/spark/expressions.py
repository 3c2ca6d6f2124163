"""SQL expressions of rows: literals, predicates, partition values, and filters that reject rows."""

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Final, Literal

from pyspark.sql import DataFrame

from dagster_iceberg_spark.plan.write.write_plan import Guard
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.failures import MICROSECONDS, OUTSIDE_END, OUTSIDE_MARKER
from dagster_iceberg_spark.spark.sql import column_name, constant_text, dotted_name, quote, text, type_name
from dagster_iceberg_spark.table import predicate
from dagster_iceberg_spark.table.partitioning import PartitionField, Transform
from dagster_iceberg_spark.table.schema import DATE, TIMESTAMP, TIMESTAMPTZ, Field, fold

_LONG_LIMIT: Final = 2**63
_MICROS_OF_DAY: Final = "86400000000L"
_MICROS_OF_HOUR: Final = "3600000000L"


def literal(value: predicate.LiteralValue) -> str:  # noqa: PLR0911 - one for each type
    """Return a literal that does not depend on the session's time zone or string escaping.

    A datetime with a time zone is an instant, any other is a wall clock.
    """
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case dt.datetime():
            instant, zone = (value.astimezone(dt.timezone.utc), "LTZ") if value.tzinfo else (value, "NTZ")
            return f"TIMESTAMP_{zone} '{instant.isoformat(sep=' ', timespec='microseconds')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case int():
            return str(value) if abs(value) < _LONG_LIMIT else f"{value}BD"
        case float():
            return f"DOUBLE({text(repr(value))})"
        case Decimal():
            return f"{value:f}BD"
        case bytes():
            return f"X'{value.hex()}'"
        case str():
            return constant_text(value)


def by_reference(value: predicate.LiteralValue) -> str:
    """Return the literal in a form that generated code refers to, so Spark compiles the same code once for all values.

    Spark writes numbers, dates and instants into the code, but refers to an array. The index of its first element must
    be unknown until the task runs, or the optimizer would replace the expression with the literal.
    """
    if isinstance(value, str | bytes | Decimal):
        return literal(value)
    return f"array({literal(value)})[CAST(spark_partition_id() < 0 AS INT)]"


def condition(  # noqa: C901, PLR0911 - one for each kind
    rows: predicate.Predicate,
    qualifier: str | None = None,
    *,
    catalog: str | None = None,
    prefixes: Literal["pushed", "held back"] = "pushed",
    constant: Callable[[predicate.LiteralValue], str] = literal,
) -> str:
    """Return the predicate in SQL. A comparison with NULL is NULL.

    `qualifier` is a side of a join. `catalog` has the functions that compute transforms. `constant` returns the SQL of
    a single value. With `prefixes`, Spark may push down a comparison of the start of a text. Iceberg 1.12 fails in such
    a comparison for partitions of NULL. Spark excludes these itself unless the comparison is part of an OR or a NOT.
    """
    of_term = partial(condition, qualifier=qualifier, catalog=catalog, prefixes=prefixes, constant=constant)
    match rows:
        case predicate.Always():
            return "TRUE" if rows == predicate.EVERY_ROW else "FALSE"
        case predicate.Comparison():
            return _comparison(rows, column_name(rows.column, qualifier), constant)
        case predicate.In():
            return _membership(rows, column_name(rows.column, qualifier), constant)
        case predicate.InPartitions():
            listed = ", ".join(literal(value) for value in rows.values)
            return f"{_partition_function(catalog, rows.transform, column_name(rows.column, qualifier))} IN ({listed})"
        case predicate.IsNull():
            return f"{column_name(rows.column, qualifier)} IS NULL"
        case predicate.IsNaN():
            return f"isnan({column_name(rows.column, qualifier)})"
        case predicate.StartsWith() if prefixes == "held back":
            return f"left({column_name(rows.column, qualifier)}, {len(rows.prefix)}) = {constant_text(rows.prefix)}"
        case predicate.StartsWith():
            return f"startswith({column_name(rows.column, qualifier)}, {constant_text(rows.prefix)})"
        case predicate.Not(predicate.StartsWith() as term):
            return f"NOT ({of_term(term)})"
        case predicate.Not():
            return f"NOT ({of_term(rows.term, prefixes='held back')})"
        case predicate.And():
            return " AND ".join(f"({of_term(term)})" for term in rows.terms)
        case predicate.Or():
            return " OR ".join(f"({of_term(term, prefixes='held back')})" for term in rows.terms)


def _with_both_zeros(values: Sequence[predicate.LiteralValue]) -> list[predicate.LiteralValue]:
    """Return the values, with both 0.0 and -0.0 for a floating-point zero, which are equal in Spark.

    In Iceberg's metrics, which exclude files, -0.0 is less than 0.0.
    """
    is_zero = any(isinstance(value, float) and value == 0 for value in values)
    return [*(value for value in values if not is_zero or value != 0), *((0.0, -0.0) if is_zero else ())]


def _membership(rows: predicate.In, column: str, constant: Callable[[predicate.LiteralValue], str]) -> str:
    match _with_both_zeros(rows.values):
        case [False]:
            # Spark rewrites `= FALSE` as NOT, in which Iceberg includes NULL, as in `<` alone: an overwrite would
            # delete files of NULL.
            return f"({column} >= FALSE AND {column} < TRUE)"
        case [value]:
            return f"{column} = {constant(value)}"
        case values:
            return f"{column} IN ({', '.join(map(literal, values))})"


def _comparison(
    comparison: predicate.Comparison, column: str, constant: Callable[[predicate.LiteralValue], str]
) -> str:
    value = comparison.value
    if isinstance(value, float) and value == 0:
        # In Iceberg, -0.0 is less than 0.0, and a value of a partition decides alone.
        value = -0.0 if comparison.operator in ("<", ">=") else 0.0
    compared = f"{column} {comparison.operator} {constant(value)}"
    if not isinstance(value, float):
        return compared
    # NaN is greater than every number in Spark, but not in Iceberg's metrics, which exclude files.
    is_above = comparison.operator in (">", ">=")
    return f"({compared} OR isnan({column}))" if is_above else f"({compared} AND NOT isnan({column}))"


def _partition_function(catalog: str | None, transform: Transform, column: str) -> str:
    """Return the value of a transform (Iceberg documentation, "Spark Queries", functions)."""
    if catalog is None or transform.argument is None:
        message = f"{transform} has to be a function of a catalog"
        raise ValueError(message)
    return f"{dotted_name(catalog, 'system', transform.name)}({transform.argument}, {column})"


def partition_value(field: PartitionField, column: Field, catalog: str) -> str:  # noqa: PLR0911 - one for each
    """Return the value of a partition field independent of the session's time zone: an ordinal or the value itself.

    Dates are days, and instants and wall clocks are microseconds since 1970. Years, months, days and hours are counted
    from 1970 in UTC (Iceberg spec, "Partition Transforms"). The column is cast to the table's type first, because
    `bucket` and `truncate` have other values for a narrower decimal.
    """
    name = f"CAST({quote(column.name)} AS {type_name(column.type)})"
    if field.transform.argument is not None:
        return _partition_function(catalog, field.transform, name)
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
        message += [sql.constant_text(f"{label}{column}="), shown_value(column, is_instant=is_instant)]
        label = f"{MICROSECONDS if is_instant else ''}, "
    return refusal_of_others(guard.owned, [*message, sql.constant_text(f"{label[:-2]}{OUTSIDE_END}")])

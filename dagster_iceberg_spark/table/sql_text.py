"""Names, literals and conditions in Spark SQL, for statements and for the queries that messages show."""

import datetime as dt
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Final, Literal

from dagster_iceberg_spark.table import predicate
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.partitioning import Transform
from dagster_iceberg_spark.table.predicate import Column
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH

_LONG_LIMIT: Final = 2**63
_PLAIN_TEXT: Final = re.compile(r"[^'\\$]*")


def quote(name: str) -> str:
    """Return one identifier in backticks."""
    return "`" + name.replace("`", "``") + "`"


def dotted_name(*parts: str) -> str:
    """Return a multi-part identifier."""
    return ".".join(quote(part) for part in parts)


def column_name(column: Column, qualifier: str | None = None) -> str:
    """Return a column or a field of structs, of the qualifier's side in a join."""
    path = (column,) if isinstance(column, str) else column
    return dotted_name(*path) if qualifier is None else dotted_name(qualifier, *path)


def table_name(catalog: str, identifier: TableIdentifier, branch: str = MAIN_BRANCH) -> str:
    """Return the table's full name. A branch is another part (Iceberg documentation, "Spark Writes", branches)."""
    name = dotted_name(catalog, *identifier.parts)
    return name if branch == MAIN_BRANCH else f"{name}.{quote(f'branch_{branch}')}"


def rows_where(table: str, condition: str | None = None) -> str:
    """Return a query to inspect all rows, or those that meet a condition, for messages."""
    return f"SELECT * FROM {table}" + ("" if condition is None else f" WHERE {condition}")


def repeated_rows(table: str, columns: Sequence[str], condition: str | None = None) -> str:
    """Return a query to inspect the values of columns that several rows have, for messages."""
    keys, where = ", ".join(map(quote, columns)), "" if condition is None else f" WHERE {condition}"
    return f"SELECT {keys}, count(*) FROM {table}{where} GROUP BY {keys} HAVING count(*) > 1"


def text_literal(value: str) -> str:
    """Return a string literal with Spark's default escaping."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("${", "\\u0024{") + "'"  # Spark would substitute a variable


def enclosed(condition: str) -> str:
    """Return the condition in parentheses. It may end in a comment."""
    return f"({condition}\n)" if "--" in condition else f"({condition})"


def constant_text(value: str) -> str:
    """Return a constant expression of the text, whatever `spark.sql.parser.escapedStringLiterals` says."""
    if _PLAIN_TEXT.fullmatch(value):
        return f"'{value}'"
    return f"decode(unhex('{value.encode().hex()}'), 'UTF-8')"


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
            return f"DOUBLE({text_literal(repr(value))})"
        case Decimal():
            return f"{value:f}BD"
        case bytes():
            return f"X'{value.hex()}'"
        case str():
            return constant_text(value)


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
            return f"{partition_function(catalog, rows.transform, column_name(rows.column, qualifier))} IN ({listed})"
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


def partition_function(catalog: str | None, transform: Transform, column: str) -> str:
    """Return the value of a transform (Iceberg documentation, "Spark Queries", functions)."""
    if catalog is None or transform.argument is None:
        message = f"{transform} has to be a function of a catalog"
        raise ValueError(message)
    return f"{dotted_name(catalog, 'system', transform.name)}({transform.argument}, {column})"

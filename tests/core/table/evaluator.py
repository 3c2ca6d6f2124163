"""Evaluates predicates in plain Python: the oracle that engines and plans are compared with."""

from collections.abc import Mapping
from typing import Any

from pyiceberg.transforms import parse_transform
from pyiceberg.types import BinaryType, LongType, StringType

from dagster_iceberg_spark.table.partitioning import Transform
from dagster_iceberg_spark.table.predicate import (
    EVERY_ROW,
    Always,
    And,
    Column,
    Comparison,
    In,
    InPartitions,
    IsNaN,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
)


def matches(predicate: Predicate, row: Mapping[str, Any]) -> bool:
    """Return whether a filter with this predicate keeps the row. No comparison keeps NULL."""
    return truth(predicate, row) is True


def truth(predicate: Predicate, row: Mapping[str, Any]) -> bool | None:  # noqa: C901, PLR0911 - one for each kind
    """Return the predicate's value in SQL: true, false, or None for NULL."""
    match predicate:
        case Always():
            return predicate == EVERY_ROW
        case Comparison(column, operator, value):
            return _compared(value_of(row, column), operator, value)
        case In(column, values):
            return None if value_of(row, column) is None else value_of(row, column) in values
        case InPartitions(column, transform, values):
            return None if value_of(row, column) is None else partition_of(value_of(row, column), transform) in values
        case IsNull(column):
            return value_of(row, column) is None
        case IsNaN(column):
            return _is_nan(value_of(row, column))
        case StartsWith(column, prefix):
            return None if value_of(row, column) is None else value_of(row, column).startswith(prefix)
        case Not(term):
            inner = truth(term, row)
            return None if inner is None else not inner
        case And(terms):
            found = [truth(term, row) for term in terms]
            return False if False in found else None if None in found else True
        case Or(terms):
            found = [truth(term, row) for term in terms]
            return True if True in found else None if None in found else False


def value_of(row: Mapping[str, Any], column: Column) -> Any:
    """Return the value of a column or nested field. It is NULL if one of its structs is NULL."""
    value: Any = row
    for name in (column,) if isinstance(column, str) else column:
        value = None if value is None else value[name]
    return value


def partition_of(value: Any, transform: Transform) -> Any:
    """Return the partition value that pyiceberg computes for an integer, a string or bytes."""
    kind = LongType() if isinstance(value, int) else StringType() if isinstance(value, str) else BinaryType()
    return parse_transform(str(transform)).transform(kind)(value)


def _is_nan(value: Any) -> bool:
    return bool(value != value)  # noqa: PLR0124 - what NaN is


def _compared(found: Any, operator: str, value: Any) -> bool | None:
    if found is None:
        return None
    if _is_nan(found):  # NaN is greater than every number
        return operator in (">", ">=")
    return bool({"<": found < value, "<=": found <= value, ">": found > value, ">=": found >= value}[operator])

"""Predicates as pyiceberg's expressions."""

import datetime as dt
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    LessThan,
    Reference,
)
from pyiceberg.expressions import And as PyIcebergAnd
from pyiceberg.expressions import In as PyIcebergIn
from pyiceberg.expressions import IsNull as PyIcebergIsNull
from pyiceberg.expressions import Or as PyIcebergOr

from dagster_iceberg_spark.table.predicate import (
    EVERY_ROW,
    Always,
    And,
    Comparison,
    In,
    IsNull,
    LiteralValue,
    Or,
    Predicate,
)


def expression_of(predicate: Predicate) -> BooleanExpression:
    """Return the predicate as pyiceberg evaluates and pushes it down."""
    match predicate:
        case Always():
            return AlwaysTrue() if predicate == EVERY_ROW else AlwaysFalse()
        case Comparison():
            compare: Any = GreaterThanOrEqual if predicate.operator == ">=" else LessThan
            return compare(Reference(predicate.column), _literal(predicate.value))  # type: ignore[no-any-return]
        case In():
            values = [_literal(value) for value in predicate.values]
            reference = Reference(predicate.column)
            return _equal_to(reference, values[0]) if len(values) == 1 else _in(reference, values)  # type: ignore[no-any-return]
        case IsNull():
            return _is_null(Reference(predicate.column))  # type: ignore[no-any-return]
        case And():
            return PyIcebergAnd(*map(expression_of, predicate.terms))
        case Or():
            return PyIcebergOr(*map(expression_of, predicate.terms))


# pyiceberg's predicates take their arguments by position; pydantic's plugin for mypy is needed to see that.
_equal_to: Any = EqualTo
_in: Any = PyIcebergIn
_is_null: Any = PyIcebergIsNull


def _literal(value: LiteralValue) -> Any:
    """Return what pyiceberg makes a literal of: times as ISO texts, which it reads by the column's type."""
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    return value

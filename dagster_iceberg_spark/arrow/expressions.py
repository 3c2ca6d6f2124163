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
            compare = GreaterThanOrEqual if predicate.operator == ">=" else LessThan
            return compare(Reference(predicate.column), _literal(predicate.value))
        case In():
            values = [_literal(value) for value in predicate.values]
            reference = Reference(predicate.column)
            return EqualTo(reference, values[0]) if len(values) == 1 else PyIcebergIn(reference, values)
        case IsNull():
            return PyIcebergIsNull(Reference(predicate.column))
        case And():
            return PyIcebergAnd(*map(expression_of, predicate.terms))
        case Or():
            return PyIcebergOr(*map(expression_of, predicate.terms))


def _literal(value: LiteralValue) -> Any:
    """Return what pyiceberg makes a literal of: times as ISO texts, which it reads by the column's type."""
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    return value

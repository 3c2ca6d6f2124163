"""Converts predicates to pyiceberg's expressions."""

import datetime as dt
from functools import partial, reduce
from typing import Any, Final

from pyiceberg import expressions as iceberg
from pyiceberg.expressions import BooleanExpression

from dagster_iceberg_spark.pyiceberg_fixes.required_fields_of_structs import IsNullInStruct, NotNullInStruct
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
    LiteralValue,
    Not,
    Or,
    Order,
    Predicate,
    StartsWith,
)

_COMPARISONS: Final[dict[Order, type[BooleanExpression]]] = {
    "<": iceberg.LessThan,
    "<=": iceberg.LessThanOrEqual,
    ">": iceberg.GreaterThan,
    ">=": iceberg.GreaterThanOrEqual,
}
_OPPOSITES: Final[dict[Order, Order]] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def expression_of(predicate: Predicate) -> BooleanExpression:  # noqa: C901, PLR0911 - one for each kind of predicate
    """Return the expression of the rows for which the predicate is true, which pyiceberg evaluates and pushes down.

    No read uses predicates on partitions, because pyiceberg filters by columns only.
    """
    match predicate:
        case Always():
            return iceberg.AlwaysTrue() if predicate == EVERY_ROW else iceberg.AlwaysFalse()
        case Comparison():
            return _comparison(predicate)
        case In():
            return _membership(predicate)
        case IsNull():
            return _null(predicate.column)
        case IsNaN():
            return _term(iceberg.IsNaN, predicate.column)
        case StartsWith():
            return _term(iceberg.StartsWith, predicate.column, predicate.prefix)
        case Not():
            return _negation(predicate.term)
        case And():
            return iceberg.And(*map(expression_of, predicate.terms))
        case Or():
            return iceberg.Or(*map(expression_of, predicate.terms))
        case InPartitions():
            raise NotImplementedError(predicate)


def _membership(predicate: In) -> BooleanExpression:
    values = [_literal(value) for value in predicate.values]
    if len(values) > 1 and not isinstance(values[0], float):
        return _term(iceberg.In, predicate.column, values)
    equal = map(partial(_term, iceberg.EqualTo, predicate.column), values)  # a set with 0.0 does not contain -0.0
    return reduce(iceberg.Or, equal)


def _comparison(comparison: Comparison) -> BooleanExpression:
    compared = _term(_COMPARISONS[comparison.operator], comparison.column, _literal(comparison.value))
    if isinstance(comparison.value, float) and comparison.operator in (">", ">="):
        return iceberg.Or(compared, _term(iceberg.IsNaN, comparison.column))  # in Arrow, no comparison with NaN is true
    return compared


def _negation(predicate: Predicate) -> BooleanExpression:  # noqa: PLR0911 - one for each kind of predicate
    """Return the rows for which the predicate is false. pyiceberg's `Not` would include those for which it is NULL."""
    match predicate:
        case Comparison(column, operator, value):
            return _comparison(Comparison(column, _OPPOSITES[operator], value))
        case In() | StartsWith():
            return iceberg.And(~expression_of(predicate), _known(predicate.column))
        case IsNull():
            return _known(predicate.column)
        case IsNaN():
            return iceberg.Or(~expression_of(predicate), _null(predicate.column))
        case Not():
            return expression_of(predicate.term)
        case And():
            return iceberg.Or(*map(_negation, predicate.terms))
        case Or():
            return iceberg.And(*map(_negation, predicate.terms))
        case Always() | InPartitions():
            return ~expression_of(predicate)


def _null(column: Column) -> BooleanExpression:
    return _term(iceberg.IsNull if isinstance(column, str) else IsNullInStruct, column)


def _known(column: Column) -> BooleanExpression:
    return _term(iceberg.NotNull if isinstance(column, str) else NotNullInStruct, column)


def _term(kind: Any, column: Column, *arguments: Any) -> BooleanExpression:
    """Return pyiceberg's predicate on the column, or on a field of structs, whose name is its dotted path.

    It takes arguments by position, which only pydantic's plugin for mypy sees.
    """
    term: BooleanExpression = kind(
        iceberg.Reference(column if isinstance(column, str) else ".".join(column)), *arguments
    )
    return term


def _literal(value: LiteralValue) -> Any:
    """Return the value for a literal of pyiceberg. Times are ISO texts, which pyiceberg parses by the column's type."""
    return value.isoformat() if isinstance(value, dt.datetime | dt.date) else value

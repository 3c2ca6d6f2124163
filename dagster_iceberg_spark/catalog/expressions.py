"""Converts predicates to pyiceberg's expressions."""

import datetime as dt
from functools import partial, reduce
from typing import Any, Final

from pyiceberg import expressions as iceberg
from pyiceberg.expressions import BooleanExpression

from dagster_iceberg_spark.pyiceberg_fixes.required_fields_of_structs import IsNullInStruct, NotNullInStruct
from dagster_iceberg_spark.table import predicate

_COMPARISONS: Final[dict[predicate.Order, type[BooleanExpression]]] = {
    "<": iceberg.LessThan,
    "<=": iceberg.LessThanOrEqual,
    ">": iceberg.GreaterThan,
    ">=": iceberg.GreaterThanOrEqual,
}
_OPPOSITES: Final[dict[predicate.Order, predicate.Order]] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def expression_of(rows: predicate.Predicate) -> BooleanExpression:  # noqa: C901, PLR0911 - one for each kind of predicate
    """Return the expression of the rows for which the predicate is true, which pyiceberg evaluates and pushes down.

    No read uses predicates on partitions, because pyiceberg filters by columns only.
    """
    match rows:
        case predicate.Always():
            return iceberg.AlwaysTrue() if rows == predicate.EVERY_ROW else iceberg.AlwaysFalse()
        case predicate.Comparison():
            return _comparison(rows)
        case predicate.In():
            return _membership(rows)
        case predicate.IsNull():
            return _null(rows.column)
        case predicate.IsNaN():
            return _term(iceberg.IsNaN, rows.column)
        case predicate.StartsWith():
            return _term(iceberg.StartsWith, rows.column, rows.prefix)
        case predicate.Not():
            return _negation(rows.term)
        case predicate.And():
            return iceberg.And(*map(expression_of, rows.terms))
        case predicate.Or():
            return iceberg.Or(*map(expression_of, rows.terms))
        case predicate.InPartitions():
            raise NotImplementedError(rows)


def _membership(rows: predicate.In) -> BooleanExpression:
    values = [_literal(value) for value in rows.values]
    if len(values) > 1 and not isinstance(values[0], float):
        return _term(iceberg.In, rows.column, values)
    equal = map(partial(_term, iceberg.EqualTo, rows.column), values)  # a set with 0.0 does not contain -0.0
    return reduce(iceberg.Or, equal)


def _comparison(comparison: predicate.Comparison) -> BooleanExpression:
    compared = _term(_COMPARISONS[comparison.operator], comparison.column, _literal(comparison.value))
    if isinstance(comparison.value, float) and comparison.operator in (">", ">="):
        return iceberg.Or(compared, _term(iceberg.IsNaN, comparison.column))  # in Arrow, no comparison with NaN is true
    return compared


def _negation(rows: predicate.Predicate) -> BooleanExpression:  # noqa: PLR0911 - one for each kind of predicate
    """Return the rows for which the predicate is false. pyiceberg's `Not` would include those for which it is NULL."""
    match rows:
        case predicate.Comparison(column, operator, value):
            return _comparison(predicate.Comparison(column, _OPPOSITES[operator], value))
        case predicate.In() | predicate.StartsWith():
            return iceberg.And(~expression_of(rows), _known(rows.column))
        case predicate.IsNull():
            return _known(rows.column)
        case predicate.IsNaN():
            return iceberg.Or(~expression_of(rows), _null(rows.column))
        case predicate.Not():
            return expression_of(rows.term)
        case predicate.And():
            return iceberg.Or(*map(_negation, rows.terms))
        case predicate.Or():
            return iceberg.And(*map(_negation, rows.terms))
        case predicate.Always() | predicate.InPartitions():
            return ~expression_of(rows)


def _null(column: predicate.Column) -> BooleanExpression:
    return _term(iceberg.IsNull if isinstance(column, str) else IsNullInStruct, column)


def _known(column: predicate.Column) -> BooleanExpression:
    return _term(iceberg.NotNull if isinstance(column, str) else NotNullInStruct, column)


def _term(kind: Any, column: predicate.Column, *arguments: Any) -> BooleanExpression:
    """Return pyiceberg's predicate on the column, or on a field of structs, whose name is its dotted path.

    It takes arguments by position, which only pydantic's plugin for mypy sees.
    """
    term: BooleanExpression = kind(
        iceberg.Reference(column if isinstance(column, str) else ".".join(column)), *arguments
    )
    return term


def _literal(value: predicate.LiteralValue) -> Any:
    """Return the value for a literal of pyiceberg. Times are ISO texts, which pyiceberg parses by the column's type."""
    return value.isoformat() if isinstance(value, dt.datetime | dt.date) else value

"""Converts predicates to pyiceberg's expressions."""

import datetime as dt
from typing import Any, Final

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotNaN,
    NotNull,
    NotStartsWith,
    Reference,
)
from pyiceberg.expressions import And as PyIcebergAnd
from pyiceberg.expressions import In as PyIcebergIn
from pyiceberg.expressions import IsNaN as PyIcebergIsNaN
from pyiceberg.expressions import IsNull as PyIcebergIsNull
from pyiceberg.expressions import NotIn as PyIcebergNotIn
from pyiceberg.expressions import Or as PyIcebergOr
from pyiceberg.expressions import StartsWith as PyIcebergStartsWith

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

# pyiceberg's predicates take their arguments by position; pydantic's plugin for mypy is needed to see that.
_COMPARISONS: Final[dict[str, Any]] = {
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}
_OPPOSITES: Final[dict[Order, Order]] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_equal_to: Any = EqualTo
_not_equal_to: Any = NotEqualTo
_in: Any = PyIcebergIn
_not_in: Any = PyIcebergNotIn
_is_nan: Any = PyIcebergIsNaN
_not_nan: Any = NotNaN
_starts_with: Any = PyIcebergStartsWith
_not_starts_with: Any = NotStartsWith


def expression_of(predicate: Predicate) -> BooleanExpression:  # noqa: C901, PLR0911 - one for each kind of predicate
    """Return the expression of the rows for which the predicate is true, which pyiceberg evaluates and pushes down.

    No read uses predicates on partitions, because pyiceberg filters by columns only.
    """
    match predicate:
        case Always():
            return AlwaysTrue() if predicate == EVERY_ROW else AlwaysFalse()
        case Comparison():
            return _comparison(predicate)
        case In():
            return _membership(predicate)
        case IsNull():
            return _null(predicate.column)
        case IsNaN():
            return _is_nan(_reference(predicate.column))  # type: ignore[no-any-return]
        case StartsWith():
            return _starts_with(_reference(predicate.column), predicate.prefix)  # type: ignore[no-any-return]
        case Not():
            return _negation(predicate.term)
        case And():
            return PyIcebergAnd(*map(expression_of, predicate.terms))
        case Or():
            return PyIcebergOr(*map(expression_of, predicate.terms))
        case InPartitions():
            raise NotImplementedError(predicate)


def _membership(predicate: In) -> BooleanExpression:
    values, reference = [_literal(value) for value in predicate.values], _reference(predicate.column)
    if len(values) > 1 and not isinstance(values[0], float):
        return _in(reference, values)  # type: ignore[no-any-return]
    equal = [_equal_to(reference, value) for value in values]  # a set with 0.0 does not contain -0.0
    return equal[0] if len(equal) == 1 else PyIcebergOr(*equal)


def _comparison(comparison: Comparison) -> BooleanExpression:
    reference = _reference(comparison.column)
    compared = _COMPARISONS[comparison.operator](reference, _literal(comparison.value))
    if isinstance(comparison.value, float) and comparison.operator in (">", ">="):
        return PyIcebergOr(compared, _is_nan(reference))  # in Arrow, no comparison with NaN is true
    return compared  # type: ignore[no-any-return]


def _negation(predicate: Predicate) -> BooleanExpression:  # noqa: C901, PLR0911 - one for each kind
    """Return the rows for which the predicate is false. pyiceberg's `Not` would include those for which it is NULL."""
    match predicate:
        case Always():
            return AlwaysFalse() if predicate == EVERY_ROW else AlwaysTrue()
        case Comparison(column, operator, value):
            return _comparison(Comparison(column, _OPPOSITES[operator], value))
        case In():
            values, reference = [_literal(value) for value in predicate.values], _reference(predicate.column)
            if len(values) > 1 and not isinstance(values[0], float):
                return PyIcebergAnd(_not_in(reference, values), _known(predicate.column))
            return PyIcebergAnd(*(_not_equal_to(reference, value) for value in values), _known(predicate.column))
        case IsNull():
            return _known(predicate.column)
        case IsNaN():
            return PyIcebergOr(_not_nan(_reference(predicate.column)), _null(predicate.column))
        case StartsWith():
            reference = _reference(predicate.column)
            return PyIcebergAnd(_not_starts_with(reference, predicate.prefix), _known(predicate.column))
        case Not():
            return expression_of(predicate.term)
        case And():
            return PyIcebergOr(*map(_negation, predicate.terms))
        case Or():
            return PyIcebergAnd(*map(_negation, predicate.terms))
        case InPartitions():
            raise NotImplementedError(predicate)


def _null(column: Column) -> BooleanExpression:
    kind: Any = PyIcebergIsNull if isinstance(column, str) else IsNullInStruct
    return kind(_reference(column))  # type: ignore[no-any-return]


def _known(column: Column) -> BooleanExpression:
    kind: Any = NotNull if isinstance(column, str) else NotNullInStruct
    return kind(_reference(column))  # type: ignore[no-any-return]


def _reference(column: Column) -> Reference:
    """Return pyiceberg's reference to the column, or to a field of structs by its dotted path."""
    return Reference(column if isinstance(column, str) else ".".join(column))


def _literal(value: LiteralValue) -> Any:
    """Return the value for a literal of pyiceberg. Times are ISO texts, which pyiceberg parses by the column's type."""
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    return value

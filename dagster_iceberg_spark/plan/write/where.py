"""The rows that meet a condition, as a scope that can be replaced."""

from decimal import Decimal
from typing import Final

from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.plan.options.output_options import MERGE
from dagster_iceberg_spark.plan.partitions.binding import BoundScope, Interval, Intervals, Values
from dagster_iceberg_spark.plan.read.row_filter import row_filter
from dagster_iceberg_spark.plan.write.overwrite_filter import successor
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
from dagster_iceberg_spark.table.schema import GREATEST, DecimalType, Field, IcebergType, Schema

MAXIMUM_BOXES: Final = 1000
WHERE: Final = f"{MERGE}: where"


def where_scope(condition: str, columns: Schema, *, subject: str) -> BoundScope:
    """Return the rows for which a condition is true: comparisons of columns with constants, joined by AND and OR."""
    predicate = row_filter(condition, columns, key=WHERE, subject=subject)
    scope = _scope(predicate, columns)
    if scope is None or len(scope.boxes) > MAXIMUM_BOXES:
        raise MetadataKeyError.of_value(
            WHERE,
            subject,
            expected="=, <, <=, >, >=, BETWEEN, IN and IS NULL, joined by AND and OR",
            found=f"`{condition}`",
            hint="say which rows are meant, not which are left out, by columns and not by fields of structs.",
        )
    return scope


def _scope(predicate: Predicate, columns: Schema) -> BoundScope | None:
    match predicate:
        case Always():
            return BoundScope(((),) if predicate == EVERY_ROW else ())
        case In(str() as column, values):
            is_exact = not any(isinstance(value, float) for value in values)
            return BoundScope(((Values(column, values),),)) if is_exact else None
        case IsNull(str() as column):
            return BoundScope(((Values(column, (), has_null=True),),))
        case Comparison(str() as column):
            return _interval(columns.field(column), predicate)
        case And(terms) | Or(terms):
            return _combined([_scope(term, columns) for term in terms], is_and=isinstance(predicate, And))
        case _:
            return None


def _interval(field: Field | None, comparison: Comparison) -> BoundScope | None:
    value, is_below = comparison.value, comparison.operator in ("<", "<=")
    if field is None or isinstance(value, float):
        return None
    edge = value if comparison.operator in ("<", ">=") else successor(value)
    if edge is None:
        return None
    interval: Interval = (None, edge) if is_below else (edge, None)
    if not _has_value(edge, field.type):
        if not is_below:
            return BoundScope(())  # above the greatest value
        interval = (None, None)
    return BoundScope(((Intervals(field.name, (interval,)),),))


def _has_value(edge: LiteralValue, kind: IcebergType) -> bool:
    """Return whether the type has the value. A filter with a value beyond its greatest one cannot be evaluated."""
    if isinstance(edge, Decimal) and isinstance(kind, DecimalType):
        return kind.exact(edge) is not None
    return not isinstance(edge, int) or edge <= GREATEST.get(kind, edge)


def _combined(scopes: list[BoundScope | None], *, is_and: bool) -> BoundScope | None:
    known = [scope for scope in scopes if scope is not None]
    if len(known) < len(scopes):
        return None
    if not is_and:
        return BoundScope(tuple(dict.fromkeys(box for scope in known for box in scope.boxes)))
    combined = BoundScope(((),))
    for scope in known:
        combined = combined.within(scope)
        if len(combined.boxes) > MAXIMUM_BOXES:
            return None
    return combined

"""The rows that a write replaces: those of its rows' partitions (`overwrite_partitions`), or of a condition."""

import datetime as dt
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

from dagster_iceberg_spark.errors import MetadataKeyError, PartitioningError
from dagster_iceberg_spark.plan.options.output_options import MERGE
from dagster_iceberg_spark.plan.partitions.binding import (
    BoundScope,
    Constraint,
    Edge,
    Interval,
    Intervals,
    Partitions,
    Values,
)
from dagster_iceberg_spark.plan.read.row_filter import row_filter
from dagster_iceberg_spark.plan.write.overwrite_filter import successor, union_of
from dagster_iceberg_spark.table.partitioning import TIME_TRANSFORMS, PartitionField, granule_start
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
from dagster_iceberg_spark.table.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    GREATEST,
    INTEGERS,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    DecimalType,
    Field,
    IcebergType,
    Schema,
)

_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock by design
_IDENTITIES: Final[frozenset[IcebergType]] = frozenset({BOOLEAN, DATE, STRING, TIMESTAMP, TIMESTAMPTZ, *INTEGERS})
_FUNCTIONS: Final[frozenset[IcebergType]] = frozenset({BINARY, DATE, STRING, TIMESTAMP, TIMESTAMPTZ, *INTEGERS})
"""Types whose values are the same in Spark and in the table. A uuid is text in Spark and has another hash there."""


def with_columns(
    fields: Iterable[PartitionField], schema: Schema, *, subject: str
) -> tuple[tuple[PartitionField, Field], ...]:
    """Return the partition fields that identify a partition, each with the DataFrame's column that it is computed from.

    If the spec has the identity of a column, its other transforms are left out.
    """
    known = tuple((field, _source(field, schema, subject)) for field in fields)
    by_value = {column.name for field, column in known if field.transform.name == "identity"}
    return tuple(
        (field, column) for field, column in known if field.transform.name == "identity" or column.name not in by_value
    )


def _source(field: PartitionField, schema: Schema, subject: str) -> Field:
    source = schema.field(field.column)
    transform = field.transform.name
    types = _IDENTITIES if transform == "identity" else _FUNCTIONS
    is_known = source is not None and (
        transform in TIME_TRANSFORMS or source.type in types or isinstance(source.type, DecimalType)
    )
    if source is None or not is_known:
        found = "no such column in the DataFrame" if source is None else f"a column of type {source.type}"
        raise PartitioningError.refusing(
            "write",
            subject,
            expected="partitions that Spark can derive from a column of the DataFrame, for "
            "`iceberg/write_disposition` = `overwrite_partitions`",
            found=f"the partition field {field}, of {found}",
            hint="use `replace` with a partitions definition, or `merge`.",
        )
    return source


def rows_of_partitions(
    fields: Sequence[tuple[PartitionField, Field]], partitions: Iterable[Sequence[Any]], *, subject: str
) -> BoundScope:
    """Return the rows of the partitions, each given by the values of the fields. Without fields, it is the whole table.

    An identity has the column's value: a date as days since 1970, an instant or a wall clock as microseconds since
    then. Another transform has the transform's value (Iceberg spec, "Partition Transforms").
    """
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for first, *rest in (tuple(partition) or (None,) for partition in partitions):
        groups.setdefault(tuple(rest), []).append(first)
    if not fields:
        return BoundScope(((),) if groups else ())
    return BoundScope(
        tuple(
            (constraint, *others)
            for rest, firsts in groups.items()
            for others in [tuple(_one(*item, value, subject) for item, value in zip(fields[1:], rest, strict=True))]
            for constraint in _constraints(*fields[0], firsts, subject)
        )
    )


def _one(field: PartitionField, column: Field, value: Any, subject: str) -> Constraint:
    (constraint,) = _constraints(field, column, [value], subject)
    return constraint


def _constraints(field: PartitionField, column: Field, values: Sequence[Any], subject: str) -> list[Constraint]:
    """Return constraints whose union is these partitions of the field. NULL has its own constraint."""
    found: list[Constraint] = [Values(column.name, (), has_null=True)] if None in values else []
    known = sorted(value for value in values if value is not None)
    if not known:
        return found
    try:
        if field.transform.name == "identity":
            found.append(Values(column.name, tuple(_literal(column.type, value) for value in known)))
        elif field.transform.argument is not None:
            found.append(Partitions(column.name, field.transform, tuple(map(_plain, known))))
        else:
            found.append(Intervals(column.name, union_of(_granule(field, column, value) for value in known)))
    except (OverflowError, ValueError) as error:
        raise PartitioningError.refusing(
            "write", subject, expected="partitions of the years 1 to 9999", found=f"one of {field} outside of them"
        ) from error
    return found


def _literal(kind: IcebergType, value: Any) -> Any:
    if kind == DATE:
        return _EPOCH.date() + dt.timedelta(days=value)
    if kind in (TIMESTAMP, TIMESTAMPTZ):
        moment = _EPOCH + dt.timedelta(microseconds=value)
        return moment if kind == TIMESTAMP else moment.replace(tzinfo=dt.timezone.utc)
    return value


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def _granule(field: PartitionField, column: Field, ordinal: int) -> tuple[Edge, Edge]:
    name = next(name for name in TIME_TRANSFORMS if name == field.transform.name)
    start, end = granule_start(name, ordinal), granule_start(name, ordinal + 1)
    if column.type == DATE:
        return start.date(), end.date()
    if column.type == TIMESTAMPTZ:
        return start.replace(tzinfo=dt.timezone.utc), end.replace(tzinfo=dt.timezone.utc)
    return start, end


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
            return _combine([_scope(term, columns) for term in terms], is_and=isinstance(predicate, And))
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


def _combine(scopes: list[BoundScope | None], *, is_and: bool) -> BoundScope | None:
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

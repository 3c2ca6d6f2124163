"""The table's partitions that a frame's rows fall in, as the rows that are in them."""

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any, Final

from dagster_iceberg_spark.plan import partitioning_refusals
from dagster_iceberg_spark.plan.binding import BoundScope, Constraint, Edge, Intervals, Partitions, Values
from dagster_iceberg_spark.table.partitioning import TIME_TRANSFORMS, PartitionField, granule_start
from dagster_iceberg_spark.table.schema import (
    BINARY,
    BOOLEAN,
    DATE,
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
"""Of these, Spark's values are the table's: of a uuid, which Spark has as text, a hash is another one."""


def with_columns(
    fields: Iterable[PartitionField], schema: Schema, *, subject: str
) -> tuple[tuple[PartitionField, Field], ...]:
    """Return the partition fields that tell partitions apart, each with its column.

    What a column's own values tell, other transforms of it do not tell again.

    Args:
        fields: The fields of the spec that the rows are written by.
        schema: The frame's columns, as the table stores them.
        subject: The table, for messages.

    Raises:
        PartitioningError: The partitions of a field cannot be told from a column of the frame.
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
        raise partitioning_refusals.untold_partitions(subject, field, source)
    return source


def touched(
    told_by: Sequence[tuple[PartitionField, Field]], partitions: Iterable[Sequence[Any]], *, subject: str
) -> BoundScope:
    """Return the rows of those partitions.

    Args:
        told_by: The partition fields, each with its column; none: the whole table is one partition.
        partitions: Their values in each partition. Of an identity the column's own, a date as days and an instant or
            a wall clock as microseconds from 1970; of others the transform's (Iceberg spec, "Partition Transforms").
        subject: The table, for messages.

    Raises:
        PartitioningError: A partition reaches beyond the year 9999.
    """
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for first, *rest in (tuple(partition) or (None,) for partition in partitions):
        groups.setdefault(tuple(rest), []).append(first)
    if not told_by:
        return BoundScope(((),) if groups else ())
    return BoundScope(
        tuple(
            (constraint, *others)
            for rest, firsts in groups.items()
            for others in [tuple(_one(*item, value, subject) for item, value in zip(told_by[1:], rest, strict=True))]
            for constraint in _constraints(*told_by[0], firsts, subject)
        )
    )


def _one(field: PartitionField, column: Field, value: Any, subject: str) -> Constraint:
    (constraint,) = _constraints(field, column, [value], subject)
    return constraint


def _constraints(field: PartitionField, column: Field, values: Sequence[Any], subject: str) -> list[Constraint]:
    """Return constraints that together mean those partitions of the field: NULL apart from the others."""
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
            found.append(Intervals(column.name, _joined(_granule(field, column, value) for value in known)))
    except (OverflowError, ValueError) as error:
        raise partitioning_refusals.partition_out_of_years(subject, field) from error
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


def _joined(granules: Iterable[tuple[Edge, Edge]]) -> tuple[tuple[Edge, Edge], ...]:
    joined: list[tuple[Edge, Edge]] = []
    for start, end in granules:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return tuple(joined)

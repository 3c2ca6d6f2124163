"""Binds a scope of partitions to the types of the table's columns, which determines its rows."""

import datetime as dt
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

from dagster_iceberg_spark.errors import PartitioningError
from dagster_iceberg_spark.table.partitioning import TimeTransform, Transform
from dagster_iceberg_spark.table.predicate import (
    EVERY_ROW,
    NO_ROW,
    Comparison,
    In,
    InPartitions,
    IsNull,
    LiteralValue,
    Not,
    Predicate,
    all_of,
    any_of,
)
from dagster_iceberg_spark.table.schema import (
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
from dagster_iceberg_spark.table.scope import (
    Dimension,
    PartitionScope,
    PartitionSlice,
    TimeCalendar,
    TimeWindow,
    merge_windows,
)

_CRON_NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MICROSECOND = dt.timedelta(microseconds=1)


def coarsest_granule(cron_schedule: str) -> TimeTransform:
    """Return the coarsest of year, month, day and hour that divides every window of the schedule into whole units.

    A schedule that is finer than an hour, or not on the hour, gets `hour`, because Iceberg has no finer transform.
    """
    minute, hour, day_of_month, month, day_of_week = _CRON_NICKNAMES.get(cron_schedule, cron_schedule).split()[:5]
    if minute not in ("0", "00") or hour not in ("0", "00"):
        return "hour"
    if day_of_month not in ("1", "01") or day_of_week != "*":
        return "day"
    return "year" if month in ("1", "01") else "month"


def wall_clock_edge(edge: dt.datetime, timezone: str) -> dt.datetime | None:
    """Return the wall clock that separates the rows before the edge from those at or after it.

    Return None if there is none: the edge lies in an hour that a clock change repeats, so rows on both sides of it have
    the same wall clocks.
    """
    wall = edge.astimezone(ZoneInfo(timezone))
    before = (wall.replace(tzinfo=None) - _MICROSECOND).replace(tzinfo=wall.tzinfo)
    if _is_repeated(wall) and (wall.fold == 1 or _is_repeated(before)):
        return None
    return wall.replace(tzinfo=None, fold=0)


def date_edge(edge: dt.datetime, timezone: str) -> dt.date | None:
    """Return the date that separates the rows before the edge from those at or after it, or None if there is none.

    If a clock change skips midnight, the day starts at the first instant after it. If a clock change turns the clock
    back over midnight, the day before continues after the edge.
    """
    zone = ZoneInfo(timezone)
    before = (edge.astimezone(dt.timezone.utc) - _MICROSECOND).astimezone(zone)
    after = edge.astimezone(zone)
    if before.date() == after.date():
        return None
    last_of_before = dt.datetime.combine(before.date(), dt.time.max, zone).replace(fold=1)
    return after.date() if last_of_before.astimezone(dt.timezone.utc) < edge else None


def _is_repeated(wall: dt.datetime) -> bool:
    return wall.replace(fold=0).utcoffset() != wall.replace(fold=1).utcoffset()


_cannot_partition = partial(PartitioningError.refusing, "partition")

Edge: TypeAlias = dt.datetime | dt.date
"""An aware instant, a naive wall clock, or a date."""
Interval: TypeAlias = tuple[LiteralValue | None, LiteralValue | None]
"""From a value (inclusive) to another (exclusive). None is unbounded."""

_DIGITS: Final = re.compile(r"-?(0|[1-9]\d*)")
_NUMERIC_FORMAT: Final = re.compile(r"(%[YmdHMSjUWVGu])+")


@dataclass(frozen=True, slots=True)
class Intervals:
    """Half-open intervals of a column, in order and disjoint. None of them contains NULL."""

    column: str
    intervals: tuple[Interval, ...]

    def predicate(self) -> Predicate:
        """Return the rows inside the intervals."""
        return any_of(self._inside(start, end) for start, end in self.intervals)

    def _inside(self, start: LiteralValue | None, end: LiteralValue | None) -> Predicate:
        # Iceberg orders the NULL of a partition before any value (`Evaluator`): a file of NULL would be replaced.
        from_start = Not(IsNull(self.column)) if start is None else Comparison(self.column, ">=", start)
        return all_of([from_start, EVERY_ROW if end is None else Comparison(self.column, "<", end)])


@dataclass(frozen=True, slots=True)
class Values:
    """Values of a column, which may include NULL."""

    column: str
    values: tuple[LiteralValue, ...]
    has_null: bool = False

    def predicate(self) -> Predicate:
        """Return the rows that hold one of the values."""
        held = In(self.column, self.values) if self.values else NO_ROW
        return any_of([held, IsNull(self.column) if self.has_null else NO_ROW])


@dataclass(frozen=True, slots=True)
class Partitions:
    """Partitions of a column under a transform such as `bucket`, which only its own values identify."""

    column: str
    transform: Transform
    values: tuple[LiteralValue, ...]

    def predicate(self) -> Predicate:
        """Return the rows of the partitions."""
        return InPartitions(self.column, self.transform, self.values)


Constraint: TypeAlias = Intervals | Values | Partitions
BoundBox: TypeAlias = tuple[Constraint, ...]


@dataclass(frozen=True, slots=True)
class BoundScope:
    """A scope as constraints on the table's columns: a union of products (boxes) of constraints.

    One empty product is the whole table. Without products, the scope has no rows.
    """

    boxes: tuple[BoundBox, ...]

    @property
    def is_whole_table(self) -> bool:
        """Whether the scope is the whole table."""
        return () in self.boxes

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the constraints, each once."""
        return tuple(dict.fromkeys(constraint.column for box in self.boxes for constraint in box))

    def within(self, other: "BoundScope") -> "BoundScope":
        """Return the intersection of both scopes."""
        return BoundScope(tuple(dict.fromkeys((*box, *more) for box in self.boxes for more in other.boxes)))

    def without(self, columns: Iterable[str]) -> "BoundScope":
        """Return the scope without the constraints on these columns."""
        left_out = set(columns)
        boxes = (tuple(item for item in box if item.column not in left_out) for box in self.boxes)
        return BoundScope(tuple(dict.fromkeys(boxes)))

    def predicate(self) -> Predicate:
        """Return the rows of the scope."""
        if self.is_whole_table:
            return EVERY_ROW
        return any_of(all_of(constraint.predicate() for constraint in box) for box in self.boxes)


EVERYTHING: Final = BoundScope(((),))
"""The whole table."""


def bind_scope(scope: PartitionScope, schema: Schema, *, subject: str) -> BoundScope:
    """Bind the scope to the columns of a table, whose types must be able to hold the partitions."""
    if scope.is_whole_table:
        return BoundScope(boxes=((),))
    fields = [partition_field(dimension, schema, subject=subject) for dimension in scope.dimensions]
    return BoundScope(
        tuple(
            tuple(
                _constraint(dimension, field, slices, subject=subject)
                for dimension, field, slices in zip(scope.dimensions, fields, box, strict=True)
            )
            for box in scope.boxes
        )
    )


def bind_each_partition(scope: PartitionScope, schema: Schema, *, subject: str) -> tuple[tuple[str, BoundScope], ...]:
    """Return the key and the bound scope of each partition."""
    return tuple(
        (key, bind_scope(PartitionScope(scope.dimensions, (partition,), (key,)), schema, subject=subject))
        for key, partition in zip(scope.keys, scope.partitions, strict=True)
    )


def partition_field(dimension: Dimension, schema: Schema, *, subject: str) -> Field:
    """Return the column of the dimension."""
    field = schema.field(dimension.column)
    if field is None:
        raise _cannot_partition(
            subject,
            expected=f"the column {dimension.column!r} that `partition_expr` names",
            found=f"the columns {', '.join(schema.names) or 'none'}",
            hint="give `partition_expr` the plain name of a column of the DataFrame; transforms belong in "
            "`iceberg/partition_by`.",
        )
    return field


def _constraint(dimension: Dimension, field: Field, slices: Iterable[PartitionSlice], *, subject: str) -> Constraint:
    calendar = dimension.calendar
    if calendar is None or field.type == STRING or field.type in INTEGERS:
        values = (_key_value(item.key, field, calendar, subject=subject) for item in slices)
        return Values(field.name, tuple(dict.fromkeys(values)))
    windows = merge_windows(item.window for item in slices if item.window is not None)
    return Intervals(field.name, tuple(_interval(window, calendar, field, subject=subject) for window in windows))


def _interval(window: TimeWindow, calendar: TimeCalendar, field: Field, *, subject: str) -> tuple[Edge, Edge]:
    refused = partial(_cannot_partition, subject)
    if field.type == TIMESTAMPTZ:
        return window.start, window.end
    if field.type not in (TIMESTAMP, DATE):
        raise refused(
            expected="a column of type timestamp, timestamp_ntz, date, string or integer for the time windows of "
            f"{calendar.timezone}",
            found=f"{field.name!r} of type {field.type}",
            hint="cast the column, or name another one in `partition_expr`.",
        )
    edge = wall_clock_edge if field.type == TIMESTAMP else date_edge
    start, end = edge(window.start, calendar.timezone), edge(window.end, calendar.timezone)
    if start is None or end is None:
        shown = _shown(window, calendar)
        if field.type == TIMESTAMP:
            raise refused(
                expected=f"edges that a wall clock distinguishes for the {field.type} column {field.name!r}",
                found=f"the window {shown}",
                hint="use a column of type timestamp (with time zone), which distinguishes the hours that a clock "
                "change repeats.",
            )
        raise refused(
            expected=f"partitions of whole days for the {field.type} column {field.name!r}",
            found=f"the window {shown}",
            hint="use a timestamp column, or partitions of days, weeks or months.",
        )
    return start, end


def _shown(window: TimeWindow, calendar: TimeCalendar) -> str:
    start, end = (edge.astimezone(ZoneInfo(calendar.timezone)).isoformat() for edge in (window.start, window.end))
    return f"{start} to {end} in {calendar.timezone}"


def _key_value(key: str, field: Field, calendar: TimeCalendar | None, *, subject: str) -> LiteralValue:
    """Return a key as a value of the column, which holds texts or integers if the key is one of time windows."""
    if field.type == STRING:
        return key
    if calendar is not None:
        if not _NUMERIC_FORMAT.fullmatch(calendar.key_format) or not key.isdigit():
            raise _cannot_partition(
                subject,
                expected=f"keys of digits for the {field.type} column {field.name!r}",
                found=f"the key {key!r} of the format {calendar.key_format!r}",
                hint='give the partitions definition `fmt="%Y%m%d"`, or use a date or timestamp column.',
            )
        if not _holds(field.type, key):
            raise _key_not_a_value(subject, key, field)
        return int(key)
    if _DIGITS.fullmatch(key) and key != "-0" and _holds(field.type, key):
        return int(key) if field.type in INTEGERS else Decimal(key)
    if field.type == BOOLEAN and key in ("true", "false"):
        return key == "true"
    if field.type == DATE and (date := _iso_date(key)) is not None:
        return date
    raise _key_not_a_value(subject, key, field)


def _holds(column: IcebergType, digits: str) -> bool:
    """Return whether a column of integers, or of decimals without a fraction, has room for a number."""
    if isinstance(column, DecimalType):
        return not column.scale and len(digits.lstrip("-")) <= column.precision
    greatest = GREATEST.get(column)
    return greatest is not None and -greatest - 1 <= int(digits) <= greatest


def _iso_date(key: str) -> dt.date | None:
    try:
        date = dt.date.fromisoformat(key)
    except ValueError:
        return None
    return date if date.isoformat() == key else None


def _key_not_a_value(subject: str, key: str, field: Field) -> PartitioningError:
    """A partition key cannot be a value of the column."""
    return _cannot_partition(
        subject,
        expected=f"partition keys that are values of {field.name!r}, of type {field.type}",
        found=f"the key {key!r}",
        hint="use a string column for any key, an integer column for keys such as '42' that fit it, a date column "
        "for keys such as '2024-01-31', a boolean column for 'true' and 'false'.",
    )

"""Converts values in manifests to the Python values that predicates use."""

import datetime as dt
from decimal import Decimal
from typing import Any, Final

from pyiceberg.types import DateType, PrimitiveType, TimestampType, TimestamptzType

from dagster_iceberg_spark.table.partitioning import TIME_TRANSFORMS, Transform, granule_start

_EPOCH_DATE: Final = dt.date(1970, 1, 1)
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock by design
_RESOLUTION: Final = dt.timedelta(microseconds=1)


def python_value(value: Any, column_type: PrimitiveType) -> Any:
    """Return a bound of the metrics as a literal of a predicate, or None if there is none for its type.

    Dates are stored as days, timestamps as microseconds since 1970 (Iceberg spec, appendix D).
    """
    try:
        if isinstance(column_type, DateType):
            return _EPOCH_DATE + dt.timedelta(days=value)
        if isinstance(column_type, TimestampType):
            return _EPOCH + dt.timedelta(microseconds=value)
        if isinstance(column_type, TimestamptzType):
            return (_EPOCH + dt.timedelta(microseconds=value)).replace(tzinfo=dt.timezone.utc)
    except OverflowError:
        return None
    return value if isinstance(value, str | bool | int | Decimal) else None


def granule_window(transform: str, value: int) -> tuple[dt.datetime, dt.datetime] | None:
    """Return where a year, month, day or hour begins and ends. Return None for others, and beyond the year 9999."""
    if transform not in TIME_TRANSFORMS:
        return None
    try:
        return granule_start(transform, value), granule_start(transform, value + 1)
    except (OverflowError, ValueError):
        return None


def bounds_of_value(transform: Transform, value: Any, column_type: PrimitiveType) -> tuple[Any, Any] | None:
    """Return the lowest and highest source value of a partition, or None if the partition value does not show them."""
    if transform.name == "identity":
        exact = python_value(value, column_type)
        return None if exact is None else (exact, exact)
    window = granule_window(transform.name, value)
    if window is None:
        return None
    start, end = window[0], window[1] - _RESOLUTION
    if isinstance(column_type, DateType):
        return start.date(), end.date()
    if isinstance(column_type, TimestamptzType):
        return start.replace(tzinfo=dt.timezone.utc), end.replace(tzinfo=dt.timezone.utc)
    return start, end

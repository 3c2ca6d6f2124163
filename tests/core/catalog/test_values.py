"""Converting values of manifests into values of predicates."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.transforms import parse_transform as their_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from dagster_iceberg_spark.catalog.files import bounds_of_value, python_value
from dagster_iceberg_spark.table.partitioning import parse_transform
from tests.core.table.samples import utc, wall

EPOCH, EPOCH_DATE = wall(1970, 1, 1), dt.date(1970, 1, 1)
TRANSFORMS = st.sampled_from(["identity", "year", "month", "day", "hour"])


@pytest.mark.parametrize(
    ("column_type", "stored", "value"),
    [
        (DateType(), -1, dt.date(1969, 12, 31)),
        (TimestampType(), -1, wall(1969, 12, 31, 23, 59, 59, 999999)),
        (TimestamptzType(), 1_000_000, utc(1970, 1, 1, 0, 0, 1)),
        (LongType(), 7, 7),
        (StringType(), "a", "a"),
        (BooleanType(), True, True),
        (DecimalType(9, 2), Decimal("1.50"), Decimal("1.50")),
        (DoubleType(), 1.5, None),
        (BinaryType(), b"x", None),
        (DateType(), 10**9, None),
        (TimestampType(), 2**62, None),
        (TimestamptzType(), -(2**62), None),
    ],
)
def test_a_stored_value_becomes_a_literal_or_none(column_type: PrimitiveType, stored: Any, value: Any) -> None:
    found = python_value(stored, column_type)
    assert found == value
    assert type(found) is type(value)


@given(st.datetimes(dt.datetime(1600, 1, 1), dt.datetime(2500, 1, 1)))  # noqa: DTZ001
def test_a_bound_round_trips_through_storage(value: dt.datetime) -> None:
    micros = (value - EPOCH) // dt.timedelta(microseconds=1)
    stored = from_bytes(TimestampType(), to_bytes(TimestampType(), micros))
    assert python_value(stored, TimestampType()) == value


@given(st.datetimes(dt.datetime(1600, 1, 1), dt.datetime(2500, 1, 1)), TRANSFORMS)  # noqa: DTZ001
def test_the_bounds_of_a_time_partition_are_exact(value: dt.datetime, transform: str) -> None:
    micros = (value - EPOCH) // dt.timedelta(microseconds=1)
    apply = their_transform(transform).transform(TimestampType())
    bounds = bounds_of_value(parse_transform(transform), apply(micros), TimestampType())
    assert bounds is not None
    low, high = ((bound - EPOCH) // dt.timedelta(microseconds=1) for bound in bounds)
    assert low <= micros <= high
    assert apply(low) == apply(high) == apply(micros)
    assert apply(micros) not in (apply(low - 1), apply(high + 1))


@given(st.dates(dt.date(1600, 1, 1), dt.date(2500, 1, 1)), st.sampled_from(["year", "month", "day"]))
def test_the_bounds_of_dates_are_dates(value: dt.date, transform: str) -> None:
    apply = their_transform(transform).transform(DateType())
    bounds = bounds_of_value(parse_transform(transform), apply((value - EPOCH_DATE).days), DateType())
    assert bounds is not None
    low, high = ((bound - EPOCH_DATE).days for bound in bounds)
    assert bounds[0] <= value <= bounds[1]
    assert apply(low) == apply(high) != apply(high + 1)


@pytest.mark.parametrize("transform", ["bucket[4]", "truncate[3]", "void"])
def test_bucket_truncate_and_void_partitions_have_no_bounds(transform: str) -> None:
    assert bounds_of_value(parse_transform(transform), 3, LongType()) is None


@pytest.mark.parametrize(
    ("transform", "value"), [("year", 10**6), ("hour", 10**12), ("month", 10**9), ("identity", 10**18)]
)
def test_a_time_outside_python_s_calendar_has_no_bounds(transform: str, value: int) -> None:
    assert bounds_of_value(parse_transform(transform), value, TimestampType()) is None


def test_bounds_of_timestamptz_are_instants() -> None:
    assert bounds_of_value(parse_transform("day"), 0, TimestamptzType()) == (
        utc(1970, 1, 1), utc(1970, 1, 1, 23, 59, 59, 999999),
    )  # fmt: skip

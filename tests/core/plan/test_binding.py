"""Binding partitions to rows: what a partition means for each column type."""

import datetime as dt
import re
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_iceberg_spark.errors import PartitioningError
from dagster_iceberg_spark.plan.partitions.binding import BoundScope, Intervals, Values, bind_each_partition, bind_scope
from dagster_iceberg_spark.table.predicate import EVERY_ROW, NO_ROW
from dagster_iceberg_spark.table.scope import Dimension, PartitionScope, PartitionSlice, TimeCalendar, TimeWindow
from tests.core.table.evaluator import matches
from tests.core.table.samples import NEW_YORK, calendar, daily, day, keyed, keys_by_day, local, schema, utc, wall

HOUR = dt.timedelta(hours=1)
FIRST = utc(2013, 11, 1)
INSTANTS = st.datetimes(dt.datetime(2013, 10, 31), dt.datetime(2013, 11, 8), timezones=st.just(dt.timezone.utc))  # noqa: DTZ001
DAYS = st.sets(st.sampled_from([f"2013-11-0{number}" for number in range(1, 8)]))


def bound(scope: PartitionScope, **columns: str) -> BoundScope:
    return bind_scope(scope, schema(**columns), subject="nyc.flights")


def hours(*starts: dt.datetime) -> PartitionScope:
    slices = tuple((PartitionSlice(start.isoformat(), TimeWindow(start, start + HOUR)),) for start in starts)
    dimension = Dimension(None, "ts", calendar(NEW_YORK, "%Y-%m-%d-%H:%M", "hour"))
    return PartitionScope((dimension,), slices, tuple(start.isoformat() for start in starts))


def formatted(fmt: str, key: str) -> PartitionScope:
    window = day("2013-11-02").window
    return PartitionScope(
        (Dimension(None, "ts", TimeCalendar("UTC", fmt, "day")),), ((PartitionSlice(key, window),),), (key,)
    )


@pytest.mark.parametrize(
    ("column_type", "expected"),
    [
        ("timestamptz", Intervals("ts", ((utc(2013, 11, 3, 4), utc(2013, 11, 4, 5)),))),
        ("timestamp", Intervals("ts", ((wall(2013, 11, 3), wall(2013, 11, 4)),))),
        ("date", Intervals("ts", ((dt.date(2013, 11, 3), dt.date(2013, 11, 4)),))),
        ("string", Values("ts", ("2013-11-03",))),
    ],
)
def test_the_column_type_determines_what_a_day_means(column_type: str, expected: Intervals | Values) -> None:
    assert bound(daily("2013-11-03", zone=NEW_YORK), ts=column_type).boxes == ((expected,),)


@pytest.mark.parametrize("column_type", ["int", "long"])
def test_a_day_in_an_integer_column_is_its_key(column_type: str) -> None:
    assert bound(formatted("%Y%m%d", "20131102"), ts=column_type).boxes == ((Values("ts", (20131102,)),),)


@pytest.mark.parametrize(
    ("column_type", "key", "value"),
    [
        ("string", "007", "007"),
        ("int", "42", 42),
        ("long", "-7", -7),
        ("long", "0", 0),
        ("decimal(9, 0)", "12", Decimal(12)),
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("date", "2024-01-31", dt.date(2024, 1, 31)),
    ],
)
def test_a_key_is_parsed_as_the_column_type(column_type: str, key: str, value: Any) -> None:
    (constraint,) = bound(keyed(key), carrier=column_type).boxes[0]
    assert constraint == Values("carrier", (value,))
    assert type(constraint.values[0]) is type(value)


@pytest.mark.parametrize(
    ("column_type", "key"),
    [
        ("int", "007"),
        ("int", "1.0"),
        ("int", "-0"),
        ("int", "+1"),
        ("int", " 1"),
        ("int", "\u0661"),
        ("int", "2147483648"),
        ("int", "-2147483649"),
        ("long", "9223372036854775808"),
        ("decimal(3, 0)", "1000"),
        ("decimal(9, 2)", "12"),
        ("boolean", "True"),
        ("boolean", "1"),
        ("date", "20240131"),
        ("date", "2024-1-31"),
        ("timestamptz", "2024-01-31"),
        ("double", "1"),
        ("binary", "1"),
    ],
)
def test_a_key_that_is_not_a_canonical_value_is_refused(column_type: str, key: str) -> None:
    with pytest.raises(PartitioningError) as caught:
        bound(keyed(key), carrier=column_type)
    assert f"values of 'carrier', of type {column_type}, found the key {key!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("column_type", "key"),
    [("int", "2147483647"), ("int", "-2147483648"), ("long", "2147483648"), ("decimal(3, 0)", "-999")],
)
def test_a_key_may_be_as_great_as_the_column_holds(column_type: str, key: str) -> None:
    assert bound(keyed(key), carrier=column_type).boxes == ((Values("carrier", (int(key),)),),)


@pytest.mark.parametrize("column_type", ["boolean", "double", "decimal(9, 0)", "binary"])
def test_time_windows_are_refused_for_a_column_without_time(column_type: str) -> None:
    with pytest.raises(PartitioningError, match=re.escape(f"found 'ts' of type {column_type}.")):
        bound(daily("2013-11-03"), ts=column_type)


@pytest.mark.parametrize(("fmt", "key"), [("%Y-%m-%d", "2013-11-02"), ("%Y-%m", "2013-11"), ("%d %B", "02 November")])
def test_an_integer_column_needs_numeric_keys(fmt: str, key: str) -> None:
    with pytest.raises(PartitioningError, match=f"keys of digits for the int column 'ts', found the key '{key}'"):
        bound(formatted(fmt, key), ts="int")


def test_hours_are_refused_for_a_date_column() -> None:
    with pytest.raises(PartitioningError, match="expected partitions of whole days for the date column 'ts'"):
        bound(hours(utc(2013, 11, 1, 5)), ts="date")


def test_a_repeated_hour_is_refused_for_timestamp_and_exact_for_timestamptz() -> None:
    first, second = local(NEW_YORK, 2013, 11, 3, 1), local(NEW_YORK, 2013, 11, 3, 1, fold=1)
    start = first.astimezone(dt.timezone.utc)
    expected = Intervals("ts", ((start, start + HOUR),))
    assert bound(hours(start), ts="timestamptz").boxes == ((expected,),)
    with pytest.raises(PartitioningError, match="use a column of type timestamp"):
        bound(hours(second.astimezone(dt.timezone.utc)), ts="timestamp")


def test_both_occurrences_of_a_repeated_hour_together_are_one_timestamp_window() -> None:
    start = local(NEW_YORK, 2013, 11, 3, 1).astimezone(dt.timezone.utc)
    expected = Intervals("ts", ((wall(2013, 11, 3, 1), wall(2013, 11, 3, 2)),))
    assert bound(hours(start, start + HOUR), ts="timestamp").boxes == ((expected,),)


def test_a_missing_column_is_named_with_the_existing_ones() -> None:
    with pytest.raises(PartitioningError) as caught:
        bound(daily("2013-11-03"), scheduled_at="timestamptz", carrier="string")
    assert str(caught.value) == (
        "Cannot partition nyc.flights: expected the column 'ts' that `partition_expr` names, found the columns "
        "scheduled_at, carrier. Hint: give `partition_expr` the plain name of a column of the DataFrame; transforms "
        "belong in `iceberg/partition_by`."
    )


def test_the_schema_s_spelling_of_a_column_is_used() -> None:
    assert bound(daily("2013-11-03"), TS="timestamptz").columns == ("TS",)


def test_no_partitions_definition_owns_every_row_and_no_partition_owns_none() -> None:
    whole, nothing = bound(PartitionScope()), bound(daily(), ts="date")
    assert (whole.is_whole_table, whole.predicate(), whole.columns) == (True, EVERY_ROW, ())
    assert (nothing.is_whole_table, nothing.predicate()) == (False, NO_ROW)


def test_keys_with_equal_values_are_not_repeated() -> None:
    assert bound(keyed("1", "2", "1"), carrier="int").boxes == ((Values("carrier", (1, 2)),),)


@given(DAYS, INSTANTS, st.sampled_from(["UTC", NEW_YORK, "Asia/Tokyo"]))
def test_a_row_belongs_to_the_scope_if_its_instant_lies_in_a_window(days: set[str], ts: dt.datetime, zone: str) -> None:
    scope = daily(*days, zone=zone)
    windows = [slices[0].window for slices in scope.partitions]
    owned = any(window.start <= ts < window.end for window in windows if window)
    read = ts.astimezone(ZoneInfo(zone))
    forms = {"timestamptz": ts, "timestamp": read.replace(tzinfo=None), "date": read.date()}
    for column_type, value in forms.items():
        assert matches(bound(scope, ts=column_type).predicate(), {"ts": value}) == owned


@given(
    st.sets(st.tuples(st.sampled_from(["AA", "UA", "DL"]), st.sampled_from(["2013-11-01", "2013-11-02", "2013-11-05"])))
)
def test_multi_partitions_own_exact_pairs_of_key_and_day(pairs: set[tuple[str, str]]) -> None:
    predicate = bound(keys_by_day(pairs), ts="timestamptz", carrier="string").predicate()
    for carrier in ("AA", "UA", "DL", None):
        for number in range(6):
            ts = FIRST + number * dt.timedelta(days=1)
            owned = (carrier, ts.date().isoformat()) in pairs
            assert matches(predicate, {"carrier": carrier, "ts": ts}) == owned


def test_null_belongs_to_no_partition() -> None:
    predicate = bound(daily("2013-11-03"), ts="timestamptz").predicate()
    assert not matches(predicate, {"ts": None})


def test_each_partition_is_bound_under_its_own_key() -> None:
    bound_days = bind_each_partition(daily("2013-11-01", "2013-11-02"), schema(ts="timestamptz"), subject="t")
    noon = {"ts": utc(2013, 11, 2, 12)}
    assert [(key, matches(day.predicate(), noon)) for key, day in bound_days] == [
        ("2013-11-01", False),
        ("2013-11-02", True),
    ]

"""What differs, and how it is shown.

docs/testing.md: Rows that differ
"""

import datetime as dt
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from dagster_iceberg_spark.testing import assert_rows

UTC = dt.timezone.utc
NAN = float("nan")


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ([], []),
        ([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}]),
        ([{"a": 1}], [{"a": 1.0}]),
        ([{"a": Decimal("1.50")}], [{"a": 1.5}]),
        ([{"a": NAN}], [{"a": NAN}]),
        ([{"a": None}], [{"a": None}]),
        ([{"a": 1, "b": None}, {"a": 2, "b": 3}], [{"a": 1}, {"a": 2, "b": 3}]),
        ([{"a": [1, {"b": NAN}]}], [{"a": (1.0, {"b": NAN})}]),
        (
            [{"a": dt.datetime(2024, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))}],
            [{"a": dt.datetime(2024, 1, 1, tzinfo=UTC)}],
        ),
        (pa.table({"a": [1]}), pd.DataFrame({"a": [1]})),
    ],
)
def test_rows_that_are_equal(actual: Any, expected: Any) -> None:
    assert_rows(actual, expected)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ([{"a": 1}, {"a": 1}], [{"a": 1}]),
        ([{"a": 1}], [{"a": 1}, {"a": 1}]),
        ([{"a": 1}], [{"a": "1"}]),
        ([{"a": True}], [{"a": 1}]),
        ([{"a": None}], [{"a": NAN}]),
        ([{"a": 0}], [{"a": None}]),
        ([{"a": 1, "b": 2}], [{"a": 1}]),
        ([{"a": 1}], [{"a": 1, "b": None}]),
        ([{"a": dt.date(2024, 1, 1)}], [{"a": dt.datetime.fromisoformat("2024-01-01")}]),
        ([{"a": dt.datetime.fromisoformat("2024-01-01")}], [{"a": dt.datetime(2024, 1, 1, tzinfo=UTC)}]),
        ([{"a": [1, 2]}], [{"a": [2, 1]}]),
    ],
)
def test_rows_that_differ(actual: Any, expected: Any) -> None:
    for one, other in ((actual, expected), (expected, actual)):
        with pytest.raises(AssertionError, match="differ"):
            assert_rows(one, other)


def test_the_order_may_matter() -> None:
    assert_rows([{"a": 1}, {"a": 2}], [{"a": 1}, {"a": 2}], ignore_order=False)
    with pytest.raises(AssertionError, match="2 different"):
        assert_rows([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}], ignore_order=False)


def test_a_tolerance_holds_for_numbers_and_times_at_any_depth() -> None:
    noon = dt.datetime.fromisoformat("2024-01-01T12:00")
    actual = [{"a": 1.0, "b": [0.1], "c": noon}, {"a": 1.05, "b": [0.2], "c": noon}]
    expected = [{"a": 1.1, "b": [0.2], "c": noon}, {"a": 0.95, "b": [0.1], "c": noon + dt.timedelta(seconds=0.1)}]
    assert_rows(actual, expected, tolerance=0.11)
    with pytest.raises(AssertionError):
        assert_rows(actual, expected, tolerance=0.01)
    with pytest.raises(AssertionError):
        assert_rows([{"a": NAN}], [{"a": 1.0}], tolerance=10)


def test_a_part_of_the_columns_may_be_compared() -> None:
    assert_rows([{"a": 1, "b": 2}], [{"a": 1}], partial=True)
    with pytest.raises(AssertionError, match="missing column: c"):
        assert_rows([{"a": 1, "b": 2}], [{"c": 1}], partial=True)


def test_the_message_is_the_one_of_the_page() -> None:
    day = dt.date(2024, 3, 31)
    expected = [
        {"day": day, "airport": "EWR", "hours": 23, "warmest": 7.25},
        {"day": day, "airport": "JFK", "hours": 23, "warmest": 8.0},
        {"day": day, "airport": "LGA", "hours": 23, "warmest": 9.0},
    ]
    actual = [{**expected[0], "warmest": 7.5}, expected[2]]
    with pytest.raises(AssertionError) as raised:
        assert_rows(actual, expected)
    shown = [line.rstrip() for line in str(raised.value).splitlines()]
    assert shown == [
        "The rows differ: 1 equal, 1 different, 1 missing.",
        "",
        "              day         airport  hours  warmest",
        "  expected    2024-03-31  EWR      23     7.25",
        "  found       2024-03-31  EWR      23     7.5",
        "                                          ^^^",
        "  missing     2024-03-31  JFK      23     8.0",
    ]


@pytest.mark.parametrize(
    ("value", "expected", "shown"),
    [
        ("1", 1, ["'1'", "1"]),
        (" a", "a", ["' a'"]),
        ("", None, ["''", "NULL"]),
        ("NULL", None, ["'NULL'", "NULL"]),
        ("x" * 100, "y", ["x" * 37 + "..."]),
    ],
)
def test_values_that_look_alike_are_told_apart(value: Any, expected: Any, shown: list[str]) -> None:
    with pytest.raises(AssertionError) as raised:
        assert_rows([{"a": value, "b": 1}], [{"a": expected, "b": 1}])
    words = str(raised.value).split("\n\n")[1].split()
    assert all(text in words or text in str(raised.value) for text in shown)


def test_many_rows_are_counted_and_some_are_shown() -> None:
    with pytest.raises(AssertionError) as raised:
        assert_rows([{"a": number} for number in range(1000)], [])
    assert str(raised.value).startswith("The rows differ: 1000 unexpected.")
    assert str(raised.value).endswith("... and 960 rows more")


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match=r"expected a list of mappings or a DataFrame, found builtins\.int"):
        assert_rows(1, [])

"""The expressions of SQL: what they say in every session, and what Iceberg makes of them."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from dagster_iceberg_spark.spark import expressions
from dagster_iceberg_spark.table.partitioning import PartitionField, Transform
from dagster_iceberg_spark.table.predicate import (
    EVERY_ROW,
    NO_ROW,
    And,
    Comparison,
    In,
    IsNull,
    Not,
    Or,
    StartsWith,
    all_of,
    any_of,
)
from dagster_iceberg_spark.table.schema import TIMESTAMPTZ, Field
from dagster_iceberg_spark.table.sql_text import condition, constant_text, literal
from tests.core.table.samples import utc, wall


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (wall(2024, 1, 2), "TIMESTAMP_NTZ '2024-01-02 00:00:00.000000'"),
        (wall(2024, 1, 2, 3, 4, 5, 6), "TIMESTAMP_NTZ '2024-01-02 03:04:05.000006'"),
        (utc(2024, 1, 2, 3), "TIMESTAMP_LTZ '2024-01-02 03:00:00.000000+00:00'"),
        (
            dt.datetime(2024, 1, 2, 3, tzinfo=dt.timezone(dt.timedelta(hours=9))),
            "TIMESTAMP_LTZ '2024-01-01 18:00:00.000000+00:00'",
        ),
    ],
)
def test_no_session_zone_moves_a_timestamp(value: dt.datetime, text: str) -> None:
    assert literal(value) == text


def test_a_date_is_a_date() -> None:
    assert literal(dt.date(2024, 1, 2)) == "DATE '2024-01-02'"


LITERALS = {
    "text": ("a b", "'a b'"),
    "quote": ("it's", "decode(unhex('69742773'), 'UTF-8')"),
    "backslash": ("a\\b", "decode(unhex('615c62'), 'UTF-8')"),
    "number": (7, "7"),
    "decimal": (Decimal(7), "7BD"),
    "large number": (2**63, "9223372036854775808BD"),
    "boolean": (True, "TRUE"),
    "bytes": (b"\x01\xff", "X'01ff'"),
    "date": (dt.date(2013, 1, 2), "DATE '2013-01-02'"),
    "wall clock": (dt.datetime(2013, 1, 2), "TIMESTAMP_NTZ '2013-01-02 00:00:00.000000'"),  # noqa: DTZ001
    "instant": (
        dt.datetime(2013, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=9))),
        "TIMESTAMP_LTZ '2013-01-01 15:00:00.000000+00:00'",
    ),
}


@pytest.mark.parametrize(("value", "text"), LITERALS.values(), ids=list(LITERALS))
def test_a_literal_means_the_same_in_every_session(value: Any, text: str) -> None:
    assert literal(value) == text


def test_a_predicate_is_written_with_its_columns_quoted() -> None:
    rows = any_of([all_of([Comparison("my ts", ">=", 1), Comparison("my ts", "<", 2)]), In("k`", ("a", "b"))])
    assert condition(rows, "t") == "((`t`.`my ts` >= 1) AND (`t`.`my ts` < 2)) OR (`t`.`k``` IN ('a', 'b'))"
    assert [condition(item) for item in (EVERY_ROW, NO_ROW, IsNull("c"), In("c", (1,)))] == [
        "TRUE",
        "FALSE",
        "`c` IS NULL",
        "`c` = 1",
    ]


def test_both_zeros_are_looked_for() -> None:
    """Iceberg leaves out a file of -0.0 alone where 0.0 is looked for, though they are equal in Spark."""
    assert condition(In("d", (0.0,))) == "`d` IN (DOUBLE('0.0'), DOUBLE('-0.0'))"
    assert condition(In("d", (1.0, -0.0))) == "`d` IN (DOUBLE('1.0'), DOUBLE('0.0'), DOUBLE('-0.0'))"
    compared = [condition(Comparison("d", order, 0.0)) for order in ("<", "<=", ">", ">=")]
    zeros = [text.split("DOUBLE('")[1].split("'")[0] for text in compared]
    assert zeros == ["-0.0", "0.0", "0.0", "-0.0"]


def test_false_is_looked_for_in_a_way_that_null_does_not_meet() -> None:
    """Spark makes `= FALSE` a NOT. To Iceberg 1.12 that is true of NULL too: an overwrite deletes its files."""
    assert condition(In("b", (False,))) == "(`b` >= FALSE AND `b` < TRUE)"
    assert condition(In("n", (0,))) == "`n` = 0"


def test_how_a_text_starts_is_pushed_down_only_where_spark_keeps_null_from_it() -> None:
    starts, other = StartsWith("s", "it's"), IsNull("t")
    constant = constant_text("it's")
    pushed, held = f"startswith(`s`, {constant})", f"left(`s`, 4) = {constant}"
    assert condition(And((starts, Not(starts)))) == f"({pushed}) AND (NOT ({pushed}))"
    assert condition(Or((other, Not(starts)))) == f"(`t` IS NULL) OR (NOT ({held}))"
    assert condition(Not(And((starts, other)))) == f"NOT (({held}) AND (`t` IS NULL))"


MICROS = "unix_micros(CAST(`at` AS TIMESTAMP_LTZ))"
DAY_OF_INSTANT = f"(({MICROS}) - pmod({MICROS}, 86400000000L)) DIV 86400000000L"


@pytest.mark.parametrize(
    ("transform", "value"),
    [
        ("year", f"year(date_from_unix_date(CAST({DAY_OF_INSTANT} AS INT))) - 1970"),
        ("day", DAY_OF_INSTANT),
        ("hour", f"(({MICROS}) - pmod({MICROS}, 3600000000L)) DIV 3600000000L"),
        ("identity", MICROS),
    ],
)
def test_an_instant_is_in_the_same_partition_in_every_zone(transform: Any, value: str) -> None:
    field, column = PartitionField("at", Transform(transform)), Field("at", TIMESTAMPTZ)
    assert expressions.partition_value(field, column, "lake") == value

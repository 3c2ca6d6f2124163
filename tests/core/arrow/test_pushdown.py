"""What a scan prunes by a polars filter: never more than the filter leaves out."""

import datetime as dt
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from dagster_iceberg_spark.arrow.reader import pruning
from dagster_iceberg_spark.table.predicate import (
    EVERY_ROW,
    Comparison,
    In,
    IsNull,
    Not,
    Predicate,
    StartsWith,
    all_of,
    any_of,
)
from dagster_iceberg_spark.table.schema import INT, ListType
from tests.core.table.samples import schema, utc, wall

COLUMNS = schema(
    i="int",
    n="long",
    s="string",
    b="boolean",
    f="double",
    day="date",
    at="timestamptz",
    wall="timestamp",
    d="decimal(9,2)",
    li=ListType(INT),
)
ID, S = pl.col("i"), pl.col("s")


@pytest.mark.parametrize(
    ("filter_", "predicate"),
    [
        (ID == 1, In("i", (1,))),
        (pl.lit(1) == ID, In("i", (1,))),
        (ID < 1, Comparison("i", "<", 1)),
        (pl.lit(1) < ID, Comparison("i", ">", 1)),
        (ID.is_in([1, 2]), In("i", (1, 2))),
        (ID.is_between(1, 3), all_of([Comparison("i", ">=", 1), Comparison("i", "<=", 3)])),
        (S.str.starts_with("EW"), StartsWith("s", "EW")),
        (S.is_null(), IsNull("s")),
        (S.is_not_null(), Not(IsNull("s"))),
        ((ID == 1) & (S == "a"), all_of([In("i", (1,)), In("s", ("a",))])),
        ((ID == 1) | (S == "a"), any_of([In("i", (1,)), In("s", ("a",))])),
        (pl.col("b") == pl.lit(value=True), In("b", (True,))),
        (pl.col("day") >= dt.date(2013, 1, 1), Comparison("day", ">=", dt.date(2013, 1, 1))),
        (pl.col("wall") < wall(2013, 1, 1), Comparison("wall", "<", wall(2013, 1, 1))),
        (pl.col("at") < utc(2013, 1, 1), Comparison("at", "<", utc(2013, 1, 1))),
        (pl.col("d") == pl.lit(Decimal("1.50")), In("d", (Decimal("1.50"),))),
    ],
)
def test_a_comparison_with_a_constant_prunes(filter_: pl.Expr, predicate: Predicate) -> None:
    assert pruning(filter_, COLUMNS) == predicate


@pytest.mark.parametrize(
    "filter_",
    [
        pl.col("f") > 1.5,  # statistics of files do not account for NaN
        pl.col("f") == 1,
        ID == 2**40,  # is no value of the column
        S == 1,
        pl.col("d") == pl.lit(Decimal("1.555")),
        pl.col("n") == ID,
        ID + 1 == 2,
        ID != 1,
        ~(ID == 1),
        ID.is_in([1, None]),
        S.str.ends_with("R"),
        pl.col("li").is_null(),
        pl.col("unknown") == 1,
        S.map_elements(lambda _: True, return_dtype=pl.Boolean),
    ],
    ids=str,
)
def test_any_other_filter_prunes_nothing(filter_: pl.Expr) -> None:
    assert pruning(filter_, COLUMNS) == EVERY_ROW


def test_an_unknown_part_of_an_and_leaves_the_known_part() -> None:
    assert pruning((ID == 1) & (pl.col("f") > 1.5), COLUMNS) == In("i", (1,))


def test_an_unknown_part_of_an_or_prunes_nothing() -> None:
    assert pruning((ID == 1) | (pl.col("f") > 1.5), COLUMNS) == EVERY_ROW


def test_an_unknown_form_of_the_document_prunes_nothing() -> None:
    class Newer:
        class meta:  # noqa: N801 - polars' name
            @staticmethod
            def serialize(**_: Any) -> str:
                return '{"Comparison": [1, 2]}'

    assert pruning(Newer(), COLUMNS) == EVERY_ROW

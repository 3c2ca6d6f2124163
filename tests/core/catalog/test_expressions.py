"""Predicates and the pyiceberg expressions derived from them keep the same rows."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from dagster_iceberg_spark.catalog.expressions import expression_of
from dagster_iceberg_spark.table.predicate import (
    EVERY_ROW,
    NO_ROW,
    And,
    Comparison,
    In,
    IsNaN,
    IsNull,
    LiteralValue,
    Not,
    Or,
    Predicate,
    StartsWith,
)
from tests.core.table.evaluator import matches
from tests.core.table.samples import local, utc, wall

VALUES: dict[str, list[LiteralValue]] = {
    "n": [-1, 0, 7, 2**40],
    "s": ["", "a", "it's", "ü"],
    "b": [True, False],
    "p": [Decimal("1.00"), Decimal("1.50")],
    "d": [dt.date(1969, 12, 31), dt.date(2024, 1, 1), dt.date(2024, 1, 2)],
    "w": [wall(1969, 12, 31, 23), wall(2024, 1, 1), wall(2024, 1, 1, 0, 0, 0, 1)],
    "t": [utc(1969, 12, 31, 23), utc(2024, 1, 1), utc(2024, 1, 1, 0, 0, 0, 1)],
    "f": [-1.5, 0.0, 0.1, 1e300, float("inf"), float("nan")],
}
"""Values for one column of each type that a predicate can compare."""
SCHEMA = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "b", BooleanType()),
    NestedField(4, "p", DecimalType(9, 2)),
    NestedField(5, "d", DateType()),
    NestedField(6, "w", TimestampType()),
    NestedField(7, "t", TimestamptzType()),
    NestedField(8, "f", DoubleType()),
)
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | st.sampled_from(values) for name, values in VALUES.items()}), max_size=8
)
LITERALS = {name: [value for value in values if value == value] for name, values in VALUES.items()}  # noqa: PLR0124
ORDERED = st.sampled_from([(name, value) for name in "nspdwtf" for value in LITERALS[name]])
ATOMS = st.one_of(
    st.sampled_from([EVERY_ROW, NO_ROW]),
    st.builds(
        lambda pair, operator: Comparison(pair[0], operator, pair[1]), ORDERED, st.sampled_from(["<", "<=", ">", ">="])
    ),
    st.sampled_from(list(VALUES)).flatmap(
        lambda name: st.builds(
            lambda values: In(name, tuple(values)), st.lists(st.sampled_from(LITERALS[name]), min_size=1, unique=True)
        )
    ),
    st.builds(IsNull, st.sampled_from(list(VALUES))),
    st.just(IsNaN("f")),
    st.builds(StartsWith, st.just("s"), st.sampled_from(["", "a", "it", "ü"])),
)
PREDICATES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(
            lambda kind, terms: kind(tuple(terms)), st.sampled_from([And, Or]), st.lists(inner, min_size=2, max_size=3)
        ),
    ),
    max_leaves=6,
)
ARROW_SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("p", pa.decimal128(9, 2)),
        ("d", pa.date32()),
        ("w", pa.timestamp("us")),
        ("t", pa.timestamp("us", "UTC")),
        ("f", pa.float64()),
    ]
)


def kept(rows: list[dict[str, Any]], expression: BooleanExpression) -> list[int]:
    """Return the row numbers that pyiceberg's own filter keeps."""
    numbered = pa.Table.from_pylist(rows, schema=ARROW_SCHEMA).append_column(
        "row", pa.array(range(len(rows)), pa.int64())
    )
    return list(
        numbered.filter(expression_to_pyarrow(bind(SCHEMA, expression, case_sensitive=True))).column("row").to_pylist()
    )


@settings(max_examples=80)
@given(PREDICATES, ROWS)
def test_pyiceberg_keeps_the_rows_that_the_predicate_matches(predicate: Predicate, rows: list[dict[str, Any]]) -> None:
    expected = [number for number, row in enumerate(rows) if matches(predicate, row)]
    assert kept(rows, expression_of(predicate)) == expected


def test_constant_predicates_are_constant_expressions() -> None:
    assert (expression_of(EVERY_ROW), expression_of(NO_ROW)) == (AlwaysTrue(), AlwaysFalse())


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
def test_an_instant_is_the_same_in_every_time_zone(zone: str) -> None:
    rows = [{"t": utc(2024, 1, 1)}, {"t": utc(2024, 1, 2, 12)}, {"t": utc(2024, 1, 3)}]
    expression = expression_of(Comparison("t", ">=", local(zone, 2024, 1, 2)))
    assert kept(rows, expression) == [1, 2]

"""Conditions as scopes that can be replaced."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.plan.partitions.binding import BoundScope, Intervals
from dagster_iceberg_spark.plan.read.row_filter import row_filter
from dagster_iceberg_spark.plan.write.overwrite_filter import ColumnBounds, DataFile, cover, union_of, within_file
from dagster_iceberg_spark.plan.write.replaced_rows import where_scope
from dagster_iceberg_spark.table.schema import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMPTZ,
    DecimalType,
    Field,
    IcebergType,
    Schema,
)
from tests.core.table.evaluator import matches

SCHEMA = Schema(
    (
        Field("n", LONG),
        Field("s", STRING),
        Field("d", DATE),
        Field("t", TIMESTAMPTZ),
        Field("p", DecimalType(9, 2)),
        Field("f", DOUBLE),
        Field("b", BOOLEAN),
    )
)
NUMBERS = st.none() | st.integers(-3, 3)
TEXTS = st.none() | st.sampled_from(["", "a", "a\0", "b"])
DATES = st.none() | st.sampled_from([dt.date(2024, 1, day) for day in (1, 2, 3)])
ROWS = st.fixed_dictionaries({"n": NUMBERS, "s": TEXTS, "d": DATES})
LEAVES = st.one_of(
    st.builds("n {} {}".format, st.sampled_from(["<", "<=", ">", ">=", "="]), st.integers(-3, 3)),
    st.builds("s {} '{}'".format, st.sampled_from(["<", "<=", ">", ">=", "="]), st.sampled_from(["", "a", "b"])),
    st.builds("d {} '2024-01-0{}'".format, st.sampled_from(["<", "<=", ">", ">=", "="]), st.integers(1, 3)),
    st.builds("n BETWEEN {} AND {}".format, st.integers(-3, 3), st.integers(-3, 3)),
    st.builds("{} IS NULL".format, st.sampled_from("nsd")),
    st.just("n IN (1, 2)"),
    st.sampled_from(["TRUE", "FALSE"]),
)
CONDITIONS = st.recursive(
    LEAVES, lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner), max_leaves=5
)


@given(CONDITIONS, st.lists(ROWS, max_size=6))
def test_the_scope_matches_the_rows_of_the_condition(condition: str, rows: list[dict[str, Any]]) -> None:
    scope = where_scope(condition, SCHEMA, subject="db.t").predicate()
    wanted = row_filter(condition, SCHEMA, key="k", subject="db.t")
    assert [matches(scope, row) for row in rows] == [matches(wanted, row) for row in rows]


def described(rows: list[dict[str, Any]]) -> DataFile:
    """Return a file with the bounds of these rows."""
    bounds = {}
    for column in "nsd":
        known = [row[column] for row in rows if row[column] is not None]
        bounds[column] = ColumnBounds(
            min(known, default=None), max(known, default=None), may_hold_null=len(known) < len(rows), is_null=not known
        )
    return DataFile("f", bounds, len(rows))


@given(CONDITIONS, st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=1, max_size=3))
def test_the_overwrite_filter_matches_no_file_partially(condition: str, files: list[list[dict[str, Any]]]) -> None:
    """No matching row is left either, whatever rows the files hold."""
    scope = where_scope(condition, SCHEMA, subject="db.t")
    described_files = [described(rows) for rows in files]
    coverage = cover(scope, described_files)
    for rows in files:
        inside = [matches(coverage.filter, row) for row in rows]
        owned = [matches(coverage.owned, row) for row in rows]
        assert coverage.carries_over or all(inside) or not any(inside)
        assert all(inside) or not any(owned)
    for file, rows in zip(described_files, files, strict=True):
        left = within_file(scope, file).predicate()
        assert [matches(left, row) for row in rows] == [matches(scope.predicate(), row) for row in rows]


@pytest.mark.parametrize(
    "condition", ["n <> 1", "NOT n = 1", "s LIKE 'a%'", "f > 1", "isnan(f)", "f <= 1.5", "b IS TRUE"]
)
def test_only_values_and_ranges_are_allowed_in_a_condition(condition: str) -> None:
    with pytest.raises(MetadataKeyError, match="expected =, <, <=, >, >=, BETWEEN, IN and IS NULL"):
        where_scope(condition, SCHEMA, subject="db.t")


@pytest.mark.parametrize(
    ("condition", "row"),
    [
        ("p = 1.5", {"p": Decimal("1.50")}),
        ("p < 1.5", {"p": Decimal("1.49")}),
        ("p <= 1.5", {"p": Decimal("1.50")}),
        ("p > 1.5", {"p": Decimal("1.51")}),
        ("p <= 9999999.99", {"p": Decimal("9999999.99")}),
        ("b", {"b": True}),
        ("t >= '2024-01-01T00:00:00Z'", {"t": dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)}),
        ("d <= '9999-12-30'", {"d": dt.date(9999, 12, 30)}),
    ],
)
def test_conditions_work_on_other_types(condition: str, row: dict[str, Any]) -> None:
    assert matches(where_scope(condition, SCHEMA, subject="db.t").predicate(), row)


def test_decimal_ranges_have_exact_bounds() -> None:
    rows = [{"p": Decimal(number)} for number in ("-0.01", "0.00", "1.50", "1.51", "9999999.99")]
    for condition, expected in {
        "p > 0 AND p <= 1.5": [False, False, True, False, False],
        "p <= 9999999.99": [True] * 5,
        "p > 9999999.99 OR p < 0": [True, False, False, False, False],
    }.items():
        scope = where_scope(condition, SCHEMA, subject="db.t").predicate()
        assert [matches(scope, row) for row in rows] == expected


def test_another_column_is_refused_by_the_option_s_name() -> None:
    with pytest.raises(MetadataKeyError) as caught:
        where_scope("m = 1", SCHEMA, subject="db.t")
    expected = "Cannot use `iceberg/merge: where` of db.t: expected one of the columns n, s, d, t, p, f, b, found `m`"
    assert expected in str(caught.value)


def test_too_many_combinations_are_refused() -> None:
    many = " AND ".join(["(n = 1 OR s = 'a')"] * 12)
    with pytest.raises(MetadataKeyError):
        where_scope(f"({many}) AND ({many.replace('1', '2').replace('a', 'b')})", SCHEMA, subject="db.t")


def test_unbounded_intervals_are_merged() -> None:
    assert union_of([(5, None), (None, 1), (1, 3), (4, 6)]) == ((None, 3), (4, None))
    assert union_of([(None, None), (1, 2)]) == ((None, None),)


@pytest.mark.parametrize(("kind", "greatest"), [(INT, 2**31 - 1), (LONG, 2**63 - 1)])
def test_a_range_up_to_the_largest_integer_is_unbounded(kind: IcebergType, greatest: int) -> None:
    """Spark rewrites a comparison with the next integer into one that Iceberg cannot evaluate."""
    columns = Schema((Field("n", kind),))
    below, above = (where_scope(f"n {order} {greatest}", columns, subject="db.t") for order in ("<=", ">"))
    assert below == BoundScope(((Intervals("n", ((None, None),)),),))
    assert above == BoundScope(())

"""Audits by the metadata of data files: what Spark SQL would answer for the rows, or no answer."""

import datetime as dt
import math
import sqlite3
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagster_iceberg_spark.plan.publication.audit_metrics import (
    ColumnMetrics,
    FileMetrics,
    MetricsAudit,
    aggregates_of,
    columns_of,
    metrics_audit,
)
from dagster_iceberg_spark.table.audit import Audit, AuditResult, Condition, NotNull, Unique
from dagster_iceberg_spark.table.schema import Schema, parse_type
from tests.core.table.samples import schema, utc, wall

STRUCT = parse_type({"type": "struct", "fields": [{"id": 9, "name": "v", "required": False, "type": "long"}]})
UNUSUAL = ("it's 1", "a`b", "a\\b", "a.b", "Größe", "min(v)", "1")
COLUMNS = schema(
    v="long", w="long", i="int", f="float", d="double", s="string", b="boolean", day="date", ts="timestamptz",
    local="timestamp", p="decimal(5, 2)", u="uuid", st=STRUCT, **dict.fromkeys(UNUSUAL, "long"),
)  # fmt: skip
UNKNOWN = ColumnMetrics()


def audit_of(condition: str, columns: Schema = COLUMNS) -> MetricsAudit | None:
    return metrics_audit(Audit("a", Condition(condition)), columns, subject="nyc.flights")


def file(rows: int = 2, **columns: ColumnMetrics) -> FileMetrics:
    return FileMetrics(rows, {**dict.fromkeys(COLUMNS.names, UNKNOWN), **columns})


def bounds(lower: Any, upper: Any = None, nulls: int | None = 0, nans: int | None = 0) -> ColumnMetrics:
    return ColumnMetrics(lower, lower if upper is None else upper, nulls, nans)


def result(condition: str, *files: FileMetrics) -> AuditResult | None:
    audit = audit_of(condition)
    assert audit is not None, f"{condition} needs a scan, whatever the metadata"
    return audit.result(files)


def passes(condition: str, *files: FileMetrics) -> bool | None:
    found = result(condition, *files)
    return None if found is None else found.passed


class TestAggregates:
    """Conditions over all rows."""

    FILES = (file(2, v=bounds(1, 5), w=bounds(7, nulls=1)), file(3, v=bounds(-2, 4, nulls=1), w=ColumnMetrics(nulls=3)))

    @pytest.mark.parametrize(
        ("condition", "passed"),
        [
            ("count(*) = 5", True),
            ("COUNT( * ) <> 5", False),
            ("count(v) = 4 and count(w) = 1", True),
            ("min(v) >= -2 and max(v) <= 5", True),
            ("min(v) > -2 OR max(v) < 5", False),
            ("0 < min(v)", False),
            ("-3 < min(v) and 5 >= max(v)", True),
            ("min(v) between -2 and 0", True),
            ("min(v) not between -2 and 0", False),
            ("max(v) in (4, 5)", True),
            ("max(v) not in (4, 5)", False),
            ("not (max(v) > 4)", False),
            ("max(v) = 5.0", True),
            ("max(v) = 5L and 5e0 = max(v)", True),
            ("max(w) <=> 7", True),
            ("max(w) is not null", True),
            ("min(v) > -3 and min(v) < 0 and min(V) <> -1", True),
            ("max(v) > 3 and true", True),
            ("max(v) > 9 or false", False),
            ("(min(v) < (0))", True),
            ("count(all v) = 4", True),
        ],
    )
    def test_the_values_of_all_files_decide(self, condition: str, *, passed: bool) -> None:
        assert passes(condition, *self.FILES) is passed

    def test_the_values_are_what_was_found(self) -> None:
        found = result("MIN(v) > 0 and min( V ) < 9 and count(*) > 1", *self.FILES)
        assert found is not None
        assert found.found == {"min(v)": -2, "count(*)": 5}
        assert found.source == "metadata"
        assert found.forbids_publication
        assert str(found) == "`a` (MIN(v) > 0 and min( V ) < 9 and count(*) > 1): min(v) = -2, count(*) = 5"

    @pytest.mark.parametrize(
        ("condition", "passed"),
        [
            ("min(v) > 0", True),
            ("not (min(v) > 0)", True),
            ("min(v) in (1)", True),
            ("min(v) not in (1)", True),
            ("min(v) between 1 and 2", True),
            ("min(v) > 0 and true", True),
            ("min(v) > 0 and false", False),
            ("min(v) > 0 or false", True),
            ("min(v) is null", True),
            ("min(v) is not null", False),
            ("min(v) <=> null", True),
            ("min(v) <=> 3", False),
            ("not (min(v) <=> 3)", True),
            ("isnan(min(d))", False),
            ("not isnan(min(d))", True),
            ("count(v) = 0", True),
            ("count(*) > 0 or min(v) > 0", True),
        ],
    )
    @pytest.mark.parametrize("files", [(), (file(0),)], ids=["no file", "an empty file"])
    def test_without_rows_a_minimum_is_null(
        self, files: tuple[FileMetrics, ...], condition: str, *, passed: bool
    ) -> None:
        assert passes(condition, *files) is passed

    def test_a_file_of_nulls_needs_no_bounds(self) -> None:
        nulls = file(2, v=ColumnMetrics(nulls=2), d=ColumnMetrics(nulls=2))
        assert passes("min(v) is null and max(d) is null and count(v) = 0 and count(*) = 2", nulls) is True
        assert passes("max(v) = 3", nulls, file(1, v=bounds(3))) is True

    @pytest.mark.parametrize(
        ("column", "condition"),
        [
            ("i", "max(i) < 2147483647"),
            ("d", "max(d) < 2.5"),
            ("day", "max(day) <= date '2024-01-31'"),
            ("day", "max(day) <= '2024-01-31'"),
            ("ts", "max(ts) < timestamp '2024-02-01T00:00:00+01:00'"),
            ("ts", "max(ts) <= '2024-01-31T12:00:00Z'"),
            ("local", "max(local) <= timestamp_ntz '2024-01-31 12:00:00'"),
            ("p", "max(p) <= 1.5"),
            ("p", "max(p) = 1.50BD"),
        ],
    )
    def test_bounds_of_numbers_and_times_are_values(self, column: str, condition: str) -> None:
        values = {"i": 3, "d": 1.5, "f": 1.5, "day": dt.date(2024, 1, 31), "p": Decimal("1.50")}
        values |= {"ts": utc(2024, 1, 31, 12), "local": wall(2024, 1, 31, 12)}
        assert passes(condition, file(1, **{column: bounds(values[column])})) is True
        assert passes(f"not ({condition})", file(1, **{column: bounds(values[column])})) is False

    @pytest.mark.parametrize(
        ("condition", "metrics"),
        [
            ("count(v) > 0", bounds(1, nulls=None)),
            ("min(v) > 0", UNKNOWN),
            ("min(v) > 0", ColumnMetrics(upper=3, nulls=0)),
            ("max(v) > 0", ColumnMetrics(lower=3, nulls=1)),
            ("min(v) > 0 or true", UNKNOWN),
        ],
    )
    def test_one_file_without_the_metric_needs_a_scan(self, condition: str, metrics: ColumnMetrics) -> None:
        assert passes(condition, file(2, v=bounds(1)), file(2, v=metrics)) is None

    @pytest.mark.parametrize("nans", [None, 1, 2])
    @pytest.mark.parametrize("condition", ["min(d) < 9", "max(d) < 9", "not isnan(max(d))", "min(f) > 0", "max(f) > 0"])
    def test_floats_that_may_be_nan_need_a_scan(self, condition: str, nans: int | None) -> None:
        metrics = bounds(1.0, 2.0, nans=nans)
        assert passes(condition, file(2, d=metrics, f=metrics), file(2, d=bounds(1.0), f=bounds(1.0))) is None

    def test_negative_zero_equals_zero_and_infinity_is_a_number(self) -> None:
        zero = file(2, d=bounds(-0.0, 0.0))
        assert passes("min(d) >= 0 and max(d) <= -0.0 and min(d) in (0.0)", zero) is True
        assert passes("max(d) > 1e308", file(2, d=bounds(1.0, math.inf))) is True

    @pytest.mark.parametrize("condition", ["min(s) > 'a'", "max(s) < 'z'", "startswith(min(s), 'a')", "min(b)"])
    def test_bounds_of_texts_may_be_cut_and_are_no_values(self, condition: str) -> None:
        assert passes(condition, file(2, s=bounds("b", "c"), b=bounds(lower=True))) is None

    @pytest.mark.parametrize("name", UNUSUAL)
    def test_columns_have_any_name(self, name: str) -> None:
        quoted = f"`{name.replace('`', '``')}`"
        files = [file(1, **{name: bounds(3)}), file(1, **{name: bounds(4)})]
        assert passes(f"min({quoted}) = 3 and max({quoted}) = 4 and count({quoted}) = 2", *files) is True
        assert passes(f"{quoted} >= 3", *files) is True


@pytest.mark.parametrize(
    "condition",
    [
        "count(1) > 0",
        "count(distinct v) > 0",
        "count(v, w) > 0",
        "count(st.*) > 0",
        "count(v) filter (where w > 0) > 0",
        "min(v) filter (where w > 0) > 0",
        "min(v) over (partition by w) > 0",
        "count(*) over () > 0",
        "min(distinct v) > 0",
        "min(st.v) > 0",
        "min(flights.v) > 0",
        "flights.v > 0",
        "min(v + 1) > 0",
        "min(-v) > 0",
        "min(v) + 1 > 0",
        "-min(v) > 0",
        "min(v) < max(v)",
        "min(v) < w",
        "min(v) > 0 and w > 0",
        "sum(v) > 0",
        "avg(v) > 0",
        "count_if(v > 0) = 0",
        "bool_and(v > 0)",
        "min(nope) > 0",
        "nope > 0",
        "min(u) is null and min(u) > 'a'",
        "count(v) > 0.5",
        "min(v) > 0.5",
        "v > 0.5",
        "min(i) > 2147483648",
        "max(p) < 1000",
        "max(p) < 1.005",
        "max(ts) > '2024-01-31 12:00:00'",
        "max(ts) > date '2024-01-31'",
        "max(day) > timestamp '2024-01-31T00:00:00Z'",
        "max(v) > '3'",
        "max(v) not in (1, null)",
        "max(v) = null",
        "count(*) > (select max(v) from other)",
        "(select count(*) from other) > 0",
        "1 = 0",
        "1 = 1",
        "null",
        "v",
        "count(*)",
        "v > 0 as positive",
        "v >",
        "abs(v) > 0",
        "exists(select 1)",
        "",
    ],
)
def test_what_metadata_cannot_tell_needs_a_scan(condition: str) -> None:
    assert audit_of(condition) is None


def test_the_exact_column_is_meant_where_names_differ_in_case() -> None:
    columns = Schema(schema(v="long", V="long").fields, is_case_sensitive=True)
    audit = audit_of("min(V) > 0", columns)
    assert audit is not None
    found = audit.result([FileMetrics(1, {"v": bounds(-1), "V": bounds(1)})])
    assert found is not None
    assert found.passed
    assert audit_of("min(V) > 0", Schema(schema(v="long").fields, is_case_sensitive=True)) is None


class TestRows:
    """Conditions on each row: metadata may show that all rows pass, and never that one fails."""

    @pytest.mark.parametrize(
        ("condition", "passed"),
        [
            ("v >= 1", True),
            ("v > 1", None),
            ("V > 0", True),
            ("0 < v", True),
            ("9 > v and v >= 1", True),
            ("v <= 5", True),
            ("v < 5", None),
            ("v between 1 and 5", True),
            ("v between 2 and 5", None),
            ("v > 0 and w is not null", None),
            ("v > 0 and v is not null", True),
            ("v is null", None),
            ("v = 1", None),
            ("v <> 9", None),
            ("v not in (8, 9)", None),
            ("v > 0 or true", None),
            ("not (v < 0)", None),
            ("true", True),
            ("true and v > 0", True),
            ("false", None),
            ("false and v > 0", None),
            ("st.v > 0", None),
            ("st.v is not null", None),
            ("v > 0 and st.v > 0", None),
            ("b", None),
            ("b >= true", True),
        ],
    )
    def test_the_bounds_of_a_file_show_that_its_rows_pass(self, condition: str, *, passed: bool | None) -> None:
        assert passes(condition, file(2, v=bounds(1, 5), w=bounds(1, nulls=1), b=bounds(lower=True))) is passed

    @pytest.mark.parametrize("condition", ["v > 0", "v > 0 and v < 0", "d < 1", "s > 'a'", "v is not null", "false"])
    def test_no_rows_pass_everything(self, condition: str) -> None:
        assert passes(condition) is True
        assert passes(condition, file(0)) is (None if condition == "false" else True)

    def test_null_is_not_false(self) -> None:
        nulls = file(2, v=ColumnMetrics(nulls=2), d=ColumnMetrics(nulls=2))
        assert passes("v > 0 and d < 1", nulls) is True
        assert passes("v is not null", nulls) is None
        assert passes("v > 0", file(2, v=ColumnMetrics(1, 2, nulls=None))) is True

    @pytest.mark.parametrize("metrics", [UNKNOWN, ColumnMetrics(upper=3, nulls=0), ColumnMetrics(nulls=1)])
    def test_one_file_without_a_bound_needs_a_scan(self, metrics: ColumnMetrics) -> None:
        assert passes("v > 0", file(2, v=bounds(1)), file(2, v=metrics)) is None
        assert passes("v > 0 and w > 0", file(2, v=metrics, w=bounds(1))) is None

    @pytest.mark.parametrize(("nans", "passed"), [(0, True), (None, None), (1, None)])
    @pytest.mark.parametrize("condition", ["d < 3", "d <= 2"])
    def test_nan_is_greater_than_any_number(self, condition: str, nans: int | None, *, passed: bool | None) -> None:
        metrics = bounds(1.0, 2.0, nans=nans)
        assert passes(condition, file(3, d=metrics, f=metrics)) is passed

    @pytest.mark.parametrize(
        ("condition", "passed"),
        [("s >= 'ab'", True), ("s > 'ab'", None), ("s < 'az'", True), ("s < 'ay'", None), ("s like 'a%'", None)],
    )
    def test_cut_bounds_of_texts_are_only_wider(self, condition: str, *, passed: bool | None) -> None:
        assert passes(condition, file(2, s=bounds("ab", "ay"))) is passed
        assert passes("s < 'z'", file(2, s=ColumnMetrics(lower="ab", nulls=0))) is None

    @pytest.mark.parametrize(
        "condition",
        ["day >= '2024-01-31'", "ts < '2024-01-31T13:30:00+01:00'", "local > '2024-01-31 11:59:59.999999'", "p >= 1.5"],
    )
    def test_bounds_of_decimals_and_times_are_compared(self, condition: str) -> None:
        values = {"day": dt.date(2024, 1, 31), "ts": utc(2024, 1, 31, 12), "local": wall(2024, 1, 31, 12)}
        assert (
            passes(condition, file(1, **{k: bounds(v) for k, v in values.items()}, p=bounds(Decimal("1.50")))) is True
        )


class TestNotNull:
    """Columns without NULL."""

    @staticmethod
    def found(columns: tuple[str, ...], *files: FileMetrics) -> AuditResult | None:
        audit = metrics_audit(Audit("a", NotNull(columns)), COLUMNS, subject="nyc.flights")
        assert audit is not None
        return audit.result(files)

    def test_the_number_of_nulls_decides(self) -> None:
        filled, mixed = file(2, v=bounds(1), w=bounds(1)), file(2, v=bounds(1), w=bounds(1, nulls=1))
        passed = self.found(("V", "w"), filled, file(0))
        assert passed is not None
        assert (passed.passed, passed.found) == (True, {"NULL in v": 0, "NULL in w": 0})
        assert self.found(("v",), filled, mixed) is not None

    @pytest.mark.parametrize("nulls", [1, 2, None])
    def test_null_or_an_unknown_number_of_it_needs_a_scan(self, nulls: int | None) -> None:
        assert (
            self.found(("v", "w"), file(2, v=bounds(1), w=bounds(1)), file(2, v=bounds(1), w=bounds(1, nulls=nulls)))
            is None
        )

    def test_no_rows_have_no_null(self) -> None:
        assert self.found(("v", "s")) is not None


@pytest.mark.parametrize("rule", [Unique(("v",)), NotNull(("v", "nope")), NotNull(("st.v",))])
def test_other_rules_need_a_scan(rule: Unique | NotNull) -> None:
    assert metrics_audit(Audit("a", rule), COLUMNS, subject="nyc.flights") is None


@pytest.mark.parametrize(
    ("condition", "aggregates", "columns"),
    [
        ("count(*) > 0 and COUNT(*) < 9", ("count(*)",), ()),
        ("sum(v) > min( W )", ("sum(v)", "min(W)"), ("v", "W")),
        ("count_if(s = 'A') > max(`V`) /* c */", ("count_if(s = 'A')", "max(`V`)"), ("s", "V")),
        ("count(v) filter (where s = 'A') > 1", ("count(v) FILTER(WHERE s = 'A')",), ("v", "s")),
        ("sum(max(v)) > 0", ("sum(max(v))",), ("v",)),
        ("max(v) over () > 0", (), ("v",)),
        ("v > (select avg(w) from lake.db.t where u = v)", (), ("v",)),
        ("max(v) > (select avg(w) from lake.db.t)", ("max(v)",), ("v",)),
        ("v > 0 and V < 9 and st.x = 1 or v = 3", (), ("v", "V", "st")),
        ("max(`a b`) > 0", ("max(`a b`)",), ("a b",)),
        ("true", (), ()),
        ("v >", (), ()),
    ],
)
def test_the_aggregates_and_columns_of_a_condition_are_listed_once(
    condition: str, aggregates: tuple[str, ...], columns: tuple[str, ...]
) -> None:
    rule = Condition(condition)
    assert sorted(aggregates_of(rule)) == sorted(aggregates)
    assert sorted(columns_of(rule)) == sorted(columns)


@pytest.mark.parametrize(
    "condition",
    [
        "f <= 0.1",
        "max(f) > 0.1",
        "count(* except (v)) > 0",
        "`count(*)` > 0 and count(*) > 0",
        "v > 1e",
        "(" * 300 + "min(v) > 0" + ")" * 300,
    ],
)
def test_what_spark_evaluates_otherwise_needs_a_scan(condition: str) -> None:
    columns = schema(v="long", f="float", **{"count(*)": "long"})
    told = metrics_audit(Audit("a", Condition(condition)), columns, subject="nyc.flights")
    tenth = ColumnMetrics(0.1, 0.1, 0, 0)
    assert told is None or told.result([FileMetrics(1, {"f": tenth, "v": tenth})]) is None


def test_columns_that_differ_in_case_have_a_minimum_each() -> None:
    columns = Schema(schema(v="long", V="long").fields, is_case_sensitive=True)
    told = metrics_audit(Audit("a", Condition("min(v) > 0 and min(V) > 0")), columns, subject="nyc.flights")
    assert told is not None
    found = told.result([FileMetrics(1, {"v": ColumnMetrics(-1, -1, 0), "V": ColumnMetrics(1, 1, 0)})])
    assert found is not None
    assert (found.passed, found.found) == (False, {"min(v)": -1, "min(V)": 1})


NUMBERS = st.none() | st.integers(-2, 2)
FILES = st.lists(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=3), max_size=3)
ORDERS = st.sampled_from(["<", "<=", ">", ">=", "=", "<>"])


def conditions(operands: Sequence[str]) -> st.SearchStrategy[str]:
    """Return conditions that SQLite evaluates as Spark does."""
    operand, number = st.sampled_from(operands), st.integers(-2, 2)
    leaves = st.one_of(
        st.builds("{} {} {}".format, operand, ORDERS, number),
        st.builds("{} {} {}".format, number, ORDERS, operand),
        st.builds("{} {}between {} and {}".format, operand, st.sampled_from(["", "not "]), number, number),
        st.builds("{} {}in ({}, {})".format, operand, st.sampled_from(["", "not "]), number, number),
        st.builds("{} is {}null".format, operand, st.sampled_from(["", "not "])),
        st.sampled_from(["true", "false"]),
    )
    return st.recursive(leaves, _combined, max_leaves=4)


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    joined = st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
    return joined | st.builds("not ({})".format, inner)


def answer(query: str, rows: Sequence[tuple[int | None, int | None]]) -> Any:
    """Return what SQLite answers."""
    with sqlite3.connect(":memory:") as database:
        database.execute("create table t (v integer, w integer)")
        database.executemany("insert into t values (?, ?)", rows)
        (found,) = database.execute(query).fetchone()
    database.close()
    return found


def described(rows: Sequence[tuple[int | None, int | None]], known: Sequence[bool], wider: int = 0) -> FileMetrics:
    """Return what a manifest tells of these rows. Some metrics are unknown, and the bounds may be wider."""
    columns = {}
    for position, name in enumerate("vw"):
        values = [number for row in rows if (number := row[position]) is not None]
        lower = min(values) - wider if values and known[0] else None
        upper = max(values) + wider if values and known[1] else None
        columns[name] = ColumnMetrics(lower, upper, len(rows) - len(values) if known[2] else None)
    return FileMetrics(len(rows), columns)


KNOWN = st.sampled_from([(True, True, True)] * 4 + [(False, True, True), (True, False, True), (True, True, False)])


@settings(max_examples=100, deadline=None)
@given(conditions(["count(*)", "count(v)", "min(v)", "max(v)", "MIN(w)", "max(W)"]), FILES, KNOWN)
def test_aggregates_have_the_values_of_the_rows(condition: str, files: Any, known: tuple[bool, ...]) -> None:
    audit = audit_of(f"{condition} and count(*) >= 0", schema(v="long", w="long"))
    assert audit is not None
    found = audit.result([described(rows, known) for rows in files])
    expected = answer(f"select ({condition}) and count(*) >= 0 from t", [row for rows in files for row in rows]) != 0
    if found is None:
        assert not all(known)
    else:
        assert found.passed is expected


@settings(max_examples=100, deadline=None)
@given(conditions("vw"), FILES, KNOWN, st.integers(0, 1))
def test_rows_pass_only_if_the_condition_is_false_for_none(
    condition: str, files: Any, known: tuple[bool, ...], wider: int
) -> None:
    audit = audit_of(condition, schema(v="long", w="long"))
    assert audit is not None
    found = audit.result([described(rows, known, wider) for rows in files])
    failing = answer(f"select count(*) from t where not ({condition})", [row for rows in files for row in rows])
    assert found is None or (found.passed and not failing)

"""Turning the table partitions that a batch touches into a scope."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from dagster_iceberg_spark.errors import PartitioningError
from dagster_iceberg_spark.plan.partitions.binding import BoundScope
from dagster_iceberg_spark.plan.write.overwrite_filter import ColumnBounds, DataFile, cover, follows_spec
from dagster_iceberg_spark.plan.write.replaced_rows import rows_of_partitions, with_columns
from dagster_iceberg_spark.table.partitioning import PartitionSpec, parse_partition_field
from dagster_iceberg_spark.table.schema import (
    BINARY,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    DecimalType,
    Field,
    PrimitiveType,
    Schema,
)
from tests.core.table.evaluator import matches, partition_of
from tests.core.table.samples import utc, wall

SCHEMA = Schema(
    (
        Field("n", LONG),
        Field("s", STRING),
        Field("d", DATE),
        Field("t", TIMESTAMPTZ),
        Field("w", TIMESTAMP),
        Field("p", DecimalType(9, 2)),
        Field("f", DOUBLE),
        Field("b", BINARY),
        Field("u", PrimitiveType("uuid")),
    )
)
HOUR = 3_600_000_000
DAY = 24 * HOUR


def scope_of(spec: list[str], partitions: list[tuple[Any, ...]]) -> BoundScope:
    fields = [parse_partition_field(text) for text in spec]
    return rows_of_partitions(with_columns(fields, SCHEMA, subject="db.t"), partitions, subject="db.t")


@pytest.mark.parametrize(
    ("spec", "partitions", "inside", "outside"),
    [
        (["n"], [(1,), (3,)], [{"n": 1}, {"n": 3}], [{"n": 2}, {"n": None}]),
        (["n"], [(None,)], [{"n": None}], [{"n": 0}]),
        (["n"], [(None,), (1,)], [{"n": None}, {"n": 1}], [{"n": 0}]),
        (["s"], [("it's",), ("",)], [{"s": "it's"}, {"s": ""}], [{"s": "its"}, {"s": None}]),
        (["p"], [(Decimal("1.50"),)], [{"p": Decimal("1.50")}], [{"p": Decimal("1.51")}]),
        (
            ["d"],
            [(-1,), (0,)],
            [{"d": dt.date(1969, 12, 31)}, {"d": dt.date(1970, 1, 1)}],
            [{"d": dt.date(1970, 1, 2)}],
        ),
        (["t"], [(1,)], [{"t": utc(1970, 1, 1, 0, 0, 0, 1)}], [{"t": utc(1970, 1, 1)}]),
        (["w"], [(-1,)], [{"w": wall(1969, 12, 31, 23, 59, 59, 999999)}], [{"w": wall(1970, 1, 1)}]),
        (["day(t)"], [(0,), (1,)], [{"t": utc(1970, 1, 1)}, {"t": utc(1970, 1, 2, 23)}], [{"t": utc(1970, 1, 3)}]),
        (["day(t)"], [(None,)], [{"t": None}], [{"t": utc(1970, 1, 1)}]),
        (["hour(w)"], [(-1,)], [{"w": wall(1969, 12, 31, 23)}], [{"w": wall(1970, 1, 1)}, {"w": None}]),
        (["month(d)"], [(11,)], [{"d": dt.date(1970, 12, 31)}], [{"d": dt.date(1971, 1, 1)}]),
        (["year(d)"], [(-1,)], [{"d": dt.date(1969, 6, 1)}], [{"d": dt.date(1970, 1, 1)}]),
        (
            ["day(d)", "s"],
            [(0, "a"), (1, "a"), (5, "b"), (None, None)],
            [
                {"d": dt.date(1970, 1, 1), "s": "a"},
                {"d": dt.date(1970, 1, 2), "s": "a"},
                {"d": dt.date(1970, 1, 6), "s": "b"},
                {"d": None, "s": None},
            ],
            [{"d": dt.date(1970, 1, 1), "s": "b"}, {"d": dt.date(1970, 1, 6), "s": "a"}, {"d": None, "s": "a"}],
        ),
        ([], [()], [{"n": 1}, {"n": None}], []),
        ([], [], [], [{"n": 1}, {"n": None}]),
        (["n"], [], [], [{"n": 1}, {"n": None}]),
    ],
)
def test_the_scope_matches_exactly_the_rows_of_the_partitions(
    spec: list[str], partitions: list[tuple[Any, ...]], inside: list[dict[str, Any]], outside: list[dict[str, Any]]
) -> None:
    predicate = scope_of(spec, partitions).predicate()
    assert [row for row in inside if not matches(predicate, row)] == []
    assert [row for row in outside if matches(predicate, row)] == []


@pytest.mark.parametrize("spec", [["n"], ["day(t)"], ["month(d)", "s"]])
def test_whole_partitions_follow_the_spec(spec: list[str]) -> None:
    fields = tuple(parse_partition_field(text) for text in spec)
    one: tuple[Any, ...] = tuple("x" if text == "s" else 3 for text in spec)
    none: tuple[Any, ...] = (None,) * len(spec)
    assert follows_spec(scope_of(spec, [one, none]), [PartitionSpec(fields)])
    assert not follows_spec(scope_of(spec, [one]), [PartitionSpec(fields), PartitionSpec(())])


@pytest.mark.parametrize("spec", ["bucket(4, n)", "truncate(5, n)", "bucket(4, s)", "truncate(2, s)"])
def test_bucket_and_truncate_match_rows_of_the_same_partition(spec: str) -> None:
    column, transform = spec[-2], parse_partition_field(spec).transform
    rows: list[dict[str, Any]] = [
        {column: None},
        *({column: n if column == "n" else f"{n:04}"} for n in range(-30, 30)),
    ]
    found = {partition_of(row[column], transform) for row in rows[1:]}
    asked = sorted(found)[:2]
    predicate = scope_of([spec], [(value,) for value in asked]).predicate()
    matched = [row for row in rows if matches(predicate, row)]
    assert matched == [row for row in rows[1:] if partition_of(row[column], transform) in asked]
    assert [row for row in rows if matches(scope_of([spec], [(None,)]).predicate(), row)] == [{column: None}]


def test_a_bucket_is_not_used_beside_the_value_itself() -> None:
    """Iceberg 1.12 misreads a filter by bucket as one by value if a spec has both."""
    fields = [parse_partition_field(text) for text in ("bucket(4, n)", "n", "day(t)", "bucket(2, s)")]
    used = with_columns(fields, SCHEMA, subject="db.t")
    assert [str(field) for field, _ in used] == ["n", "day(t)", "bucket(2, s)"]
    scope = scope_of(["bucket(4, n)"], [(1,)])
    assert follows_spec(scope, [PartitionSpec((fields[0],))])
    assert not follows_spec(scope, [PartitionSpec((fields[0], fields[1]))])
    assert not follows_spec(scope, [PartitionSpec((parse_partition_field("bucket(8, n)"),))])


def test_adjacent_partitions_are_one_interval() -> None:
    (box,) = scope_of(["day(t)"], [(2,), (0,), (1,)]).boxes
    (constraint,) = box
    assert constraint.intervals == ((utc(1970, 1, 1), utc(1970, 1, 4)),)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("bucket(4, u)", "found the partition field bucket(4, u), of a column of type uuid"),
        ("s.part", "of no such column in the DataFrame"),
        ("f", "found the partition field f, of a column of type double"),
        ("b", "of a column of type binary"),
        ("nope", "of no such column in the DataFrame"),
    ],
)
def test_a_partition_field_that_spark_cannot_evaluate_is_refused(spec: str, message: str) -> None:
    with pytest.raises(PartitioningError) as caught:
        scope_of([spec], [(1,)])
    assert message in str(caught.value)


def test_the_end_of_the_calendar_is_refused() -> None:
    days = (dt.date(9999, 12, 31) - dt.date(1970, 1, 1)).days
    with pytest.raises(PartitioningError, match="expected partitions of the years 1 to 9999"):
        scope_of(["day(d)"], [(days,)])
    assert matches(scope_of(["d"], [(days,)]).predicate(), {"d": dt.date(9999, 12, 31)})


class TestNulls:
    """NULL is a separate value: a file of only NULLs is replaced, a file with some NULLs straddles."""

    ALL = DataFile("all", {"n": ColumnBounds(None, None, may_hold_null=True, is_null=True)})
    SOME = DataFile("some", {"n": ColumnBounds(1, 1, may_hold_null=True)})
    NONE = DataFile("none", {"n": ColumnBounds(1, 1, may_hold_null=False)})

    @pytest.mark.parametrize(
        ("partitions", "straddling"),
        [([(None,)], [False, True, False]), ([(1,)], [False, True, False]), ([(None,), (1,)], [False, True, False])],
    )
    def test_a_file_with_null_and_values_straddles(
        self, partitions: list[tuple[Any, ...]], straddling: list[bool]
    ) -> None:
        scope = scope_of(["n"], partitions)
        found = [cover(scope, [file]).carries_over for file in (self.ALL, self.SOME, self.NONE)]
        assert found == straddling

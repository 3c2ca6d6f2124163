"""Partition transforms: how they are spelled, what they accept, where partitions start."""

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import transforms as theirs
from pyiceberg import types as their_types

from dagster_iceberg_spark.table.identifier import NotationError
from dagster_iceberg_spark.table.partitioning import (
    TIME_TRANSFORMS,
    TRANSFORM_SPELLINGS,
    PartitionField,
    PartitionSpec,
    TimeTransform,
    Transform,
    granule_floor,
    granule_start,
    parse_partition_field,
    parse_transform,
)
from dagster_iceberg_spark.table.schema import parse_type

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock by design
TIME_TRANSFORMS_OF_PYICEBERG: dict[TimeTransform, theirs.Transform[Any, Any]] = {
    "year": theirs.YearTransform(),
    "month": theirs.MonthTransform(),
    "day": theirs.DayTransform(),
    "hour": theirs.HourTransform(),
}
TYPES_OF_SPARK = (
    their_types.BooleanType(),
    their_types.IntegerType(),
    their_types.LongType(),
    their_types.FloatType(),
    their_types.DoubleType(),
    their_types.DecimalType(9, 2),
    their_types.DateType(),
    their_types.TimestampType(),
    their_types.TimestamptzType(),
    their_types.StringType(),
    their_types.UUIDType(),
    their_types.FixedType(16),
    their_types.BinaryType(),
    their_types.TimeType(),
    their_types.ListType(1, their_types.StringType()),
    their_types.MapType(1, their_types.StringType(), 2, their_types.StringType()),
    their_types.StructType(their_types.NestedField(1, "a", their_types.StringType())),
)
"""Every type that Spark can create or read in a table. Types in nanoseconds are missing."""


@pytest.mark.parametrize(
    ("text", "column", "transform", "name"),
    [
        ("carrier", "carrier", "identity", None),
        ("identity(carrier)", "carrier", "identity", None),
        ("year(ts)", "ts", "year", None),
        ("years(ts)", "ts", "year", None),
        ("months(ts)", "ts", "month", None),
        ("DAY( ts )", "ts", "day", None),
        ("Days(ts)", "ts", "day", None),
        ("hours (ts)", "ts", "hour", None),
        ("bucket(8, id)", "id", "bucket[8]", None),
        ("bucket(id,8)", "id", "bucket[8]", None),
        ("truncate(3, c)", "c", "truncate[3]", None),
        ("  day(ts)   AS  d ", "ts", "day", "d"),
        ("carrier as `the carrier`", "carrier", "identity", "the carrier"),
        ("bucket(16, id) as shard", "id", "bucket[16]", "shard"),
        ("`a b`", "a b", "identity", None),
        ("`day(ts)`", "day(ts)", "identity", None),
        ("`x as y`", "x as y", "identity", None),
        ("day(`t``s`)", "t`s", "day", None),
        ("bucket(4, `a, b`)", "a, b", "bucket[4]", None),
        ("day(meta.ts)", "meta.ts", "day", None),
        ("class", "class", "identity", None),
    ],
)
def test_every_spelling_of_a_partition_field_is_parsed(
    text: str, column: str, transform: str, name: str | None
) -> None:
    assert parse_partition_field(text) == PartitionField(column, parse_transform(transform), name)


@pytest.mark.parametrize("spelling", TRANSFORM_SPELLINGS)
def test_every_known_spelling_is_a_transform(spelling: str) -> None:
    argument = "4, " if spelling in ("bucket", "truncate") else ""
    assert parse_partition_field(f"{spelling}({argument}c)").column == "c"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a column or a transform of one, found an empty text"),
        ("  ", "found an empty text"),
        ("day()", r"expected a column in day\(column\), found none"),
        ("bucket(id)", r"expected a number of buckets and a column in bucket\(n, column\), found bucket\(id\)"),
        ("bucket(8)", r"expected a number of buckets and a column"),
        ("bucket(8,)", r"expected a number of buckets and a column"),
        ("truncate(c)", r"expected a width and a column in truncate\(n, column\)"),
        ("bucket(0, id)", "expected a number of buckets of at least 1, found 0"),
        ("truncate(0, c)", "expected a width of at least 1, found 0"),
    ],
)
def test_text_that_is_not_a_partition_field_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_partition_field(text)


@pytest.mark.parametrize("name", ["zorder", "date", "void", "dayy"])
def test_an_unknown_transform_is_named(name: str) -> None:
    with pytest.raises(NotationError) as caught:
        parse_partition_field(f"{name}(c)")
    assert caught.value.found == f"unknown transform {name!r}"


@pytest.mark.parametrize(
    "text", ["carrier", "day(ts)", "bucket(8, id)", "truncate(3, c) as prefix", "year(`a.b`) as y"]
)
def test_a_partition_field_round_trips_as_text(text: str) -> None:
    assert str(parse_partition_field(text)) == text


@pytest.mark.parametrize("transform", ["identity", "year", "month", "day", "hour", "bucket[16]", "truncate[4]", "void"])
def test_a_transform_round_trips_in_the_spec_s_notation(transform: str) -> None:
    assert str(parse_transform(transform)) == transform


def test_an_unknown_transform_in_a_spec_is_ignored() -> None:
    spec = PartitionSpec((PartitionField("a", parse_transform("hilbert")), PartitionField("b", Transform("day"))))
    assert [field.column for field in spec.live_fields] == ["b"]
    assert spec.on("a") == ()


@pytest.mark.parametrize("column_type", TYPES_OF_SPARK, ids=str)
@pytest.mark.parametrize("transform", ["identity", "year", "month", "day", "hour", "bucket[4]", "truncate[4]"])
def test_a_transform_accepts_the_same_types_as_in_pyiceberg(
    transform: str, column_type: their_types.IcebergType
) -> None:
    document = column_type.model_dump(by_alias=True, mode="json")
    ours = parse_transform(transform).accepts(parse_type(document))
    assert ours == theirs.parse_transform(transform).can_transform(column_type)


@given(st.datetimes(dt.datetime(1600, 1, 1), dt.datetime(2500, 1, 1)), st.sampled_from(TIME_TRANSFORMS))  # noqa: DTZ001
def test_time_partitions_start_where_pyiceberg_s_do(value: dt.datetime, transform: TimeTransform) -> None:
    micros = (value - EPOCH) // dt.timedelta(microseconds=1)
    ordinal: Any = TIME_TRANSFORMS_OF_PYICEBERG[transform].transform(their_types.TimestampType())(micros)
    assert granule_start(transform, ordinal) == granule_floor(transform, value)
    assert granule_start(transform, ordinal) <= value < granule_start(transform, ordinal + 1)


def test_the_floor_keeps_the_time_zone() -> None:
    instant = dt.datetime(2024, 5, 17, 13, 45, tzinfo=dt.timezone.utc)
    assert granule_floor("month", instant) == dt.datetime(2024, 5, 1, tzinfo=dt.timezone.utc)


def test_a_spec_is_described_by_its_live_fields() -> None:
    spec = PartitionSpec((PartitionField("a", Transform("void")), PartitionField("b", Transform("bucket", 4), "shard")))
    assert str(spec) == "bucket(4, b) as shard"
    assert str(PartitionSpec()) == "unpartitioned"


def test_the_name_of_a_field_does_not_change_the_partitioning() -> None:
    field = parse_partition_field("day(ts) as d")
    assert field.same_partitioning_as(parse_partition_field("days(ts)"))
    assert not field.same_partitioning_as(parse_partition_field("hour(ts)"))
    assert not field.same_partitioning_as(parse_partition_field("day(other)"))

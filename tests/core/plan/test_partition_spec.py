"""The partition spec that a table gets: default transforms, the definition's fields, and how a spec evolves."""

import re
from dataclasses import replace
from typing import Any

import pytest

from dagster_iceberg_spark.errors import PartitioningError
from dagster_iceberg_spark.plan.partitions.partition_spec import (
    check_transforms,
    default_partition_field,
    plan_spec_changes,
    refuse_names_of_fields,
    refuse_redundant_fields,
    refuse_taken_names,
    with_free_names,
)
from dagster_iceberg_spark.table.partitioning import PartitionField, PartitionSpec, Transform, parse_partition_field
from dagster_iceberg_spark.table.scope import Dimension
from dagster_iceberg_spark.table.updates import AddPartitionField, DropPartitionField, RenamePartitionField, TableUpdate
from tests.core.table.samples import NEW_YORK, calendar, schema, spec


def spec_changes(wanted: list[str] | None, *current: str, policy: str = "evolve") -> tuple[TableUpdate, ...]:
    fields = None if wanted is None else [parse_partition_field(field) for field in wanted]
    return plan_spec_changes(fields, spec(*current), policy=policy, subject="nyc.flights")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "current", "dropped", "added"),
    [
        (None, ["day(ts)"], [], []),
        (["day(ts)"], ["days(ts) as d"], [], []),
        (["hour(ts)"], ["day(ts)"], ["day(ts)"], ["hour(ts)"]),
        (["day(ts)", "bucket(4, id)"], ["day(ts)"], [], ["bucket(4, id)"]),
        (["bucket(8, id)"], ["bucket(4, id)"], ["bucket(4, id)"], ["bucket(8, id)"]),
        ([], ["day(ts)", "c"], ["day(ts)", "c"], []),
    ],
)
def test_only_fields_that_differ_change_the_spec(
    wanted: list[str] | None, current: list[str], dropped: list[str], added: list[str]
) -> None:
    expected = [
        *(DropPartitionField(parse_partition_field(field)) for field in dropped),
        *(AddPartitionField(parse_partition_field(field)) for field in added),
    ]
    assert list(spec_changes(wanted, *current)) == expected


def test_a_spec_that_may_not_evolve_is_refused_with_both_specs() -> None:
    with pytest.raises(PartitioningError) as caught:
        spec_changes(["hour(ts)"], "day(ts)", policy="error")
    assert "expected the partition spec hour(ts) of `iceberg/partition_by`, found the table's own, day(ts)" in str(
        caught.value
    )
    assert spec_changes(["day(ts)"], "day(ts)", policy="error") == ()


def test_a_field_keeps_its_name_unless_another_is_given() -> None:
    held = "bucket(8, id) as shard"
    renamed = RenamePartitionField(parse_partition_field(held), "part")
    assert spec_changes(["bucket(8, id) as part"], held) == (renamed,)
    assert spec_changes(["bucket(8, id) as part", "day(ts)"], held, "c") == (
        DropPartitionField(parse_partition_field("c")),
        renamed,
        AddPartitionField(parse_partition_field("day(ts)")),
    )
    assert spec_changes(["bucket(8, id)"], held) == ()
    with pytest.raises(PartitioningError, match=r"expected the partition spec bucket\(8, id\) as part"):
        spec_changes(["bucket(8, id) as part"], held, policy="error")


def test_partition_fields_get_their_columns_own_names() -> None:
    fields = check_transforms([parse_partition_field("day(TS) as d")], schema(ts="date"), subject="t")
    assert fields == (PartitionField("ts", parse_partition_field("day(ts)").transform, "d"),)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("day(gone)", "expected the column 'gone' of `iceberg/partition_by`, found the columns ts, day, id, f"),
        ("hour(day)", "expected a column that hour can be applied to, found 'day' of type date"),
        ("bucket(4, f)", "expected a column that bucket can be applied to, found 'f' of type double"),
        ("ts", "the bare column 'ts', which makes a partition of every instant. Hint: write \"day(ts)\"."),
    ],
)
def test_an_impossible_partition_field_is_refused(field: str, message: str) -> None:
    columns = schema(ts="timestamptz", day="date", id="long", f="double")
    with pytest.raises(PartitioningError, match=re.escape(message)):
        check_transforms([parse_partition_field(field)], columns, subject="t")


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        (["year(ts)", "month(ts)"], "year(ts) and month(ts)"),
        (["day(ts)", "id", "hour(ts)"], "day(ts) and hour(ts)"),
        (["bucket(4, id)", "bucket(8, id)"], "bucket(4, id) and bucket(8, id)"),
        (["truncate(2, id)", "truncate(4, id)"], "truncate(2, id) and truncate(4, id)"),
        (["id", "bucket(4, id)", "year(ts)", "year(other)"], None),
    ],
)
def test_a_redundant_partition_field_is_refused(fields: list[str], found: str | None) -> None:
    parsed = [parse_partition_field(field) for field in fields]
    if found is None:
        refuse_redundant_fields(parsed, subject="t")
        return
    with pytest.raises(PartitioningError, match=re.escape(f"found {found}. Hint: keep the finer one")):
        refuse_redundant_fields(parsed, subject="t")


@pytest.mark.parametrize(
    ("wanted", "current", "found"),
    [
        (["day(ts)", "id"], [], ["day(ts)", "id"]),
        (["day(s)"], [], ["day(s) as s_day_2"]),
        (["day(s)", "id as s_day_2"], [], ["day(s) as s_day_3", "id as s_day_2"]),
        (["day(ts)", "id as ts_day"], [], ["day(ts) as ts_day_2", "id as ts_day"]),
        (["day(s)"], ["day(s) as own"], ["day(s)"]),
        (["day(s) as s_day"], [], ["day(s) as s_day"]),
    ],
)
def test_a_name_that_nobody_wrote_is_never_taken(wanted: list[str], current: list[str], found: list[str]) -> None:
    fields, known = ([parse_partition_field(text) for text in each] for each in (wanted, current))
    columns = schema(ts="date", id="int", s="date", s_day="int").fields
    assert [str(field) for field in with_free_names(fields, known, columns)] == found


def test_a_new_column_cannot_have_the_name_of_a_partition_field() -> None:
    fields = [parse_partition_field("day(s) as s_day"), parse_partition_field("month(s) as s_month")]
    specs = [PartitionSpec((field,)) for field in (*fields, PartitionField("s", Transform("identity"), "s"))]
    refuse_names_of_fields(specs, ["s"], subject="t")
    with pytest.raises(PartitioningError, match=r"'s_day', the name of day\(s\)\. Hint: give the column another name"):
        refuse_names_of_fields(specs, ["s_day"], subject="t")


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        (["day(ts) as x", "id as x"], "'x' of day(ts) as x and of id as x"),
        (["day(ts)", "id as ts_day"], "'ts_day' of day(ts) and of id as ts_day"),
        (["day(ts) as id"], "'id' of day(ts) as id, a column"),
        (["bucket(4, s)"], "'s_bucket' of bucket(4, s), a column"),
        (["id", "id as other", "day(ts)", "truncate(2, s)"], None),
    ],
)
def test_a_partition_field_name_that_is_taken_is_refused(fields: list[str], found: str | None) -> None:
    parsed, columns = (
        [parse_partition_field(field) for field in fields],
        schema(ts="date", id="int", s_bucket="int").fields,
    )
    if found is None:
        refuse_taken_names(parsed, (), columns, subject="t")
        return
    with pytest.raises(PartitioningError, match=re.escape(f"found {found}.")):
        refuse_taken_names(parsed, (), columns, subject="t")
    stored = replace(parsed[0], name=parsed[0].name or parsed[0].derived_name)
    refuse_taken_names(parsed[:1], [stored], columns, subject="t")


@pytest.mark.parametrize(
    ("column_type", "granule", "expected"),
    [
        ("timestamptz", "hour", "hour(c)"),
        ("timestamptz", "day", "day(c)"),
        ("timestamp", "month", "month(c)"),
        ("timestamptz", "year", "year(c)"),
        ("date", "day", "day(c)"),
        ("date", "month", "month(c)"),
        ("date", "hour", "day(c)"),
        ("string", "day", "c"),
        ("int", "day", "c"),
        ("long", "month", "c"),
        ("string", None, "c"),
        ("date", None, "c"),
    ],
)
def test_a_dimension_has_a_default_partition_field(column_type: str, granule: Any, expected: str) -> None:
    dimension = Dimension(None, "C", None if granule is None else calendar(NEW_YORK, granule=granule))
    field = default_partition_field(dimension, schema(c=column_type))
    assert field == parse_partition_field(expected)

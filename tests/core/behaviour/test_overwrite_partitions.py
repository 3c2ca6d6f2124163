"""`overwrite_partitions`: the table's partitions that the rows fall in are replaced, and no others."""

import datetime as dt
from functools import partial
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.lakes import HOURS, Lake, frame_asset

pytestmark = pytest.mark.spark

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-03-01")
OVERWRITE = {"iceberg/write_disposition": "overwrite_partitions"}


def written(query: str, *partition_by: str, **metadata: Any) -> dg.AssetsDefinition:
    by = {"iceberg/partition_by": list(partition_by)} if partition_by else {}
    return frame_asset("t", query, metadata={**OVERWRITE, **by, **metadata})


def values(*rows: str) -> str:
    return f"select * from values {', '.join(rows)} as t(k, v)"


@pytest.mark.each_engine("quick")
@pytest.mark.feature("overwrite_partitions")
def test_partitions_without_rows_stay(lake: Lake) -> None:
    lake.materialize(written(values("('a', 1)", "('a', 2)", "('b', 3)", "(null, 4)"), "k"))
    lake.materialize(written(values("('a', 5)", "('c', 6)"), "k"))
    assert sorted(lake.rows("t", "v")) == [3, 4, 5, 6]
    lake.materialize(written(values("(cast(null as string), 7)"), "k"))
    assert sorted(lake.rows("t", "v")) == [3, 5, 6, 7]
    assert [summary["dagster.write_disposition"] for summary in lake.summaries("t")] == ["overwrite_partitions"] * 3


@pytest.mark.full
def test_the_partition_of_false_is_not_that_of_null(lake: Lake) -> None:
    lake.materialize(written(values("(null, 0)", "(false, 1)", "(true, 2)"), "k"))
    lake.materialize(written(values("(false, 3)"), "k"))
    assert sorted(lake.rows("t", "v")) == [0, 2, 3]


REPLACE_WHERE = {
    "iceberg/write_disposition": "merge",
    "iceberg/merge": {"strategy": "replace_where", "where": "o = 'EWR'"},
}


@pytest.mark.sample(2)
@pytest.mark.full
@pytest.mark.parametrize("disposition", [{}, REPLACE_WHERE, OVERWRITE], ids=["replace", "replace_where", "partitions"])
def test_a_collation_makes_no_texts_equal(lake: Lake, disposition: dict[str, Any]) -> None:
    """What is stored as another text is another partition's row: the guard refuses it, or it replaces its own alone."""
    if disposition == OVERWRITE:
        asset = partial(frame_asset, "t", metadata={**OVERWRITE, "iceberg/partition_by": ["o"]})
        options: dict[str, Any] = {}
    elif disposition:
        asset, options = partial(frame_asset, "t", metadata=disposition), {}
    else:
        origins = dg.StaticPartitionsDefinition(["EWR"])
        asset = partial(frame_asset, "t", metadata={"partition_expr": "o"}, partitions_def=origins)
        options = {"partition_key": "EWR"}
    collated = "select '{0}' collate UTF8_LCASE as o, array(named_struct('x', '{0}' collate UTF8_LCASE)) as l"
    lake.materialize(asset(collated.format("EWR")), **options)
    if disposition == OVERWRITE:
        lake.materialize(asset(collated.format("ewr")))
        assert sorted(lake.rows("t", "o")) == ["EWR", "ewr"]
    else:
        assert "o=ewr" in str(lake.failure(asset(collated.format("ewr")), **options))
        assert lake.rows("t", "o") == ["EWR"]


def test_no_rows_are_a_snapshot_that_leaves_all_as_it_was(lake: Lake) -> None:
    lake.materialize(written(values("('a', 1)", "('b', 2)"), "k"))
    lake.materialize(written(values("('a', 1)") + " where false", "k"))
    assert lake.rows("t", "v") == [1, 2]
    assert len(lake.summaries("t")) == 2


@pytest.mark.full
def test_a_table_without_partition_fields_is_one_partition(lake: Lake) -> None:
    lake.materialize(written(values("('a', 1)", "('b', 2)")))
    lake.materialize(written(values("('a', 3)")))
    assert lake.rows("t", "v") == [3]
    lake.materialize(written(values("('a', 3)") + " where false"))
    assert lake.rows("t", "v") == [3]


TIMES = (
    "select * from values (timestamp '2013-01-01T00:00:00Z', 1), (timestamp '2013-01-01T23:59:59.999999Z', 2), "
    "(timestamp '2013-01-02T00:00:00Z', 3), (timestamp '1969-12-31T23:30:00Z', 4), (null, 5) as t(ts, v)"
)


@pytest.mark.sample(4)
@pytest.mark.full
@pytest.mark.parametrize(
    ("transform", "left"),
    [("day(ts)", [3, 4, 5]), ("hour(ts)", [2, 3, 4, 5]), ("month(ts)", [4, 5]), ("year(ts)", [4, 5])],
)
@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_times_fall_in_the_partitions_of_utc(lake: Lake, transform: str, left: list[int], kind: str) -> None:
    """Whatever the session's zone is; a wall clock is taken as it is."""

    def times(query: str) -> str:
        return query if kind == "timestamp" else query.replace("timestamp '", "timestamp_ntz '").replace("Z'", "'")

    lake.materialize(written(times(TIMES), transform))
    lake.materialize(written(times("select timestamp '2013-01-01T00:20:00Z' as ts, 9 as v"), transform))
    assert sorted(lake.rows("t", "v")) == [*left, 9]


@pytest.mark.full
def test_files_of_an_older_spec_keep_what_is_not_replaced(lake: Lake) -> None:
    """Spark's own dynamic overwrite would leave the old rows beside the new ones."""
    lake.materialize(written(values("('a', 1)", "('b', 2)", "('c', 3)")))
    lake.materialize(written(values("('b', 4)"), "k"))
    assert sorted(lake.rows("t", "v")) == [1, 3, 4]
    assert len(lake.summaries("t")) == 2


@pytest.mark.full
def test_a_run_replaces_nothing_beyond_its_own_partitions(lake: Lake) -> None:
    """The table's partitions are months, the run's are days."""
    metadata = {"partition_expr": "ts", "iceberg/partition_by": ["month(ts)"], **OVERWRITE}

    def hours(value: int, rows: str = HOURS) -> dg.AssetsDefinition:
        return frame_asset("t", rows.replace("{value}", str(value)), partitions_def=DAYS, metadata=metadata)

    for day in ("2013-01-01", "2013-01-02", "2013-02-01"):
        lake.materialize(hours(1), partition_key=day)
    one = "select {start} as ts, {value} as v"
    lake.materialize(hours(2, one), partition_key="2013-01-02")
    assert sorted(lake.rows("t", "v")) == [*[1] * 48, 2]
    stray = hours(3, "select {start} - interval 1 day as ts, 3 as v")
    assert lake.failure(stray, partition_key="2013-01-02").class_name == "RowsOutsidePartitionError"
    assert sorted(lake.rows("t", "v")) == [*[1] * 48, 2]


@pytest.mark.full
def test_the_rows_are_computed_once(lake: Lake) -> None:
    """What they are is found out before they are written: other rows the second time would be lost or doubled."""
    query = "select cast(floor(rand() * 1000000) as int) as k, id as v from range(20)"
    lake.materialize(written(query, "k"))
    lake.materialize(written(query, "k"))
    assert lake.arrow("t").num_rows == 40


@pytest.mark.full
def test_several_fields_are_one_partition_together(lake: Lake) -> None:
    def rows(*cells: tuple[int, str, int]) -> str:
        listed = ", ".join(f"(date '2013-01-{day:02}', '{key}', {value})" for day, key, value in cells)
        return f"select * from values {listed} as t(day, k, v)"

    lake.materialize(written(rows((1, "a", 1), (1, "b", 2), (2, "a", 3)), "day", "k"))
    lake.materialize(written(rows((1, "b", 4), (2, "b", 5)), "day", "k"))
    assert sorted(lake.rows("t", "v")) == [1, 3, 4, 5]


@pytest.mark.by_spark
def test_partitions_of_which_spark_cannot_tell_are_refused_before_anything_is_computed(lake: Lake) -> None:
    query = "select cast(raise_error('computed') as double) as k, 1 as v"
    error = lake.failure(written(query, "k"))
    assert error.class_name == "PartitioningError"
    assert "found the partition field k, of a column of type double" in str(error)
    assert not lake.exists("t")


KEYS = {
    "int": "cast({} as int)",
    "bigint": "cast({} as bigint)",
    "string": "cast({} + 1000 as string)",
    "decimal": "cast({} / 4 as decimal(10, 2))",
    "binary": "cast(cast({} + 1000 as string) as binary)",
    "date": "date_from_unix_date(cast({} as int))",
    "timestamp": "timestamp_seconds({} * 40000)",
    "timestamp_ntz": "cast(timestamp_seconds({} * 40000) as timestamp_ntz)",
}


@pytest.mark.sample(4)
@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "transform"),
    [(kind, "bucket(4, k)") for kind in KEYS]
    + [("int", "truncate(7, k)"), ("bigint", "truncate(7, k)"), ("decimal", "truncate(150, k)")]
    + [("string", "truncate(3, k)"), ("binary", "truncate(3, k)")],
)
def test_buckets_and_prefixes_are_replaced_whole(lake: Lake, kind: str, transform: str) -> None:
    """The manifests say which rows are in one partition."""
    key = KEYS[kind].format("id")
    everything = f"select {key} as k, cast(id as int) as v from range(-20, 20) union all select null, 100"
    some = f"select {key} as k, cast(id + 1000 as int) as v from range(2, 4)"
    lake.materialize(written(everything, transform))
    before = partitions(lake)
    lake.materialize(written(some, transform))
    stay = [v for held in before.values() if not held & {2, 3} for v in held]
    assert 0 < len(stay) < 41 - 2
    assert sorted(lake.rows("t", "v")) == sorted([*stay, 1002, 1003])


@pytest.mark.full
@pytest.mark.parametrize(
    ("stored", "given", "transform"),
    [
        ("decimal(12,2)", "decimal(10,1)", "bucket(4, k)"),
        ("decimal(12,2)", "decimal(10,1)", "truncate(50, k)"),
        ("decimal(12,2)", "int", "bucket(4, k)"),
        ("bigint", "int", "k"),
    ],
)
def test_partitions_are_those_of_the_tables_type(classic_lake: Lake, stored: str, given: str, transform: str) -> None:
    """A narrower value has the bucket that it has once it is stored."""
    query = "select cast(id as {kind}) as k, cast(id as int) as v from range({rows})"
    classic_lake.materialize(written(query.format(kind=stored, rows=20), transform))
    before = partitions(classic_lake)
    narrow = f"select cast(id as {given}) as k, cast(id + 1000 as int) as v from range(3, 5)"
    classic_lake.materialize(written(narrow, transform))
    stay = [v for held in before.values() if not held & {3, 4} for v in held]
    assert 0 < len(stay) < 20 - 1
    assert sorted(classic_lake.rows("t", "v")) == sorted([*stay, 1003, 1004])


@pytest.mark.full
def test_partitions_of_a_column_that_gets_wider(classic_lake: Lake) -> None:
    large = 2**40
    classic_lake.materialize(written("select cast(id as int) as k, cast(id as int) as v from range(8)", "k"))
    classic_lake.materialize(written(f"select id * {large} as k, cast(id + 10 as int) as v from range(2)", "k"))
    assert sorted(classic_lake.rows("t", "v")) == [*range(1, 8), 10, 11]


def partitions(lake: Lake) -> dict[str, set[int]]:
    """The values of `v` in each of the table's partitions."""
    found: dict[str, set[int]] = {}
    for task in lake.table("t").scan().plan_files():
        rows = parquet.read_table(task.file.file_path.removeprefix("file:"), columns=["v"])
        found.setdefault(str(task.file.partition), set()).update(rows["v"].to_pylist())
    return found


@pytest.mark.full
def test_buckets_and_values_together(lake: Lake) -> None:
    everything = "select cast(id % 3 as int) as k, cast(id as int) as v from range(60)"
    lake.materialize(written(everything, "k", "bucket(4, v)"))
    before = partitions(lake)
    lake.materialize(written("select 1 as k, 1000 + id as v from range(0)", "k", "bucket(4, v)"))
    assert partitions(lake) == before
    lake.materialize(written("select 1 as k, cast(id as int) as v from range(5, 6)", "k", "bucket(4, v)"))
    own = next(name for name, held in partitions(lake).items() if held == {5})
    assert sorted(lake.rows("t", "v")) == sorted(
        [5, *(v for name, held in before.items() if name != own for v in held)]
    )


@pytest.mark.full
def test_no_value_is_a_partition_of_its_own_among_buckets(lake: Lake) -> None:
    lake.materialize(written(values("('a', 1)", "(null, 2)"), "bucket(4, k)"))
    lake.materialize(written(values("(cast(null as string), 3)"), "bucket(4, k)"))
    assert sorted(lake.rows("t", "v")) == [1, 3]


@pytest.mark.full
def test_a_column_that_has_partitions_of_its_own_values_too(lake: Lake) -> None:
    """Iceberg 1.12 takes a filter by the bucket for one by the value, where a spec has the column itself."""
    everything = "select cast(id as int) as k, cast(id as int) as v from range(20)"
    lake.materialize(written(everything, "k", "bucket(4, k)"))
    lake.materialize(written("select 3 as k, 100 as v", "k", "bucket(4, k)"))
    assert sorted(lake.rows("t", "v")) == [*(v for v in range(20) if v != 3), 100]


@pytest.mark.sample(2)
@pytest.mark.full
@pytest.mark.parametrize("before", [(), ("k",), ("bucket(3, k)",), ("truncate(5, k)",)])
def test_buckets_over_files_of_an_older_spec(lake: Lake, before: tuple[str, ...]) -> None:
    """What the older files have of the buckets is replaced; the rest of them is carried over."""
    everything = "select cast(id as int) as k, cast(id as int) as v from range(20)"
    lake.materialize(frame_asset("by_bucket", everything, metadata={"iceberg/partition_by": ["bucket(4, k)"]}))
    lake.materialize(written(everything, *before))
    lake.materialize(written("select 3 as k, 100 as v", "bucket(4, k)"))
    tasks = lake.table("by_bucket").scan().plan_files()
    bucket_of = {
        v: task.file.partition[0]
        for task in tasks
        for v in parquet.read_table(task.file.file_path.removeprefix("file:"), columns=["v"])["v"].to_pylist()
    }
    left = [v for v in range(20) if bucket_of[v] != bucket_of[3]]
    assert sorted(lake.rows("t", "v")) == [*left, 100]
    carried = lake.summaries("t")[-1].get("dagster_iceberg_spark.carries_over")
    lake.materialize(written("select 3 as k, 200 as v", "bucket(4, k)"))
    assert sorted(lake.rows("t", "v")) == [*left, 200]
    assert carried == "true"
    assert "dagster_iceberg_spark.carries_over" not in lake.summaries("t")[-1], "all files are of buckets now"


@pytest.mark.full
def test_rows_of_other_libraries_too(lake: Lake) -> None:
    def daily(day: int) -> dg.AssetsDefinition:
        @dg.asset(name="t", io_manager_key="iceberg", metadata={**OVERWRITE, "iceberg/partition_by": ["day"]})
        def asset() -> Any:
            return pa.table({"day": [dt.date(2013, 1, day)], "v": [day]})

        return asset

    for day in (1, 2, 2):
        lake.materialize(daily(day))
    assert lake.rows("t", "v") == [1, 2]

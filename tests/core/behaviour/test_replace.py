"""Replacing a partition: the rows of the run's partitions and no other, in one snapshot."""

import datetime as dt
from typing import Any

import dagster as dg
import polars as pl
import pyarrow as pa
import pytest

from tests.equality_deletes import delete_by_equality
from tests.lakes import Lake, frame_asset, hours_asset, metadata_of

UTC = dt.timezone.utc
NEW_YORK = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-12-31", timezone="America/New_York")
UTC_DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-12-31")
SINGLE_RUN = dg.BackfillPolicy.single_run()

pytestmark = pytest.mark.spark


@pytest.mark.each_engine("quick")
def test_a_partition_is_replaced_and_its_neighbours_stay(lake: Lake) -> None:
    for value, day in (("1", "2013-01-01"), ("1", "2013-01-02"), ("1", "2013-01-03"), ("2", "2013-01-02")):
        lake.materialize(hours_asset(value=value, partitions_def=UTC_DAYS), partition_key=day)
    values = lake.rows("hours", "ts", "v")
    assert len(values) == 72
    assert {ts.day for ts, value in values if value == 2} == {2}
    assert [summary["operation"] for summary in lake.summaries("hours")] == ["overwrite"] * 4


def test_an_aligned_replace_deletes_files_and_rewrites_none(lake: Lake) -> None:
    asset = hours_asset(partitions_def=UTC_DAYS)
    for day in ("2013-01-01", "2013-01-02", "2013-01-02"):
        lake.materialize(asset, partition_key=day)
    last = lake.summaries("hours")[-1]
    assert (last["added-records"], last["deleted-records"], last["deleted-data-files"]) == ("24", "24", "1")


@pytest.mark.full
def test_rows_that_are_deleted_by_equality_stay_deleted(lake: Lake) -> None:
    """Also where they are in a file with rows of the run, whose other rows are carried over."""
    metadata = {"partition_expr": "ts", "iceberg/partition_by": []}
    asset = hours_asset(partitions_def=UTC_DAYS, metadata=metadata, backfill_policy=SINGLE_RUN)
    lake.materialize_range(asset, first="2013-01-01", last="2013-01-03")
    deleted = dt.datetime(2013, 1, 1, 12, tzinfo=UTC)
    delete_by_equality(lake.table("hours"), pa.table({"ts": pa.array([deleted], pa.timestamp("us", "UTC"))}))
    lake.materialize(asset, partition_key="2013-01-02")
    found = [
        row.second for row in lake.session.table("lake.db.hours").selectExpr("unix_timestamp(ts) as second").collect()
    ]
    assert len(found) == len(set(found)) == 71
    assert int(deleted.timestamp()) not in found


@pytest.mark.each_engine
@pytest.mark.feature("a partition is replaced, on a day of 23 hours")
@pytest.mark.parametrize(("day", "hours"), [("2013-03-10", 23), ("2013-11-03", 25), ("2013-07-04", 24)])
def test_a_new_york_day_has_its_own_length(lake: Lake, day: str, hours: int) -> None:
    asset = hours_asset(partitions_def=NEW_YORK)
    before, after = (str(dt.date.fromisoformat(day) + dt.timedelta(days=offset)) for offset in (-1, 1))
    for key in (before, day, after, day):
        lake.materialize(asset, partition_key=key)
    result = lake.materialize(asset, partition_key=day)
    assert metadata_of(result, "hours")["dagster/partition_row_count"] == hours
    rows = lake.rows("hours", "ts")
    assert len(rows) == len(set(rows))
    assert len(rows) == hours + 48


NESTED = {
    "m": "map('k', {struct})",
    "in_list": "map('k', array({struct}))",
    "of_maps": "array(map(1, {struct}))",
    "in_struct": "named_struct('m', map('k', {struct}))",
    "as_key": "map({struct}, 1)",
    "s": "{struct}",
}
"""Where a struct can stand."""
IN_TABLE = "named_struct('x', 1, 'y', 2, 'z', 3L)"
IN_FRAME = "named_struct('z', 30S, 'y', 20, 'x', 10Y)"
"""The same fields: in another order, and of narrower types."""


@pytest.mark.by_spark
@pytest.mark.full
def test_arrow_replaces_rows_of_format_3_beside_deletion_vectors(classic_lake: Lake) -> None:
    lake, ids_of = classic_lake, "select ts, _row_id as id from lake.db.hours"
    options = {"iceberg/format_version": 3, "iceberg/table_properties": {"write.delete.mode": "merge-on-read"}}
    metadata = {"partition_expr": "ts", **options}

    @dg.asset(name="hours", io_manager_key="iceberg", partitions_def=UTC_DAYS, metadata=metadata)
    def by_arrow(context: dg.AssetExecutionContext) -> pl.DataFrame:
        at = context.partition_time_window.start
        return pl.DataFrame({"ts": [at, at], "v": [7, 8]}, schema_overrides={"v": pl.Int32})

    for key in ("2013-01-01", "2013-01-02"):
        lake.materialize(hours_asset("hours", "1", partitions_def=UTC_DAYS, metadata=metadata), partition_key=key)
    lake.session.sql("delete from lake.db.hours where ts = timestamp'2013-01-02 12:00:00Z'")
    before = {row.id for row in lake.session.sql(ids_of).collect() if row.ts.astimezone(UTC).day == 2}
    for _ in range(2):
        lake.materialize(by_arrow, partition_key="2013-01-01")
        assert lake.summaries("hours")[-1]["engine-name"] == "pyarrow"
        rows = lake.session.sql(f"{ids_of} order by ts").collect()
        assert (len(rows), len({row.id for row in rows})) == (25, 25)
        assert before < {row.id for row in rows}
    assert lake.rows("hours", "v") == [*[1] * 23, 7, 8]


@pytest.mark.full
def test_rows_of_others_keep_their_nested_values(lake: Lake) -> None:
    """Fields of structs are matched by name at every depth, also where files are written again."""

    def asset(struct: str) -> dg.AssetsDefinition:
        columns = ", ".join(f"{query.format(struct=struct)} as {name}" for name, query in NESTED.items())
        return frame_asset(
            "t",
            f"select explode(array({{keys}})) as k, {columns}",
            partitions_def=dg.StaticPartitionsDefinition(["a", "b"]),
            backfill_policy=SINGLE_RUN,
            metadata={"partition_expr": "k", "iceberg/partition_by": []},
        )

    lake.materialize_range(asset(IN_TABLE), first="a", last="b")
    lake.materialize(asset(IN_FRAME), partition_key="a")
    new, old = ({"x": x, "y": 2 * x, "z": 3 * x} for x in (10, 1))
    expected = {
        "m": [("k", {})], "in_list": [("k", [{}])], "of_maps": [[(1, {})]], "in_struct": {"m": [("k", {})]},
        "as_key": [({}, 1)], "s": {},
    }  # fmt: skip
    for row, struct in zip(lake.arrow("t").sort_by("k").to_pylist(), (new, old), strict=True):
        assert str({name: row[name] for name in NESTED}) == str(expected).replace("{}", str(struct))


@pytest.mark.each_engine
@pytest.mark.feature("rows of other partitions are carried over")
def test_files_that_straddle_the_partition_are_carried_over(lake: Lake) -> None:
    asset = hours_asset(partitions_def=NEW_YORK, backfill_policy=SINGLE_RUN)
    lake.materialize_range(asset, first="2013-01-03", last="2013-01-06")
    lake.materialize(hours_asset(value="2", partitions_def=NEW_YORK), partition_key="2013-01-04")
    rows = lake.rows("hours", "ts", "v")
    start = dt.datetime(2013, 1, 4, 5, tzinfo=UTC)
    assert len(rows) == 96
    assert [ts for ts, value in rows if value == 2] == [start + dt.timedelta(hours=hour) for hour in range(24)]
    assert len(lake.summaries("hours")) == 2


@pytest.mark.each_engine
@pytest.mark.since("4.1", "connect")
def test_rows_that_are_carried_over_are_counted(lake: Lake) -> None:
    asset = hours_asset(partitions_def=NEW_YORK, backfill_policy=SINGLE_RUN)
    lake.materialize_range(asset, first="2013-01-03", last="2013-01-06")
    result = lake.materialize(hours_asset(value="2", partitions_def=NEW_YORK), partition_key="2013-01-04")
    metadata = metadata_of(result, "hours")
    assert metadata["iceberg/carried_over_rows"] == metadata["iceberg/added_rows"] - 24 > 0
    assert metadata["dagster/partition_row_count"] == 24


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "partition_by", [[], ["month(ts)"], ["bucket(4, v)"], ["hour(ts)"], ["year(ts)", "truncate(10, v)"]]
)
def test_the_scope_is_exact_whatever_the_tables_spec(lake: Lake, partition_by: list[str]) -> None:
    metadata = {"partition_expr": "ts", "iceberg/partition_by": partition_by}
    first = hours_asset(value="hour(ts)", partitions_def=UTC_DAYS, metadata=metadata, backfill_policy=SINGLE_RUN)
    lake.materialize_range(first, first="2013-01-30", last="2013-02-02")
    lake.materialize(hours_asset(value="100", partitions_def=UTC_DAYS, metadata=metadata), partition_key="2013-01-31")
    rows = lake.rows("hours", "ts", "v")
    assert len(rows) == 96
    assert {ts.date() for ts, value in rows if value == 100} == {dt.date(2013, 1, 31)}
    assert len(lake.summaries("hours")) == 2


@pytest.mark.full
def test_an_empty_frame_empties_its_partition_once(lake: Lake) -> None:
    lake.materialize(hours_asset(partitions_def=UTC_DAYS), partition_key="2013-01-01")
    lake.materialize(hours_asset(partitions_def=UTC_DAYS), partition_key="2013-01-02")
    empty = frame_asset(
        "hours", "select {start} as ts, 1 as v where false", partitions_def=UTC_DAYS, metadata={"partition_expr": "ts"}
    )
    result = lake.materialize(empty, partition_key="2013-01-01")
    assert {ts.day for ts in lake.rows("hours", "ts")} == {2}
    assert len(lake.summaries("hours")) == 3
    assert metadata_of(result, "hours")["dagster/partition_row_count"] == 0


def test_an_empty_frame_makes_a_table_with_one_snapshot(lake: Lake) -> None:
    lake.materialize(frame_asset("nothing", "select 1 as id where false"))
    assert lake.rows("nothing") == []
    assert len(lake.summaries("nothing")) == 1


def test_a_table_without_partitions_is_replaced_whole_and_keeps_its_history(lake: Lake) -> None:
    lake.materialize(frame_asset("people", "select 1 as id"))
    result = lake.materialize(frame_asset("people", "select * from values (2), (3) as t(id)"))
    assert lake.rows("people", "id") == [2, 3]
    assert len(lake.summaries("people")) == 2
    assert metadata_of(result, "people")["dagster/row_count"] == 2


def test_a_single_run_backfill_is_one_snapshot_that_counts_each_partition(lake: Lake) -> None:
    query = (
        "select explode(sequence({start}, {end} - interval 1 second, interval 1 hour)) as ts, 1 as v union all "
        "select {start}, 2"
    )
    asset = frame_asset(
        "hours", query, partitions_def=UTC_DAYS, metadata={"partition_expr": "ts"}, backfill_policy=SINGLE_RUN
    )
    result = lake.materialize_range(asset, first="2013-01-01", last="2013-01-03")
    counts = [
        metadata_of(result, "hours", key)["dagster/partition_row_count"]
        for key in ("2013-01-01", "2013-01-02", "2013-01-03")
    ]
    assert counts == [25, 24, 24]
    assert len(lake.summaries("hours")) == 1
    assert lake.summaries("hours")[0]["dagster.partition_keys"] == '["2013-01-01", "2013-01-02", "2013-01-03"]'


@pytest.mark.sample(4)
@pytest.mark.full
@pytest.mark.parametrize(
    ("partitions_def", "key", "transform"),
    [
        (dg.HourlyPartitionsDefinition("2013-01-01-00:00", timezone="Asia/Kolkata"), "2013-01-01-05:00", "hour"),
        (dg.HourlyPartitionsDefinition("2024-11-03-00:00", timezone="America/New_York"), "2024-11-03-01:00", "hour"),
        (dg.DailyPartitionsDefinition("2013-01-01", hour_offset=6), "2013-01-02", "hour"),
        (dg.WeeklyPartitionsDefinition("2013-01-01", day_offset=3, timezone="Europe/Berlin"), "2013-01-09", "day"),
        (dg.MonthlyPartitionsDefinition("2013-01-01"), "2013-02-01", "month"),
        (
            dg.TimeWindowPartitionsDefinition(
                start="2013-01-01", cron_schedule="0 0 * * 1-5", fmt="%Y-%m-%d", timezone="America/Sao_Paulo"
            ),
            "2013-01-04",
            "day",
        ),
        (dg.TimeWindowPartitionsDefinition(start="2012", cron_schedule="0 0 1 1 *", fmt="%Y"), "2013", "year"),
    ],
    ids=["hourly", "a repeated hour", "daily at six", "weekly", "monthly", "weekdays", "yearly"],
)
def test_every_calendar_is_replaced_exactly(
    lake: Lake, partitions_def: dg.TimeWindowPartitionsDefinition, key: str, transform: str
) -> None:
    edges = frame_asset(
        "edges",
        "select explode(array({start}, {end} - interval 1 microsecond)) as ts, '{key}' as k",
        partitions_def=partitions_def,
        metadata={"partition_expr": "ts"},
    )
    window = partitions_def.time_window_for_partition_key(key)
    keys = partitions_def.get_partition_keys()
    place = keys.index(key)
    for partition in (keys[place - 1], key, keys[place + 1], key):
        lake.materialize(edges, partition_key=partition)
    own = [ts for ts, owner in lake.rows("edges", "ts", "k") if owner == key]
    assert own == [window.start.astimezone(UTC), window.end.astimezone(UTC) - dt.timedelta(microseconds=1)]
    assert len(lake.rows("edges", "ts")) == 6
    assert str(lake.table("edges").spec().fields[0].transform) == transform


@pytest.mark.full
def test_a_range_over_a_repeated_hour_replaces_both_halves(lake: Lake) -> None:
    hours = dg.HourlyPartitionsDefinition("2024-11-03-00:00", timezone="America/New_York")
    metadata = {"partition_expr": "ts", "iceberg/partition_by": ["day(ts)"]}
    for value in ("1", "2"):
        asset = hours_asset(value=value, partitions_def=hours, metadata=metadata, backfill_policy=SINGLE_RUN)
        lake.materialize_range(asset, first="2024-11-03-00:00", last="2024-11-03-02:00")
    found = [(ts.hour, value) for ts, value in lake.rows("hours", "ts", "v")]
    assert found == [(4, 2), (5, 2), (6, 2), (7, 2)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("ts", "timestamptz"),
        ("to_timestamp_ntz('{key} 03:00:00')", "timestamp"),
        ("date '{key}'", "date"),
        ("'{key}'", "string"),
    ],
    ids=["timestamp", "timestamp_ntz", "date", "string"],
)
def test_a_day_is_found_in_columns_of_each_type(lake: Lake, column: str, expected: str) -> None:
    query = f"select {column} as day, '{{key}}' as k from (select {{start}} + interval 3 hours as ts)"
    asset = frame_asset("typed", query, partitions_def=UTC_DAYS, metadata={"partition_expr": "day"})
    for key in ("2013-01-01", "2013-01-02", "2013-01-02"):
        lake.materialize(asset, partition_key=key)
    assert lake.rows("typed", "k") == ["2013-01-01", "2013-01-02"]
    assert str(lake.table("typed").schema().find_type("day")) == expected


@pytest.mark.full
def test_the_last_of_many_columns_tells_files_of_long_keys_apart(classic_lake: Lake) -> None:
    keys = [f"one of the long keys {number}" for number in range(2)]
    columns = ", ".join(f"{number} as c{number}" for number in range(100))
    asset = frame_asset(
        "wide",
        f"select {columns}, '{{key}}' as k",
        partitions_def=dg.StaticPartitionsDefinition(keys),
        metadata={"partition_expr": "k", "iceberg/partition_by": []},
    )
    for key in (*keys, keys[0]):
        result = classic_lake.materialize(asset, partition_key=key)
        assert "iceberg/carried_over_rows" not in metadata_of(result, "wide")
    assert classic_lake.rows("wide", "k") == keys
    classic_lake.session.sql("alter table lake.db.wide rename column k to l")
    assert classic_lake.table("wide").properties["write.metadata.metrics.column.l"] == "full"


LONG_KEYS = [f"one of the long keys {number:02}" for number in range(12)]


@pytest.mark.sample(2)
@pytest.mark.full
@pytest.mark.parametrize("chosen", [LONG_KEYS[:1], LONG_KEYS[4:7]], ids=["a key", "a range"])
@pytest.mark.parametrize("metrics", ["truncate(16)", "none"])
def test_buckets_tell_files_apart_where_bounds_are_cut(lake: Lake, metrics: str, chosen: list[str]) -> None:
    stored = f"select explode(array({', '.join(map(repr, LONG_KEYS))})) as k, 0 as v"
    columns = "(k string, v int) using iceberg partitioned by (bucket(6, k))"
    lake.session.sql("create namespace if not exists lake.db")
    lake.session.sql(
        f"create table lake.db.keyed {columns} tblproperties ('write.metadata.metrics.default' = '{metrics}')"
    )
    lake.session.sql(f"insert into lake.db.keyed {stored}")
    bucket = "lake.system.bucket(6, {})"
    in_them = f"{bucket.format('k')} in ({', '.join(bucket.format(repr(key)) for key in chosen)})"
    [[neighbours]] = lake.session.sql(f"select count(*) from ({stored}) where {in_them}").collect()
    asset = frame_asset(
        "keyed",
        "select explode(array({keys})) as k, 1 as v",
        partitions_def=dg.StaticPartitionsDefinition(LONG_KEYS),
        metadata={"partition_expr": "k"},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    for _ in range(2):
        lake.materialize_range(asset, first=chosen[0], last=chosen[-1])
        assert int(lake.summaries("keyed")[-1]["deleted-records"]) == neighbours < len(LONG_KEYS)
        rows = {row["k"]: row["v"] for row in lake.arrow("keyed").to_pylist()}
        assert rows == {key: int(key in chosen) for key in LONG_KEYS}
    assert lake.arrow("keyed").num_rows == len(LONG_KEYS)


@pytest.mark.full
def test_a_new_partition_makes_spark_compile_nothing(classic_lake: Lake) -> None:
    metrics = classic_lake.session._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]
    compiled = []
    for day in range(1, 4):
        rows = [(dt.date(2013, 1, day), day)]
        asset = frame_asset(
            "days",
            lambda spark, rows=rows: spark.createDataFrame(rows, "day date, v long"),  # type: ignore[misc]
            partitions_def=UTC_DAYS,
            metadata={"partition_expr": "day"},
        )
        classic_lake.materialize(asset, partition_key=f"2013-01-{day:02}")
        compiled.append(metrics.METRIC_COMPILATION_TIME().getCount())
    assert compiled[2] == compiled[1]


@pytest.mark.full
def test_a_day_is_found_in_an_integer_column_of_its_key(lake: Lake) -> None:
    days = dg.DailyPartitionsDefinition("20130101", fmt="%Y%m%d", end_date="20130110")
    asset = frame_asset("ints", "select {key} as day", partitions_def=days, metadata={"partition_expr": "day"})
    for key in ("20130101", "20130102", "20130101"):
        lake.materialize(asset, partition_key=key)
    assert lake.rows("ints", "day") == [20130101, 20130102]


KEYS = [
    "plain",
    "it's",
    'a"b',
    "back\\slash",
    "100%",
    "a/b",
    "with space",
    "dot.ted",
    "ünï",
    "null",
    "`tick`",
    "x" * 200,
    "ü" * 300,
]


@pytest.mark.full
def test_static_keys_of_any_spelling_are_kept_apart(lake: Lake) -> None:
    keys = dg.StaticPartitionsDefinition(KEYS)

    @dg.asset(io_manager_key="iceberg", partitions_def=keys, metadata={"partition_expr": "k"})
    def regions(context: dg.AssetExecutionContext, spark: dg.ResourceParam[object]) -> object:
        return lake.session.createDataFrame([(context.partition_key, 1)], "k string, n int")

    for key in (*KEYS, KEYS[1], KEYS[3]):
        lake.materialize(regions, partition_key=key)
    assert sorted(lake.rows("regions", "k")) == sorted(KEYS)
    assert lake.table("regions").properties["write.object-storage.partitioned-paths"] == "false"


@pytest.mark.full
def test_dynamic_keys_of_an_integer_column(lake: Lake) -> None:
    shards = dg.DynamicPartitionsDefinition(name="shards")
    lake.instance.add_dynamic_partitions("shards", ["7", "42"])
    asset = frame_asset("shards", "select {key} as shard", partitions_def=shards, metadata={"partition_expr": "shard"})
    for key in ("7", "42", "7"):
        lake.materialize(asset, partition_key=key)
    assert lake.rows("shards", "shard") == [7, 42]


MULTI = dg.MultiPartitionsDefinition({"airport": dg.StaticPartitionsDefinition(["EWR", "JFK", "LGA"]), "day": UTC_DAYS})
MULTI_METADATA = {"partition_expr": {"airport": "origin", "day": "ts"}}


def _multi(value: int) -> dg.AssetsDefinition:
    @dg.asset(
        name="weather",
        io_manager_key="iceberg",
        partitions_def=MULTI,
        metadata=MULTI_METADATA,
        backfill_policy=SINGLE_RUN,
    )
    def weather(context: dg.AssetExecutionContext, spark: dg.ResourceParam[object]) -> object:
        keys = [key.keys_by_dimension for key in map(MULTI.get_partition_key_from_str, context.partition_keys)]
        rows = [(key["airport"], f"{key['day']} 12:00:00+00:00", value) for key in keys]
        session = spark.spark_session  # type: ignore[attr-defined]
        return session.createDataFrame(rows, "origin string, ts string, v int").selectExpr(
            "origin", "cast(ts as timestamp) as ts", "v"
        )

    return weather


@pytest.mark.full
def test_one_partition_of_two_dimensions_is_replaced(lake: Lake) -> None:
    keys = [
        dg.MultiPartitionKey({"airport": a, "day": d}) for a in ("EWR", "JFK") for d in ("2013-01-01", "2013-01-02")
    ]
    for key in keys:
        lake.materialize(_multi(1), partition_key=key)
    lake.materialize(_multi(2), partition_key=keys[1])
    assert [(o, ts.day) for o, ts, v in lake.rows("weather", "origin", "ts", "v") if v == 2] == [("EWR", 2)]
    assert len(lake.rows("weather")) == 4


@pytest.mark.full
def test_a_range_over_two_dimensions_is_their_product(lake: Lake) -> None:
    every = {"first": "EWR|2013-01-01", "last": "LGA|2013-01-04"}
    lake.materialize_range(_multi(1), **every)
    result = lake.materialize_range(_multi(2), first="EWR|2013-01-02", last="JFK|2013-01-03")
    rows = lake.rows("weather", "origin", "ts", "v")
    assert len(rows) == 12
    changed = {(origin, ts.day) for origin, ts, value in rows if value == 2}
    assert changed == {(origin, day) for origin in ("EWR", "JFK") for day in (2, 3)}
    assert len(result.get_asset_materialization_events()) == 4
    assert len(lake.summaries("weather")) == 2


def test_a_named_field_and_a_bucket_partition_a_new_table(lake: Lake) -> None:
    metadata = {"partition_expr": "ts", "iceberg/partition_by": ["day(ts) as at_day", "bucket(8, v)"]}
    lake.materialize(hours_asset(partitions_def=UTC_DAYS, metadata=metadata), partition_key="2013-01-01")
    fields = {field.name: str(field.transform) for field in lake.table("hours").spec().fields}
    assert fields == {"v_bucket": "bucket[8]", "at_day": "day"}
    assert len(lake.summaries("hours")) == 1


@pytest.mark.full
def test_a_changed_partition_by_changes_the_spec_and_keeps_the_scope_exact(lake: Lake) -> None:
    by_month = {"partition_expr": "ts", "iceberg/partition_by": ["month(ts)"]}
    by_day = {"partition_expr": "ts", "iceberg/partition_by": ["day(ts)"]}
    monthly = hours_asset(partitions_def=UTC_DAYS, metadata=by_month, backfill_policy=SINGLE_RUN)
    lake.materialize_range(monthly, first="2013-01-01", last="2013-01-03")
    lake.materialize(hours_asset(value="2", partitions_def=UTC_DAYS, metadata=by_day), partition_key="2013-01-02")
    rows = lake.rows("hours", "ts", "v")
    assert (len(rows), {ts.day for ts, value in rows if value == 2}) == (72, {2})
    assert [str(field.transform) for field in lake.table("hours").spec().fields if str(field.transform) != "void"] == [
        "day"
    ]


@pytest.mark.full
@pytest.mark.parametrize("version", [1, 2])
def test_a_partition_field_is_renamed_and_its_files_stay(lake: Lake, version: int) -> None:
    def written(field: str) -> dg.ExecuteInProcessResult:
        metadata = {"partition_expr": "ts", "iceberg/partition_by": [field], "iceberg/format_version": version}
        asset = hours_asset(partitions_def=UTC_DAYS, metadata=metadata, value=f"length('{field}')")
        return lake.materialize(asset, partition_key="2013-01-01" if "at" in field else "2013-01-02")

    written("day(ts) as at")
    kept = lake.table("hours").spec().fields[0].field_id
    result = written("day(ts) as `the day`")
    assert metadata_of(result, "hours")["iceberg/table_changes"] == ["rename partition field day(ts) as at to the day"]
    fields = lake.table("hours").spec().fields
    assert [(field.name, str(field.transform), field.field_id) for field in fields] == [("the day", "day", kept)]
    assert len(lake.rows("hours", "ts", "v")) == 48
    assert "iceberg/table_changes" not in metadata_of(written("day(ts)"), "hours")


@pytest.mark.sample(4)
@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["my table", "dot.ted", "it's", 'say "hi"', "SELECT", "hash#tag", "why?", "ünï", "a`b", "x/y"]
)
def test_a_table_may_have_any_name(lake: Lake, name: str) -> None:
    asset = frame_asset(
        "named",
        "select '{key}' as `my key`, 1 as `a.b`, 2 as `select`, 3 as `It's \"q\"`, 4 as `t``k`",
        partitions_def=dg.StaticPartitionsDefinition(["x", "y"]),
        metadata={"partition_expr": "my key", "iceberg/table": f"db.`{name.replace('`', '``')}`"},
    )
    for key in ("x", "y", "x"):
        lake.materialize(asset, partition_key=key)
    assert lake.rows(name, "my key", "a.b", 'It\'s "q"', "t`k") == [("x", 1, 3, 4), ("y", 1, 3, 4)]


@pytest.mark.full
@pytest.mark.each_engine
@pytest.mark.since("4.1", "connect")
def test_rows_that_are_sampled_before_they_are_written_are_counted_once(lake: Lake) -> None:
    days = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-10")
    metadata = {
        "partition_expr": "d",
        "iceberg/partition_by": [],
        "iceberg/sort_by": ["id"],
        "iceberg/rows_outside_partition": "drop",
    }
    rows = "select date'2024-01-01' + cast(id % 3 as int) as d, id from range(12)"
    options: dict[str, Any] = {"partitions_def": days, "metadata": metadata}
    one = frame_asset("one", rows, **options)
    found = metadata_of(lake.materialize(one, partition_key="2024-01-02"), "one")
    assert (found["iceberg/dropped_rows"], found["dagster/partition_row_count"]) == (8, 4)
    two = frame_asset("two", rows, backfill_policy=dg.BackfillPolicy.single_run(), **options)
    ends = {"dagster/asset_partition_range_start": "2024-01-01", "dagster/asset_partition_range_end": "2024-01-02"}
    result = lake.materialize(two, tags=ends)
    for key in ends.values():
        assert metadata_of(result, "two", key)["dagster/partition_row_count"] == 4

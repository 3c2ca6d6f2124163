"""Loading: what the annotation says, only the rows that were asked for, pinned to a snapshot."""

import collections
import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyiceberg.table
import pytest
from pyspark.sql import DataFrame

from dagster_iceberg_spark import IcebergSparkResource
from tests.lakes import Lake, annotation_of, arrow_of, error_of, frame_asset, hours_asset

UTC = dt.timezone.utc
DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-03-01", timezone="America/New_York")
MONTHS = dg.MonthlyPartitionsDefinition("2013-01-01", end_date="2013-03-01", timezone="America/New_York")
SINGLE_RUN = dg.BackfillPolicy.single_run()
TYPES = (
    "select 1 as i, 2.5D as d, 'text' as s, date '2013-01-02' as day, timestamp '2013-01-02 03:04:05.678901Z' as ts, "
    "cast(1.25 as decimal(10, 2)) as n, array(1, 2) as l, named_struct('a', 1) as st, cast(null as string) as nothing"
)

pytestmark = pytest.mark.spark


def as_arrow(loaded: Any, schema: pa.Schema | None = None) -> pa.Table:  # noqa: PLR0911 - one for each type
    """Whatever was loaded, as an Arrow table; what pandas has is of that schema."""
    match loaded:
        case pa.Table() | dict():
            return loaded
        case pa.RecordBatchReader():
            return loaded.read_all()
        case pd.DataFrame():
            return pa.Table.from_pandas(loaded, schema, preserve_index=False)
        case pl.DataFrame():
            return loaded.to_arrow()
        case pl.LazyFrame():
            return loaded.collect().to_arrow()
        case duckdb.DuckDBPyRelation():
            return loaded.to_arrow_table()
        case pyiceberg.table.DataScan():
            return loaded.to_arrow()
        case _:
            return arrow_of(loaded)


def capture(lake: Lake, upstream: dg.AssetsDefinition, annotation: Any, **kwargs: Any) -> Any:
    """Load one input of an asset in a run and return it as Arrow."""
    loaded: list[pa.Table] = []
    metadata = kwargs.pop("input_metadata", None)
    schema = kwargs.pop("schema", None)
    mapping = kwargs.pop("partition_mapping", None)
    run = {name: kwargs.pop(name) for name in ("partition_key", "tags") if name in kwargs}

    def body(up: Any) -> None:
        loaded.append(as_arrow(up, schema))

    body.__annotations__["up"] = annotation_of(annotation, lake)
    reader = dg.asset(
        name="reader", ins={"up": dg.AssetIn(upstream.key, metadata=metadata, partition_mapping=mapping)}, **kwargs
    )(body)
    lake.materialize(reader, upstream.to_source_asset(), selection=[reader], **run)
    return loaded[0]


ANNOTATIONS = [
    DataFrame,
    pa.Table,
    pa.RecordBatchReader,
    pd.DataFrame,
    pl.DataFrame,
    pl.LazyFrame,
    duckdb.DuckDBPyRelation,
    pyiceberg.table.DataScan,
]


MATRIX = """
select * from values
  (1, 9007199254740993L, 0.1f, 0.1D, cast(1.25 as decimal(38, 10)), 'ünï', X'00ff', true, date '0001-01-01',
   timestamp '2013-01-02 03:04:05.678901Z', timestamp_ntz '2013-03-10 02:30:00', array(1, null),
   array(named_struct('x', 1L, 'y', 'z')), map('k', cast(2.5 as decimal(4, 1)), 'none', null),
   map('k', named_struct('x', 1)),
   named_struct('a', named_struct('b', timestamp '2013-01-02 03:04:05Z'), 'c', array('p'))),
  (2, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null),
  (3, -1L, float('nan'), double('-infinity'), cast(-0.5 as decimal(38, 10)), '', X'', false, date '9999-12-31',
   timestamp '9999-12-31 23:59:59.999999Z', timestamp_ntz '1969-12-31 23:59:59.999999', array(), array(), map(),
   map(), named_struct('a', null, 'c', null)),
  (4, 4L, 4f, 4D, cast(4 as decimal(38, 10)), 'deleted', X'04', true, date '2004-04-04',
   timestamp '2004-04-04 04:04:04Z', timestamp_ntz '2004-04-04 04:04:04', array(4), array(), map(), map(),
   named_struct('a', null, 'c', null))
as t(i, l, f, d, n, s, raw, b, day, ts, wall, ints, structs, amounts, by_key, nested)
"""


def plain(value: Any) -> Any:  # noqa: PLR0911 - one for each kind
    """A value as every engine can say it: a map as pairs, NaN as a text, an instant in UTC."""
    match value:
        case float() if value != value:  # noqa: PLR0124 - what NaN is
            return "NaN"
        case dt.datetime() if value.tzinfo is not None:
            return value.astimezone(UTC)
        case dict() if set(value) == {"key", "value"}:
            return (value["key"], plain(value["value"]))
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list():
            return [plain(item) for item in value]
        case tuple():
            return tuple(plain(item) for item in value)
        case _:
            return value


@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=lambda item: f"{item.__module__}.{item.__name__}")
def test_all_types_have_the_same_values_whatever_loads_them(read_lake: Lake, annotation: Any) -> None:
    metadata = {"iceberg/format_version": 3, "iceberg/table_properties": {"write.delete.mode": "merge-on-read"}}
    upstream = frame_asset("matrix", MATRIX, metadata=metadata)
    if not read_lake.exists("matrix"):
        read_lake.materialize(upstream)
        read_lake.session.sql("delete from lake.db.matrix where i = 4")
    assert read_lake.summaries("matrix")[-1]["added-dvs"] == "1"
    expected = arrow_of(read_lake.session.table("lake.db.matrix"))
    loaded = capture(read_lake, upstream, annotation, schema=expected.schema)
    assert loaded.column_names == expected.column_names
    rows, wanted = ({row["i"]: plain(row) for row in table.to_pylist()} for table in (loaded, expected))
    for number, row in wanted.items():
        for column, value in row.items():
            # NaN is what pandas has for NULL among floating-point numbers.
            same = None if annotation is pd.DataFrame and value == "NaN" else value
            assert (number, column, rows[number][column]) == (number, column, same)
    assert set(rows) == {1, 2, 3}


@pytest.mark.each_engine("quick", "all")
@pytest.mark.feature("inputs of each type")
@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=lambda item: f"{item.__module__}.{item.__name__}")
def test_an_input_loads_as_its_annotation_says(read_lake: Lake, annotation: Any) -> None:
    upstream = frame_asset("types", TYPES)
    read_lake.once(upstream)
    (row,) = capture(read_lake, upstream, annotation).to_pylist()
    assert (row["i"], row["d"], row["s"], row["nothing"]) == (1, 2.5, "text", None)
    assert row["ts"] == dt.datetime(2013, 1, 2, 3, 4, 5, 678901, UTC)
    assert row["day"] == dt.date(2013, 1, 2)
    assert str(row["n"]) == "1.25"
    assert (list(row["l"]), row["st"]) == ([1, 2], {"a": 1})


@pytest.mark.sample(4)
@pytest.mark.full
@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=lambda item: f"{item.__module__}.{item.__name__}")
def test_a_type_that_pyiceberg_lacks_matters_only_where_it_is_asked_for(lake: Lake, annotation: Any) -> None:
    """Spark reads all of the table."""
    lake.materialize(frame_asset("other", "select 1 as id"))
    lake.session.sql(
        "create table lake.db.t (id int, v variant, s struct<a: int, w: variant>, n string) using iceberg "
        "tblproperties ('format-version'='3')"
    )
    lake.session.sql(
        "insert into lake.db.t select 1, parse_json('{}'), named_struct('a', 2, 'w', parse_json('3')), 'n'"
    )
    lake.session.sql("insert into lake.db.t select 2, null, null, null")
    upstream = frame_asset("t", "")
    asked = {"columns": ["n", "id"], "iceberg/row_filter": "id < 2"}
    assert capture(lake, upstream, annotation, input_metadata=asked).to_pylist() == [{"n": "n", "id": 1}]
    if annotation is DataFrame:
        return
    for columns in ({}, {"columns": ["id", "v"]}, {"columns": ["s"]}):
        with pytest.raises(dg.Failure, match=r"of types that pyiceberg has, found the column '[vs]'"):
            capture(lake, upstream, annotation, input_metadata=columns)


@pytest.mark.by_spark
@pytest.mark.full
def test_a_table_with_a_type_that_pyiceberg_lacks_is_written_on(lake: Lake) -> None:
    lake.materialize(frame_asset("other", "select 1 as id"))
    lake.session.sql("create table lake.db.t (id int, v variant) using iceberg tblproperties ('format-version'='3')")
    for disposition in ("append", "replace", "append"):
        query = "select 1 as id, parse_json('[1]') as v"
        lake.materialize(frame_asset("t", query, metadata={"iceberg/write_disposition": disposition}))
    found = lake.session.sql("select id, to_json(v) from lake.db.t").collect()
    assert [tuple(row) for row in found] == [(1, "[1]")] * 2


def test_an_input_without_annotation_is_a_spark_frame(lake: Lake) -> None:
    upstream = frame_asset("one", "select 1 as id")
    lake.materialize(upstream)

    @dg.asset(ins={"up": dg.AssetIn("one")})
    def reader(up):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - the point of the test
        assert hasattr(up, "toDF")

    lake.materialize(reader, upstream.to_source_asset(), selection=[reader])


def test_pyiceberg_s_own_table_is_loaded_too(lake: Lake) -> None:
    upstream = frame_asset("one", "select 1 as id")
    lake.materialize(upstream)

    @dg.asset
    def reader(one: pyiceberg.table.Table) -> None:
        assert one.name() == ("db", "one")

    lake.materialize(reader, upstream.to_source_asset(), selection=[reader])


@pytest.mark.parametrize("annotation", [DataFrame, pa.Table], ids=["spark", "arrow"])
class TestMappings:
    """Which rows each kind of partition mapping loads, by both ways of reading."""

    @pytest.fixture
    def hours(self, read_lake: Lake) -> dg.AssetsDefinition:
        asset = hours_asset(partitions_def=DAYS, backfill_policy=SINGLE_RUN)
        read_lake.once(asset, first="2013-01-30", last="2013-02-03")
        return asset

    def days_of(self, table: pa.Table) -> dict[int, int]:
        starts = [(ts.astimezone(UTC) - dt.timedelta(hours=5)).day for ts in table.column("ts").to_pylist()]
        return {day: starts.count(day) for day in sorted(set(starts))}

    def test_the_same_day(self, read_lake: Lake, hours: dg.AssetsDefinition, annotation: Any) -> None:
        loaded = capture(read_lake, hours, annotation, partitions_def=DAYS, partition_key="2013-02-01")
        assert self.days_of(loaded) == {1: 24}

    @pytest.mark.full
    def test_the_day_before(self, read_lake: Lake, hours: dg.AssetsDefinition, annotation: Any) -> None:
        mapping = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
        loaded = capture(
            read_lake, hours, annotation, partitions_def=DAYS, partition_mapping=mapping, partition_key="2013-02-01"
        )
        assert self.days_of(loaded) == {31: 24}

    def test_the_days_of_a_month(self, read_lake: Lake, hours: dg.AssetsDefinition, annotation: Any) -> None:
        asked = {"iceberg/missing": "empty"}
        loaded = capture(
            read_lake, hours, annotation, partitions_def=MONTHS, partition_key="2013-02-01", input_metadata=asked
        )
        assert self.days_of(loaded) == {1: 24, 2: 24, 3: 24}

    @pytest.mark.full
    def test_all_partitions(self, read_lake: Lake, hours: dg.AssetsDefinition, annotation: Any) -> None:
        assert self.days_of(capture(read_lake, hours, annotation)) == {1: 24, 2: 24, 3: 24, 30: 24, 31: 24}

    @pytest.mark.full
    def test_partitions_that_are_not_next_to_each_other(
        self, read_lake: Lake, hours: dg.AssetsDefinition, annotation: Any
    ) -> None:
        mapping = dg.SpecificPartitionsPartitionMapping(["2013-01-30", "2013-02-02"])
        assert self.days_of(capture(read_lake, hours, annotation, partition_mapping=mapping)) == {2: 24, 30: 24}

    @pytest.mark.full
    def test_no_partition_at_all(self, read_lake: Lake, hours: dg.AssetsDefinition, annotation: Any) -> None:
        mapping = dg.SpecificPartitionsPartitionMapping([])
        loaded = capture(read_lake, hours, annotation, partition_mapping=mapping)
        assert (loaded.num_rows, set(loaded.column_names)) == (0, {"ts", "v"})


@pytest.mark.full
@pytest.mark.parametrize(
    "annotation", [DataFrame, pa.Table, pa.RecordBatchReader], ids=lambda item: f"{item.__module__}.{item.__name__}"
)
def test_many_windows_that_are_not_next_to_each_other(read_lake: Lake, annotation: Any) -> None:
    """More terms than an engine should evaluate for each file."""
    days = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-04-11", timezone="America/New_York")
    upstream = hours_asset("many_hours", partitions_def=days, backfill_policy=SINGLE_RUN)
    read_lake.once(upstream, first="2013-01-01", last="2013-04-10")
    odd = days.get_partition_keys()[::2]
    mapping = dg.SpecificPartitionsPartitionMapping(odd)
    loaded = capture(
        read_lake, upstream, annotation, partition_mapping=mapping, input_metadata={"columns": ["v", "ts"]}
    )
    assert loaded.column_names == ["v", "ts"]
    zone = ZoneInfo("America/New_York")
    found = collections.Counter(ts.astimezone(zone).date().isoformat() for ts in loaded.column("ts").to_pylist())
    assert found == {day: 23 if day == "2013-03-10" else 24 for day in odd}


@pytest.mark.full
@pytest.mark.parametrize("annotation", [DataFrame, pa.Table, pa.RecordBatchReader], ids=["spark", "arrow", "batches"])
def test_columns_that_changed_since_the_last_snapshot_are_read_as_they_are_now(lake: Lake, annotation: Any) -> None:
    query = "select {start} as ts, 1 as n, 'x' as gone, named_struct('a', 1) as s"
    kwargs: dict[str, Any] = {"partitions_def": DAYS}
    first = frame_asset("t", query, metadata={"partition_expr": "ts"}, **kwargs)
    lake.materialize(first, partition_key="2013-01-01")
    metadata = {"partition_expr": "at", "iceberg/renames": {"ts": "at"}, "iceberg/schema_evolution": "full"}
    changed = frame_asset("t", "select named_struct('a', 2) as s, 2L as n, {start} as at", metadata=metadata, **kwargs)
    lake.materialize(changed, partition_key="2013-01-02")
    lake.session.sql("alter table lake.db.t add column later string")
    loaded = capture(lake, changed, annotation, partitions_def=DAYS, partition_key="2013-01-02")
    assert loaded.column_names == ["s", "n", "at", "later"]
    assert loaded.drop_columns(["at"]).to_pylist() == [{"s": {"a": 2}, "n": 2, "later": None}]
    chosen = capture(lake, changed, annotation, input_metadata={"columns": ["at", "n"]})
    assert (chosen.column_names, sorted(chosen.column("n").to_pylist())) == (["at", "n"], [1, 2])


@pytest.mark.full
@pytest.mark.parametrize("annotation", [DataFrame, pa.Table, pa.RecordBatchReader], ids=["spark", "arrow", "batches"])
def test_a_name_that_is_given_again_has_none_of_the_old_values(lake: Lake, annotation: Any) -> None:
    asset = frame_asset(
        "t",
        "select 1 as id, 'old' as v, 'kept' as k, named_struct('a', 'old', 'b', 'kept') as s, "
        "array(named_struct('a', 'old', 'b', 'kept')) as l, map('key', named_struct('a', 'old', 'b', 'kept')) as m",
    )
    lake.materialize(asset)
    for column in ("v", "s.a", "l.element.a", "m.value.a"):
        lake.session.sql(f"alter table lake.db.t drop column {column}")
        lake.session.sql(f"alter table lake.db.t add column {column} string")
    for column, name in {"k": "r", "s.b": "r", "l.element.b": "r", "m.value.b": "r"}.items():
        lake.session.sql(f"alter table lake.db.t rename column {column} to {name}")
    loaded = capture(lake, asset, annotation)
    nested = {"r": "kept", "a": None}
    assert loaded.to_pylist() == [{"id": 1, "r": "kept", "s": nested, "l": [nested], "m": [("key", nested)], "v": None}]


YESTERDAY = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)


@pytest.mark.full
@pytest.mark.parametrize("annotation", [DataFrame, pa.Table], ids=["spark", "arrow"])
def test_an_asset_that_reads_its_day_before_starts_with_nothing(lake: Lake, annotation: Any) -> None:
    read: dict[str, int] = {}

    def body(context: dg.AssetExecutionContext, spark: IcebergSparkResource, running: Any) -> Any:
        before = as_arrow(running)
        read[context.partition_key] = len(before)
        total = sum(before.column("total").to_pylist()) if "total" in before.column_names else 0
        return spark.spark_session.sql(f"select date '{context.partition_key}' as day, {total} + 1 as total")

    body.__annotations__["running"] = annotation
    running = dg.asset(
        io_manager_key="iceberg",
        partitions_def=DAYS,
        metadata={"partition_expr": "day"},
        ins={"running": dg.AssetIn("running", partition_mapping=YESTERDAY)},
        name="running",
    )(body)
    for day in ("2013-01-01", "2013-01-02", "2013-01-03"):
        lake.materialize(running, partition_key=day)
    assert read == {"2013-01-01": 0, "2013-01-02": 1, "2013-01-03": 1}
    assert lake.rows("running", "total") == [1, 2, 3]


def test_a_type_that_needs_columns_asks_for_the_table(lake: Lake) -> None:
    @dg.asset(
        partitions_def=DAYS,
        metadata={"partition_expr": "day"},
        ins={"running": dg.AssetIn("running", partition_mapping=YESTERDAY, input_manager_key="iceberg")},
    )
    def running(running: pyiceberg.table.DataScan) -> None:
        running.to_arrow()

    error = lake.failure(running, partition_key="2013-01-01")
    assert error.class_name == "UpstreamMissingError"
    assert "the table of running" in str(error)


CELLS = dg.MultiPartitionsDefinition(
    {"a": dg.StaticPartitionsDefinition(["x", "y", "it's"]), "b": dg.StaticPartitionsDefinition(["1", "2", "3"])}
)


def cells_asset() -> dg.AssetsDefinition:
    return frame_asset(
        "cells",
        "select a, b from values ('x'), ('y'), ('it\\'s') as t(a), values (1), (2), (3) as u(b)",
        partitions_def=CELLS,
        metadata={"partition_expr": {"a": "a", "b": "b"}},
        backfill_policy=SINGLE_RUN,
    )


@pytest.mark.full
@pytest.mark.parametrize("annotation", [DataFrame, pa.Table], ids=["spark", "arrow"])
def test_a_set_of_cells_that_is_no_product(read_lake: Lake, annotation: Any) -> None:
    upstream = cells_asset()
    read_lake.once(upstream, first="x|1", last="it's|3")
    picked = ["x|1", "y|2", "it's|3", "it's|1"]
    mapping = dg.SpecificPartitionsPartitionMapping(picked)
    loaded = capture(read_lake, upstream, annotation, partition_mapping=mapping)
    assert sorted(f"{row['a']}|{row['b']}" for row in loaded.to_pylist()) == sorted(picked)


@pytest.mark.parametrize(
    "annotation", [DataFrame, pa.Table, pd.DataFrame, pl.DataFrame], ids=lambda item: item.__module__
)
def test_columns_are_picked_in_order(read_lake: Lake, annotation: Any) -> None:
    upstream = frame_asset("wide", "select 1 as a, 2 as `b.c`, 3 as `it's`")
    read_lake.once(upstream)
    loaded = capture(read_lake, upstream, annotation, input_metadata={"columns": ["it's", "b.c"]})
    assert loaded.to_pylist() == [{"it's": 3, "b.c": 2}]
    assert loaded.column_names == ["it's", "b.c"]


@pytest.mark.full
@pytest.mark.parametrize("annotation", [DataFrame, pa.Table], ids=["spark", "arrow"])
def test_an_older_snapshot_is_read_by_id_and_by_instant(lake: Lake, annotation: Any) -> None:
    upstream = frame_asset("one", "select 1 as id")
    lake.materialize(upstream)
    first = lake.head("one")
    lake.materialize(frame_asset("one", "select 2 as id"))
    instant = dt.datetime.fromtimestamp(first.timestamp_ms / 1000, UTC).isoformat()
    for metadata in ({"iceberg/snapshot_id": first.snapshot_id}, {"iceberg/as_of": instant}):
        assert capture(lake, upstream, annotation, input_metadata=metadata).to_pylist() == [{"id": 1}]


@pytest.mark.full
@pytest.mark.parametrize("annotation", [DataFrame, pa.Table, dict[str, pa.Table]], ids=["spark", "arrow", "each"])
def test_a_partition_is_read_from_before_its_column_was_renamed(lake: Lake, annotation: Any) -> None:
    """The definition says the name that the column has now."""
    query = "select date '{key}' as day, 'x' as v"
    old = frame_asset("t", query, partitions_def=DAYS, metadata={"partition_expr": "day"})
    for key in ("2013-01-01", "2013-01-02"):
        lake.materialize(old, partition_key=key)
    then = lake.head("t").snapshot_id
    lake.session.sql("alter table lake.db.t rename column day to at")
    upstream = frame_asset("t", query, partitions_def=DAYS, metadata={"partition_expr": "at"})
    asked = {"iceberg/snapshot_id": then, "iceberg/row_filter": "v = 'x'"}
    loaded = capture(lake, upstream, annotation, input_metadata=asked, partitions_def=DAYS, partition_key="2013-01-02")
    rows = loaded["2013-01-02"] if isinstance(loaded, dict) else loaded
    assert rows.to_pylist() == [{"day": dt.date(2013, 1, 2), "v": "x"}]


@pytest.mark.full
def test_a_spark_input_stays_pinned_while_others_write(lake: Lake) -> None:
    upstream = frame_asset("one", "select 1 as id")
    lake.materialize(upstream)
    counts = []

    @dg.asset
    def reader(one: DataFrame) -> None:
        counts.append(one.count())
        lake.table("one").append(pa.table({"id": pa.array([2], pa.int32())}))
        counts.append(one.count())

    lake.materialize(reader, upstream.to_source_asset(), selection=[reader])
    assert counts == [1, 1]
    assert lake.rows("one", "id") == [1, 2]


def test_what_another_engine_wrote_is_read_at_once(lake: Lake) -> None:
    upstream = frame_asset("one", "select 1 as id")
    lake.materialize(upstream)
    assert capture(lake, upstream, DataFrame).num_rows == 1
    lake.table("one").append(pa.table({"id": pa.array([2], pa.int32())}))
    assert capture(lake, upstream, DataFrame).num_rows == 2


@pytest.mark.full
def test_a_script_loads_an_asset_s_value(lake: Lake) -> None:
    hours = hours_asset(partitions_def=DAYS, backfill_policy=SINGLE_RUN)
    lake.materialize_range(hours, first="2013-01-01", last="2013-01-02")
    defs = dg.Definitions(assets=[hours], resources=lake.resources)
    day: Any = defs.load_asset_value("hours", python_type=pa.Table, partition_key="2013-01-02", instance=lake.instance)
    other: Any = defs.load_asset_value(
        "hours", python_type=pd.DataFrame, instance=lake.instance, partition_key="2013-01-01"
    )
    assert (day.num_rows, other.shape) == (24, (24, 2))


def test_an_asset_that_others_materialize_is_read_by_its_spec(lake: Lake) -> None:
    lake.materialize(hours_asset(partitions_def=DAYS), partition_key="2013-01-01")
    spec = dg.AssetSpec(
        "elsewhere",
        partitions_def=DAYS,
        metadata={"dagster/io_manager_key": "iceberg", "iceberg/table": "db.hours", "partition_expr": "ts"},
    )
    counts = []

    @dg.asset(partitions_def=DAYS, ins={"elsewhere": dg.AssetIn(metadata={"iceberg/missing": "empty"})})
    def reader(elsewhere: pa.Table) -> None:
        counts.append(elsewhere.num_rows)

    for key in ("2013-01-01", "2013-01-02"):
        lake.materialize(reader, spec, selection=[reader], partition_key=key)
    assert counts == [24, 0]


@pytest.mark.parametrize("annotation", [DataFrame, pa.Table], ids=["spark", "arrow"])
def test_a_missing_upstream_table_is_named(lake: Lake, annotation: Any) -> None:
    upstream = frame_asset("never", "select 1 as id")

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=2))
    def reader(never: annotation) -> None: ...

    result = lake.materialize(reader, upstream.to_source_asset(), selection=[reader], raise_on_error=False)
    error = error_of(result)
    assert error.class_name == "UpstreamMissingError"
    assert "db.never" in str(error)
    assert "materialize it first" in str(error)
    assert not [event for event in result.all_events if event.is_step_up_for_retry]

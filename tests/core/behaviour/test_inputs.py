"""What an input may ask for: rows, an instant, another run's snapshots, partitions one by one, what is not there."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any, Optional, cast
from urllib.parse import urlsplit

import dagster as dg
import ibis
import polars as pl
import pyarrow as pa
import pyiceberg.table
import pytest
from pyspark.sql import DataFrame

from dagster_iceberg_spark import IcebergPySparkIOManager
from dagster_iceberg_spark.arrow import scan
from tests.core.behaviour.test_loads import ANNOTATIONS, DAYS, SINGLE_RUN, as_arrow, capture
from tests.lakes import Lake, frame_asset, hours_asset, metadata_of

pytestmark = pytest.mark.spark

UTC = dt.timezone.utc
BOTH_WAYS = pytest.mark.parametrize("annotation", [DataFrame, pa.Table], ids=["spark", "arrow"])
ALL_WAYS = pytest.mark.parametrize("annotation", ANNOTATIONS, ids=lambda item: f"{item.__module__}.{item.__name__}")

VALUES = """
select * from values
  (1, 1L, 0.5f, 0.5D, cast(1.50 as decimal(9, 2)), 'a', true, date '2024-01-01', timestamp '2024-01-01T00:00:00Z'),
  (2, -2L, float('nan'), double('nan'), cast(-1.50 as decimal(9, 2)), 'it''s', false, date '2024-01-02',
   timestamp '2024-01-01T00:00:00.000001Z'),
  (3, null, null, null, null, null, null, null, null),
  (4, 9223372036854775807L, float('infinity'), double('-infinity'), cast(9999999.99 as decimal(9, 2)), '', true,
   date '1969-12-31', timestamp '1969-12-31T23:59:59.999999Z'),
  (5, 0L, 0.1f, 0.1D, cast(0 as decimal(9, 2)), 'ünï', false, date '9999-12-31', timestamp '2024-07-01T12:00:00Z')
as t(i, l, f, d, n, s, b, day, ts)
"""


@pytest.mark.sample(8)
@pytest.mark.each_engine
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("d > 0.2", [1, 2]),
        ("d <= 0.5", [1, 4, 5]),
        ("not (d > 0.2)", [4, 5]),
        ("isnan(f) or f is null", [2, 3]),
        ("not isnan(f)", [1, 3, 4, 5]),
        ("s = 'it''s'", [2]),
        ("f = 0.1", [5]),
        ("f <> 0.1", [1, 2, 4]),
        ("l not in (1, 0)", [2, 4]),
        ("n between -1.5 and 1.5", [1, 2, 5]),
        ("s like 'it%' or s = ''", [2, 4]),
        ("s not like 'a%'", [2, 4, 5]),
        ("s like 'it%' or l = 1", [1, 2]),
        ("not (s like 'it%' and i = 2) or i = 3", [1, 3, 4, 5]),
        ("not b", [2, 5]),
        ("b is not true", [2, 3, 5]),
        ("day < '1970-01-01' or day = date '9999-12-31'", [4, 5]),
        ("ts > '2024-01-01T00:00:00Z'", [2, 5]),
        ("ts = timestamp '2024-01-01T09:00:00+09:00'", [1]),
    ],
)
def test_a_row_filter_keeps_the_same_rows_both_ways(read_lake: Lake, condition: str, expected: list[int]) -> None:
    """In one file, and in a file for each row, which metadata prunes, also by partitions of NULL."""
    for name, metadata in {"one": None, "each": {"iceberg/partition_by": ["s", "l", "day", "n"]}}.items():
        upstream = frame_asset(f"values_in_{name}", VALUES, metadata=metadata)
        read_lake.once(upstream)
        asked = {"iceberg/row_filter": condition, "columns": ["i"]}
        for annotation in (DataFrame, pa.Table):
            loaded = capture(read_lake, upstream, annotation, input_metadata=asked)
            assert (name, annotation, sorted(loaded.column("i").to_pylist())) == (name, annotation, expected)


NESTED = """
select * from values
  (1, named_struct('city', 'Oslo', 'at', named_struct('x.y', 0.5D, 'on', true)), 'a'),
  (2, named_struct('city', null, 'at', named_struct('x.y', double('nan'), 'on', false)), 'b'),
  (3, named_struct('city', 'Rome', 'at', null), 'c'),
  (4, null, 'd')
as t(i, place, `a.b`)
"""


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("place.city = 'Oslo'", [1]),
        ("place.city <> 'Oslo'", [3]),
        ("not (place.city = 'Oslo')", [3]),
        ("place.city is null", [2, 4]),
        ("PLACE.City like 'R%' or i = 2", [2, 3]),
        ("place.at.`x.y` > 0.4", [1, 2]),
        ("isnan(place.at.`x.y`)", [2]),
        ("not place.at.on", [2]),
        ("place.at.on is not true", [2, 3, 4]),
        ("`a.b` = 'd'", [4]),
    ],
)
@pytest.mark.full
def test_a_row_filter_looks_into_structs(read_lake: Lake, condition: str, expected: list[int]) -> None:
    """In one file, and in a file for each row: NULL is what a field of no struct is."""
    for name, metadata in {"one": None, "each": {"iceberg/partition_by": ["i"]}}.items():
        upstream = frame_asset(f"structs_in_{name}", NESTED, metadata=metadata)
        read_lake.once(upstream)
        for annotation in (DataFrame, pa.Table):
            loaded = capture(read_lake, upstream, annotation, input_metadata={"iceberg/row_filter": condition})
            assert (name, annotation, sorted(loaded.column("i").to_pylist())) == (name, annotation, expected)
            asked = {"iceberg/row_filter": condition, "columns": ["i"]}
            loaded = capture(read_lake, upstream, annotation, input_metadata=asked)
            assert (loaded.column_names, sorted(loaded.column("i").to_pylist())) == (["i"], expected)


@pytest.mark.sample(4)
@pytest.mark.full
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("s.x is null", [3]),
        ("s.x is not null", [1, 2]),
        ("s.y.z is null", [2, 3]),
        ("s.y.z is not null", [1]),
        ("s.x not in (1, 7)", [2]),
        ("s.y.z not like 'b%'", [1]),
        ("s.y.z = 'a' or s.y.z is null", [1, 2, 3]),
    ],
)
def test_a_field_that_may_not_be_null_is_so_where_its_struct_is(
    lake: Lake, condition: str, expected: list[int]
) -> None:
    lake.session.sql("create namespace if not exists lake.db")
    schema = "i int, s struct<x: int not null, y: struct<z: string not null>>"
    lake.session.sql(f"create table lake.db.t ({schema}) using iceberg")
    one = "(1, named_struct('x', 1, 'y', named_struct('z', 'a')))"
    rows = f"{one}, (2, named_struct('x', 2, 'y', null)), (3, null)"
    lake.session.sql(f"insert into lake.db.t select * from values {rows} as t(i, s)")
    upstream = frame_asset("t", "select 1")
    asked = {"iceberg/row_filter": condition}
    for annotation, columns in ((DataFrame, ["i"]), (pa.Table, ["i"]), (pa.Table, None), (pa.RecordBatchReader, None)):
        chosen = {} if columns is None else {"columns": columns}
        loaded = capture(lake, upstream, annotation, input_metadata={**asked, **chosen})
        assert (annotation, sorted(loaded.column("i").to_pylist())) == (annotation, expected)


@pytest.mark.full
@BOTH_WAYS
def test_a_row_filter_takes_the_names_that_fields_had_then(lake: Lake, annotation: Any) -> None:
    upstream = frame_asset("t", "select id, named_struct('a', id, 'b', -id) as s from range(5)")
    lake.materialize(upstream)
    then = lake.head("t").snapshot_id
    lake.session.sql("alter table lake.db.t rename column s.a to c")
    lake.session.sql("alter table lake.db.t rename column s.b to a")
    for condition, when in {"s.c = 3": {}, "s.a = -3": {}, "s.a = 3": {"iceberg/snapshot_id": then}}.items():
        loaded = capture(lake, upstream, annotation, input_metadata={"iceberg/row_filter": condition, **when})
        assert (condition, loaded.column("id").to_pylist()) == (condition, [3])


@ALL_WAYS
def test_every_type_takes_rows_columns_and_a_limit(read_lake: Lake, annotation: Any) -> None:
    upstream = frame_asset("thirty", "select id, id % 3 as m, 'x' as s from range(30)")
    read_lake.once(upstream)
    asked = {"iceberg/row_filter": "m = 1", "columns": ["m", "id"]}
    loaded = capture(read_lake, upstream, annotation, input_metadata=asked)
    names = ["id", "m"] if annotation is pyiceberg.table.DataScan else ["m", "id"]  # a scan keeps the table's order
    assert (loaded.column_names, sorted(loaded.column("id").to_pylist())) == (names, list(range(1, 30, 3)))
    for limit, rows in {0: 0, 4: 4, 100: 10}.items():
        limited = capture(read_lake, upstream, annotation, input_metadata={**asked, "iceberg/limit": limit})
        assert (limited.num_rows, set(limited.column("m").to_pylist())) == (rows, {1} if rows else set())


@pytest.mark.full
@BOTH_WAYS
def test_a_filter_and_a_limit_apply_within_many_windows(read_lake: Lake, annotation: Any) -> None:
    days = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-04-11", timezone="America/New_York")
    upstream = hours_asset(partitions_def=days, backfill_policy=SINGLE_RUN, value="hour(ts)")
    read_lake.once(upstream, first="2013-01-01", last="2013-04-10")
    mapping = dg.SpecificPartitionsPartitionMapping(days.get_partition_keys()[::2])
    asked = {"iceberg/row_filter": "v < 2"}
    assert capture(read_lake, upstream, annotation, partition_mapping=mapping, input_metadata=asked).num_rows == 100
    asked_less: dict[str, Any] = {**asked, "iceberg/limit": 30}
    assert capture(read_lake, upstream, annotation, partition_mapping=mapping, input_metadata=asked_less).num_rows == 30


@pytest.mark.full
def test_a_condition_that_is_none_is_refused_by_its_key(lake: Lake) -> None:
    lake.materialize(frame_asset("one", "select 1 as id"))

    @dg.asset(ins={"one": dg.AssetIn(metadata={"iceberg/row_filter": "ident = 1"})})
    def reader(one: pa.Table) -> None: ...

    error = lake.failure(reader, frame_asset("one", "select 1 as id").to_source_asset(), selection=[reader])
    assert (error.class_name, error.allow_retries) == ("MetadataKeyError", False)
    assert "Cannot use `iceberg/row_filter` of db.one: expected one of the columns id, found `ident`" in str(error)


@pytest.mark.full
def test_an_ibis_table_has_the_rows(lake: Lake) -> None:
    upstream = frame_asset("t", "select id, id % 2 as m from range(4)")
    lake.materialize(upstream)
    found = []

    @dg.asset
    def reader(t: ibis.Table) -> None:
        found.append(t.filter(t.m == 1).id.sum().to_pyarrow().as_py())

    lake.materialize(reader, upstream.to_source_asset(), selection=[reader])
    assert found == [4]


def test_an_input_without_annotation_is_what_the_io_manager_says(lake: Lake) -> None:
    upstream = frame_asset("one", "select 1 as id")
    lake.materialize(upstream)
    found = []

    @dg.asset(ins={"up": dg.AssetIn("one")})
    def reader(up):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - the point of the test
        found.append(type(up))

    lake.with_options(input_type="polars.LazyFrame").materialize(reader, upstream.to_source_asset(), selection=[reader])
    assert found == [pl.LazyFrame]


@pytest.mark.full
def test_columns_that_another_engine_has_added_have_their_initial_defaults(classic_lake: Lake) -> None:
    lake, java = classic_lake, cast("Any", classic_lake.session)
    rows = "select 1 as id, named_struct('a', 1) as s"
    lake.materialize(frame_asset("t", rows, metadata={"iceberg/format_version": 3}))
    iceberg = java._jvm.org.apache.iceberg
    types, literal = iceberg.types.Types, iceberg.expressions.Literal
    table = iceberg.spark.Spark3Util.loadIcebergTable(
        java._jsparkSession, f"{lake.spark.catalog_description.name}.db.t"
    )
    defaults: dict[str, tuple[Any, Any]] = {
        "text": (types.StringType.get(), "EU"),
        "number": (types.LongType.get(), 7),
        "yes": (types.BooleanType.get(), True),
        "day": (types.DateType.get(), "2024-02-29"),
        "at": (types.TimestampType.withZone(), "2024-02-29T12:00:00.000001+00:00"),
        "exact": (types.DecimalType.of(9, 2), "14.20"),
    }
    change = table.updateSchema()
    for column, (kind, value) in defaults.items():
        change = change.addColumn(column, kind, None, literal.of(value).to(kind))
    change.addColumn("s", "b", types.StringType.get(), None, literal.of("x")).commit()
    found: dict[str, Any] = {}

    @dg.asset
    def spark_reader(t: Any) -> None:
        found["spark"] = t.collect()[0].asDict(recursive=True)

    @dg.asset
    def arrow_reader(t: pa.Table) -> None:
        found["arrow"] = t.to_pylist()[0]

    @dg.asset(ins={"t": dg.AssetIn(metadata={"iceberg/row_filter": "text = 'EU' and number = 7"})})
    def filtered(t: Any) -> None:
        found["filtered"] = t.count()

    foreign = dg.AssetSpec("t", metadata={"dagster/io_manager_key": "iceberg"})
    lake.materialize(foreign, spark_reader, arrow_reader, filtered)
    by_spark, by_arrow = found["spark"], found["arrow"]
    assert found["filtered"] == 1, found
    assert by_spark["at"].astimezone(dt.timezone.utc) == by_arrow["at"]
    assert {**by_spark, "at": None} == {**by_arrow, "at": None}
    assert (by_spark["yes"], by_spark["exact"], by_spark["s"]) == (True, Decimal("14.20"), {"a": 1, "b": "x"})


class TestLazyFrames:
    """A polars LazyFrame reads what its query needs, of the snapshot that was the newest when it was loaded."""

    @pytest.fixture
    def parts(self) -> dg.AssetsDefinition:
        return frame_asset(
            "t",
            "select id % 4 as part, id, cast(id as double) as d, concat('s', id) as s, "
            "timestamp_seconds(id * 86400) as ts, if(id > 35, null, id) as maybe from range(40)",
            metadata={"iceberg/partition_by": ["part"]},
        )

    def query(self, lake: Lake, upstream: dg.AssetsDefinition, query: Any, **metadata: Any) -> pl.DataFrame:
        found: list[pl.DataFrame] = []

        @dg.asset(ins={"t": dg.AssetIn(metadata=metadata)})
        def reader(t: pl.LazyFrame) -> None:
            found.append(query(t))

        lake.materialize(reader, upstream.to_source_asset(), selection=[reader])
        return found[0]

    @pytest.mark.sample(4)
    @pytest.mark.parametrize(
        "keeps",
        [
            pl.col("part") == 1,
            pl.col("part").is_in([1]),
            (pl.col("part") == 1) & (pl.col("s") != "s1"),
            (pl.col("part") > 0) & (pl.col("part") < 2) & pl.col("s").str.ends_with("1"),
            pl.col("part").is_between(1, 1),
            ((pl.col("part") == 1) & (pl.col("id") > 3)) | ((pl.col("part") == 1) & pl.col("maybe").is_null()),
        ],
        ids=str,
    )
    def test_files_that_the_filter_leaves_out_are_not_opened(
        self, lake: Lake, parts: dg.AssetsDefinition, keeps: pl.Expr
    ) -> None:
        lake.materialize(parts)
        expected = lake.arrow("t")
        for task in lake.table("t").scan("part != 1").plan_files():
            Path(urlsplit(task.file.file_path).path).unlink()
        found = self.query(lake, parts, lambda t: t.filter(keeps).select("id").collect())
        everything = pl.DataFrame(pl.from_arrow(expected))
        assert sorted(found["id"]) == sorted(everything.filter(keeps)["id"])

    @pytest.mark.sample(9)
    @pytest.mark.parametrize(
        "keeps",
        [
            pl.col("d") > 12.5,
            pl.col("d") > 12,
            pl.col("id") > 12.5,
            pl.col("s").str.starts_with("s3"),
            pl.col("ts") >= dt.datetime(1970, 1, 20, tzinfo=UTC),
            pl.col("ts").dt.day() == 3,
            ~(pl.col("id") > 3),
            pl.col("maybe").is_null() | (pl.col("maybe") == 3),
            pl.col("maybe").is_not_null(),
            pl.col("id") == pl.col("part"),
            pl.col("id").is_in([1, 2, None]),
            pl.col("id").is_between(3, 6, closed="none"),
            pl.col("s").map_batches(lambda texts: texts == "s7", return_dtype=pl.Boolean),
            pl.lit(value=False),
        ],
        ids=str,
    )
    def test_whatever_the_filter_the_rows_are_those_of_polars(
        self, read_lake: Lake, parts: dg.AssetsDefinition, keeps: pl.Expr
    ) -> None:
        read_lake.once(parts)
        everything = pl.DataFrame(pl.from_arrow(read_lake.arrow("t")))
        found = self.query(read_lake, parts, lambda t: t.filter(keeps).select("id", "s").collect())
        assert found.sort("id").equals(everything.filter(keeps).select("id", "s").sort("id"))

    @pytest.mark.full
    def test_only_the_columns_of_the_query_are_read(
        self, read_lake: Lake, parts: dg.AssetsDefinition, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read_lake.once(parts)
        asked = []
        scan = pyiceberg.table.Table.scan

        def spy(self: pyiceberg.table.Table, **kwargs: Any) -> Any:
            asked.append(kwargs["selected_fields"])
            return scan(self, **kwargs)

        monkeypatch.setattr(pyiceberg.table.Table, "scan", spy)
        assert self.query(read_lake, parts, lambda t: t.filter(pl.col("id") > 37).select("s").collect()).height == 2
        assert sorted(asked[-1]) == ["id", "s"]

    @pytest.mark.full
    def test_rows_are_counted_and_limited(self, read_lake: Lake, parts: dg.AssetsDefinition) -> None:
        read_lake.once(parts)
        assert self.query(read_lake, parts, lambda t: t.select(pl.len()).collect()).item() == 40
        assert self.query(read_lake, parts, lambda t: t.head(3).collect()).height == 3
        assert self.query(read_lake, parts, lambda t: t.head(5).filter(pl.col("id") >= 0).collect()).height == 5
        asked = {"iceberg/limit": 5}
        assert self.query(read_lake, parts, lambda t: t.filter(pl.col("id") >= 0).collect(), **asked).height == 5

    @pytest.mark.full
    def test_it_stays_pinned_while_others_write(self, lake: Lake, parts: dg.AssetsDefinition) -> None:
        lake.materialize(parts)

        def query(t: pl.LazyFrame) -> pl.DataFrame:
            lake.table("t").delete("id >= 0")
            return t.collect()

        assert self.query(lake, parts, query).height == 40
        assert lake.arrow("t").num_rows == 0


class TestInstants:
    """When an input is read: the definition, the run's tags and its configuration may say it."""

    @pytest.fixture
    def ids(self, lake: Lake) -> list[int]:
        """The snapshots of a table that holds 1, then 2, then 3."""
        found = []
        for value in (1, 2, 3):
            lake.materialize(frame_asset("up", f"select {value} as id"))
            found.append(lake.head("up").snapshot_id)
        return found

    def value(self, lake: Lake, metadata: dict[str, Any] | None = None, **kwargs: Any) -> int:
        (found,) = self.values(lake, metadata, **kwargs)
        return found

    def values(self, lake: Lake, metadata: dict[str, Any] | None = None, **kwargs: Any) -> list[int]:
        found: list[int] = []

        @dg.asset(ins={"up": dg.AssetIn(metadata=metadata, input_manager_key="iceberg")})
        def reader(up: pa.Table) -> None:
            found.extend(up.column("id").to_pylist())

        lake.materialize(reader, frame_asset("up", "").to_source_asset(), selection=[reader], **kwargs)
        return sorted(found)

    @pytest.mark.full
    def test_the_run_s_tags_say_it_for_every_input(self, lake: Lake, ids: list[int]) -> None:
        second = lake.table("up").snapshot_by_id(ids[1])
        assert second is not None
        instant = dt.datetime.fromtimestamp(second.timestamp_ms / 1000, UTC).isoformat()
        lake.session.sql(f"alter table lake.db.up create tag audited as of version {ids[0]}")
        assert self.value(lake) == 3
        assert self.value(lake, tags={"iceberg/snapshot_id": str(ids[0])}) == 1
        assert self.value(lake, tags={"iceberg/as_of": instant}) == 2
        assert self.value(lake, tags={"iceberg/ref": "audited"}) == 1

    def test_an_instant_shows_what_main_showed_then(self, lake: Lake, ids: list[int]) -> None:
        """Staged rows count from their publication; rows that were rolled back are seen by who asks for then."""
        for statement in (
            "alter table lake.db.up create branch staged",
            "insert into lake.db.up.branch_staged values (4)",
            "call lake.system.fast_forward('db.up', 'main', 'staged')",
            f"call lake.system.rollback_to_snapshot('db.up', {ids[0]})",
        ):
            lake.session.sql(statement)
        log = [(item.timestamp_ms, item.snapshot_id) for item in lake.table("up").history()]
        assert [number for _, number in log[:3]] + [log[4][1]] == [*ids, ids[0]]
        published, rolled_back = (
            dt.datetime.fromtimestamp(log[place][0] / 1000, UTC) - dt.timedelta(milliseconds=1) for place in (3, 4)
        )
        assert self.value(lake, tags={"iceberg/as_of": published.isoformat()}) == 3
        assert self.values(lake, tags={"iceberg/as_of": rolled_back.isoformat()}) == [3, 4]
        assert self.value(lake) == 1

    @pytest.mark.full
    def test_the_run_s_configuration_says_it_for_one_input(self, lake: Lake, ids: list[int]) -> None:
        """Dagster takes it of inputs that name their IO manager by `input_manager_key`."""

        def config(**asked: Any) -> dict[str, Any]:
            return {"ops": {"reader": {"inputs": {"up": asked}}}}

        assert self.value(lake, run_config=config(snapshot_id=str(ids[1]))) == 2
        assert self.value(lake, run_config=config(snapshot_id=str(ids[1])), tags={"iceberg/ref": "main"}) == 2

    @pytest.mark.full
    @pytest.mark.parametrize("annotation", [DataFrame, pa.Table, pl.LazyFrame], ids=["spark", "arrow", "lazy"])
    def test_a_filter_is_of_the_columns_that_the_snapshot_had(self, lake: Lake, annotation: Any) -> None:
        upstream = frame_asset("t", "select id as a, id * 10 as b, 'x' as gone from range(8)")
        lake.materialize(upstream)
        asked = {"iceberg/snapshot_id": lake.head("t").snapshot_id, "columns": ["a"]}
        for change in ("drop column gone", "add column gone string", "rename column a to c", "rename column b to a"):
            lake.session.sql(f"alter table lake.db.t {change}")
        for condition, expected in {"a < 3": [0, 1, 2], "b >= 60": [6, 7], "gone = 'x' and a > 6": [7]}.items():
            metadata = {**asked, "iceberg/row_filter": condition}
            loaded = capture(lake, upstream, annotation, input_metadata=metadata)
            assert (condition, sorted(loaded.column("a").to_pylist())) == (condition, expected)

    @pytest.mark.full
    def test_what_the_run_says_comes_before_what_the_definition_says(self, lake: Lake, ids: list[int]) -> None:
        fixed = {"iceberg/snapshot_id": ids[0]}
        assert self.value(lake, fixed) == 1
        assert self.value(lake, fixed, tags={"iceberg/ref": "main"}) == 3


class TestRunsRepeated:
    """`iceberg/as_of_run`: the very snapshots that an earlier run has read."""

    def repeated(self, lake: Lake, kept: dg.DagsterInstance, run_id: str, **kwargs: Any) -> dg.ExecuteInProcessResult:
        return dg.materialize(
            [self.total, frame_asset("up", "").to_source_asset()],
            selection=[self.total],
            resources=lake.resources,
            instance=kept,
            tags={"iceberg/as_of_run": run_id},
            **kwargs,
        )

    @property
    def total(self) -> dg.AssetsDefinition:
        @dg.asset(io_manager_key="iceberg")
        def total(up: DataFrame) -> DataFrame:
            return up.groupBy().sum("id")

        return total

    def first(self, lake: Lake, kept: dg.DagsterInstance) -> str:
        """Make the total of 1, then let the upstream hold 2; return the run that saw 1."""
        up = frame_asset("up", "select 1 as id")
        run = dg.materialize([up, self.total], resources=lake.resources, instance=kept)
        dg.materialize([frame_asset("up", "select 2 as id")], resources=lake.resources, instance=kept)
        return run.run_id

    @pytest.mark.full
    def test_the_event_log_tells_what_was_read(self, lake: Lake, kept_instance: dg.DagsterInstance) -> None:
        run_id = self.first(lake, kept_instance)
        repeated = self.repeated(lake, kept_instance, run_id)
        assert lake.rows("total") == [1]
        again = self.repeated(lake, kept_instance, repeated.run_id)
        assert lake.rows("total") == [1]
        upstream = lake.summaries("total")[-1]["dagster.upstream"]
        assert upstream == lake.summaries("total")[0]["dagster.upstream"]
        assert again.success

    def test_the_lineage_of_the_table_tells_it_where_dagster_has_forgotten(
        self, lake: Lake, kept_instance: dg.DagsterInstance
    ) -> None:
        run_id = self.first(lake, kept_instance)
        kept_instance.delete_run(run_id)
        self.repeated(lake, kept_instance, run_id)
        assert lake.rows("total") == [1]

    @pytest.mark.full
    def test_a_run_that_has_read_nothing_is_repeated_with_nothing(
        self, lake: Lake, kept_instance: dg.DagsterInstance
    ) -> None:
        lake.session.sql("create namespace lake.db")
        lake.session.sql("create table lake.db.up (id int) using iceberg")
        run = dg.materialize(
            [self.total, frame_asset("up", "").to_source_asset()],
            selection=[self.total],
            resources=lake.resources,
            instance=kept_instance,
        )
        dg.materialize([frame_asset("up", "select 2 as id")], resources=lake.resources, instance=kept_instance)
        self.repeated(lake, kept_instance, run.run_id)
        assert lake.rows("total") == [None]
        found = []

        @dg.asset(name="total")
        def counted(up: pa.Table) -> None:
            found.append(up.num_rows)

        dg.materialize(
            [counted, frame_asset("up", "").to_source_asset()],
            selection=[counted],
            resources=lake.resources,
            instance=kept_instance,
            tags={"iceberg/as_of_run": run.run_id},
        )
        assert found == [0]


class TestPartitionsOneByOne:
    """`dict[str, T]` by partition key, and `Optional[T]` for what nobody has written."""

    def load(self, lake: Lake, annotation: Any, days: list[str], **metadata: Any) -> Any:
        found: list[Any] = []

        def body(hours: Any) -> None:
            if isinstance(hours, dict):
                found.append({key: None if each is None else as_arrow(each).num_rows for key, each in hours.items()})
            else:
                found.append(None if hours is None else as_arrow(hours).num_rows)

        body.__annotations__["hours"] = annotation
        mapping = dg.SpecificPartitionsPartitionMapping(days)
        reader = dg.asset(name="reader", ins={"hours": dg.AssetIn(metadata=metadata, partition_mapping=mapping)})(body)
        upstream = hours_asset(partitions_def=DAYS, backfill_policy=SINGLE_RUN)
        lake.materialize(reader, upstream.to_source_asset(), selection=[reader])
        return found[0]

    @pytest.fixture
    def written(self, lake: Lake) -> None:
        upstream = hours_asset(partitions_def=DAYS, backfill_policy=SINGLE_RUN)
        lake.materialize_range(upstream, first="2013-01-01", last="2013-01-02")

    @pytest.mark.usefixtures("written")
    @pytest.mark.parametrize("of_partition", [DataFrame, pa.Table, pl.LazyFrame], ids=["spark", "arrow", "lazy"])
    def test_each_partition_has_its_rows(self, lake: Lake, of_partition: Any) -> None:
        loaded = self.load(lake, dict[str, of_partition], ["2013-01-01", "2013-01-02"])
        assert loaded == {"2013-01-01": 24, "2013-01-02": 24}

    @pytest.mark.full
    @pytest.mark.usefixtures("written")
    @BOTH_WAYS
    def test_a_partition_that_nobody_has_written(self, lake: Lake, annotation: Any) -> None:
        days = ["2013-01-02", "2013-01-03"]
        assert self.load(lake, dict[str, annotation | None], days) == {"2013-01-02": 24, "2013-01-03": None}
        empty = {"iceberg/missing": "empty"}
        assert self.load(lake, dict[str, annotation], days, **empty) == {"2013-01-02": 24, "2013-01-03": 0}
        assert self.load(lake, annotation, days, **empty) == 24
        assert self.load(lake, Optional[annotation], days[:1]) == 24  # noqa: UP045 - the older way to write it
        assert self.load(lake, annotation | None, days[1:]) is None
        with pytest.raises(dg.Failure, match="a materialization of the partitions 2013-01-03"):
            self.load(lake, annotation | None, days)

    @pytest.mark.full
    @pytest.mark.usefixtures("written")
    def test_it_is_refused_where_nothing_is_not_asked_for(self, lake: Lake) -> None:
        with pytest.raises(dg.Failure, match="a materialization of the partitions 2013-01-03 of hours") as caught:
            self.load(lake, pa.Table, ["2013-01-02", "2013-01-03"])
        assert '{"iceberg/missing": "empty"}' in str(caught.value)

    @pytest.mark.full
    @BOTH_WAYS
    def test_a_partition_that_was_written_without_rows_is_there(self, lake: Lake, annotation: Any) -> None:
        query = "select timestamp '2013-01-01' as ts, 1 as v where false"
        upstream = frame_asset("hours", query, partitions_def=DAYS, metadata={"partition_expr": "ts"})
        lake.materialize(upstream, partition_key="2013-01-03")
        assert self.load(lake, annotation, ["2013-01-03"]) == 0

    @pytest.mark.full
    @BOTH_WAYS
    def test_a_partition_that_others_have_written_is_there(self, lake: Lake, annotation: Any) -> None:
        hours = hours_asset(partitions_def=DAYS)
        lake.materialize(hours, partition_key="2013-01-01")
        lake.session.sql("insert into lake.db.hours values (timestamp '2013-01-05 12:00:00Z', 2)")
        assert self.load(lake, annotation, ["2013-01-01", "2013-01-05"]) == 25

    def test_a_run_of_several_days_reads_the_day_before_each(self, lake: Lake) -> None:
        """What the run itself is about to write is not missing."""
        mapping = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
        counts = []

        def body(context: dg.AssetExecutionContext, running: pa.Table) -> Any:
            counts.append(running.num_rows)
            return pa.table({"day": [dt.date.fromisoformat(key) for key in context.partition_keys]})

        running = dg.asset(
            name="running",
            io_manager_key="iceberg",
            partitions_def=DAYS,
            backfill_policy=SINGLE_RUN,
            metadata={"partition_expr": "day"},
            ins={"running": dg.AssetIn("running", partition_mapping=mapping)},
        )(body)
        lake.materialize(running, partition_key="2013-01-01")
        lake.materialize_range(running, first="2013-01-02", last="2013-01-04")
        assert counts == [0, 1]
        assert lake.arrow("running").num_rows == 4

    @pytest.mark.full
    def test_what_there_was_before_a_partition_was_written(self, lake: Lake) -> None:
        """Of another time it is not said that anything is missing."""
        hours = hours_asset(partitions_def=DAYS)
        lake.materialize(hours, partition_key="2013-01-01")
        before = {"iceberg/snapshot_id": lake.head("hours").snapshot_id}
        assert self.load(lake, pa.Table, ["2013-01-02"], **before) == 0

    @pytest.mark.full
    @BOTH_WAYS
    def test_a_table_that_nobody_has_written(self, lake: Lake, annotation: Any) -> None:
        days = ["2013-01-01"]
        empty = {"iceberg/missing": "empty"}
        assert self.load(lake, annotation, days, **empty) == 0
        assert self.load(lake, annotation | None, days) is None
        assert self.load(lake, dict[str, annotation], days, **empty) == {"2013-01-01": 0}
        assert self.load(lake, dict[str, annotation | None], days) == {"2013-01-01": None}
        assert self.load(lake, dict[str, annotation] | None, days) is None
        with pytest.raises(dg.Failure, match="the table of hours in the"):
            self.load(lake, dict[str, annotation], days)

    @pytest.mark.full
    @BOTH_WAYS
    def test_none_stands_for_what_is_not_asked_for_or_not_there_yet(self, lake: Lake, annotation: Any) -> None:
        hours = hours_asset(partitions_def=DAYS)
        lake.materialize(hours, partition_key="2013-01-01")
        assert self.load(lake, annotation | None, []) is None
        assert self.load(lake, annotation, []) == 0
        lake.session.sql("create or replace table lake.db.hours (ts timestamp, v int) using iceberg")
        assert self.load(lake, annotation | None, ["2013-01-01"]) is None


@pytest.mark.full
def test_files_are_read_when_their_batches_are_asked_for(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that is slower than the disk does not have the table in memory; small files come side by side."""
    upstream = frame_asset("t", "select id from range(8)", metadata={"iceberg/partition_by": ["id"]})
    lake.materialize(upstream)
    paths = [Path(urlsplit(task.file.file_path).path) for task in lake.table("t").scan().plan_files()]

    @dg.asset
    def reader(t: pa.RecordBatchReader) -> None:
        assert t.read_next_batch().num_rows == 1
        for path in paths[4:]:
            path.unlink()
        assert t.read_next_batch().num_rows == 1
        t.read_all()

    monkeypatch.setattr(scan, "READ_AHEAD_BYTES", 0)
    result = lake.materialize(reader, upstream.to_source_asset(), selection=[reader], raise_on_error=False)
    assert "FileNotFoundError" in str(next(event for event in result.all_events if event.is_step_failure))


def test_what_was_read_is_in_the_run_s_log(lake: Lake) -> None:
    up = frame_asset("up", "select 1 as id")

    @dg.asset
    def reader(up: pa.Table) -> None: ...

    result = lake.materialize(up, reader)
    snapshot_id = metadata_of(result, "up")["iceberg/snapshot_id"]
    messages = [entry.message for entry in lake.instance.all_logs(result.run_id)]
    assert any(f"Reading db.up at snapshot {snapshot_id}." in message for message in messages)


def test_every_type_of_the_io_manager_s_configuration_is_one_that_loads() -> None:
    from typing import get_args

    from dagster_iceberg_spark.arrow.reader import INPUT_TYPES

    known = {"pyspark.sql.DataFrame", *(item.path for item in INPUT_TYPES)}
    assert set(get_args(IcebergPySparkIOManager.model_fields["input_type"].annotation)) == known


def test_a_file_is_where_its_uri_says(lake: Lake) -> None:
    """What the tests here remove from disk is what they mean."""
    lake.materialize(frame_asset("one", "select 1 as id"))
    (task,) = lake.table("one").scan().plan_files()
    assert Path(urlsplit(task.file.file_path).path).is_file()


@pytest.mark.full
def test_files_that_pyarrow_does_not_read_are_refused_by_their_format(classic_lake: Lake) -> None:
    stored = frame_asset("t", "select 1 as id", metadata={"iceberg/table_properties": {"write.format.default": "avro"}})
    classic_lake.materialize(stored)

    @dg.asset
    def reader(t: pa.Table) -> None: ...

    error = classic_lake.failure(reader, stored.to_source_asset(), selection=[reader])
    assert error.class_name == "ConfigurationError"
    assert "found that its data files are in the format Avro, which pyarrow does not read" in str(error)


@pytest.mark.full
def test_both_zeros_are_compared_alike_in_partitions_of_a_double(classic_lake: Lake) -> None:
    """Iceberg's order has -0.0 below 0.0, and a partition's value decides without a look at the rows."""
    query = (
        "select n, cast(f as double) as f from values (1, '-0.0'), (2, '0.0'), (3, '-1'), (4, '1'), (5, 'NaN') t(n, f)"
    )
    stored = frame_asset("t", query, metadata={"iceberg/partition_by": ["f"]})
    classic_lake.materialize(stored)
    expected = {
        "f < 0.0": [3],
        "f <= 0.0": [1, 2, 3],
        "f > 0.0": [4, 5],
        "f >= 0.0": [1, 2, 4, 5],
        "f = 0.0": [1, 2],
        "f <> 0.0": [3, 4, 5],
        "NOT (f >= 0.0)": [3],
        "NOT (f < 0.0)": [1, 2, 4, 5],
    }
    for annotation in (DataFrame, pa.Table):
        found = {
            condition: sorted(
                capture(classic_lake, stored, annotation, input_metadata={"iceberg/row_filter": condition})[
                    "n"
                ].to_pylist()
            )
            for condition in expected
        }
        assert found == expected, annotation

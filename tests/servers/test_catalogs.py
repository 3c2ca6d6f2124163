"""One behaviour, whichever catalog keeps the tables."""

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import IntegerType, NestedField, TimestamptzType
from pyspark.sql import DataFrame
from sqlalchemy import text

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog
from dagster_iceberg_spark.resource import SESSIONS
from tests.lakes import SPARK_CONF, Lake, frame_asset, hours_asset, metadata_of, open_lake
from tests.servers.postgresql import PostgreSqlServer

UTC = dt.timezone.utc
DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")
DAY = {"partition_expr": "ts"}
APPEND = {"iceberg/write_disposition": "append"}
MERGE = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}
ARROW_HOURS = pa.schema([("ts", pa.timestamp("us", "UTC")), ("v", pa.int32())])
ICEBERG_HOURS = Schema(NestedField(1, "ts", TimestamptzType()), NestedField(2, "v", IntegerType()))
BY_DAY = PartitionSpec(PartitionField(1, 1000, DayTransform(), "ts_day"))
TABLES_WITHOUT_VIEWS = """
create table iceberg_tables (
    catalog_name varchar(255), table_namespace varchar(255), table_name varchar(255),
    metadata_location varchar(1000), previous_metadata_location varchar(1000),
    primary key (catalog_name, table_namespace, table_name)
);
create table iceberg_namespace_properties (
    catalog_name varchar(255), namespace varchar(255), property_key varchar(255), property_value varchar(1000),
    primary key (catalog_name, namespace, property_key)
)
"""

pytestmark = [pytest.mark.server, pytest.mark.spark]


def hours(day: int, value: int) -> pa.Table:
    """Two rows of a day of January 2013, as pyiceberg writes them."""
    times = [dt.datetime(2013, 1, day, hour, tzinfo=UTC) for hour in (0, 23)]
    return pa.table({"ts": times, "v": [value, value]}, schema=ARROW_HOURS)


def loaded(lake: Lake, upstream: dg.AssetsDefinition, annotation: Any) -> Any:
    """What an asset gets whose input is annotated like that, unpartitioned."""
    seen: list[Any] = []

    def body(up: Any) -> None:
        seen.append(up.toArrow() if isinstance(up, DataFrame) or hasattr(up, "toArrow") else up)

    body.__annotations__["up"] = annotation
    reader = dg.asset(name="reader", ins={"up": dg.AssetIn(upstream.key)})(body)
    lake.materialize(reader, upstream.to_source_asset(), selection=[reader])
    return seen[0]


@pytest.mark.sample(4)
def test_each_engine_reads_what_the_other_wrote(lake: Lake) -> None:
    asset = hours_asset(partitions_def=DAYS)
    lake.materialize(asset, partition_key="2013-01-01")
    lake.table("hours").append(hours(2, 7))
    for annotation in (DataFrame, pa.Table):
        values = loaded(lake, asset, annotation).column("v").to_pylist()
        assert sorted(values) == [1] * 24 + [7] * 2
    lake.materialize(hours_asset(value="2", partitions_def=DAYS), partition_key="2013-01-01")
    assert lake.rows("hours", "v") == [2] * 24 + [7] * 2


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("disposition", "values"), [("replace", [2] * 24 + [7] * 2), ("append", [2] * 24 + [5] * 2 + [7] * 2)]
)
def test_a_table_that_pyiceberg_made_is_written(classic_lake: Lake, disposition: str, values: list[int]) -> None:
    lake = classic_lake
    lake.spark.pyiceberg_catalog.create_namespace_if_not_exists("db")
    table = lake.spark.pyiceberg_catalog.create_table(("db", "hours"), ICEBERG_HOURS, partition_spec=BY_DAY)
    table.append(pa.concat_tables([hours(1, 5), hours(2, 7)]))
    metadata = {**DAY, "iceberg/write_disposition": disposition}
    lake.materialize(hours_asset(value="2", partitions_def=DAYS, metadata=metadata), partition_key="2013-01-01")
    assert lake.rows("hours", "v") == sorted(values)


@pytest.mark.sample(1)
def test_pyiceberg_reads_the_table_as_it_was_before_each_run(classic_lake: Lake) -> None:
    for value in ("1", "2", "3"):
        classic_lake.materialize(frame_asset("t", f"select {value} as v"))
    snapshots = sorted(classic_lake.table("t").snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)
    values = [classic_lake.arrow("t", snapshot_id=item.snapshot_id).column("v").to_pylist() for item in snapshots]
    assert values == [[1], [2], [3]]


@pytest.mark.sample(4)
@pytest.mark.parametrize("disposition", ["replace", "append", "merge"])
def test_every_disposition_carries_the_lineage(classic_lake: Lake, disposition: str) -> None:
    metadata = {**DAY, "iceberg/write_disposition": disposition, "iceberg/merge_keys": ["id"]}
    asset = frame_asset("t", "select {start} as ts, 1 as id", partitions_def=DAYS, metadata=metadata)
    result = classic_lake.materialize(asset, partition_key="2013-01-02")
    summary = classic_lake.summaries("t")[-1]
    assert summary["dagster.run_id"] == result.run_id
    assert summary["dagster.asset_key"] == "t"
    assert summary["dagster.partition_keys"] == "2013-01-02"
    assert summary["dagster.write_disposition"] == disposition
    assert "dagster.commit_token" in summary


@pytest.mark.sample(1)
def test_a_range_of_partitions_is_one_snapshot(classic_lake: Lake) -> None:
    asset = hours_asset(partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
    result = classic_lake.materialize_range(asset, first="2013-01-03", last="2013-01-05")
    assert len(classic_lake.rows("hours")) == 3 * 24
    assert len(classic_lake.summaries("hours")) == 1
    assert {materialization.partition for materialization in result.asset_materializations_for_node("hours")} == {
        "2013-01-03",
        "2013-01-04",
        "2013-01-05",
    }


@pytest.mark.sample(4)
def test_what_is_reported_is_what_the_catalog_says(lake: Lake) -> None:
    result = lake.materialize(frame_asset("t", "select 1 as id"))
    reported, table = metadata_of(result, "t"), lake.table("t")
    assert reported["iceberg/snapshot_id"] == str(table.metadata.current_snapshot_id)
    assert reported["dagster/uri"] == table.location()
    assert reported["dagster/row_count"] == 1


@pytest.mark.sample(4)
@pytest.mark.parametrize("annotation", [pd.DataFrame, pl.DataFrame, pa.Table], ids=["pandas", "polars", "pyarrow"])
def test_an_input_loads_without_a_session(classic_lake: Lake, annotation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = frame_asset("t", "select 1 as id, 'a' as n")
    classic_lake.materialize(upstream)
    monkeypatch.setattr(SESSIONS, "acquire", lambda *_: pytest.fail("a session was asked for"))
    frame = loaded(another(classic_lake), upstream, annotation)
    assert isinstance(frame, annotation)
    assert (list(frame["id"]), list(frame["n"])) == ([1], ["a"]) or frame.to_pydict() == {"id": [1], "n": ["a"]}


@pytest.mark.sample(4)
@pytest.mark.parametrize("disposition", ["replace", "append", "merge"])
def test_the_first_partitions_of_a_table_race_and_none_is_lost(classic_lake: Lake, disposition: str) -> None:
    """Four sessions, each with connections of its own, as four runs would have."""
    metadata = {**DAY, "iceberg/write_disposition": disposition, "iceberg/merge_keys": ["id"]}
    query = "select {start} as ts, id from range(3)"
    lakes = [another(classic_lake, **{"spark.sql.shuffle.partitions": str(number)}) for number in range(3, 7)]
    days = [f"2013-01-0{number}" for number in range(1, 5)]

    def write(lake: Lake, day: str) -> bool:
        asset = frame_asset("t", query, partitions_def=DAYS, metadata=metadata)
        with dg.DagsterInstance.ephemeral() as instance:
            lake.instance = instance
            return lake.materialize(asset, partition_key=day).success

    with ThreadPoolExecutor(len(lakes)) as pool:
        assert all(pool.map(write, lakes, days))
    written = [(dt.datetime(2013, 1, day, tzinfo=UTC), number) for day in range(1, 5) for number in range(3)]
    assert classic_lake.rows("t", "ts", "id") == written
    assert sorted(summary["dagster.partition_keys"] for summary in classic_lake.summaries("t")) == days


def test_a_new_sql_catalog_is_opened_while_another_process_brings_its_tables_up_to_date(
    postgresql: PostgreSqlServer, tmp_path: Path
) -> None:
    """Iceberg makes the tables without views, then adds their column, and looks whether it is there before."""
    postgresql.create_database("new")
    engine = postgresql.engine("new")
    watcher = engine.execution_options(isolation_level="AUTOCOMMIT")  # a transaction sees one state of the server
    catalog = SqlCatalog(uri=postgresql.uri(database="new"), warehouse=str(tmp_path / "wh"))
    waiting = text("select count(*) from pg_stat_activity where datname = 'new' and wait_event_type = 'Lock'")
    with contextmanager(open_lake)(catalog, tmp_path, None) as lake:
        with ThreadPoolExecutor(1) as pool, watcher.connect() as watching, engine.connect() as other:
            other.execute(text(TABLES_WITHOUT_VIEWS))
            other.commit()
            other.execute(text("alter table iceberg_tables add column iceberg_type varchar(5)"))
            opened = pool.submit(lambda: lake.session)
            while watching.execute(waiting).scalar() == 0:
                assert not opened.done(), opened.result()
            other.commit()
            opened.result()
        lake.materialize(frame_asset("t", "select 1 as id"))
        assert lake.rows("t", "id") == [1]


def another(lake: Lake, **spark_config: str) -> Lake:
    """A lake on the same catalog with resources of its own."""
    spark = IcebergSparkResource(catalog=lake.spark.catalog, spark_config={**SPARK_CONF, **spark_config})
    return Lake(spark, IcebergPySparkIOManager(spark=spark, namespace="db"), lake.instance, lake.directory)


@pytest.mark.sample(1)
def test_a_column_that_pyiceberg_has_no_type_for_leaves_the_others_readable(classic_lake: Lake) -> None:
    classic_lake.materialize(frame_asset("first", "select 1 as id"))
    create = "create table lake.db.t (id int, v variant) using iceberg tblproperties ('format-version'='3')"
    if classic_lake.spark.catalog.kind == "hive":  # which has no such type itself
        with pytest.raises(Py4JJavaError, match="Invalid Hive object"):
            classic_lake.session.sql(create)
        return
    classic_lake.session.sql(create)
    classic_lake.session.sql("insert into lake.db.t select 1, parse_json('{}')")
    upstream = frame_asset(
        "t", "select 2 as id, parse_json('[2]') as v", metadata={"iceberg/write_disposition": "append"}
    )
    classic_lake.materialize(upstream)
    read: list[int] = []

    @dg.asset(ins={"t": dg.AssetIn(metadata={"columns": ["id"]})})
    def arrow_table(t: pa.Table) -> None:
        read.extend(sorted(t.column("id").to_pylist()))

    classic_lake.materialize(arrow_table, upstream.to_source_asset(), selection=[arrow_table])
    assert read == [1, 2]

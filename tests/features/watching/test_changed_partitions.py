"""The sensor that requests the partitions of an asset whose upstream rows have changed.

docs/watching.md: Only the partitions that have changed
"""

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog as PyIcebergSqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.types import DateType, LongType, NestedField, StringType, TimestamptzType

from dagster_iceberg_spark import (
    ConfigurationError,
    IcebergPySparkIOManager,
    IcebergSparkResource,
    SqlCatalog,
    build_changed_partitions_sensor,
    foreign_table,
)

SCHEMA = Schema(NestedField(1, "ts", TimestamptzType()), NestedField(2, "id", LongType()))
DAILY = PartitionSpec(PartitionField(1, 1000, DayTransform(), "ts_day"))
DAYS = dg.DailyPartitionsDefinition("2013-11-01", end_date="2013-12-01")
MONTHS = dg.MonthlyPartitionsDefinition("2013-10-01", end_date="2014-01-01")
FOREIGN = foreign_table("sensors", table="raw.sensors", partition_expr="ts")


@dg.asset(io_manager_key="iceberg", partitions_def=DAYS, metadata={"partition_expr": "ts"})
def means(sensors: pa.Table) -> None: ...


@pytest.fixture
def catalog(tmp_path: Path) -> PyIcebergSqlCatalog:
    catalog = PyIcebergSqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    catalog.create_namespace("raw")
    return catalog


@pytest.fixture
def table(catalog: PyIcebergSqlCatalog) -> Table:
    return catalog.create_table(("raw", "sensors"), SCHEMA, partition_spec=DAILY)


class Watch:
    """A sensor with its code location and its cursor."""

    def __init__(self, directory: Path, instance: dg.DagsterInstance, asset: Any, *upstream: Any) -> None:
        catalog = SqlCatalog(uri=f"sqlite:///{directory}/c.db", warehouse=str(directory / "wh"))
        self.io_manager = IcebergPySparkIOManager(spark=IcebergSparkResource(catalog=catalog), namespace="raw")
        self.sensor = build_changed_partitions_sensor(asset)
        resources = {"iceberg": self.io_manager}
        self.definitions = dg.Definitions([asset, *upstream], resources=resources, sensors=[self.sensor])
        self.instance = instance
        self.cursor: str | None = None

    def tick(self) -> list[str]:
        resources = {"iceberg": self.io_manager}
        with dg.build_sensor_context(
            self.instance, cursor=self.cursor, definitions=self.definitions, resources=resources
        ) as context:
            result = self.sensor.evaluate_tick(context)
        self.cursor = result.cursor
        assert len({request.run_key for request in result.run_requests or ()}) == len(result.run_requests or ())
        return [str(request.partition_key) for request in result.run_requests or ()]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def watch(tmp_path: Path, instance: dg.DagsterInstance) -> Watch:
    return Watch(tmp_path, instance, means, FOREIGN)


def rows(*days: int) -> pa.Table:
    """Return a row on each of these days of November."""
    at = [dt.datetime(2013, 11, day, 12, tzinfo=dt.timezone.utc) for day in days]
    return pa.table({"ts": pa.array(at, pa.timestamp("us", "UTC")), "id": pa.array(days, pa.int64())})


def made(catalog: PyIcebergSqlCatalog, keys: str, snapshot_id: int) -> None:
    """Let the asset have materialized partitions from a snapshot of its input."""
    table = catalog.create_table_if_not_exists(("raw", "means"), SCHEMA)
    upstream = [{"asset": "sensors", "table": "raw.sensors", "snapshot_id": snapshot_id, "scope": keys}]
    lineage = {"asset_key": "means", "partition_keys": keys, "upstream": json.dumps(upstream), "commit_token": "t"}
    table.append(rows(1), snapshot_properties={f"dagster.{key}": value for key, value in lineage.items()})


def head(table: Table) -> int:
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def test_the_partitions_of_new_and_of_late_rows_are_requested_once(table: Table, watch: Watch) -> None:
    table.append(rows(1, 2))
    assert watch.tick() == [], "the first look only remembers"
    table.append(rows(5))
    table.append(rows(2))
    assert watch.tick() == ["2013-11-02", "2013-11-05"]
    assert watch.tick() == []
    table.delete("ts < '2013-11-02T00:00:00+00:00'")
    assert watch.tick() == ["2013-11-01"], "rows that have gone are a change, too"


def test_the_end_of_a_retention_requests_nothing(table: Table, watch: Watch) -> None:
    """What was derived from the rows stays, although they are gone."""
    table.append(rows(1, 2))
    watch.tick()
    ended = {"dagster.write_disposition": "retention", "dagster.commit_token": "t"}
    table.delete("ts < '2013-11-02T00:00:00+00:00'", snapshot_properties=ended)
    assert watch.tick() == []


def test_the_first_rows_of_a_table_that_did_not_exist_are_requested(catalog: PyIcebergSqlCatalog, watch: Watch) -> None:
    assert watch.tick() == []
    made = catalog.create_table(("raw", "sensors"), SCHEMA, partition_spec=DAILY)
    assert watch.tick() == []
    made.append(rows(1, 2))
    assert watch.tick() == ["2013-11-01", "2013-11-02"]


def test_what_a_partition_was_made_from_already_is_not_requested(
    catalog: PyIcebergSqlCatalog, table: Table, watch: Watch
) -> None:
    table.append(rows(1))
    watch.tick()
    table.append(rows(3))
    made(catalog, "2013-11-03", head(table))
    table.append(rows(3, 4))
    made(catalog, '["2013-11-04", "2013-11-06"]', head(table))
    assert watch.tick() == ["2013-11-03"], "the asset has read only the first of the two"


def test_the_package_s_own_snapshots_are_changes_and_compaction_is_not(table: Table, watch: Watch) -> None:
    table.append(rows(1))
    watch.tick()
    table.append(rows(7), snapshot_properties={"dagster.commit_token": "t", "dagster.asset_key": "sensors"})
    assert watch.tick() == ["2013-11-07"]


def test_a_partition_mapping_leads_from_the_upstream_partitions(
    table: Table, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    @dg.asset(
        io_manager_key="iceberg",
        partitions_def=DAYS,
        metadata={"partition_expr": "ts"},
        ins={"sensors": dg.AssetIn(partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=0))},
    )
    def with_the_day_before(sensors: pa.Table) -> None: ...

    @dg.asset(io_manager_key="iceberg", partitions_def=MONTHS, metadata={"partition_expr": "ts"})
    def by_month(sensors: pa.Table) -> None: ...

    upstream = foreign_table("sensors", table="raw.sensors", partitions_def=DAYS, partition_expr="ts")
    both = [Watch(tmp_path, instance, asset, upstream) for asset in (with_the_day_before, by_month)]
    table.append(rows(1))
    assert [watch.tick() for watch in both] == [[], []]
    table.append(rows(3))
    assert [watch.tick() for watch in both] == [["2013-11-03", "2013-11-04"], ["2013-11-01"]]


def test_rows_outside_of_every_partition_hide_no_other_row(
    catalog: PyIcebergSqlCatalog, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """Dates at the ends of the calendar and NULL are in no partition. The other rows of their snapshot are."""
    watch = Watch(tmp_path, instance, means, FOREIGN)
    table = catalog.create_table(("raw", "sensors"), Schema(NestedField(1, "ts", DateType())))
    table.append(pa.table({"ts": [dt.date(2013, 11, 1)]}))
    watch.tick()
    for days in ([dt.date.min], [dt.date.max], [None, None], [dt.date(2013, 11, 3)], [dt.date(2013, 11, 5), None]):
        table.append(pa.table({"ts": pa.array(days, pa.date32())}))
    assert watch.tick() == ["2013-11-03", "2013-11-05"]


def test_days_in_texts_are_told(catalog: PyIcebergSqlCatalog, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    watch = Watch(tmp_path, instance, means, FOREIGN)
    table = catalog.create_table(("raw", "sensors"), Schema(NestedField(1, "ts", StringType())))
    table.append(pa.table({"ts": ["2013-11-01"]}))
    watch.tick()
    table.append(pa.table({"ts": ["2013-11-07", "2013-11-08"]}))
    assert watch.tick() == ["2013-11-07", "2013-11-08"]


@pytest.mark.filterwarnings("ignore:Non-compliant tag keys:DeprecationWarning")  # Dagster's own tags
def test_few_of_many_combinations_are_told(
    catalog: PyIcebergSqlCatalog, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    days = dg.DailyPartitionsDefinition("2000-01-01", end_date="2013-12-01")
    both = dg.MultiPartitionsDefinition({"day": days, "region": dg.StaticPartitionsDefinition(["eu", "us"])})
    assert both.get_num_partitions() > 2 * 5_000
    columns = {"day": "ts", "region": "r"}

    @dg.asset(io_manager_key="iceberg", partitions_def=both, metadata={"partition_expr": columns})
    def regional(sensors: pa.Table) -> None: ...

    upstream = foreign_table("sensors", table="raw.sensors", partitions_def=both, partition_expr=columns)
    watch = Watch(tmp_path, instance, regional, upstream)
    table = catalog.create_table(
        ("raw", "sensors"), Schema(NestedField(1, "ts", DateType()), NestedField(2, "r", StringType()))
    )
    table.append(pa.table({"ts": [dt.date(2013, 11, 1)], "r": ["eu"]}))
    watch.tick()
    table.append(pa.table({"ts": [dt.date(2013, 11, 2)], "r": ["us"]}))
    assert watch.tick() == ["2013-11-02|us"]


def test_a_rollback_requests_nothing(table: Table, watch: Watch) -> None:
    for day in (1, 2):
        table.append(rows(day))
    watch.tick()
    table.manage_snapshots().set_current_snapshot(table.history()[0].snapshot_id).commit()
    assert watch.tick() == []
    table.append(rows(3))
    assert watch.tick() == ["2013-11-03"]


def test_an_asset_without_partitions_is_refused() -> None:
    @dg.asset(io_manager_key="iceberg")
    def whole(sensors: pa.Table) -> None: ...

    with pytest.raises(ConfigurationError, match="Cannot watch the inputs of whole: expected an asset with partitions"):
        build_changed_partitions_sensor(whole)

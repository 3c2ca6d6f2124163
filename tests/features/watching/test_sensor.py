"""The sensor that records when others have written tables.

docs/watching.md: What is recorded
"""

import datetime as dt
import json
import sqlite3
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
from pyiceberg.types import LongType, NestedField, TimestamptzType

from dagster_iceberg_spark import (
    ConfigurationError,
    IcebergSparkResource,
    MetadataKeyError,
    SqlCatalog,
    build_table_sensor,
    foreign_table,
)
from dagster_iceberg_spark.catalog import look

SCHEMA = Schema(NestedField(1, "ts", TimestamptzType()), NestedField(2, "id", LongType()))
DAILY = PartitionSpec(PartitionField(1, 1000, DayTransform(), "ts_day"))
DAYS = dg.DailyPartitionsDefinition("2013-11-01", end_date="2013-12-01", timezone="Europe/Berlin")
SENSORS = foreign_table("sensors", table="raw.sensors")
BY_DAY = foreign_table("sensors", table="raw.sensors", partitions_def=DAYS, partition_expr="ts")


@pytest.fixture
def catalog(tmp_path: Path) -> PyIcebergSqlCatalog:
    catalog = PyIcebergSqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    catalog.create_namespace("raw")
    return catalog


@pytest.fixture
def table(catalog: PyIcebergSqlCatalog) -> Table:
    return catalog.create_table(("raw", "sensors"), SCHEMA, partition_spec=DAILY)


class Watch:
    """A sensor with its cursor."""

    def __init__(self, directory: Path, instance: dg.DagsterInstance, *specs: dg.AssetSpec, **options: Any) -> None:
        catalog = SqlCatalog(uri=f"sqlite:///{directory}/c.db", warehouse=str(directory / "wh"))
        self.sensor = build_table_sensor(specs, IcebergSparkResource(catalog=catalog), **options)
        self.instance = instance
        self.cursor: str | None = None

    def tick(self) -> list[dg.AssetMaterialization]:
        context = dg.build_sensor_context(self.instance, cursor=self.cursor)
        result = self.sensor.evaluate_tick(context)
        self.cursor = result.cursor
        return [event for event in result.asset_events if isinstance(event, dg.AssetMaterialization)]

    def partitions(self) -> list[str | None]:
        return [event.partition for event in self.tick()]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def watch(tmp_path: Path, instance: dg.DagsterInstance) -> Watch:
    return Watch(tmp_path, instance, SENSORS)


def rows(*hours: int) -> pa.Table:
    """Return a row for each hour after the start of November 1st, in UTC."""
    start = dt.datetime(2013, 11, 1, tzinfo=dt.timezone.utc)
    at = [start + dt.timedelta(hours=hour) for hour in hours]
    return pa.table({"ts": pa.array(at, pa.timestamp("us", "UTC")), "id": pa.array(hours, pa.int64())})


def test_a_write_of_others_is_a_materialization(table: Table, watch: Watch) -> None:
    table.append(rows(1))
    assert watch.tick() == [], "the first look only remembers"
    assert watch.tick() == []
    table.append(rows(2, 3), snapshot_properties={"engine-name": "flink", "flink.job-id": "job-7"})
    table.append(rows(4))
    [event] = watch.tick()
    metadata: dict[str, Any] = {key: value.value for key, value in event.metadata.items()}
    head = table.current_snapshot()
    assert head is not None
    assert (event.asset_key, event.partition) == (dg.AssetKey("sensors"), None)
    assert event.tags == {"dagster/data_version": str(head.snapshot_id)}
    assert metadata["iceberg/snapshot_id"] == str(head.snapshot_id)
    assert (metadata["iceberg/snapshots"], metadata["iceberg/added_rows"], metadata["dagster/row_count"]) == (2, 3, 4)
    assert metadata["dagster/column_schema"].columns[0].name == "ts"
    assert (metadata["dagster/table_name"], metadata["dagster/storage_kind"]) == ("lake.raw.sensors", "iceberg")
    assert watch.tick() == []


def test_the_first_look_is_reported_where_it_is_asked_for(
    table: Table, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    table.append(rows(1))
    assert len(Watch(tmp_path, instance, SENSORS, reports_first_look=True).tick()) == 1


def test_the_partitions_of_the_new_files_are_recorded(
    table: Table, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    watch = Watch(tmp_path, instance, BY_DAY)
    table.append(rows(1))
    watch.tick()
    table.append(rows(5, 30))
    assert watch.partitions() == ["2013-11-01", "2013-11-02"]
    table.append(rows(22, 23))
    assert watch.partitions() == ["2013-11-01", "2013-11-02"], "midnight in Berlin is 23:00 UTC"
    table.append(rows(-50))
    assert watch.partitions() == [], "before the first partition"
    table.delete("ts < '2013-11-01T04:00:00+00:00'")
    assert watch.partitions() == ["2013-11-01"]


def test_without_a_partition_column_the_event_has_no_partition(
    table: Table, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    watch = Watch(tmp_path, instance, foreign_table("sensors", table="raw.sensors", partitions_def=DAYS))
    table.append(rows(1))
    watch.tick()
    table.append(rows(2))
    assert watch.partitions() == [None]


def test_what_this_instance_has_recorded_is_no_news(table: Table, watch: Watch, instance: dg.DagsterInstance) -> None:
    """Another instance that uses this package is somebody else."""
    run_id = dg.materialize([dg.asset(name="own")(lambda: None)], instance=instance).run_id
    table.append(rows(1))
    watch.tick()
    table.append(rows(2), snapshot_properties={"dagster.commit_token": "t", "dagster.run_id": run_id})
    own = table.history()[-1].snapshot_id
    assert watch.tick() == []
    table.append(rows(3), snapshot_properties={"dagster.commit_token": "u", "dagster.run_id": "of another instance"})
    [event] = watch.tick()
    assert event.metadata["iceberg/added_rows"].value == 1
    table.delete("id = 2", snapshot_properties={"dagster.undoes": f"[{own}]", "dagster.run_id": "undo-1"})
    assert watch.tick() == []


def test_the_end_of_a_retention_is_no_news(table: Table, watch: Watch) -> None:
    table.append(rows(1, 2))
    watch.tick()
    table.delete("id = 1", snapshot_properties={"dagster.write_disposition": "retention"})
    assert watch.tick() == []


def test_a_table_that_is_not_there_yet_is_waited_for(catalog: PyIcebergSqlCatalog, watch: Watch) -> None:
    assert watch.tick() == []
    made = catalog.create_table(("raw", "sensors"), SCHEMA)
    assert watch.tick() == [], "it has no snapshot"
    made.append(rows(1))
    [event] = watch.tick()
    assert (event.description, event.metadata["iceberg/added_rows"].value) == ("Written by others.", 1)
    made.append(rows(2))
    assert len(watch.tick()) == 1


def test_a_rollback_and_a_new_table_are_events(catalog: PyIcebergSqlCatalog, table: Table, watch: Watch) -> None:
    for hour in (1, 2):
        table.append(rows(hour))
    watch.tick()
    first = table.history()[0].snapshot_id
    table.manage_snapshots().set_current_snapshot(first).commit()
    [event] = watch.tick()
    assert (event.metadata["iceberg/event"].value, event.description) == ("rolled back", "Rolled back.")
    catalog.drop_table(("raw", "sensors"))
    assert watch.tick() == []
    catalog.create_table(("raw", "sensors"), SCHEMA).append(rows(1))
    [event] = watch.tick()
    assert event.metadata["iceberg/event"].value == "recreated"


def test_the_error_of_a_table_does_not_stop_the_others(
    catalog: PyIcebergSqlCatalog, table: Table, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    other = catalog.create_table(("raw", "other"), SCHEMA)
    watch = Watch(tmp_path, instance, foreign_table("other", table="raw.other"), SENSORS)
    for each in (table, other):
        each.append(rows(1))
    watch.tick()
    table.append(rows(2))
    with sqlite3.connect(tmp_path / "c.db") as database:
        database.execute("update iceberg_tables set metadata_location = '/nowhere' where table_name = 'other'")
    [event] = watch.tick()
    assert event.asset_key == dg.AssetKey("sensors")
    assert json.loads(watch.cursor or "")["other"]["snapshot_id"] is not None, "the cursor stays"


def test_an_unchanged_pointer_is_all_that_is_read(table: Table, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    table.append(rows(1))
    watch.tick()

    def read(*_: Any, **__: Any) -> Any:
        pytest.fail("the metadata file was read")

    monkeypatch.setattr(look, "look", read)
    assert watch.tick() == []


def test_a_table_needs_a_name() -> None:
    with pytest.raises(ConfigurationError, match="Cannot watch sensors: expected the name of its table"):
        build_table_sensor([dg.AssetSpec("sensors")], "spark")
    with pytest.raises(MetadataKeyError, match=r"`iceberg/table` of sensors: expected `namespace\.table`"):
        foreign_table("sensors", table="sensors")

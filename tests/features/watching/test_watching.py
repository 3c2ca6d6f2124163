"""Sensors on tables that plain Spark writes, and the runs that they request.

docs/watching.md: What is recorded; What a tick costs
"""

from typing import Any

import dagster as dg
import polars as pl
import pytest

from dagster_iceberg_spark import build_changed_partitions_sensor, build_table_sensor, foreign_table
from tests.lakes import Lake

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")
SENSORS = foreign_table("sensors", table="raw.sensors", partition_expr="at")

pytestmark = [pytest.mark.spark, pytest.mark.full]


@dg.asset(io_manager_key="iceberg", partitions_def=DAYS, metadata={"partition_expr": "day"})
def totals(context: dg.AssetExecutionContext, sensors: pl.DataFrame) -> pl.DataFrame:
    day = context.partition_time_window.start
    own = sensors.filter(pl.col("at").dt.date() == day.date())
    return pl.DataFrame({"day": [day], "total": [own["value"].sum()]})


def insert(lake: Lake, *rows: tuple[str, int]) -> None:
    values = ", ".join(f"(timestamp'{at}Z', {value})" for at, value in rows)
    lake.session.sql(f"insert into {lake.spark.iceberg_session.catalog.name}.raw.sensors values {values}")


def test_late_rows_make_exactly_their_day_again(classic_lake: Lake) -> None:
    lake = classic_lake
    catalog = lake.spark.iceberg_session.catalog.name
    lake.session.sql(f"create namespace {catalog}.raw")
    lake.session.sql(f"create table {catalog}.raw.sensors (at timestamp, value int) using iceberg")
    sensors = [build_changed_partitions_sensor(totals), build_table_sensor([SENSORS], lake.spark)]
    definitions = dg.Definitions([totals, SENSORS], resources=lake.resources, sensors=sensors)
    cursors: list[str | None] = [None, None]

    def tick() -> tuple[list[str | None], int]:
        """Tick both sensors, execute the requested runs, and return their partitions and the number of events."""
        results: list[Any] = []
        for number, sensor in enumerate(sensors):
            with dg.build_sensor_context(
                lake.instance, cursor=cursors[number], definitions=definitions, resources=lake.resources
            ) as context:
                results.append(sensor.evaluate_tick(context))
            cursors[number] = results[-1].cursor
        keys = [request.partition_key for request in results[0].run_requests or ()]
        for key in keys:
            lake.materialize(totals, SENSORS, selection=[totals], partition_key=key)
        return keys, len(results[1].asset_events)

    insert(lake, ("2013-01-01 10:00:00", 1))
    assert tick() == ([], 0), "the first look only remembers"
    insert(lake, ("2013-01-02 10:00:00", 2), ("2013-01-03 10:00:00", 3))
    assert tick() == (["2013-01-02", "2013-01-03"], 1)
    assert tick() == ([], 0), "what the runs wrote is no change of their input"
    insert(lake, ("2013-01-02 23:00:00", 20))
    assert tick() == (["2013-01-02"], 1)
    lake.session.sql(f"call {catalog}.system.rewrite_data_files(`table` => 'raw.sensors')").collect()
    assert tick() == ([], 0), "compaction changes no rows"
    assert lake.rows("totals", "total") == [3, 22]

"""A table that another team writes, and the sensor that notices: `python -m example_project.watching` writes to it."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import NestedField, StringType, TimestamptzType

from dagster_iceberg_spark import IcebergSparkResource, build_table_sensor, foreign_table
from example_project.partitions import new_york_days
from example_project.resources import LAKE, resources_in

closures = foreign_table(
    "closures",
    table="tower.closures",
    partitions_def=new_york_days,
    partition_expr="closed_at",
    description="Runways that the tower has closed. Its own tool writes them.",
    owners=["team:tower"],
    group_name="observations",
)
closures_sensor = build_table_sensor([closures], "spark")


def close_runway(spark: IcebergSparkResource, airport: str, closed_at: dt.datetime) -> None:
    """Record a closed runway, as the tower's tool does: with pyiceberg, and without Dagster.

    Args:
        spark: The resource whose catalog has the table.
        airport: The airport, such as `JFK`.
        closed_at: When the runway was closed, with a zone.
    """
    catalog = spark.pyiceberg_catalog
    catalog.create_namespace_if_not_exists("tower")
    table = catalog.create_table_if_not_exists(
        ("tower", "closures"),
        Schema(NestedField(1, "closed_at", TimestamptzType()), NestedField(2, "airport", StringType())),
        partition_spec=PartitionSpec(PartitionField(1, 1000, DayTransform(), "closed_at_day")),
    )
    table.append(pa.table({"closed_at": pa.array([closed_at], pa.timestamp("us", "UTC")), "airport": [airport]}))


def main(lake: Path = LAKE) -> None:
    """Close a runway of JFK on the first day of the demo."""
    close_runway(resources_in(lake)["spark"], "JFK", dt.datetime(2013, 1, 1, 15, tzinfo=dt.timezone.utc))
    print("tower.closures has one more row. Within a minute, the sensor records it, if it is switched on.")


if __name__ == "__main__":
    main()

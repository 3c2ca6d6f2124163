"""Reference data: planes, airlines and airports, in small unpartitioned tables."""

import dagster as dg
from pyspark.sql import DataFrame

from example_project.sources import NycFlights13


@dg.asset(
    description="Planes by tail number. Each load updates the planes it knows and adds the new ones.",
    group_name="reference",
    kinds={"spark", "iceberg"},
    owners=["team:airlines"],
    io_manager_key="iceberg",
    metadata={
        "iceberg/write_disposition": "merge",
        "iceberg/merge_keys": ["tailnum"],
        "iceberg/partition_by": ["bucket(4, tailnum)"],
        "dagster/column_schema": dg.TableSchema(
            columns=[
                dg.TableColumn("tailnum", "string", description="Tail number"),
                dg.TableColumn("year", "int", description="Year of manufacture"),
                dg.TableColumn("type", "string", description="Type of plane"),
                dg.TableColumn("manufacturer", "string", description="Manufacturer"),
                dg.TableColumn("model", "string", description="Model"),
                dg.TableColumn("engines", "int", description="Number of engines"),
                dg.TableColumn("seats", "int", description="Number of seats"),
                dg.TableColumn("speed", "int", description="Average cruising speed in miles an hour; mostly NULL"),
                dg.TableColumn("engine", "string", description="Type of engine"),
            ]
        ),
    },
)
def planes(source: NycFlights13) -> DataFrame:
    """Read the planes."""
    return source.read("planes")


@dg.asset(
    description="Names of airlines by code.",
    group_name="reference",
    kinds={"spark", "iceberg"},
    owners=["team:airlines"],
    io_manager_key="iceberg",
    metadata={
        "dagster/column_schema": dg.TableSchema(
            columns=[
                dg.TableColumn("carrier", "string", description="Code of the airline"),
                dg.TableColumn("name", "string", description="Name of the airline"),
            ]
        )
    },
)
def airlines(source: NycFlights13) -> DataFrame:
    """Read the airlines; each load replaces the table's rows."""
    return source.read("airlines")


@dg.asset(
    description="Airports by code.",
    group_name="reference",
    kinds={"spark", "iceberg"},
    owners=["team:airports"],
    io_manager_key="iceberg",
    metadata={
        "dagster/column_schema": dg.TableSchema(
            columns=[
                dg.TableColumn("faa", "string", description="Code of the airport"),
                dg.TableColumn("name", "string", description="Name of the airport"),
                dg.TableColumn("lat", "double", description="Latitude in degrees"),
                dg.TableColumn("lon", "double", description="Longitude in degrees"),
                dg.TableColumn("alt", "int", description="Altitude in feet"),
                dg.TableColumn("tz", "int", description="Standard time's offset from UTC in hours"),
                dg.TableColumn("dst", "string", description="Daylight saving time: A as in the USA, N none, U unknown"),
                dg.TableColumn("tzone", "string", description="IANA name of the time zone"),
            ]
        )
    },
)
def airports(source: NycFlights13) -> DataFrame:
    """Read the airports; each load replaces the table's rows."""
    return source.read("airports")

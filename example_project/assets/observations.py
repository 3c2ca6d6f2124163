"""What happened in 2013: flights and the weather, partitioned by New York day."""

import dagster as dg
from pydantic import Field
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from example_project.partitions import airport_days, new_york_day, new_york_days
from example_project.sources import NycFlights13


class FlightsConfig(dg.Config):
    """How the source delivers the flights."""

    delays_in_seconds: bool = Field(
        default=False, description="Multiply the delays by 60, as a source that changes its unit without notice."
    )


@dg.asset(
    description="Every flight that was to leave a New York airport in 2013.",
    group_name="observations",
    kinds={"spark", "iceberg"},
    owners=["team:airports"],
    io_manager_key="iceberg",
    partitions_def=new_york_days,
    # A backfill of many days is one run: one pass over the file, one snapshot.
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata={
        "partition_expr": "time_hour",
        "iceberg/partition_by": ["day(time_hour)"],
        # The rows wait in a branch until `delays_release` publishes them with the delays that are made from them.
        "iceberg/publish": "release",
        # Rows that fail an audit are never published.
        "iceberg/audits": {
            "not_empty": "count(*) > 0",
            "delays_plausible": "dep_delay BETWEEN -120 AND 1440",
            "unique": {"unique": ["time_hour", "carrier", "flight", "origin"]},
        },
        "dagster/column_schema": dg.TableSchema(
            columns=[
                dg.TableColumn("time_hour", "timestamp", description="Hour of the scheduled departure, an instant"),
                dg.TableColumn("carrier", "string", description="Code of the airline"),
                dg.TableColumn("flight", "int", description="Number of the flight"),
                dg.TableColumn("tailnum", "string", description="Tail number of the plane; NULL where unknown"),
                dg.TableColumn("origin", "string", description="Airport of departure: EWR, JFK or LGA"),
                dg.TableColumn("dest", "string", description="Airport of arrival"),
                dg.TableColumn("sched_dep_time", "int", description="Scheduled departure, local time as hhmm"),
                dg.TableColumn("dep_time", "int", description="Departure, local time as hhmm; NULL: cancelled"),
                dg.TableColumn("dep_delay", "int", description="Minutes that it left late; negative: early"),
                dg.TableColumn("sched_arr_time", "int", description="Scheduled arrival, local time as hhmm"),
                dg.TableColumn("arr_time", "int", description="Arrival, local time as hhmm"),
                dg.TableColumn("arr_delay", "int", description="Minutes that it arrived late; negative: early"),
                dg.TableColumn("air_time", "int", description="Minutes in the air"),
                dg.TableColumn("distance", "int", description="Miles between the airports"),
            ]
        ),
    },
)
def flights(context: dg.AssetExecutionContext, config: FlightsConfig, source: NycFlights13) -> DataFrame:
    """Read the days' flights. `time_hour` replaces the dropped columns, whose time zone is ambiguous."""
    window, unit = context.partition_time_window, 60 if config.delays_in_seconds else 1
    return (
        source.read("flights")
        .withColumn("dep_delay", sf.col("dep_delay") * unit)
        .where((sf.col("time_hour") >= window.start) & (sf.col("time_hour") < window.end))
        .select(
            "time_hour",
            "carrier",
            "flight",
            "tailnum",
            "origin",
            "dest",
            "sched_dep_time",
            "dep_time",
            "dep_delay",
            "sched_arr_time",
            "arr_time",
            "arr_delay",
            "air_time",
            "distance",
        )
    )


@dg.asset(
    description="Hourly weather at the three New York airports; some hours are missing.",
    group_name="observations",
    kinds={"spark", "iceberg"},
    owners=["team:weather"],
    io_manager_key="iceberg",
    partitions_def=airport_days,
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata={
        "partition_expr": {"airport": "origin", "day": "time_hour"},
        "iceberg/partition_by": ["origin", "month(time_hour)"],
        "dagster/column_schema": dg.TableSchema(
            columns=[
                dg.TableColumn("time_hour", "timestamp", description="Hour of the observation, an instant"),
                dg.TableColumn("origin", "string", description="Airport: EWR, JFK or LGA"),
                dg.TableColumn("temp", "double", description="Temperature in degrees Fahrenheit"),
                dg.TableColumn("dewp", "double", description="Dew point in degrees Fahrenheit"),
                dg.TableColumn("humid", "double", description="Relative humidity in percent"),
                dg.TableColumn("wind_dir", "int", description="Direction of the wind in degrees"),
                dg.TableColumn("wind_speed", "double", description="Speed of the wind in miles an hour"),
                dg.TableColumn("wind_gust", "double", description="Speed of gusts in miles an hour; NULL: none"),
                dg.TableColumn("precip", "double", description="Precipitation in inches"),
                dg.TableColumn("pressure", "double", description="Pressure at sea level in millibars"),
                dg.TableColumn("visib", "double", description="Visibility in miles"),
            ]
        ),
    },
)
def weather(context: dg.AssetExecutionContext, source: NycFlights13) -> DataFrame:
    """Read the observations of the run's airports and days, of which a run may have any set."""
    observations = source.read("weather")
    # Dagster joins the keys of several dimensions in the order of the dimensions' names: `JFK|2013-01-31`.
    partition_key = sf.concat_ws("|", "origin", new_york_day("time_hour"))
    keys = [str(key) for key in context.partition_keys]
    return observations.where(partition_key.isin(keys)).drop("year", "month", "day", "hour")

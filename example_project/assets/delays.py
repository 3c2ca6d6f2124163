"""The results: delays by day, with the weather, and by month and airline."""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from example_project.partitions import new_york_day, new_york_days, new_york_months


@dg.asset(
    description="Delays and weather by day and airport of departure.",
    group_name="delays",
    kinds={"spark", "iceberg"},
    owners=["team:analytics"],
    io_manager_key="iceberg_mirrored",
    partitions_def=new_york_days,
    backfill_policy=dg.BackfillPolicy.single_run(),
    ins={
        "flights": dg.AssetIn(metadata={"columns": ["time_hour", "origin", "dep_time", "dep_delay"]}),
        # The day's partitions at all airports.
        "weather": dg.AssetIn(
            partition_mapping=dg.MultiToSingleDimensionPartitionMapping("day"),
            metadata={"columns": ["time_hour", "origin", "wind_speed", "precip", "visib"]},
        ),
    },
    metadata={
        "partition_expr": "day",
        "iceberg/publish": "release",
        # A day has three rows, so one file holds a month. A run still replaces only the rows of its own days.
        "iceberg/partition_by": ["month(day)"],
        "dagster/column_schema": dg.TableSchema(
            columns=[
                dg.TableColumn("day", "date", description="Day in New York"),
                dg.TableColumn("origin", "string", description="Airport of departure"),
                dg.TableColumn("flights", "bigint", description="Scheduled flights"),
                dg.TableColumn("cancelled", "bigint", description="Flights that did not leave"),
                dg.TableColumn("late", "bigint", description="Flights that left more than 30 minutes late"),
                dg.TableColumn("mean_delay", "double", description="Mean delay at departure, in minutes"),
                dg.TableColumn("max_wind", "double", description="Fastest wind while flights left, in miles an hour"),
                dg.TableColumn("max_precip", "double", description="Most precipitation in an hour, in inches"),
                dg.TableColumn("min_visib", "double", description="Worst visibility, in miles"),
            ]
        ),
    },
)
def daily_delays(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Join each flight with the weather of its hour, if it is known, and aggregate by day and airport."""
    return (
        flights.join(weather, on=["time_hour", "origin"], how="left")
        .groupBy(new_york_day("time_hour").alias("day"), "origin")
        .agg(
            sf.count("*").alias("flights"),
            sf.count_if(sf.col("dep_time").isNull()).alias("cancelled"),
            sf.count_if(sf.col("dep_delay") > 30).alias("late"),
            sf.avg("dep_delay").alias("mean_delay"),
            sf.max("wind_speed").alias("max_wind"),
            sf.max("precip").alias("max_precip"),
            sf.min("visib").alias("min_visib"),
        )
    )


@dg.asset(
    description="Flights and delays by month and airline.",
    group_name="delays",
    kinds={"spark", "iceberg"},
    owners=["team:analytics"],
    io_manager_key="iceberg",
    partitions_def=new_york_months,
    ins={
        # The days of the month.
        "flights": dg.AssetIn(
            partition_mapping=dg.TimeWindowPartitionMapping(),
            metadata={
                "columns": ["time_hour", "carrier", "dep_time", "dep_delay", "distance"],
                "iceberg/missing": "empty",  # also aggregates a month that is not over
            },
        )
    },
    metadata={
        "partition_expr": "month",
        "dagster/column_schema": dg.TableSchema(
            columns=[
                dg.TableColumn("month", "date", description="First day of the month"),
                dg.TableColumn("carrier", "string", description="Code of the airline"),
                dg.TableColumn("airline", "string", description="Name of the airline"),
                dg.TableColumn("flights", "bigint", description="Scheduled flights"),
                dg.TableColumn("cancelled", "bigint", description="Flights that did not leave"),
                dg.TableColumn("mean_delay", "double", description="Mean delay at departure, in minutes"),
                dg.TableColumn("miles", "bigint", description="Miles that were flown"),
            ]
        ),
    },
)
def monthly_carriers(flights: DataFrame, airlines: DataFrame) -> DataFrame:
    """Aggregate the month's days by airline."""
    has_left = sf.col("dep_time").isNotNull()
    return (
        flights.groupBy(sf.trunc(new_york_day("time_hour"), "month").alias("month"), "carrier")
        .agg(
            sf.count("*").alias("flights"),
            sf.count_if(~has_left).alias("cancelled"),
            sf.avg("dep_delay").alias("mean_delay"),
            sf.sum(sf.when(has_left, sf.col("distance"))).alias("miles"),
        )
        .join(airlines.withColumnRenamed("name", "airline"), on="carrier", how="left")
        .select("month", "carrier", "airline", "flights", "cancelled", "mean_delay", "miles")
    )

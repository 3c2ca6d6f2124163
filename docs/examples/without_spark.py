"""Hourly temperatures by day, written and read without Spark and Java."""

import dagster as dg
import pandas as pd

from dagster_iceberg_spark import IcebergPySparkIOManager

days = dg.DailyPartitionsDefinition("2024-01-01")


@dg.asset(io_manager_key="iceberg", partitions_def=days, metadata={"partition_expr": "at"})
def temperatures(context: dg.AssetExecutionContext) -> pd.DataFrame:
    """Generate a temperature for each hour of the day."""
    start = context.partition_time_window.start
    return pd.DataFrame({"at": pd.date_range(start, periods=24, freq="h"), "celsius": range(24)})


defs = dg.Definitions(assets=[temperatures], resources={"iceberg": IcebergPySparkIOManager(namespace="weather")})

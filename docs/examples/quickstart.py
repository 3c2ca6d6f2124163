"""Hourly readings by day: written by Spark, read by pandas."""

import dagster as dg
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource

days = dg.DailyPartitionsDefinition("2024-01-01", timezone="Europe/Berlin")


@dg.asset(io_manager_key="iceberg", partitions_def=days, metadata={"partition_expr": "at"})
def readings(context: dg.AssetExecutionContext, spark: IcebergSparkResource) -> DataFrame:
    """Make up a reading for each hour of the day, which has 23 to 25 of them."""
    start, end = context.partition_time_window
    hours = spark.spark_session.range(int(start.timestamp()), int(end.timestamp()), 3600)
    return hours.select(sf.timestamp_seconds("id").alias("at"), (sf.col("id") / 3600 % 30).alias("celsius"))


@dg.asset(partitions_def=days)
def warmest(readings: pd.DataFrame) -> dg.MaterializeResult:
    """Look at the day's readings; no JVM is needed for that."""
    return dg.MaterializeResult(metadata={"rows": len(readings), "celsius": float(readings["celsius"].max())})


spark = IcebergSparkResource()
defs = dg.Definitions(
    assets=[readings, warmest],
    resources={"spark": spark, "iceberg": IcebergPySparkIOManager(spark=spark, namespace="weather")},
    executor=dg.in_process_executor,
)

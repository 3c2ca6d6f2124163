"""Two weeks of hourly readings, written by Spark and read by pandas."""

import dagster as dg
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource

days = dg.DailyPartitionsDefinition("2024-03-25", end_date="2024-04-08", timezone="Europe/Berlin")


@dg.asset(
    io_manager_key="iceberg",
    partitions_def=days,
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata={"partition_expr": "at"},
)
def readings(context: dg.AssetExecutionContext, spark: IcebergSparkResource) -> DataFrame:
    """Generate a reading for each hour of the run's days."""
    start, end = context.partition_time_window
    hours = spark.spark_session.range(int(start.timestamp()), int(end.timestamp()), 3600)
    return hours.select(sf.timestamp_seconds("id").alias("at"), (sf.col("id") / 3600 % 30).alias("celsius"))


@dg.asset(partitions_def=days, backfill_policy=dg.BackfillPolicy.single_run())
def warmest(readings: pd.DataFrame) -> dg.MaterializeResult:
    """Report the highest temperature, without a JVM."""
    return dg.MaterializeResult(metadata={"hours": len(readings), "celsius": float(readings["celsius"].max())})


spark = IcebergSparkResource(remote="local")
defs = dg.Definitions(
    assets=[readings, warmest],
    resources={"spark": spark, "iceberg": IcebergPySparkIOManager(spark=spark, namespace="weather")},
)

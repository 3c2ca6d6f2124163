"""What a job imports that runs elsewhere."""

from dagster_iceberg_spark.features.pipes.job_side import IcebergJob, open_iceberg_pipes

__all__ = ["IcebergJob", "open_iceberg_pipes"]

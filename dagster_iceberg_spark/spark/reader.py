"""Reading a plan as a Spark DataFrame."""

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from dagster_iceberg_spark.plan.read import ReadPlan, reads_everything
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import column_of, functions_of, named_column
from dagster_iceberg_spark.spark.failures import ENGINE_ERRORS, translated
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.spark.tables import refresh


def read(session: IcebergSession, plan: ReadPlan) -> DataFrame:
    """Return the plan's rows, pinned to its snapshot however late Spark evaluates them.

    Raises:
        UpstreamMissingError: The table or the snapshot is gone.
    """
    refresh(session, plan.identifier)
    functions = functions_of(session.spark)
    name = sql.table_name(session.catalog.name, plan.identifier)
    try:
        if plan.snapshot_id is None:
            frame = session.spark.table(name).where(functions.lit(False))  # noqa: FBT003
        else:
            frame = session.spark.read.option("versionAsOf", str(plan.snapshot_id)).table(name)
            if not reads_everything(plan):
                frame = frame.where(column_of(functions, plan.predicate))
        return frame if plan.is_whole_row else frame.select(*(named_column(functions, name) for name in plan.columns))
    except ENGINE_ERRORS as error:
        raise translated(error, action="read", subject=str(plan.identifier), redact=session.catalog.redact) from error


def no_rows(session: IcebergSession) -> DataFrame:
    """Return a frame without rows and without columns."""
    return session.spark.createDataFrame([], StructType([]))

"""Reading a plan as a Spark DataFrame."""

from pyspark.sql import DataFrame, types

from dagster_iceberg_spark.plan.read import ReadPlan, reads_everything
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import column_of, functions_of, named_column
from dagster_iceberg_spark.spark.failures import ENGINE_ERRORS, translated
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.spark.tables import refresh
from dagster_iceberg_spark.table.schema import ListType, MapType, StructType


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
            frame = _renamed(session.spark.read.option("versionAsOf", str(plan.snapshot_id)).table(name), plan)
            if not reads_everything(plan):
                frame = frame.where(column_of(functions, plan.predicate))
        return frame if plan.is_whole_row else frame.select(*(named_column(functions, name) for name in plan.columns))
    except ENGINE_ERRORS as error:
        raise translated(error, action="read", subject=str(plan.identifier), redact=session.catalog.redact) from error


def _renamed(frame: DataFrame, plan: ReadPlan) -> DataFrame:
    """Return the snapshot's rows under the table's columns, where these have changed since."""
    if not plan.stored_names:
        return frame
    functions = functions_of(frame.sparkSession)
    columns = []
    for field in plan.schema:
        stored = plan.stored_names[field.name]
        if stored is None:
            column = functions.lit(None)
        elif stored == field.name:
            column = named_column(functions, stored)
        else:
            column = functions.expr(sql.held_back(stored))
        is_plain = stored is None or not isinstance(field.type, StructType | ListType | MapType)
        columns.append((column.cast(sql.type_name(field.type)) if is_plain else column).alias(field.name))
    return frame.select(*columns)


def no_rows(session: IcebergSession) -> DataFrame:
    """Return a frame without rows and without columns."""
    return session.spark.createDataFrame([], types.StructType([]))

"""Reading a plan as a Spark DataFrame."""

from pyspark.sql import DataFrame, types

from dagster_iceberg_spark.plan.read import ReadPlan, reads_everything
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import column_of, functions_of, has_same_id, named_column, reshaped
from dagster_iceberg_spark.spark.failures import ENGINE_ERRORS, translated
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.spark.tables import refresh
from dagster_iceberg_spark.table.schema import are_same_columns


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
            frame = _projected(session.spark.read.option("versionAsOf", str(plan.snapshot_id)).table(name), plan)
            if not reads_everything(plan):
                frame = frame.where(column_of(functions, plan.predicate))
            if plan.limit is not None:
                frame = frame.limit(plan.limit)
        return frame if plan.is_whole_row else frame.select(*(named_column(functions, name) for name in plan.columns))
    except ENGINE_ERRORS as error:
        raise translated(error, action="read", subject=str(plan.identifier), redact=session.catalog.redact) from error


def _projected(frame: DataFrame, plan: ReadPlan) -> DataFrame:
    """Return the snapshot's rows under the plan's columns, where the table's have changed since.

    Iceberg takes the names of a filter for those that the table has now: columns of old names are kept from it.
    """
    if plan.is_as_stored and plan.is_current:
        return frame
    functions = functions_of(frame.sparkSession)
    held = {field.field_id: field for field in plan.stored}
    columns = []
    for field in plan.schema:
        stored = held.get(field.field_id)
        if stored is None:
            column = functions.lit(None).cast(sql.type_name(field.type))
        elif are_same_columns([field], [stored]):
            name = stored.name
            column = named_column(functions, name) if plan.is_current else functions.expr(sql.held_back(name))
        else:
            column = functions.expr(sql.held_back(stored.name))
            column = reshaped(functions, column, stored.type, field.type, is_same=has_same_id)
        columns.append(column.alias(field.name))
    return frame.select(*columns)


def no_rows(session: IcebergSession) -> DataFrame:
    """Return a frame without rows and without columns."""
    return session.spark.createDataFrame([], types.StructType([]))

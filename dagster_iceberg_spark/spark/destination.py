"""The destination of a plan's rows: the table or branch, and the write options."""

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import DataFrame, DataFrameWriterV2

from dagster_iceberg_spark.plan.write_plan import WritePlan
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import functions_of
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.spark.versions import version_of


def target(session: IcebergSession, plan: WritePlan) -> str:
    """Return the full name of the table or of its branch."""
    return sql.table_name(session.catalog.name, plan.identifier, plan.branch)


def stored_rows(session: IcebergSession, plan: WritePlan, base_snapshot_id: int | None) -> DataFrame:
    """Return the rows of the table or branch as they are, with its current columns.

    Spark answers `spark.table(...)` from what the user has cached, and Spark 4.1 with the table as it was then. It does
    not keep a table of a version. The head of a branch has the current columns, which a snapshot has not
    (`SnapshotUtil.schemaFor` of Iceberg 1.12).
    """
    if base_snapshot_id is None:  # a branch without a snapshot has no version
        return session.spark.table(target(session, plan))
    return session.spark.sql(sql.rows_of_branch(session.catalog.name, plan.identifier, plan.branch))


def writer_to(
    session: IcebergSession, plan: WritePlan, frame: DataFrame, options: Mapping[str, str] = MappingProxyType({})
) -> DataFrameWriterV2:
    """Return the engine's writer of the DataFrame to the plan's table, with the plan's options and further ones."""
    table = target(session, plan)
    complete = version_of(session.spark).with_all_columns(frame, lambda: session.spark.table(table))
    properties = {f"snapshot-property.{key}": value for key, value in plan.snapshot_properties.items()}
    return complete.writeTo(table).options(**{**plan.write_options, **properties, **options})


def append(session: IcebergSession, plan: WritePlan, frame: DataFrame) -> None:
    """Append the DataFrame's rows, possibly none, in one snapshot."""
    writer_to(session, plan, frame).append()


def append_alone(session: IcebergSession, plan: WritePlan, frame: DataFrame, base_snapshot_id: int | None) -> None:
    """Append the rows unless another writer has added some since the base snapshot, or since the beginning.

    This is an overwrite of no rows, which Iceberg validates against all new rows
    (`BaseOverwriteFiles.dataConflictDetectionFilter` of 1.12).
    """
    since = {} if base_snapshot_id is None else {"validate-from-snapshot-id": str(base_snapshot_id)}
    writer = writer_to(session, plan, frame, {**since, "isolation-level": "serializable"})
    writer.overwrite(functions_of(session.spark).lit(False))  # noqa: FBT003

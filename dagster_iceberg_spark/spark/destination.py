"""Where a plan's rows go, and under which options."""

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import DataFrame, DataFrameWriterV2

from dagster_iceberg_spark.plan.write import WritePlan
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import functions_of
from dagster_iceberg_spark.spark.session import IcebergSession


def target(session: IcebergSession, plan: WritePlan) -> str:
    """Return the full name of the table, or of its branch."""
    return sql.table_name(session.catalog.name, plan.identifier, plan.branch)


def options_of(plan: WritePlan) -> dict[str, str]:
    """Return the engine's write options, with what the snapshot says about itself."""
    properties = {f"snapshot-property.{key}": value for key, value in plan.snapshot_properties.items()}
    return {**plan.write_options, **properties}


def writer_to(
    session: IcebergSession, plan: WritePlan, frame: DataFrame, options: Mapping[str, str] = MappingProxyType({})
) -> DataFrameWriterV2:
    """Return the engine's writer of the frame to the plan's table, under the plan's options and those."""
    writer = frame.writeTo(target(session, plan))
    for key, value in {**options_of(plan), **options}.items():
        writer = writer.option(key, value)
    return writer


def append(session: IcebergSession, plan: WritePlan, frame: DataFrame) -> None:
    """Add the frame's rows, of which there may be none, in one snapshot."""
    writer_to(session, plan, frame).append()


def append_alone(session: IcebergSession, plan: WritePlan, frame: DataFrame, base_snapshot_id: int | None) -> None:
    """Add the rows unless others have added some: an overwrite of no row, which is validated against all that is new.

    That the filter of such a validation is everything is `BaseOverwriteFiles.dataConflictDetectionFilter` of 1.12.

    Args:
        session: The session of the frame.
        plan: Where the rows go.
        frame: The rows, of which there may be none.
        base_snapshot_id: The snapshot since which nobody may have added rows; None: from the beginning.
    """
    since = {} if base_snapshot_id is None else {"validate-from-snapshot-id": str(base_snapshot_id)}
    writer = writer_to(session, plan, frame, {**since, "isolation-level": "serializable"})
    writer.overwrite(functions_of(session.spark).lit(False))  # noqa: FBT003

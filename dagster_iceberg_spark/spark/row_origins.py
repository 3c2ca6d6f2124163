"""Finds rows, and when each was last written, by the row lineage of format version 3 (Iceberg spec, "Row Lineage")."""

from typing import Any, Final

from dagster_iceberg_spark.plan.read import ReadPlan
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import column_of, functions_of, named_column
from dagster_iceberg_spark.spark.failures import translating
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.spark.tables import refresh

SEQUENCE_NUMBER: Final = "_last_updated_sequence_number"


def rows_with_sequence_numbers(
    session: IcebergSession, plan: ReadPlan, *, limit: int
) -> list[tuple[dict[str, Any], int | None]]:
    """Return rows of a plan, each with the sequence number of the snapshot that wrote it last."""
    if plan.snapshot_id is None:
        return []
    refresh(session, plan.identifier)
    functions = functions_of(session.spark)
    with translating(session.catalog, action="read", subject=str(plan.identifier)):
        frame = session.spark.sql(sql.rows_at(sql.table_name(session.catalog.name, plan.identifier), plan.snapshot_id))
        rows = frame.where(column_of(functions, plan.predicate)).limit(limit)
        columns = [named_column(functions, name) for name in (*plan.columns, SEQUENCE_NUMBER)]
        found = rows.select(*columns).collect()
    return [(dict(zip(plan.columns, row[:-1], strict=True)), row[-1]) for row in found]

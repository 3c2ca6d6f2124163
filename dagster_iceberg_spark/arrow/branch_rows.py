"""Reads the rows of some data files."""

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa

from dagster_iceberg_spark.arrow.scan import PlannedScan
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import known_table, translated_answers
from dagster_iceberg_spark.plan.read import plan_read
from dagster_iceberg_spark.plan.read_options import ReadOptions
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import TableState


def rows_of_files(
    description: CatalogDescription, state: TableState, snapshot_id: int, paths: Collection[str] | None
) -> pa.Table:
    """Return the rows of these data files in a snapshot, or of all, without the rows that delete files remove."""
    table = known_table(description, state.identifier, action="read")
    plan = plan_read(state, PartitionScope(), ReadOptions(snapshot_id=snapshot_id))
    scan = PlannedScan(table, plan)
    with translated_answers(description, action=f"read {state.identifier} in"):
        planned = scan.planned_files()
        files = tuple(task for task in planned if paths is None or task.file.file_path in paths)
        return replace(scan, files=files).table()

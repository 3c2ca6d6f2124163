"""Reads a plan as a Spark DataFrame."""

import hashlib
from collections.abc import Mapping

from pyspark.sql import DataFrame, types

from dagster_iceberg_spark.catalog.files import added_files
from dagster_iceberg_spark.plan.read.incremental import CHANGE_COLUMNS, INSERT
from dagster_iceberg_spark.plan.read.read_plan import ReadPlan, reads_everything
from dagster_iceberg_spark.spark import expressions, sql
from dagster_iceberg_spark.spark.columns import column_of, functions_of, named_column, projected
from dagster_iceberg_spark.spark.failures import translating
from dagster_iceberg_spark.spark.session.session import IcebergSession
from dagster_iceberg_spark.spark.tables import added_between, refresh


def read(session: IcebergSession, plan: ReadPlan) -> DataFrame:
    """Return the plan's rows, pinned to its snapshot however late Spark evaluates them."""
    refresh(session, plan.identifier)
    functions = functions_of(session.spark)
    with translating(session.catalog, action="read", subject=str(plan.identifier)):
        frame = _rows(session, plan)
        if plan.snapshot_id is not None:
            if not reads_everything(plan):
                frame = frame.where(column_of(functions, plan.predicate))
            if plan.limit is not None:
                frame = frame.limit(plan.limit)
        if plan.is_whole_row:
            return frame
        said = CHANGE_COLUMNS if plan.changes is not None and plan.changes.kind == "changelog" else ()
        return frame.select(*(named_column(functions, name) for name in (*plan.columns, *said)))


def _rows(session: IcebergSession, plan: ReadPlan) -> DataFrame:
    """Return the rows that the plan reads, before its filter."""
    functions, changes = functions_of(session.spark), plan.changes
    name = sql.table_name(session.catalog.name, plan.identifier)
    scan = "rows" if changes is None else changes.scan
    is_changelog = changes is not None and changes.kind == "changelog"
    if plan.snapshot_id is None or scan == "nothing":
        frame = session.spark.table(name).where(functions.lit(False))  # noqa: FBT003
        return _as_insertions(frame, None) if is_changelog else frame
    if scan == "files":
        return _of_added_files(session, plan)
    if scan == "rows" or changes is None or changes.since is None:
        frame = session.spark.sql(sql.rows_at(name, plan.snapshot_id))
        frame = projected(frame, plan.stored, plan.schema, is_current=plan.is_current)
        return _as_insertions(frame, plan.snapshot_id) if is_changelog else frame
    if scan == "changelog":
        ends = {"start-snapshot-id": str(changes.since), "end-snapshot-id": str(plan.snapshot_id)}
        return _changelog(session, plan, ends)
    if scan == "appends":
        return added_between(session, plan.identifier, changes.since, plan.snapshot_id)
    inserts = added_between(session, plan.identifier, changes.since, plan.snapshot_id, view=".changes")
    change = functions.expr(expressions.held_back(CHANGE_COLUMNS[0]))  # Iceberg cannot evaluate the filter
    return inserts.where(change == INSERT).drop(*CHANGE_COLUMNS)


def _as_insertions(frame: DataFrame, snapshot_id: int | None) -> DataFrame:
    functions = functions_of(frame.sparkSession)
    values = (functions.lit(INSERT), functions.lit(0), functions.lit(snapshot_id).cast("long"))
    return frame.withColumns(dict(zip(CHANGE_COLUMNS, values, strict=True)))


def _changelog(session: IcebergSession, plan: ReadPlan, ends: Mapping[str, str]) -> DataFrame:
    """Return insertions and deletions, without rows that a commit rewrote unchanged.

    Iceberg creates a view of the changes. Its name identifies the range, so another read of the range reuses the view.
    """
    catalog, identifier = session.catalog.name, plan.identifier
    changes = f"{catalog}.{identifier} {' '.join(ends.values())}"
    view = f"changes_{hashlib.sha256(changes.encode()).hexdigest()[:32]}"
    session.spark.sql(sql.create_changelog_view(catalog, identifier, view=view, ends=ends))
    return session.spark.table(view)


def _of_added_files(session: IcebergSession, plan: ReadPlan) -> DataFrame:
    """Return the rows of the files that each of the plan's snapshots added, as of that snapshot."""
    functions, changes = functions_of(session.spark), plan.changes
    name = sql.table_name(session.catalog.name, plan.identifier)
    frame = None
    for snapshot_id, stored in zip(changes.snapshots, changes.stored, strict=True) if changes else ():
        paths = [file.path for file in added_files(session.catalog, plan.identifier, snapshot_id, ())]
        if paths:
            added = session.spark.sql(sql.rows_at(name, snapshot_id))
            added = added.where(functions.col("_file").isin(paths))
            added = projected(added, stored, plan.schema, is_current=plan.is_current)
            frame = added if frame is None else frame.unionByName(added)
    return session.spark.table(name).where(functions.lit(False)) if frame is None else frame  # noqa: FBT003


def no_rows(session: IcebergSession) -> DataFrame:
    """Return a DataFrame without rows and columns."""
    return session.spark.createDataFrame([], types.StructType([]))

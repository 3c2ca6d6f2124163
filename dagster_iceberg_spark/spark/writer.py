"""Executes a plan: one lazy DataFrame, one commit."""

from pyspark.sql import Column, DataFrame

from dagster_iceberg_spark.plan.write_plan import Append, AppendAlone, Guard, Merge, Overwrite, WritePlan
from dagster_iceberg_spark.spark import expressions
from dagster_iceberg_spark.spark.columns import (
    as_stored,
    column_of,
    functions_of,
    schema_of,
    with_all_fields,
    written_value,
)
from dagster_iceberg_spark.spark.counts import Counters
from dagster_iceberg_spark.spark.destination import append, append_alone, stored_rows, target, writer_to
from dagster_iceberg_spark.spark.execution import TaggedWork
from dagster_iceberg_spark.spark.failures import NULL_MARKER
from dagster_iceberg_spark.spark.guard import refusal
from dagster_iceberg_spark.spark.merge import merge
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.spark.versions import version_of
from dagster_iceberg_spark.table.commit import RowCounts
from dagster_iceberg_spark.table.predicate import Predicate


def write(session: IcebergSession, plan: WritePlan, frame: DataFrame, work: TaggedWork) -> RowCounts:
    """Write the DataFrame by the plan, as exactly one snapshot. If there is an error, there is no snapshot.

    `work` tags the operations of the attempt in sibling sessions. The engine's errors are not translated.
    """
    if isinstance(plan.action, Merge):
        return merge(session, plan, plan.action, frame, work)
    if plan.completions:
        frame = with_all_fields(frame, schema_of(frame, subject=str(plan.identifier)), plan.completions)
    for column in plan.required:
        frame = frame.where(expressions.refusal_of_nulls(column, f"{NULL_MARKER}{column!r}"))
    counters = Counters(session.spark, plan)
    guarded = counters.observed(frame) if plan.guard is None else _guarded(plan.guard, frame, counters)
    guarded = counters.evaluated_once(guarded)
    match plan.action:
        case Overwrite() as action:
            _overwrite(session, plan, action, guarded)
        case AppendAlone() as action:
            append_alone(session, plan, guarded, action.base_snapshot_id)
        case Append():
            append(session, plan, guarded)
    return counters.counts()


def _overwrite(session: IcebergSession, plan: WritePlan, action: Overwrite, frame: DataFrame) -> None:
    complete, extra = frame, {}
    if action.coverage.carries_over:
        stored = stored_rows(session, plan, action.base_snapshot_id)
        fitted = as_stored(frame, stored, is_case_sensitive=session.is_case_sensitive, subject=str(plan.identifier))
        for field in plan.defaults.values():  # as Spark does where nothing is carried over
            fitted = fitted.withColumn(field.name, written_value(functions_of(session.spark), field))
        complete = fitted.unionByName(_carried_rows(session, stored, action), allowMissingColumns=True)
        extra = {"validate-from-snapshot-id": str(action.base_snapshot_id), "isolation-level": "serializable"}
    version = version_of(session.spark)
    rows = _rows(session, version.overwritten(action.coverage.filter))
    rows = version.overwrite_filter(lambda: session.spark.table(target(session, plan)), rows)
    version.overwrite(session.spark, writer_to(session, plan, complete, extra), rows, action)


def _carried_rows(session: IcebergSession, stored: DataFrame, action: Overwrite) -> DataFrame:
    """Return the rows of straddling files that the run does not own, with the table's current columns.

    A read of the base snapshot would have that snapshot's columns. The commit validates that these rows have not
    changed since the base snapshot.
    """
    functions = functions_of(session.spark)
    owned = functions.coalesce(_rows(session, action.coverage.owned), functions.lit(False))  # noqa: FBT003
    return stored.where(_rows(session, action.coverage.filter)).where(~owned)


def _rows(session: IcebergSession, predicate: Predicate) -> Column:
    return column_of(functions_of(session.spark), predicate, catalog=session.catalog.name)


def _guarded(guard: Guard, frame: DataFrame, counters: Counters) -> DataFrame:
    if guard.drops:
        return counters.observed(frame).where(expressions.condition(guard.owned))
    return counters.observed(frame.where(refusal(frame, guard)))

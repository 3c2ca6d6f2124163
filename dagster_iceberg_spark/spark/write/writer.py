"""Executes a plan: one lazy DataFrame, one commit. Its rows are counted while they are written."""

import uuid
from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession

from dagster_iceberg_spark.plan.write.write_plan import Append, AppendAlone, Guard, Merge, Overwrite, WritePlan
from dagster_iceberg_spark.spark import expressions
from dagster_iceberg_spark.spark.columns import (
    Functions,
    as_stored,
    column_of,
    functions_of,
    schema_of,
    with_all_fields,
)
from dagster_iceberg_spark.spark.expressions import refusal
from dagster_iceberg_spark.spark.failures import NULL_MARKER
from dagster_iceberg_spark.spark.session.session import IcebergSession
from dagster_iceberg_spark.spark.tables import append, append_alone, stored_rows, target, with_default_values, writer_to
from dagster_iceberg_spark.spark.versions import version_of
from dagster_iceberg_spark.spark.write.execution import TaggedWork
from dagster_iceberg_spark.spark.write.merge import merge
from dagster_iceberg_spark.table.predicate import Predicate
from dagster_iceberg_spark.table.snapshot import RowCounts
from dagster_iceberg_spark.table.sql_text import condition

_ROWS: Final = "rows"
_DROPPED: Final = "dropped"


class Counters:
    """Row counts that the write observes, for those that the snapshot's summary does not have."""

    def __init__(self, spark: SparkSession, plan: WritePlan) -> None:
        self._plan = plan
        self._aggregates = list(_aggregates(functions_of(spark), plan))
        name = f"iceberg_{uuid.uuid4().hex}"
        self._observation = version_of(spark).observation(spark, name) if self._aggregates else None

    def observe(self, frame: DataFrame) -> DataFrame:
        """Return the DataFrame, whose rows are counted when they are written."""
        return frame.observe(self._observation, *self._aggregates) if self._observation is not None else frame

    def evaluated_once(self, frame: DataFrame) -> DataFrame:
        """Return the observed DataFrame, whose rows are counted once although Spark samples them before it writes.

        The rows are shuffled first: the sample and the write both read what the shuffle has stored.
        """
        if self._observation is None or not self._plan.is_sampled:
            return frame
        spark = frame.sparkSession
        if spark.conf.get("spark.sql.adaptive.enabled") == "true":
            return frame.hint("rebalance")
        return frame.repartition(int(str(spark.conf.get("spark.sql.shuffle.partitions"))))

    def counts(self) -> RowCounts:
        """Return the counts. Call this only after the write has succeeded: after a failure they are incomplete."""
        if self._observation is None:
            return RowCounts()
        values = self._observation.get
        if _ROWS not in values:
            return RowCounts()  # the rows are committed, so missing counts are no reason to fail
        by_partition = {
            key: int(values[f"p{index}"] or 0) for index, (key, _) in enumerate(self._plan.counted_partitions)
        }
        dropped = int(values.get(_DROPPED) or 0)
        return RowCounts(rows=int(values[_ROWS]) - dropped, dropped=dropped, by_partition=by_partition)


def _aggregates(functions: Functions, plan: WritePlan) -> Iterator[Column]:
    guard = plan.guard if plan.guard is not None and plan.guard.drops else None
    if not (plan.counted_partitions or plan.carries_over or guard):
        return
    yield functions.count(functions.lit(1)).alias(_ROWS)
    if guard is not None:
        owned = functions.coalesce(column_of(functions, guard.owned), functions.lit(False))  # noqa: FBT003
        yield functions.count_if(~owned).alias(_DROPPED)
    for index, (_, predicate) in enumerate(plan.counted_partitions):
        yield functions.count_if(column_of(functions, predicate)).alias(f"p{index}")


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
    guarded = counters.observe(frame) if plan.guard is None else _guard(plan.guard, frame, counters)
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
        fitted = with_default_values(session, plan, fitted)
        complete = fitted.unionByName(_carried_rows(session, stored, action), allowMissingColumns=True)
        extra = {"validate-from-snapshot-id": str(action.base_snapshot_id), "isolation-level": "serializable"}
    version = version_of(session.spark)
    rows = _rows(session, version.overwritten(action.coverage.filter))
    rows = version.overwrite_filter(lambda: session.spark.table(target(session, plan)), rows)
    version.overwrite(
        session.spark, writer_to(session, plan, complete, extra), rows, is_by_partition=action.is_by_partition
    )


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


def _guard(guard: Guard, frame: DataFrame, counters: Counters) -> DataFrame:
    if guard.drops:
        return counters.observe(frame).where(condition(guard.owned))
    return counters.observe(frame.where(refusal(frame, guard)))

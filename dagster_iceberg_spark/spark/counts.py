"""Counts rows while they are written, without another pass over the data."""

import uuid
from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession

from dagster_iceberg_spark.plan.write_plan import WritePlan
from dagster_iceberg_spark.spark.columns import Functions, column_of, functions_of
from dagster_iceberg_spark.spark.versions import version_of
from dagster_iceberg_spark.table.commit import RowCounts

_ROWS: Final = "rows"
_DROPPED: Final = "dropped"


class Counters:
    """Row counts that the write observes, for those that the snapshot's summary does not have."""

    def __init__(self, spark: SparkSession, plan: WritePlan) -> None:
        self._plan = plan
        self._aggregates = list(_aggregates(functions_of(spark), plan))
        name = f"iceberg_{uuid.uuid4().hex}"
        self._observation = version_of(spark).observation(spark, name) if self._aggregates else None

    def observed(self, frame: DataFrame) -> DataFrame:
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

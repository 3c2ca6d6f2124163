"""Determines the table's partitions that a DataFrame's rows fall in, before the rows replace them."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pyspark.sql import DataFrame

from dagster_iceberg_spark.plan.partitions.binding import BoundScope
from dagster_iceberg_spark.plan.write.adoption import operation_tag
from dagster_iceberg_spark.plan.write.touched import touched
from dagster_iceberg_spark.plan.write.write_request import WriteRequest
from dagster_iceberg_spark.spark import expressions
from dagster_iceberg_spark.spark.failures import translating
from dagster_iceberg_spark.spark.session.session import IcebergSession, active
from dagster_iceberg_spark.spark.versions import version_of
from dagster_iceberg_spark.spark.write.execution import TaggedWork, reported_progress, run_stoppable
from dagster_iceberg_spark.table.partitioning import PartitionField
from dagster_iceberg_spark.table.schema import Field

_AnswerT = TypeVar("_AnswerT")


def computed(session: IcebergSession, request: WriteRequest, frame: DataFrame) -> DataFrame:
    """Return the DataFrame with its rows computed once, so that the write uses the same rows."""

    def compute() -> DataFrame:
        with active(session.spark):
            return version_of(session.spark).checkpointed(frame)

    return run_query(session, request, compute)


def touched_partitions(
    session: IcebergSession,
    request: WriteRequest,
    partition_columns: Sequence[tuple[PartitionField, Field]],
    frame: DataFrame,
) -> BoundScope:
    """Return the rows of the table's partitions that the DataFrame's rows fall in."""
    values = [
        f"{expressions.partition_value(field, column, session.catalog.name)} AS p{index}"
        for index, (field, column) in enumerate(partition_columns)
    ]

    def partitions() -> Sequence[Sequence[Any]]:
        if not values:  # without partition fields, all rows of the table are in one partition
            return [() for _ in frame.limit(1).collect()]
        return [tuple(row) for row in frame.selectExpr(*values).distinct().collect()]

    return touched(partition_columns, run_query(session, request, partitions), subject=request.subject)


def run_query(
    session: IcebergSession, request: WriteRequest, query: Callable[[], _AnswerT], *, action: str = "write"
) -> _AnswerT:
    """Run a query of a write, which a later attempt can stop. `action` names the work in error messages."""
    subject = request.subject
    work = TaggedWork(operation_tag(request.materialization.commit_token), request.announce)
    with (
        translating(session.catalog, action=action, subject=subject),
        reported_progress(session.spark, request.report, subject=subject),
    ):
        return run_stoppable(session.spark, work, query, report=request.report, subject=subject)

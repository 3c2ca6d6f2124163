"""Finding out which of the table's partitions a frame's rows fall in, before they replace those."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from pyspark.sql import DataFrame

from dagster_iceberg_spark.plan.adoption import operation_tag
from dagster_iceberg_spark.plan.binding import BoundScope
from dagster_iceberg_spark.plan.request import TableRequest
from dagster_iceberg_spark.plan.touched import sources, touched
from dagster_iceberg_spark.plan.write import partition_fields
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import schema_of
from dagster_iceberg_spark.spark.execution import TaggedWork, run_stoppable
from dagster_iceberg_spark.spark.failures import ENGINE_ERRORS, translated
from dagster_iceberg_spark.spark.progress import reported_progress
from dagster_iceberg_spark.spark.publication import Publication
from dagster_iceberg_spark.spark.session import IcebergSession, active
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import TableState

_AnswerT = TypeVar("_AnswerT")
_NAME: Final = "p{}"


def computed(session: IcebergSession, publication: Publication, frame: DataFrame) -> DataFrame:
    """Return the frame's rows computed once: what is found out about them is then true of what is written.

    Raises:
        IcebergSparkError: What the engine says, translated.
    """

    def compute() -> DataFrame:
        with active(session.spark):
            return frame.localCheckpoint()

    return _asked(session, publication, compute)


def touched_partitions(
    session: IcebergSession,
    publication: Publication,
    request: TableRequest,
    scope: PartitionScope,
    frame: DataFrame,
    state: TableState | None,
) -> BoundScope:
    """Return the rows of the table's partitions that the frame's rows fall in.

    Args:
        session: The session of the frame.
        publication: What is asked for.
        request: The same of the table, under the names that it has for the columns.
        scope: The run's partitions.
        frame: The rows, under these names.
        state: The table.

    Raises:
        PartitioningError: The partitions are not told by values or times.
        IcebergSparkError: What the engine says, translated.
    """
    subject = str(request.identifier)
    given = schema_of(frame, subject=subject)
    fields = partition_fields(request, scope, given, state)
    stored = [given.field(field.name) if state is None else state.schema.field(field.name) for field in given]
    held = given.like(field if known is None else known for field, known in zip(given, stored, strict=True))
    columns = sources(fields, held, subject=subject)
    values = [
        f"{sql.partition_value(field, column)} AS {_NAME.format(index)}"
        for index, (field, column) in enumerate(zip(fields, columns, strict=True))
    ]

    def partitions() -> Sequence[Sequence[Any]]:
        if not values:  # of a table without partition fields all rows are in one partition
            return [() for _ in frame.limit(1).collect()]
        return [tuple(row) for row in frame.selectExpr(*values).distinct().collect()]

    return touched(fields, columns, _asked(session, publication, partitions), subject=subject)


def _asked(session: IcebergSession, publication: Publication, question: Callable[[], _AnswerT]) -> _AnswerT:
    subject = str(publication.request.identifier)
    work = TaggedWork(operation_tag(publication.materialization.commit_token), publication.announce)
    try:
        with reported_progress(session.spark, publication.report, subject=subject):
            return run_stoppable(session.spark, work, question, report=publication.report, subject=subject)
    except ENGINE_ERRORS as error:
        raise translated(error, action="write", subject=subject, redact=session.catalog.redact) from error

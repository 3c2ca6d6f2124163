"""The analyzed plan of a DataFrame, as Spark prints it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import DataFrame

from dagster_iceberg_spark.plan.read.read_plan import ReadPlan
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import column_of, functions_of, named_column
from dagster_iceberg_spark.spark.failures import translating
from dagster_iceberg_spark.spark.session.runtime import is_connect
from dagster_iceberg_spark.spark.session.session import IcebergSession
from dagster_iceberg_spark.spark.tables import refresh
from dagster_iceberg_spark.spark.versions import version_of
from dagster_iceberg_spark.table.sql_text import table_name

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
        frame = session.spark.sql(sql.rows_at(table_name(session.catalog.name, plan.identifier), plan.snapshot_id))
        rows = frame.where(column_of(functions, plan.predicate)).limit(limit)
        columns = [named_column(functions, name) for name in (*plan.columns, SEQUENCE_NUMBER)]
        found = rows.select(*columns).collect()
    return [(dict(zip(plan.columns, row[:-1], strict=True)), row[-1]) for row in found]


_MAXIMUM_FIELDS: Final = "spark.sql.debug.maxToStringFields"
"""How many items of a list Spark prints: 25 by default."""
ALL_FIELDS: Final = 2**31 - 1
_ANALYZED: Final = "== Analyzed Logical Plan ==\n"
_NEXT: Final = "\n== Optimized Logical Plan =="
_configuring: Final = threading.Lock()


def analyzed_plan(frame: DataFrame) -> str:
    """Return the analyzed plan of a DataFrame, with all fields of all lists.

    On Spark Connect, this is a part of what the server explains. Without rows, nothing else is planned: a limit of 0
    takes a quarter of the time, and no manifest is read.
    """
    session = frame.sparkSession
    if not is_connect(session):
        with _all_fields(session):
            return version_of(session).printed_plan(frame, maximum_fields=ALL_FIELDS)
    with version_of(session).without_retries(session), _all_fields(session):
        explained = _explain(frame.limit(0))
    _, _, analyzed = explained.partition(_ANALYZED)
    analyzed, _, _ = analyzed.partition(_NEXT)
    _, _, plan = analyzed.partition("\n")  # the line before the plan has the types of its columns
    return plan


def _explain(frame: Any) -> str:
    return str(frame._explain_string(extended=True))  # noqa: SLF001 - `explain` prints it


@contextmanager
def _all_fields(session: Any) -> Iterator[None]:
    """Print lists without leaving out items while the block runs, in this session."""
    with _configuring:
        before = session.conf.get(_MAXIMUM_FIELDS, None)
        session.conf.set(_MAXIMUM_FIELDS, ALL_FIELDS)
        try:
            yield
        finally:
            if before is None:
                session.conf.unset(_MAXIMUM_FIELDS)
            else:
                session.conf.set(_MAXIMUM_FIELDS, before)

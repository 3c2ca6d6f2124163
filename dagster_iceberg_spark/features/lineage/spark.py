"""The analyzed plan of a DataFrame, as Spark prints it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import Column, DataFrame

from dagster_iceberg_spark.features.lineage.plan.replay_plan import RowDigest
from dagster_iceberg_spark.plan.read.read_plan import ReadPlan
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import Functions, column_of, comparable, functions_of, named_column
from dagster_iceberg_spark.spark.failures import translating
from dagster_iceberg_spark.spark.read.frames import read
from dagster_iceberg_spark.spark.session.runtime import is_connect
from dagster_iceberg_spark.spark.session.session import IcebergSession
from dagster_iceberg_spark.spark.tables import refresh
from dagster_iceberg_spark.spark.versions import version_of
from dagster_iceberg_spark.table.schema import DOUBLE, FLOAT, Field
from dagster_iceberg_spark.table.sql_text import table_name

_DECIMAL: Final = "decimal(28,0)"
"""Holds a hash of 64 bits. Spark adds such numbers up to a decimal with ten more digits."""
_SEVEN_DIGITS: Final = "%.6e"


def row_digest(session: IcebergSession, plan: ReadPlan) -> RowDigest:
    """Return the digest of the plan's rows: the sum of the hashes of the values in each column, and of the rows."""
    functions = functions_of(session.spark)
    fields = [field for field in plan.schema if field.name in plan.columns]
    exact = [_hash(functions, field) for field in fields]
    rounded = [_hash(functions, field, is_rounded=True) for field in fields]
    hashes = [*exact, *rounded, functions.xxhash64(*exact), functions.xxhash64(*rounded)]
    sums = [functions.sum(value.cast(_DECIMAL)).alias(f"s{index}") for index, value in enumerate(hashes)]
    frame = read(session, plan)
    with translating(session.catalog, action="compare the rows of", subject=str(plan.identifier)):
        rows, *found = map(str, frame.agg(functions.count(functions.lit(1)).alias("rows"), *sums).collect()[0])
    count = len(fields)
    columns = {
        field.name: (one, other)
        for field, one, other in zip(fields, found[:count], found[count : 2 * count], strict=True)
    }
    return RowDigest(int(rows), columns, (found[-2], found[-1]))


def _hash(functions: Functions, field: Field, *, is_rounded: bool = False) -> Column:
    """Return the hash of a column. That of NULL is a number too."""
    column = named_column(functions, field.name)
    if is_rounded and field.type in (FLOAT, DOUBLE):
        return functions.xxhash64(functions.format_string(_SEVEN_DIGITS, column))
    value = comparable(functions, column, field.type)
    return functions.xxhash64(functions.to_json(functions.struct(column)) if value is None else value)


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

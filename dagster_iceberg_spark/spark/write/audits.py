"""Evaluates audits on the rows of a run in one snapshot, in one aggregate of Spark.

Conditions refer to the asset's names of its columns, also while a rename waits for the publication.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame

from dagster_iceberg_spark.catalog.audits import AuditedRows
from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.plan.publication.audit_metrics import aggregates_of, columns_of
from dagster_iceberg_spark.plan.write.write_request import WriteRequest
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import column_of, functions_of, named_column, project
from dagster_iceberg_spark.spark.failures import inspect_failure, translating
from dagster_iceberg_spark.spark.session.runtime import is_connect
from dagster_iceberg_spark.spark.session.session import IcebergSession, active
from dagster_iceberg_spark.spark.tables import refresh
from dagster_iceberg_spark.spark.write.execution import run_query
from dagster_iceberg_spark.table.audit import (
    FAILING_ROWS,
    NUMBER_OF_ROWS,
    REPEATED_ROWS,
    SHOWN_CHARACTERS,
    Audit,
    AuditResult,
    Condition,
    NotNull,
    Unique,
    nulls_in,
)
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.snapshot import TableState
from dagster_iceberg_spark.table.sql_text import enclosed, quote, table_name

Expressions: TypeAlias = Mapping[str, Mapping[str, str]]
"""What to aggregate for audits by name: expressions in SQL, by name."""
Results: TypeAlias = dict[str, AuditResult]
"""The results of audits by name."""

_DATA_EXCEPTION: Final = "22"
"""The class of SQLSTATE of an error that values have caused, such as a division by zero (ISO/IEC 9075)."""
_PASSED: Final = "passed"


def evaluable(
    session: IcebergSession, request: WriteRequest, frame: DataFrame, given: Schema, state: TableState | None
) -> Expressions:
    """Return what to aggregate for each audit, in SQL by name.

    The DataFrame to write, which has the columns `given`, is analysed and not computed.
    """
    audits = request.table.options.audits
    others = [field for field in state.schema if given.field(field.name) is None] if state and audits else []
    functions = functions_of(frame.sparkSession)
    nulls = {field.name: functions.lit(None).cast(sql.type_name(field.type)) for field in others}
    complete = frame.withColumns(nulls) if nulls else frame
    likeliest = {audit.name: _meanings(audit)[0] for audit in audits}
    with translating(session.catalog, action="audit", subject=request.subject):
        try:
            _analyse(complete, [text for texts in likeliest.values() for text in texts.values()])
        except AnalysisException:
            return {audit.name: _evaluable(session, complete, audit, request.subject) for audit in audits}
    return likeliest


def scan_published(session: IcebergSession, audits: Sequence[Audit], rows: AuditedRows) -> Results:
    """Evaluate audits on rows that nothing is written with, such as those of a check that runs alone."""
    with translating(session.catalog, action="audit", subject=str(rows.state.identifier)), active(session.spark):
        return scan(session, audits, rows, {})


def scan(session: IcebergSession, audits: Sequence[Audit], rows: AuditedRows, expressions: Expressions) -> Results:
    """Evaluate audits in one aggregate, and sample the rows that fail. `expressions` are those of `evaluable`."""
    frame, functions, subject = _frame(session, rows), functions_of(session.spark), str(rows.state.identifier)
    meanings = {audit: expressions.get(audit.name) or _evaluable(session, frame, audit, subject) for audit in audits}
    known = {audit.name: texts for audit, texts in meanings.items()}
    columns = [
        functions.expr(text).alias(f"a{index}_{position}")
        for index, texts in enumerate(meanings.values())
        for position, text in enumerate(texts.values())
    ]
    try:
        (row,) = frame.groupBy().agg(*columns).collect()
    except PySparkException as error:
        if not _is_of_values(error):
            raise
        if len(audits) > 1:
            return {audit.name: scan(session, [audit], rows, known)[audit.name] for audit in audits}
        reason = session.catalog.redact(inspect_failure(error).summary)
        return {audit.name: AuditResult(audit, passed=False, found={"error": reason}) for audit in audits}
    results = {}
    for index, (audit, texts) in enumerate(meanings.items()):
        found = {name: row[f"a{index}_{position}"] for position, name in enumerate(texts)}
        passed = found.pop(_PASSED) is not False if _PASSED in found else not any(found.values())
        sample = () if passed or _PASSED in texts else _sample(frame, audit, rows)
        results[audit.name] = AuditResult(audit, passed=passed, found=found, sample=sample)
    return results


def _is_of_values(error: PySparkException) -> bool:
    """Return whether values have caused the error."""
    state_of = getattr(error, "getSqlState", None)
    return str(state_of() if state_of else "").startswith(_DATA_EXCEPTION)


def _frame(session: IcebergSession, rows: AuditedRows) -> DataFrame:
    """Return the rows by the asset's names."""
    refresh(session, rows.state.identifier)
    name = table_name(session.catalog.name, rows.state.identifier)
    frame = session.spark.sql(sql.rows_at(name, rows.snapshot.snapshot_id))
    frame = project(frame, rows.held, rows.state.schema)
    if not rows.scope.is_whole_table:
        predicate = rows.scope.predicate()
        frame = frame.where(column_of(functions_of(session.spark), predicate, catalog=session.catalog.name))
    return project(frame, rows.state.schema, rows.columns)


def _evaluable(session: IcebergSession, frame: DataFrame, audit: Audit, subject: str) -> Mapping[str, str]:
    """Return the first meaning of an audit that Spark accepts."""
    failure: Exception | None = None
    for texts in _meanings(audit):
        try:
            _analyse(frame, list(texts.values()))
        except AnalysisException as error:
            failure = failure or error
        else:
            return texts
    reason = f": {session.catalog.redact(inspect_failure(failure).summary)}" if failure else ""
    raise MetadataKeyError.of_value(
        audit.setting,
        subject,
        expected=f"a condition in {audit.name!r} on the columns {', '.join(frame.columns)}",
        found=f"`{audit.rule}`, which Spark cannot evaluate{reason}",
    ) from failure


def _analyse(frame: DataFrame, aggregates: Sequence[str]) -> None:
    """Let Spark analyse aggregates of the DataFrame, which is not computed. A classic session does so at once."""
    if not aggregates:
        return
    analysed = frame.groupBy().agg(*map(functions_of(frame.sparkSession).expr, aggregates))
    if is_connect(frame.sparkSession):
        _ = analysed.schema


def _meanings(audit: Audit) -> list[dict[str, str]]:
    """Return the possible meanings of an audit in SQL by name, the likeliest first: of each row, or of all rows."""
    match audit.rule:
        case NotNull(columns):
            return [{nulls_in(name): f"count_if({quote(name)} IS NULL)" for name in columns}]
        case Unique(columns):
            key = f"struct({', '.join(map(quote, columns))})"
            return [{REPEATED_ROWS: f"count(1) - count(DISTINCT {key})"}]
        case Condition(text) as rule:
            values = {value: value for value in aggregates_of(rule)}
            whole = {_PASSED: f"NOT (NOT {enclosed(text)})"}  # an error if it is no boolean
            of_each = {FAILING_ROWS: f"count_if(NOT {enclosed(text)})"}
            return [{**whole, **values}, whole] if values else [of_each, whole]


def _sample(frame: DataFrame, audit: Audit, rows: AuditedRows) -> tuple[Mapping[str, str], ...]:
    """Return some rows that fail an audit of each row, if there is a column to show."""
    functions = functions_of(frame.sparkSession)
    match audit.rule:
        case Unique(columns):
            counted = frame.groupBy(*map(functions.col, map(quote, columns)))
            failing = counted.agg(functions.count(functions.lit(1)).alias(NUMBER_OF_ROWS))
            failing = failing.where(named_column(functions, NUMBER_OF_ROWS) > 1)
            shown = list(failing.columns)
        case NotNull(columns):
            failing = frame.where(" OR ".join(f"{quote(name)} IS NULL" for name in columns))
            shown = rows.shown(columns)
        case Condition(text) as rule:
            failing = frame.where(f"NOT {enclosed(text)}")
            shown = rows.shown(columns_of(rule))
    if not shown or not rows.samples:
        return ()
    texts = [functions.expr(f"left(CAST({quote(name)} AS STRING), {SHOWN_CHARACTERS})").alias(name) for name in shown]
    found = failing.select(*texts).limit(rows.samples).collect()
    return tuple({name: "NULL" if row[name] is None else row[name] for name in shown} for row in found)


@dataclass(frozen=True, slots=True)
class SparkAudits:
    """The audits of a staged write.

    Args:
        expressions: What to aggregate for each audit.
    """

    session: IcebergSession
    request: WriteRequest
    expressions: Expressions

    @property
    def look_at_rows_together(self) -> bool:
        """Whether an audit looks at several rows together, such as for repeated keys."""
        return any(_PASSED in texts or REPEATED_ROWS in texts for texts in self.expressions.values())

    def scan(self, audits: Sequence[Audit], rows: AuditedRows) -> Results:
        """Evaluate audits on the staged rows, in one aggregate."""
        query = partial(scan, self.session, audits, rows, self.expressions)
        return run_query(self.session, self.request, query, action="audit")

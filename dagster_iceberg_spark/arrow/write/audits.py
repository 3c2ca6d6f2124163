"""Evaluates audits on staged rows without a JVM: conditions on single rows, `unique` and `not_null`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import ArrowScan

from dagster_iceberg_spark.arrow.scan import batches_of, readable_files
from dagster_iceberg_spark.arrow.write.files import slim
from dagster_iceberg_spark.arrow.write.matching import RowFilter
from dagster_iceberg_spark.catalog.audits import AuditedRows
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.expressions import expression_of
from dagster_iceberg_spark.catalog.look import known_table, translated_answers
from dagster_iceberg_spark.errors import EngineUnfitError
from dagster_iceberg_spark.plan.publication.audit_metrics import columns_of, metrics_audit
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
from dagster_iceberg_spark.table.predicate import IsNull, Not, Predicate, any_of
from dagster_iceberg_spark.table.schema import Schema


def refuse_unfit(audits: Sequence[Audit], columns: Schema, *, subject: str) -> None:
    """Reject audits that only Spark evaluates. Rows with these columns are staged.

    Raises:
        EngineUnfitError: An audit needs Spark, also because it is wrong, which Spark explains.
    """
    for audit in audits:
        known = metrics_audit(audit, columns, subject=subject)
        match audit.rule:
            case Unique(names) | NotNull(names):
                is_fit = all(columns.field(name) is not None for name in names)
            case Condition():
                is_fit = known is not None
        if not is_fit:
            raise EngineUnfitError.because(subject, f"the audit {audit.name!r} ({audit.rule}) is evaluated in SQL")


@dataclass(frozen=True, slots=True)
class ArrowAudits:
    """The audits of a staged write.

    Args:
        audits: All of them.
    """

    catalog: CatalogDescription
    audits: tuple[Audit, ...]
    columns: Schema

    @property
    def look_at_rows_together(self) -> bool:
        """Whether an audit looks at several rows together, such as for repeated keys."""
        return any(
            isinstance(audit.rule, Unique) or (isinstance(audit.rule, Condition) and self._condition(audit) is None)
            for audit in self.audits
        )

    def scan(self, audits: Sequence[Audit], rows: AuditedRows) -> dict[str, AuditResult]:
        """Return the results of audits, from the staged rows.

        Raises:
            EngineUnfitError: The metadata of the data files does not decide an audit over aggregates.
        """
        subject = str(rows.state.identifier)
        if rows.has_renames:
            raise EngineUnfitError.because(subject, "columns are renamed after the publication of audited rows")
        table = known_table(self.catalog, rows.state.identifier, action="audit")
        with translated_answers(self.catalog, action=f"audit {subject} in"):
            return {audit.name: self._result(audit, rows, table) for audit in audits}

    def _condition(self, audit: Audit) -> Predicate | None:
        """Return the rows that meet a condition, or None for one over aggregates."""
        known = metrics_audit(audit, self.columns, subject="")
        return None if known is None or known.aggregates else known.condition

    def _result(self, audit: Audit, rows: AuditedRows, table: Any) -> AuditResult:
        match audit.rule:
            case NotNull(names):
                failing = {nulls_in(name): IsNull(rows.columns.exact(name)) for name in names}
                return _of_rows(audit, rows, table, failing, names)
            case Condition() as rule:
                condition = self._condition(audit)
                if condition is None:
                    reason = f"the audit {audit.name!r} ({rule}) needs a scan of the rows in SQL"
                    raise EngineUnfitError.because(str(rows.state.identifier), reason)
                return _of_rows(audit, rows, table, {FAILING_ROWS: Not(condition)}, columns_of(rule))
            case Unique(names):
                return _of_keys(audit, rows, table, tuple(map(rows.columns.exact, names)))


def _of_rows(
    audit: Audit, rows: AuditedRows, table: Any, failing: Mapping[str, Predicate], named: Sequence[str]
) -> AuditResult:
    """Return the result of an audit of each row. `failing` has the rows that fail it, by what is counted."""
    schema = table.schema()
    filters = {name: RowFilter(predicate, schema) for name, predicate in failing.items()}
    any_fails = RowFilter(any_of(failing.values()), schema)
    found, sample = dict.fromkeys(filters, 0), list[Mapping[str, str]]()
    shown = rows.shown(named)
    for part in _batches(rows, table, {*named, *shown}):
        for name, condition in filters.items():
            found[name] += condition.matching(part).num_rows
        if len(sample) < rows.samples:
            failed = any_fails.matching(part).select(shown).slice(0, rows.samples - len(sample))
            sample += [{name: _text(value) for name, value in row.items()} for row in failed.to_pylist()]
    return AuditResult(audit, passed=not any(found.values()), found=found, sample=tuple(sample))


def _of_keys(audit: Audit, rows: AuditedRows, table: Any, names: tuple[str, ...]) -> AuditResult:
    """Return the result of an audit for repeated values."""
    parts = [part.select(names) for part in _batches(rows, table, set(names))]
    try:
        counted = pa.concat_tables(parts).group_by(list(names)).aggregate([([], "count_all")]) if parts else None
    except pa.ArrowNotImplementedError:
        reason = f"the audit {audit.name!r} compares nested values"
        raise EngineUnfitError.because(str(rows.state.identifier), reason) from None
    if counted is None:
        return AuditResult(audit, passed=True, found={REPEATED_ROWS: 0})
    repeated = counted.filter(pc.field("count_all") > 1)
    number = (pc.sum(repeated.column("count_all")).as_py() or 0) - repeated.num_rows
    shown = repeated.slice(0, rows.samples).rename_columns([*names, NUMBER_OF_ROWS]) if repeated.num_rows else repeated
    sample = tuple({name: _text(value) for name, value in row.items()} for row in shown.to_pylist())
    return AuditResult(audit, passed=not number, found={REPEATED_ROWS: number}, sample=sample)


def _batches(rows: AuditedRows, table: Any, names: set[str]) -> Iterator[pa.Table]:
    """Yield these columns of the audited rows."""
    columns = tuple(dict.fromkeys(rows.columns.exact(name) for name in names)) or ("*",)
    scan = table.scan(
        row_filter=expression_of(rows.scope.predicate()), selected_fields=columns, snapshot_id=rows.snapshot.snapshot_id
    )
    refuse = partial(EngineUnfitError.because, str(rows.state.identifier))
    reader = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter)
    for batch in batches_of(reader, table.io, readable_files(scan.plan_files, refuse)):
        yield slim(pa.Table.from_batches([batch]))


def _text(value: Any) -> str:
    return "NULL" if value is None else str(value)[:SHOWN_CHARACTERS]

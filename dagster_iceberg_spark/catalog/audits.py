"""Evaluates audits by the metadata of data files, without a JVM."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import file_metrics
from dagster_iceberg_spark.plan.options.output_options import WriteOptions
from dagster_iceberg_spark.plan.partitions.binding import EVERYTHING, BoundScope, bind_scope
from dagster_iceberg_spark.plan.publication.audit_metrics import FileMetrics, MetricsAudit, metrics_audit
from dagster_iceberg_spark.plan.read.read_plan import schemas_at
from dagster_iceberg_spark.plan.schema.renames import StoredNames
from dagster_iceberg_spark.plan.write.overwrite_filter import within_file
from dagster_iceberg_spark.table.audit import FAILING_ROWS, Audit, AuditResult, Condition, NotNull, Unique
from dagster_iceberg_spark.table.lineage import CARRIES_OVER, WRITE_DISPOSITION
from dagster_iceberg_spark.table.schema import Schema, are_same_columns
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState
from dagster_iceberg_spark.table.sql_text import condition, enclosed, quote, repeated_rows, rows_where, table_name

_PLAIN_NAME: Final = re.compile(r"[\w.`]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class AuditedRows:
    """The rows that audits are evaluated on, in one snapshot.

    Args:
        columns: The table's columns, by the asset's names.
        scope: The rows, by the table's names.
        are_added: Whether these are the rows of the files that the snapshot added.
        keys: The merge keys, by the asset's names.
        samples: How many rows that fail an audit are shown.
    """

    state: TableState
    snapshot: Snapshot
    columns: Schema
    scope: BoundScope
    are_added: bool
    keys: tuple[str, ...]
    samples: int

    @property
    def stored(self) -> Mapping[str, str]:
        """The table's names of columns that have another name in the asset, by the asset's names."""
        pairs = zip(self.columns, self.state.schema, strict=True)
        return {column.name: field.name for column, field in pairs if column.name != field.name}

    @property
    def held(self) -> Schema:
        """The columns of the snapshot, by its own names."""
        return schemas_at(self.state, [self.snapshot])[0]

    @property
    def has_renames(self) -> bool:
        """Whether columns or fields of structs are renamed after the publication."""
        return not are_same_columns(self.columns.fields, self.state.schema.fields)

    def shown(self, named: Iterable[str]) -> list[str]:
        """Return the columns of a sample: those that the audit names, the partitions and the merge keys.

        Others may hold personal data, and the event log keeps what it has for ever.
        """
        known = {self.columns.exact(name) for name in (*named, *self.scope.columns, *self.keys)}
        return [column.name for column in self.columns if column.name in known]

    def query_of(self, result: AuditResult, *, catalog: str, branch: str) -> str:
        """Return a query to inspect the rows, or those that fail an audit of each row, in Spark SQL for messages."""
        name = table_name(catalog, self.state.identifier, branch)
        if _PLAIN_NAME.fullmatch(name):
            name = name.replace("`", "")
        conditions = [] if self.scope.is_whole_table else [condition(self.scope.predicate(), catalog=catalog)]
        keys: tuple[str, ...] = ()
        if not self.has_renames:
            match result.audit.rule:
                case Condition(text) if FAILING_ROWS in result.found:
                    conditions.append(f"NOT {enclosed(text)}")
                case NotNull(columns):
                    conditions.append(" OR ".join(f"{quote(item)} IS NULL" for item in columns))
                case Unique(columns):
                    keys = columns
        where = " AND ".join(f"({item})" if len(conditions) > 1 else item for item in conditions) or None
        return repeated_rows(name, keys, where) if keys else rows_where(name, where)


def audited_rows(
    state: TableState,
    snapshot: Snapshot,
    given: Schema,
    options: WriteOptions,
    *,
    samples: int,
    scope: PartitionScope | None = None,
) -> AuditedRows:
    """Return the rows of a run's partitions in the snapshot that it wrote, or all rows of a snapshot.

    `given` has the columns of the run's DataFrame, and `options` are the asset's.
    """
    subject = str(state.identifier)
    names = StoredNames.of(options.renames, given, state.schema, subject=subject)
    is_replaced = snapshot.summary.get(WRITE_DISPOSITION) == "replace" and CARRIES_OVER not in snapshot.summary
    return AuditedRows(
        state=state,
        snapshot=snapshot,
        columns=names.of_asset(state.schema),
        scope=EVERYTHING if scope is None else bind_scope(names.of_scope(scope), state.schema, subject=subject),
        are_added=scope is not None and is_replaced,
        keys=options.merge_keys,
        samples=samples,
    )


def evaluate(
    description: CatalogDescription,
    audits: Sequence[Audit],
    rows: AuditedRows,
    scan: Callable[[Sequence[Audit]], dict[str, AuditResult]],
) -> dict[str, AuditResult]:
    """Return the results of the audits by name. `scan` evaluates those that the metadata does not determine."""
    known = results_by_metadata(description, audits, rows)
    others = [audit for audit in audits if audit.name not in known]
    results = known | scan(others) if others else known
    return {audit.name: results[audit.name] for audit in audits}


def results_by_metadata(
    description: CatalogDescription, audits: Sequence[Audit], rows: AuditedRows
) -> dict[str, AuditResult]:
    """Return the results that the metadata of the data files determines, by the names of the audits."""
    subject = str(rows.state.identifier)
    known = [found for audit in audits if (found := metrics_audit(audit, rows.columns, subject=subject)) is not None]
    files = _files(description, known, rows) if known else None
    results = [] if files is None else [audit.result(files) for audit in known]
    return {result.audit.name: result for result in results if result is not None}


def _files(
    description: CatalogDescription, audits: Sequence[MetricsAudit], rows: AuditedRows
) -> tuple[FileMetrics, ...] | None:
    """Return the metrics of the files that hold these rows and no others, by the asset's names, or None."""
    snapshot = rows.snapshot
    has_deletes = "total-delete-files" not in snapshot.summary or snapshot.count("total-delete-files") > 0
    if has_deletes and not rows.are_added:
        return None
    names = {column.name: rows.stored.get(column.name, column.name) for audit in audits for column in audit.columns}
    scope_columns = None if rows.are_added else rows.scope.columns
    try:
        found = file_metrics(
            description, rows.state.identifier, snapshot.snapshot_id, names.values(), scope_columns=scope_columns
        )
    except ValueError:  # another writer has renamed or dropped a column
        return None
    kept = []
    for file, metrics in found:
        inside = EVERYTHING if rows.are_added else within_file(rows.scope, file)
        if inside.boxes and not inside.is_whole_table:
            return None  # the file holds other rows too
        if inside.boxes:
            kept.append(FileMetrics(metrics.rows, {name: metrics.columns[stored] for name, stored in names.items()}))
    return tuple(kept)

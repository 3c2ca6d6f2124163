"""Writes by another process, such as a job on a cluster. The snapshot with the commit token decides their outcome."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn, cast

from dagster_iceberg_spark.catalog.audits import AuditedRows
from dagster_iceberg_spark.catalog.branches import change_branch
from dagster_iceberg_spark.catalog.changes import change_table
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.commit.attempts import materialize
from dagster_iceberg_spark.errors import IcebergSparkError, JobFailedError
from dagster_iceberg_spark.plan.write.write_request import WriteRequest, WrittenElsewhere
from dagster_iceberg_spark.table.audit import Audit, AuditResult
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import COMMIT_TOKEN
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.snapshot import Commit, TableState
from dagster_iceberg_spark.table.updates import BranchUpdate, TableUpdate


def adopt(
    catalog: CatalogDescription,
    request: WriteRequest,
    written: WrittenElsewhere,
    scan: Callable[[Sequence[Audit], AuditedRows], dict[str, AuditResult]],
) -> Commit:
    """Return the commit of another process. If it was interrupted before the publication, publish the rows.

    `scan` evaluates audits that neither the metadata nor the other process has evaluated.

    Raises:
        JobFailedError: The table has no snapshot with the token, however the process has ended.
    """
    commit = materialize(_AdoptingEngine(catalog, request, written, scan), request, known=written.known)
    if written.counts is None or commit.snapshot.snapshot_id != written.snapshot_id:
        return commit
    return replace(commit, counts=written.counts)


@dataclass(frozen=True)
class _AdoptingEngine:
    """An engine without rows, which cannot write."""

    catalog: CatalogDescription
    request: WriteRequest
    written: WrittenElsewhere
    scanned: Callable[[Sequence[Audit], AuditedRows], dict[str, AuditResult]]
    errors: tuple[type[Exception], ...] = (IcebergSparkError,)

    @cached_property
    def given(self) -> Schema:
        """The columns of the table. The other process has changed them as its rows needed."""
        state = look(self.catalog, self.request.identifier)
        return Schema(()) if state is None else state.schema

    def require_writable(self, state: TableState | None) -> NoReturn:
        """Reject the write: the protocol has found no snapshot to adopt."""
        raise JobFailedError.refusing(
            "store",
            self.request.subject,
            expected=f"a snapshot with `{COMMIT_TOKEN}` = {self.request.materialization.commit_token}, which the job "
            "commits",
            found=f"{'no table' if state is None else 'none'}; {self.written.found}",
            hint="look at the log of the job. It has to write the output through `open_iceberg_pipes`.",
        ) from self.written.cause

    def translate(self, error: Exception) -> IcebergSparkError:
        """Return the error, which is the package's own."""
        return cast("IcebergSparkError", error)

    def change_branches(self, identifier: TableIdentifier, changes: Sequence[BranchUpdate]) -> None:
        """Create and drop branches in order."""
        for change in changes:
            change_branch(self.catalog, identifier, change)

    def apply(self, identifier: TableIdentifier, changes: Sequence[TableUpdate]) -> None:
        """Change the table's metadata."""
        change_table(self.catalog, identifier, changes)

    def audits(self, state: TableState | None) -> "_AdoptingEngine":  # noqa: ARG002 - the other process has judged it
        """Return the audits: this engine."""
        return self

    @property
    def look_at_rows_together(self) -> bool:
        """Whether an audit may look at several rows together."""
        return True

    def scan(self, audits: Sequence[Audit], rows: AuditedRows) -> dict[str, AuditResult]:
        """Return the results of the other process, and evaluate the audits that it has not."""
        known = {audit.name: self.written.audits[audit.name] for audit in audits if audit.name in self.written.audits}
        others = [audit for audit in audits if audit.name not in known]
        return known | (self.scanned(others, rows) if others else {})

    def _never(self, *_: object) -> NoReturn:
        """Never called: `require_writable` comes first."""
        raise NotImplementedError

    require_supported = touched = prepare = write = has_ended = change_tags = fast_forward = _never

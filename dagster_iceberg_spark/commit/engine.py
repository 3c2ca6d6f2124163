"""What the commit protocol asks of an engine. Spark is one, and Arrow is another."""

from collections.abc import Sequence
from typing import Protocol

from dagster_iceberg_spark.catalog.audits import AuditedRows
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.plan.partitions.binding import BoundScope
from dagster_iceberg_spark.plan.publication.staged_rows import StagedRows
from dagster_iceberg_spark.plan.schema.renames import StoredNames
from dagster_iceberg_spark.plan.write.draft import WriteDraft
from dagster_iceberg_spark.plan.write.write_plan import WritePlan
from dagster_iceberg_spark.table.audit import Audit, AuditResult
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.snapshot import RowCounts, TableState
from dagster_iceberg_spark.table.updates import BranchUpdate, TableUpdate, TagUpdate


class Audits(Protocol):
    """The audits of a staged write, which the engine has accepted before anything is written."""

    @property
    def look_at_rows_together(self) -> bool:
        """Whether an audit looks at several rows together, such as for repeated keys."""

    def scan(self, audits: Sequence[Audit], rows: AuditedRows) -> dict[str, AuditResult]:
        """Return the results of audits that need a scan of the staged rows, by name."""


class Engine(Protocol):
    """An engine with the rows of one materialization. Each step may be repeated, for another attempt."""

    @property
    def catalog(self) -> CatalogDescription:
        """The catalog of the table."""

    @property
    def given(self) -> Schema:
        """The columns of the rows."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The engine's own errors, which `translate` takes."""

    def require_writable(self, state: TableState | None) -> None:
        """Reject a table that the engine's settings keep from being written."""

    def require_supported(self, draft: WriteDraft) -> None:
        """Reject a write that the engine cannot do, before anything is changed."""

    def touched(self, draft: WriteDraft, names: StoredNames) -> BoundScope:
        """Return the rows of the table's partitions that the given rows fall in."""

    def prepare(self, plan: WritePlan) -> None:
        """Create the table and apply the plan's changes. This adds no snapshot to `main`."""

    def write(self, plan: WritePlan, names: StoredNames) -> RowCounts:
        """Write the rows by the plan, as exactly one snapshot. If there is an error, there may still be one."""

    def translate(self, error: Exception) -> IcebergSparkError:
        """Return the engine's error as the package's."""

    def has_ended(self, error: Exception) -> bool:
        """Return whether the error says that the engine was lost, and whether nothing of the write runs any more."""

    def change_branches(self, identifier: TableIdentifier, changes: Sequence[BranchUpdate]) -> None:
        """Create and drop branches in order."""

    def change_tags(self, identifier: TableIdentifier, changes: Sequence[TagUpdate]) -> bool:
        """Set and drop tags. Return false if the engine cannot."""

    def apply(self, identifier: TableIdentifier, changes: Sequence[TableUpdate]) -> None:
        """Change the table's metadata after the data is committed."""

    def audits(self, state: TableState | None) -> Audits:
        """Return the audits of the write. The engine rejects those that it cannot evaluate."""

    def fast_forward(self, state: TableState, rows: StagedRows) -> bool:
        """Move the target of staged rows to the staged branch. Return false if the target has moved."""

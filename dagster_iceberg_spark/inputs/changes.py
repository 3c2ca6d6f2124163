"""Finds what has changed in an upstream table, for an incremental read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import removed_files
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.inputs.read_request import ReadRequest
from dagster_iceberg_spark.plan.incremental import (
    Changes,
    ReadPosition,
    deletes_of,
    has_delete_files,
    may_delete,
    refuse_unclear,
    scan_of,
)
from dagster_iceberg_spark.plan.read import ReadPlan, at_snapshot, new_snapshots, schemas_at
from dagster_iceberg_spark.plan.read_options import CHANGES_FALLBACK
from dagster_iceberg_spark.table.lineage import RUN_ID, ReadKind
from dagster_iceberg_spark.table.schema import is_orderable
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState


@dataclass(frozen=True, slots=True)
class ChangeFinder:
    """Finds what has changed for one input.

    Args:
        catalog: The catalog of the table.
        request: The read request of the input.
        warn: Writes a warning to the run's log.
    """

    catalog: CatalogDescription
    request: ReadRequest
    warn: Callable[[str], None]

    def with_changes(self, state: TableState, plan: ReadPlan, position: ReadPosition) -> ReadPlan:
        """Return the plan, limited to what has changed since the position.

        Raises:
            ChangesUnknownError: The changes cannot be determined, and the input has no fallback.
            ConfigurationError: Iceberg cannot determine the changes of columns of this type.
        """
        options, kind, since = self.request.options, self.request.options.kind, position.since
        if kind is None:
            return plan
        if kind == "changelog":
            self._require_orderable(state, plan)
        plan = plan if position.until is None else at_snapshot(state, plan, position.until)
        found: Changes | str
        if position.unclear is not None:
            found = position.unclear
        elif since is None:
            found = Changes(kind, None, is_repeated=position.is_repeated)
        else:
            found = self._changes_since(state, plan, kind, since)
        if isinstance(found, Changes):
            return replace(plan, changes=found)
        refuse_unclear(plan.identifier, self.request.asset, options, found)
        self.warn(f"Reading all rows of {plan.identifier} (`{CHANGES_FALLBACK}`) because of {found}.")
        return replace(plan, changes=Changes(kind, None, is_repeated=True))

    def _changes_since(self, state: TableState, plan: ReadPlan, kind: ReadKind, since: int) -> Changes | str:
        """Return the changes since a snapshot, or why they cannot be determined."""
        snapshots = new_snapshots(state, plan, since, is_head=self.request.options.is_head)
        if snapshots is None:
            return (
                f"a history without snapshot {since}, which was read last: it has expired, was rolled back, or is on "
                "another branch"
            )
        obstacle = self._obstacle(plan, kind, snapshots)
        if obstacle is not None:
            return obstacle
        scan = scan_of(kind, snapshots)
        stored = schemas_at(state, snapshots) if scan == "files" else ()
        return Changes(kind, since, tuple(snapshot.snapshot_id for snapshot in snapshots), stored, scan)

    def _require_orderable(self, state: TableState, plan: ReadPlan) -> None:
        """Reject columns that cannot be sorted: Iceberg sorts rows to find those that a commit rewrote unchanged."""
        maps = [field.name for field in plan.schema if not is_orderable(field.type)]
        if maps and not state.identifier_fields:
            raise ConfigurationError.refusing(
                "read every change of",
                str(plan.identifier),
                expected="columns that can be sorted, or identifier fields",
                found=f"the column {maps[0]!r}, which contains a map or a variant",
                hint="read `changes`, or set identifier fields. An asset that merges sets them to its merge keys.",
            )

    def _obstacle(self, plan: ReadPlan, kind: ReadKind, snapshots: Sequence[Snapshot]) -> str | None:
        """Return the snapshot whose changes cannot be determined, in words, or None if there is no such snapshot."""
        if kind == "changelog":
            unclear = next((item for item in snapshots if has_delete_files(item)), None)
            reason = "has delete files, which Iceberg's changelog does not support"
        else:
            unclear = next((item for item in snapshots if may_delete(item) and self._deletes(plan, item)), None)
            reason = "removed or rewrote rows that the input reads"
        if unclear is None:
            return None
        run = f" of run {unclear.summary[RUN_ID]}" if unclear.summary.get(RUN_ID) else ""
        return f"snapshot {unclear.snapshot_id} ({unclear.operation}{run}), which {reason}"

    def _deletes(self, plan: ReadPlan, snapshot: Snapshot) -> bool:
        if plan.scope.is_whole_table:
            return True
        files = removed_files(
            self.catalog,
            plan.identifier,
            snapshot.snapshot_id,
            plan.scope.columns,
            schema_id=plan.schema.schema_id,
        )
        return deletes_of(plan.scope, files)

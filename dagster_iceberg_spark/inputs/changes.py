"""What is new in an upstream table: which snapshots changed rows, and how their changes are found."""

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
    """Finds what is new for one input.

    Args:
        catalog: The catalog of the table.
        request: What the input asks for.
        warn: Takes a warning for the run's log.
    """

    catalog: CatalogDescription
    request: ReadRequest
    warn: Callable[[str], None]

    def with_changes(self, state: TableState, plan: ReadPlan, position: ReadPosition) -> ReadPlan:
        """Return the read of what is new since the position.

        Raises:
            ChangesUnknownError: The changes cannot be determined, and the input does not ask for all rows then.
            ConfigurationError: Iceberg cannot determine the changes of such columns.
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
        self.warn(f"Reading all rows of {plan.identifier}, as `{CHANGES_FALLBACK}` asks, because of {found}.")
        return replace(plan, changes=Changes(kind, None, is_repeated=True))

    def _changes_since(self, state: TableState, plan: ReadPlan, kind: ReadKind, since: int) -> Changes | str:
        """Return what has changed since a snapshot, or what makes that it cannot be told."""
        snapshots = new_snapshots(state, plan, since, is_head=self.request.options.is_head)
        if snapshots is None:
            return (
                f"a history without snapshot {since}, which was read last: it has expired, was rolled back, or is of a "
                "branch"
            )
        hidden = self._what_hides_changes(plan, kind, snapshots)
        if hidden is not None:
            return hidden
        scan = scan_of(kind, snapshots)
        stored = schemas_at(state, snapshots) if scan == "files" else ()
        return Changes(kind, since, tuple(snapshot.snapshot_id for snapshot in snapshots), stored, scan)

    def _require_orderable(self, state: TableState, plan: ReadPlan) -> None:
        """Refuse what Iceberg cannot tell of a commit's rows that are as they were: it sorts them."""
        maps = [field.name for field in plan.schema if not is_orderable(field.type)]
        if maps and not state.identifier_fields:
            raise ConfigurationError.refusing(
                "read every change of",
                str(plan.identifier),
                expected="columns that can be sorted, or identifier fields",
                found=f"the column {maps[0]!r}, which has a map or a variant in it",
                hint="read `changes`, or set identifier fields: `merge_keys` of an asset that merges does.",
            )

    def _what_hides_changes(self, plan: ReadPlan, kind: ReadKind, snapshots: Sequence[Snapshot]) -> str | None:
        """Return which snapshot makes that the changes cannot be told; None: none does."""
        if kind == "changelog":
            hiding = next((item for item in snapshots if has_delete_files(item)), None)
            what = "has delete files, of which Iceberg's changelog cannot tell the rows"
        else:
            hiding = next((item for item in snapshots if may_delete(item) and self._deletes(plan, item)), None)
            what = "has removed rows of what is read, or written them anew"
        if hiding is None:
            return None
        run_id = hiding.summary.get(RUN_ID)
        return (
            f"snapshot {hiding.snapshot_id} ({hiding.operation}{f' of run {run_id}' if run_id else ''}), which {what}"
        )

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

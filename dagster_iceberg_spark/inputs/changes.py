"""Finds what has changed in an upstream table, for an incremental read."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import removed_files
from dagster_iceberg_spark.errors import ChangesUnknownError, ConfigurationError
from dagster_iceberg_spark.inputs.read_request import ReadRequest
from dagster_iceberg_spark.plan.incremental import (
    Changes,
    Position,
    has_delete_files,
    may_have_rows,
    scan_of,
    to_be_read,
)
from dagster_iceberg_spark.plan.read import ReadPlan, at_snapshot, later_snapshots, schemas_at
from dagster_iceberg_spark.plan.read_options import CHANGES_FALLBACK, READ
from dagster_iceberg_spark.table.change import may_remove_rows
from dagster_iceberg_spark.table.lineage import RUN_ID, ReadKind
from dagster_iceberg_spark.table.schema import is_orderable
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState


def with_changes(
    state: TableState,
    plan: ReadPlan,
    position: Position,
    kind: ReadKind,
    *,
    request: ReadRequest,
    catalog: CatalogDescription,
    warn: Callable[[str], None],
) -> ReadPlan:
    """Return the plan, limited to what has changed since the position. `warn` writes to the run's log."""
    if kind == "changelog":
        _require_orderable(state, plan)
    found: Changes | str
    if isinstance(position, str):
        found = position
    else:
        plan = plan if position.snapshot_id is None else at_snapshot(state, plan, position.snapshot_id)
        if position.since is None:
            found = Changes(kind, None, is_repeated=position.is_repeated)
        else:
            found = _changes_since(state, plan, kind, position.since, is_head=request.options.is_head, catalog=catalog)
    if isinstance(found, Changes):
        return replace(plan, changes=found)
    fallback = request.options.changes_fallback
    if fallback == "error":
        raise _unclear_changes(str(plan.identifier), request.asset, kind, found)
    purpose = " to replace what was made of them" if fallback == "partitions" else ""
    warn(f"Reading all rows of {plan.identifier}{purpose} (`{CHANGES_FALLBACK}`) because of {found}.")
    return replace(plan, changes=Changes(kind, None, is_repeated=True))


def _changes_since(
    state: TableState, plan: ReadPlan, kind: ReadKind, since: int, *, is_head: bool, catalog: CatalogDescription
) -> Changes | str:
    """Return the changes since a snapshot, or why they cannot be determined."""
    passed = later_snapshots(state, plan, since, is_head=is_head)
    if passed is None:
        return (
            f"a history without snapshot {since}, which was read last: it has expired, was rolled back, or is on "
            "another branch"
        )
    snapshots = to_be_read(passed, kind)
    obstacle = _obstacle(plan, kind, snapshots, catalog)
    if obstacle is not None:
        return obstacle
    scan = scan_of(kind, snapshots, passed)
    stored = schemas_at(state, snapshots) if scan == "files" else ()
    return Changes(kind, since, tuple(snapshot.snapshot_id for snapshot in snapshots), stored, scan)


def _require_orderable(state: TableState, plan: ReadPlan) -> None:
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


def _obstacle(plan: ReadPlan, kind: ReadKind, snapshots: Sequence[Snapshot], catalog: CatalogDescription) -> str | None:
    """Return the first snapshot whose changes cannot be determined, in words, or None."""
    if kind == "changelog":
        unclear = next((item for item in snapshots if has_delete_files(item)), None)
        reason = "has delete files, which Iceberg's changelog does not support"
    else:
        unclear = next((item for item in snapshots if may_remove_rows(item) and _deletes(plan, item, catalog)), None)
        reason = "removed or rewrote rows that the input reads"
    if unclear is None:
        return None
    run = f" of run {unclear.summary[RUN_ID]}" if unclear.summary.get(RUN_ID) else ""
    return f"snapshot {unclear.snapshot_id} ({unclear.operation}{run}), which {reason}"


def _deletes(plan: ReadPlan, snapshot: Snapshot, catalog: CatalogDescription) -> bool:
    scope, schema_id = plan.scope, plan.schema.schema_id
    return scope.is_whole_table or may_have_rows(
        scope, removed_files(catalog, plan.identifier, snapshot.snapshot_id, scope.columns, schema_id=schema_id)
    )


def _unclear_changes(subject: str, asset: str, read: ReadKind, found: str) -> ChangesUnknownError:
    """The changes of a table cannot be determined."""
    hint = (
        f'set `"{CHANGES_FALLBACK}": "partitions"` in the input\'s metadata, which then reads all rows of the run\'s '
        "partitions and replaces them; `full` only reads all rows, for an asset that merges them."
    )
    if read == "changes":
        expected = f"to know which rows of {asset} were added, as `{READ}` asks"
        hint += " `changelog` also tells of rows that have gone."
    else:
        expected = f"to know every change of {asset}, as `{READ}` asks"
    return ChangesUnknownError.refusing("read what is new in", subject, expected=expected, found=found, hint=hint)

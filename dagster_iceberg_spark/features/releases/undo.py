"""Undoes runs: new snapshots take the files of their tables back, through pyiceberg."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import dagster as dg
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.snapshots import Snapshot as PyIcebergSnapshot
from pyiceberg.table.update import AddSnapshotUpdate, AssertTableUUID, TableRequirement, TableUpdate

from dagster_iceberg_spark.assets.branch_changes import report_moved, written_partitions
from dagster_iceberg_spark.assets.dagster_private.event_log import recorded_events, snapshot_of
from dagster_iceberg_spark.assets.stored_tables import StoredTable, existing_tables, stored_assets_in, stored_tables
from dagster_iceberg_spark.assets.table_io_manager import final_errors
from dagster_iceberg_spark.catalog.clients.nessie import is_nessie
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import entries_in, entries_of
from dagster_iceberg_spark.catalog.look import can_commit, known_table, open_catalog, translated_answers
from dagster_iceberg_spark.catalog.manifests import FileKey, file_key, manifests_of, masked_file
from dagster_iceberg_spark.catalog.publication import as_seen, discard_all, file_changes, move_of
from dagster_iceberg_spark.catalog.snapshot_files import Base, FileChange, SnapshotFiles
from dagster_iceberg_spark.catalog.transaction import TableCommit, commit_in_order
from dagster_iceberg_spark.errors import CommitConflictError, ConfigurationError
from dagster_iceberg_spark.features.releases.plan.undo_plan import RecordedSnapshot, TableUndo, plan_undo, unknown_run
from dagster_iceberg_spark.plan.partitions.binding import BoundScope
from dagster_iceberg_spark.plan.publication.staged_rows import rows_of_scope, touches
from dagster_iceberg_spark.table.change import may_change_rows, runs_behind
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import (
    ASSET_KEY,
    PARTITION_KEYS,
    RUN_ID,
    SNAPSHOT_ID,
    STAGED_TOKEN,
    UNDONE_BRANCH,
)
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, PublishedSnapshot, TableState


@dataclass(frozen=True, slots=True)
class UndoneTable:
    """What an undo does in a table.

    Args:
        undone: The snapshots that are undone, newest first.
        runs: The runs that made them.
        partitions: Their partitions, as the snapshots describe them.
        lost_columns: Columns that the table had before, and that have been dropped or renamed since. They stay so.
        snapshot_id: The new snapshot of `main`, or None in a dry run.
    """

    table: TableIdentifier
    undone: tuple[int, ...]
    runs: tuple[str, ...]
    partitions: tuple[str, ...]
    lost_columns: tuple[str, ...]
    snapshot_id: int | None

    def document(self) -> dict[str, Any]:
        """Return the table for JSON."""
        return {
            "table": str(self.table),
            "undone": [str(snapshot_id) for snapshot_id in self.undone],
            "runs": list(self.runs),
            "partitions": list(self.partitions),
            "lost_columns": list(self.lost_columns),
            "snapshot_id": None if self.snapshot_id is None else str(self.snapshot_id),
        }


@dataclass(frozen=True, slots=True)
class Undo:
    """An undo.

    Args:
        by: Its id. To undo the undo, undo this id.
        left_out: What is not undone, in words. Empty without `partial`.
        is_atomic: Whether all tables were undone at one instant, or None for a dry run.
    """

    by: str
    tables: tuple[UndoneTable, ...]
    left_out: tuple[str, ...] = ()
    is_atomic: bool | None = None


def undo_run(
    definitions: dg.Definitions,
    run_id: str,
    *,
    dry_run: bool = False,
    cascade: bool = False,
    partial: bool = False,
    instance: dg.DagsterInstance | None = None,
    report: Callable[[str], None] = print,
) -> Undo:
    """Take all tables of a code location back to what they were before a run.

    Args:
        definitions: The code location.
        run_id: The run, or the id of an undo.
        dry_run: Whether to change nothing.
        cascade: Whether to undo as well what was derived from the run's rows, or has replaced them.
        partial: Whether to leave out what cannot be undone. By default, such a run is rejected.
        instance: The Dagster instance that knows what the run has materialized and records the restored snapshots, or
            None to ask and to record nothing.
        report: Writes a line about progress.

    Raises:
        UpstreamMissingError: No table has a snapshot of the run, or a part of it cannot be undone.
        CommitConflictError: Others have made snapshots from the run's rows, or have changed the same partitions.
        ConfigurationError: A commit of metadata cannot undo the run in a table.
    """
    with stored_tables(definitions, action="undo a run in") as tables:
        by = f"undo-{uuid.uuid4()}"
        wanted = _Wanted(run_id=run_id, by=by, dry_run=dry_run, cascade=cascade, partial=partial)
        return _undone(tables, wanted, instance=instance, report=report)


def build_undo_op(assets: Iterable[dg.AssetsDefinition], *, name: str = "undo_run") -> dg.OpDefinition:
    """Build an op that takes the tables of assets back to what they were before a run.

    The config of the op has the keys `run_id`, `cascade`, `partial` and `dry_run`, as `undo_run` explains them.

    Args:
        assets: Assets that an `IcebergPySparkIOManager` stores.
        name: The name of the op.

    Example:
        >>> import dagster as dg
        >>> from dagster_iceberg_spark import build_undo_op
        >>> @dg.asset(io_manager_key="iceberg")
        ... def flights(): ...
        >>> build_undo_op([flights]).name
        'undo_run'
    """
    members = stored_assets_in(assets)

    @dg.op(
        name=name,
        required_resource_keys={member.io_manager_key for member in members},
        config_schema={
            "run_id": dg.Field(str, description="The run to undo, or the id of an undo."),
            "cascade": dg.Field(bool, default_value=False, description="Undo also what was derived from its rows."),
            "partial": dg.Field(bool, default_value=False, description="Leave out what cannot be undone."),
            "dry_run": dg.Field(bool, default_value=False, description="Change nothing."),
        },
        description="Takes the tables of assets back to what they were before a run.",
    )
    def undo(context: dg.OpExecutionContext) -> None:
        with final_errors():
            wanted = _Wanted(by=context.run_id, **context.op_config)
            hint = "build it for assets that it stores only."
            stored = [
                (member.io_manager(context.resources, action="undo runs in", hint=hint), member.spec)
                for member in members
            ]
            done = _undone(existing_tables(stored), wanted, instance=context.instance, report=context.log.info)
        context.add_output_metadata({"iceberg/undone": [table.document() for table in done.tables]})

    return undo


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What is asked for: the run to undo, the id of the undo, and how."""

    run_id: str
    by: str
    dry_run: bool
    cascade: bool
    partial: bool


def _undone(
    tables: Sequence[StoredTable],
    wanted: _Wanted,
    *,
    instance: dg.DagsterInstance | None,
    report: Callable[[str], None],
) -> Undo:
    from dagster_iceberg_spark.catalog.tables import readable_tables

    catalog, by_table = _catalog_of_run(tables, wanted.run_id)
    states = {identifier: table.state for identifier, table in by_table.items()}
    every, unread = readable_tables(catalog, states, report)
    plan = plan_undo(
        list(states.values()),
        wanted.run_id,
        others=[state for identifier, state in every.items() if identifier not in states],
        unread=unread,
        recorded=None if instance is None else _recorded_snapshots(instance, wanted.run_id),
        cascade=wanted.cascade,
        partial=wanted.partial,
    )
    heads, is_atomic = undo_snapshots(
        catalog,
        [(undo, _rows_of(by_table[undo.state.identifier], undo)) for undo in plan.tables],
        by=wanted.by,
        dry_run=wanted.dry_run,
        report=report,
    )
    done = tuple(_describe(undo, heads.get(undo.state.identifier)) for undo in plan.tables)
    if wanted.dry_run:
        return Undo(wanted.by, done, plan.left_out)
    if instance is not None:
        _tell(instance, plan.tables, heads, wanted.by)
    undone = [by_table[undo.state.identifier] for undo in plan.tables]
    report_moved([(table.io_manager, table.spec) for table in undone], report=report, warn=report)
    return Undo(wanted.by, done, plan.left_out, is_atomic)


def _catalog_of_run(
    tables: Sequence[StoredTable], run_id: str
) -> tuple[CatalogDescription, dict[TableIdentifier, StoredTable]]:
    """Return the catalog in which the run has snapshots, and its tables by name. No run is in several catalogs."""
    by_catalog: dict[object, list[StoredTable]] = {}
    for table in tables:
        by_catalog.setdefault(table.io_manager.spark.catalog_description.identity, []).append(table)
    found = [
        members for members in by_catalog.values() if any(_has_snapshot_of(each.state, run_id) for each in members)
    ]
    if len(found) > 1:
        names = sorted(str(members[0].io_manager.spark.catalog_description) for members in found)
        raise ConfigurationError.refusing(
            "undo", f"the run {run_id}", expected="a run in one catalog", found=", ".join(names)
        )
    if not found:
        raise unknown_run(run_id)
    [members] = found
    return members[0].io_manager.spark.catalog_description, {each.state.identifier: each for each in members}


def _has_snapshot_of(state: TableState, run_id: str) -> bool:
    return any(state.snapshots[item].summary.get(RUN_ID) == run_id for item in state.snapshots)


def _recorded_snapshots(instance: dg.DagsterInstance, run_id: str) -> list[RecordedSnapshot]:
    """Return the snapshots that Dagster has recorded of a run; none of a run that it does not know."""
    found = []
    for item in recorded_events(instance, [run_id]):
        snapshot_id = snapshot_of(item.event)
        if isinstance(item.event, dg.AssetMaterialization) and snapshot_id is not None:
            token = item.event.metadata.get(STAGED_TOKEN)
            asset = "/".join(item.event.asset_key.path)
            found.append(RecordedSnapshot(snapshot_id, asset, None if token is None else str(token.value)))
    return list(dict.fromkeys(found))


def _describe(undo: TableUndo, head: int | None) -> UndoneTable:
    summaries = [snapshot.summary for snapshot in undo.snapshots]
    return UndoneTable(
        table=undo.state.identifier,
        undone=tuple(snapshot.snapshot_id for snapshot in undo.snapshots),
        runs=tuple(dict.fromkeys(summary.get(RUN_ID, "") for summary in summaries)),
        partitions=tuple(dict.fromkeys(summary[PARTITION_KEYS] for summary in summaries if PARTITION_KEYS in summary)),
        lost_columns=undo.lost_columns(),
        snapshot_id=head,
    )


def _rows_of(table: StoredTable, undo: TableUndo) -> BoundScope:
    """Return the rows of the partitions that the snapshots wrote."""
    options = table.io_manager.definition_of(table.spec).request.options
    scope = written_partitions(table.spec, undo.snapshots)
    return rows_of_scope(undo.state, options, scope).without(options.merge.validity)


def _tell(instance: dg.DagsterInstance, undos: Sequence[TableUndo], heads: dict[TableIdentifier, int], by: str) -> None:
    """Record a materialization of each partition that the undone runs have materialized and that has rows again.

    A partition that the undone run was the first to write has none.
    """
    for undo in undos:
        current = undo.restored_snapshot()
        if current is None:
            continue
        runs = [run for snapshot in (*undo.snapshots, current) for run in runs_behind(undo.state, snapshot)]
        assets = {snapshot.summary.get(ASSET_KEY) for snapshot in (*undo.snapshots, current)}
        events = [item.event for item in recorded_events(instance, dict.fromkeys(runs))]
        partitions = dict.fromkeys(
            (event.asset_key, event.partition)
            for event in events
            if isinstance(event, dg.AssetMaterialization) and "/".join(event.asset_key.path) in assets
        )
        for key, partition in partitions:
            metadata = {SNAPSHOT_ID: str(heads[undo.state.identifier]), "iceberg/undone_by": by}
            instance.report_runless_asset_event(
                dg.AssetMaterialization(key, partition=partition, metadata=metadata, description="Undone.")
            )


def undo_snapshots(
    description: CatalogDescription,
    undos: Sequence[tuple[TableUndo, BoundScope]],
    *,
    by: str,
    dry_run: bool,
    report: Callable[[str], None],
) -> tuple[dict[TableIdentifier, int], bool]:
    """Undo the snapshots of each table, whose rows are given. Return the new heads, and whether this was one commit.

    If the catalog commits several tables at one instant, it undoes all of them or none. A dry run prepares the commits,
    and discards them.

    Raises:
        CommitConflictError: Another writer has changed the same rows since, or commits at the same moment.
    """
    commits = list[TableCommit]()
    with ExitStack() as stack:
        for undo, owned in undos:
            commits.append(_commit(description, undo, owned, by=by))
            stack.callback(commits[-1].discard)
        if dry_run:
            return {}, False
        stack.pop_all()  # the catalog may make a commit whose answer is lost
    made, is_atomic = commit_in_order(description, commits, done="Undid", report=report)
    if made < len(commits):
        raise CommitConflictError.refusing(
            "undo",
            str(commits[made].identifier),
            expected="the table as it was a moment ago",
            found="a commit of another writer since",
            hint="try again.",
        )
    heads = {commit.identifier: next(iter(commit.published.values())).snapshot_id for commit in commits}
    return heads, is_atomic


def _commit(description: CatalogDescription, undo: TableUndo, owned: BoundScope, *, by: str) -> TableCommit:
    """Prepare the commit of a snapshot that takes the files back."""
    state = undo.state
    table = known_table(description, state.identifier, action="undo a run in")
    if not can_commit(description):
        raise _needs_engine(state.identifier)
    _refuse_changes_of_others(description, undo, owned)
    requirements: tuple[TableRequirement, ...] = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        as_seen(MAIN_BRANCH, state),
    )
    written, added, moved = list[SnapshotFiles](), list[TableUpdate](), list[TableUpdate]()
    discard = partial(discard_all, written)
    with translated_answers(description, action=f"read the manifests of {state.identifier} in"), ExitStack() as stack:
        stack.callback(discard)
        change, base = _reverse(table, undo), Base.of(table, table.snapshot_by_name(MAIN_BRANCH))
        written.append(SnapshotFiles(table, base))
        new = change.snapshot(written[-1], undo.properties(by), Operation.OVERWRITE)
        if new is None or _is_partial(table, undo, new, change):
            raise _needs_engine(state.identifier)
        added.append(AddSnapshotUpdate(snapshot=new))
        moved.append(move_of(table, MAIN_BRANCH, new.snapshot_id))
        if UNDONE_BRANCH not in state.refs and not is_nessie(open_catalog(description)):
            written.append(SnapshotFiles(table, base.after(new, parent=None)))
            keeper = written[-1].snapshot([], Operation.APPEND, [], [], {})
            requirements += (as_seen(UNDONE_BRANCH, state),)
            added.append(AddSnapshotUpdate(snapshot=keeper))
            moved.append(move_of(table, UNDONE_BRANCH, keeper.snapshot_id))
        stack.pop_all()
    published = {state.refs[MAIN_BRANCH]: PublishedSnapshot(new.snapshot_id, is_moved=True)}
    return TableCommit(state.identifier, table, published, requirements, (*added, *moved), discard)


def _refuse_changes_of_others(description: CatalogDescription, undo: TableUndo, owned: BoundScope) -> None:
    """Reject an undo if another writer has changed the rows since. Appends to appended rows change nothing."""
    state, later = undo.state, undo.later
    changes = file_changes(description, state, later, tuple(owned.columns))
    for snapshot in later:
        appends = undo.appends and snapshot.operation == "append"
        if may_change_rows(snapshot) and not appends and touches(changes[snapshot.snapshot_id], owned):
            raise CommitConflictError.refusing(
                "undo",
                str(state.identifier),
                expected="partitions that no other writer has changed since the run",
                found=f"snapshot {snapshot.snapshot_id}, which has added or removed files of them",
                hint="undo the later commits first, or run the assets again instead.",
            )


def _reverse(table: Table, undo: TableUndo) -> FileChange:
    """Return the change that takes back what the snapshots have changed together.

    Files that come back keep the sequence numbers of their rows. So the deletes that were there before apply to them.
    """
    added, removed = dict[FileKey, ManifestDataFile](), dict[FileKey, tuple[ManifestDataFile, int | None]]()
    for snapshot in reversed(undo.snapshots):  # a file that one added and the next removed was never there
        for entry in entries_of(table, snapshot.snapshot_id):
            key = file_key(entry.data_file)
            if entry.status == ManifestEntryStatus.ADDED:
                if removed.pop(key, None) is None:
                    added[key] = entry.data_file
            elif added.pop(key, None) is None:
                removed[key] = (entry.data_file, entry.sequence_number if undo.state.format_version > 1 else None)
    return FileChange(list(removed.values()), list(added.values()))


def _is_partial(table: Table, undo: TableUndo, new: PyIcebergSnapshot, change: FileChange) -> bool:
    """Return whether data files come back without deletes that applied to them, which maintenance may have removed."""
    before = table.snapshot_by_id(undo.snapshots[-1].parent_snapshot_id or 0)
    back = [file for file, _ in change.added if file.content == DataFileContent.DATA]
    if not back:
        return False
    paths, partitions = {file.file_path for file in back}, {_partition(file) for file in back}

    def applies(file: ManifestDataFile) -> bool:
        masked = masked_file(file)
        return _partition(file) in partitions or len(file.partition) == 0 if masked is None else masked in paths

    deletes = [file_key(file) for file in _delete_files(table, before) if applies(file)]
    return bool(deletes) and not {file_key(file) for file in _delete_files(table, new)}.issuperset(deletes)


def _partition(file: ManifestDataFile) -> tuple[int, str]:
    return file.spec_id, repr(file.partition)


def _delete_files(table: Table, snapshot: PyIcebergSnapshot | None) -> Iterator[ManifestDataFile]:
    manifests = manifests_of(table.io, snapshot)
    deletes = [manifest for manifest in manifests if manifest.content == ManifestContent.DELETES]
    return entries_in(table, deletes, lambda entry: entry.data_file)


def _needs_engine(identifier: TableIdentifier) -> ConfigurationError:
    """Pyiceberg cannot commit to the table, or cannot take the files back."""
    return ConfigurationError.refusing(
        "undo",
        str(identifier),
        expected="files that can be taken back by a commit of metadata",
        found="a table in a directory, or files that compaction has rewritten",
        hint="run the assets again instead, or roll the table back with `CALL system.rollback_to_snapshot`.",
    )

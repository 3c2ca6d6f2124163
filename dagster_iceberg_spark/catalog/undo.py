"""Undoes snapshots through pyiceberg: `main` moves back, or a new snapshot takes the files back."""

import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.table import Table
from pyiceberg.table.update import AddSnapshotUpdate, AssertTableUUID, SetPropertiesUpdate, TableUpdate

from dagster_iceberg_spark.catalog.branches import can_commit
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import translated_answers
from dagster_iceberg_spark.catalog.publication import as_seen, file_changes, files_of, known_table, move_of
from dagster_iceberg_spark.catalog.transaction import TableCommit, commit_table, commit_tables, is_transactional
from dagster_iceberg_spark.plan import undo_refusals
from dagster_iceberg_spark.plan.binding import BoundScope
from dagster_iceberg_spark.plan.publication import touches
from dagster_iceberg_spark.plan.release import PublishedSnapshot
from dagster_iceberg_spark.plan.undo import TableUndo
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import UNDONE_PROPERTY
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH


def undo_snapshots(
    description: CatalogDescription,
    undos: Sequence[tuple[TableUndo, BoundScope]],
    *,
    run_id: str,
    by: str,
    report: Callable[[str], None],
) -> tuple[dict[TableIdentifier, int], bool]:
    """Undo the snapshots of each table, whose rows are given. Return the new heads, and whether this was one commit.

    If the catalog commits several tables at one instant, it undoes all of them or none.

    Raises:
        CommitConflictError: Another writer has changed the same rows since, or commits at the same moment.
        ConfigurationError: pyiceberg cannot take the files back.
    """
    commits = list[TableCommit]()
    with ExitStack() as stack:
        for undo, owned in undos:
            commits.append(_commit(description, undo, owned, run_id=run_id, by=by))
            stack.callback(commits[-1].discard)
        stack.pop_all()  # the catalog may make a commit whose answer is lost
    is_atomic = is_transactional(description)
    if is_atomic:
        if not commit_tables(description, commits):
            _discard(commits)
            raise undo_refusals.moved(commits[0].identifier)
    else:
        for number, commit in enumerate(commits):
            if not commit_table(description, commit):
                _discard(commits[number:])
                raise undo_refusals.moved(commit.identifier)
            report(f"Undid {commit.identifier}, {number + 1} of {len(commits)} tables.")
    heads = {commit.identifier: next(iter(commit.published.values())).snapshot_id for commit in commits}
    return heads, is_atomic


def _commit(
    description: CatalogDescription, undo: TableUndo, owned: BoundScope, *, run_id: str, by: str
) -> TableCommit:
    state = undo.state
    table = known_table(description, state.identifier)
    if not can_commit(description, table.metadata.format_version):
        raise undo_refusals.needs_engine(state.identifier)
    requirements = (AssertTableUUID(uuid=table.metadata.table_uuid), as_seen(MAIN_BRANCH, state))
    if undo.target_id is None:
        snapshot_id, updates, discard = _reverted(description, undo, owned, by=by)
    else:
        snapshot_id, updates, discard = undo.target_id, (), _nothing
        record = undo.record(run_id, by, dt.datetime.now(dt.timezone.utc))
        updates = (SetPropertiesUpdate(updates={UNDONE_PROPERTY: record}),)
    published = {state.refs[MAIN_BRANCH]: PublishedSnapshot(snapshot_id, is_moved=True)}
    moved = (*updates, move_of(table, MAIN_BRANCH, snapshot_id))
    return TableCommit(state.identifier, table, requirements, moved, published, discard)


def _reverted(
    description: CatalogDescription, undo: TableUndo, owned: BoundScope, *, by: str
) -> tuple[int, tuple[TableUpdate, ...], Callable[[], None]]:
    """Prepare the snapshot that takes the files back. Return its id, its updates, and what discards it."""
    state = undo.state
    _refuse_changes_of_others(description, undo, owned)
    table = known_table(description, state.identifier)
    with translated_answers(description, action=f"read the manifests of {state.identifier} in"):
        added, removed = _net_files(table, undo)
        if any(file.spec_id != table.metadata.default_spec_id for file in removed):
            raise undo_refusals.needs_engine(state.identifier)
        producer: Any = table.transaction().update_snapshot(undo.properties(by), branch=MAIN_BRANCH).overwrite()
        for file in removed:
            producer.append_data_file(file)
        for file in added:
            producer.delete_data_file(file)
        try:
            updates, _ = producer._commit()  # noqa: SLF001 - `commit` would try again on another head
        except ValidationException as error:  # compaction has rewritten a file
            producer._clean_all_uncommitted()  # noqa: SLF001 - manifests that no snapshot has
            raise undo_refusals.needs_engine(state.identifier) from error
    snapshots = tuple(update for update in updates if isinstance(update, AddSnapshotUpdate))
    return producer.snapshot_id, snapshots, producer._clean_all_uncommitted  # noqa: SLF001 - as above


def _refuse_changes_of_others(description: CatalogDescription, undo: TableUndo, owned: BoundScope) -> None:
    """Reject an undo if somebody has changed the rows since. Appends to appended rows change nothing."""
    state, later = undo.state, undo.later
    changes = file_changes(description, state, later, tuple(owned.columns))
    for snapshot in later:
        appends = undo.appends and snapshot.operation == "append"
        if not snapshot.is_compaction and not appends and touches(changes[snapshot.snapshot_id], owned):
            raise undo_refusals.other_writer(state.identifier, snapshot)
    head = state.head()
    kept = [item for item in (head, *undo.snapshots) if item is not None]
    if any(item.count(key) for item in kept for key in ("total-delete-files", "added-delete-files")):
        raise undo_refusals.needs_engine(state.identifier)


def _net_files(table: Table, undo: TableUndo) -> tuple[list[ManifestDataFile], list[ManifestDataFile]]:
    """Return the files that the snapshots have added together, and those that they have removed."""
    added, removed = dict[str, ManifestDataFile](), dict[str, ManifestDataFile]()
    for snapshot in reversed(undo.snapshots):  # a file that one added and the next removed was never there
        new, gone = files_of(table, snapshot.snapshot_id)
        for own, other, files in ((added, removed, gone), (removed, added, new)):
            for file in files:
                if own.pop(file.file_path, None) is None:
                    other[file.file_path] = file
    return list(added.values()), list(removed.values())


def _discard(commits: Sequence[TableCommit]) -> None:
    for commit in commits:
        commit.discard()


def _nothing() -> None:
    """Discard nothing."""

"""Undoes snapshots through pyiceberg: a new snapshot takes the files back."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, TableRequirement, TableUpdate

from dagster_iceberg_spark.catalog.branches import can_commit
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import known_table, open_catalog, translated_answers
from dagster_iceberg_spark.catalog.nessie import is_nessie
from dagster_iceberg_spark.catalog.publication import (
    add_snapshot,
    added_snapshots,
    as_seen,
    discard_manifests,
    file_changes,
    files_of,
    move_of,
)
from dagster_iceberg_spark.catalog.transaction import TableCommit, commit_in_order
from dagster_iceberg_spark.errors import CommitConflictError, ConfigurationError
from dagster_iceberg_spark.features.releases.plan.undo_plan import TableUndo
from dagster_iceberg_spark.plan.binding import BoundScope
from dagster_iceberg_spark.plan.publication import PublishedSnapshot, touches
from dagster_iceberg_spark.table.change import may_change_rows
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import UNDONE_BRANCH
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH


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
        ConfigurationError: pyiceberg cannot take the files back.
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
        raise _moved(commits[made].identifier)
    heads = {commit.identifier: next(iter(commit.published.values())).snapshot_id for commit in commits}
    return heads, is_atomic


def _commit(description: CatalogDescription, undo: TableUndo, owned: BoundScope, *, by: str) -> TableCommit:
    """Prepare the commit of a snapshot that takes the files back."""
    state = undo.state
    table = known_table(description, state.identifier, action="undo a run in")
    if not can_commit(description, table.metadata.format_version):
        raise _needs_engine(state.identifier)
    _refuse_changes_of_others(description, undo, owned)
    requirements: tuple[TableRequirement, ...] = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        as_seen(MAIN_BRANCH, state),
    )
    producers = list[Any]()
    with translated_answers(description, action=f"read the manifests of {state.identifier} in"), ExitStack() as stack:
        discard = partial(discard_manifests, producers)
        stack.callback(discard)
        transaction = table.transaction()
        added, removed = _net_files(table, undo)
        producer = add_snapshot(transaction, MAIN_BRANCH, undo.properties(by), removed, added, kind="overwrite")
        if producer is None:
            raise _needs_engine(state.identifier)
        producers.append(producer)
        keeper = None
        if UNDONE_BRANCH not in state.refs and not is_nessie(open_catalog(description)):
            keeper = add_snapshot(transaction, UNDONE_BRANCH, {}, [], [], kind="append")
            producers.append(keeper)
        stack.pop_all()
    moved: list[TableUpdate] = [move_of(table, MAIN_BRANCH, producer.snapshot_id)]
    if keeper is not None:
        requirements += (as_seen(UNDONE_BRANCH, state),)
        moved.append(move_of(table, UNDONE_BRANCH, keeper.snapshot_id))
    published = {state.refs[MAIN_BRANCH]: PublishedSnapshot(producer.snapshot_id, is_moved=True)}
    changes = (*added_snapshots(transaction), *moved)
    return TableCommit(state.identifier, table, published, requirements, changes, discard)


def _refuse_changes_of_others(description: CatalogDescription, undo: TableUndo, owned: BoundScope) -> None:
    """Reject an undo if somebody has changed the rows since. Appends to appended rows change nothing."""
    state, later = undo.state, undo.later
    changes = file_changes(description, state, later, tuple(owned.columns))
    for snapshot in later:
        appends = undo.appends and snapshot.operation == "append"
        if may_change_rows(snapshot) and not appends and touches(changes[snapshot.snapshot_id], owned):
            raise CommitConflictError.refusing(
                "undo",
                str(state.identifier),
                expected="partitions that nobody has changed since the run",
                found=f"snapshot {snapshot.snapshot_id}, which has added or removed files of them",
                hint="undo the later commits first, or run the assets again instead.",
            )
    head = state.head()
    kept = [item for item in (head, *undo.snapshots) if item is not None]
    if any(item.count(key) for item in kept for key in ("total-delete-files", "added-delete-files")):
        raise _needs_engine(state.identifier)


def _net_files(table: Table, undo: TableUndo) -> tuple[list[ManifestDataFile], list[ManifestDataFile]]:
    """Return the files that the snapshots have added together, and those that they have removed."""
    added, removed = dict[str, ManifestDataFile](), dict[str, ManifestDataFile]()
    for snapshot in reversed(undo.snapshots):  # a file that one added and the next removed was never there
        files = files_of(table, snapshot.snapshot_id)
        if files is None:
            raise _needs_engine(undo.state.identifier)
        new, gone = files
        for own, other, changed in ((added, removed, gone), (removed, added, new)):
            for file in changed:
                if own.pop(file.file_path, None) is None:
                    other[file.file_path] = file
    return list(added.values()), list(removed.values())


def _needs_engine(identifier: TableIdentifier) -> ConfigurationError:
    """Pyiceberg cannot commit to the table, or cannot take the files back."""
    return ConfigurationError.refusing(
        "undo",
        str(identifier),
        expected="files that can be taken back by a commit of metadata",
        found="a table of format 3, in a directory or with delete files, a new partition spec, or files that "
        "compaction has rewritten",
        hint="run the assets again instead, or roll the table back with `CALL system.rollback_to_snapshot`.",
    )


def _moved(identifier: TableIdentifier) -> CommitConflictError:
    """Another writer has committed in the meantime."""
    return CommitConflictError.refusing(
        "undo",
        str(identifier),
        expected="the table as it was a moment ago",
        found="a commit of another writer since",
        hint="try again.",
    )

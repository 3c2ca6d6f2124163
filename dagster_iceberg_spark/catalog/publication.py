"""Publishes staged snapshots through pyiceberg, each in one commit of metadata, without a JVM.

The catalog verifies that neither the target nor the staged branch has moved since the decision. pyiceberg's own
retries are not used: after a conflict, somebody has to decide again.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal, TypeAlias

from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from dagster_iceberg_spark.catalog.branches import can_commit, removal_of, retention_of
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import description_of, entries_of, files_between
from dagster_iceberg_spark.catalog.look import known_table, translated_answers
from dagster_iceberg_spark.catalog.transaction import TableCommit, commit_table, discard_nothing
from dagster_iceberg_spark.errors import CommitConflictError
from dagster_iceberg_spark.plan.overwrite_filter import DataFile
from dagster_iceberg_spark.plan.publication import (
    FileChanges,
    Publication,
    StagedRows,
    decide_publication,
    kept_properties,
    passed_snapshots,
)
from dagster_iceberg_spark.plan.release import PublishedSnapshot, published_upstream
from dagster_iceberg_spark.plan.staging import Staging
from dagster_iceberg_spark.table.lineage import UPSTREAM
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

SnapshotKind: TypeAlias = Literal["append", "overwrite"]
Outcome: TypeAlias = Literal["published", "moved", "impossible"]
"""The result of a publication: done, a branch has moved meanwhile, or pyiceberg cannot make it."""


def choose_publication(description: CatalogDescription, state: TableState, rows: StagedRows) -> Publication:
    """Choose how to publish staged rows, by what has happened to their target since the staged branch began.

    Raises:
        CommitConflictError: Another writer has changed these rows.
    """
    passed = passed_snapshots(state, rows)
    if not passed:
        return "fast-forward"
    changes = file_changes(description, state, (*rows.snapshots, *passed), rows.columns)
    return decide_publication(state, rows, passed, changes)


def fast_forward(description: CatalogDescription, state: TableState, rows: StagedRows) -> Outcome:
    """Make the staged snapshot the target's, and drop the staged branch."""
    commit = fast_forwarded(description, state, rows)
    return "published" if commit is not None and commit_table(description, commit) else "moved"


def fast_forwarded(description: CatalogDescription, state: TableState, rows: StagedRows) -> TableCommit | None:
    """Return the commit of a fast-forward, or None if the table has been upgraded since the decision."""
    table = known_table(description, state.identifier, action="publish")
    if not can_commit(description, table.metadata.format_version):
        return None
    published = {
        snapshot.snapshot_id: PublishedSnapshot(snapshot.snapshot_id, is_moved=False) for snapshot in rows.snapshots
    }
    return _commit_of(table, state, rows.staging, published)


def rebase(description: CatalogDescription, state: TableState, rows: StagedRows) -> Outcome:
    """Add snapshots with the files and properties of the staged ones to the target, and drop the staged branch."""
    commit = rebased(description, state, rows, {})
    if commit is None:
        return "impossible"
    if commit_table(description, commit):
        return "published"
    commit.discard()
    return "moved"


def rebased(
    description: CatalogDescription,
    state: TableState,
    rows: StagedRows,
    published: Mapping[int, PublishedSnapshot],
) -> TableCommit | None:
    """Return the commit of a rebase, or None if pyiceberg cannot make it.

    The lineage of the new snapshots names the snapshots in `published` instead of the staged ones.

    A new snapshot has a parent: of one without, no catalog verifies the sequence number, which a commit to another
    branch outdates (`TableMetadata.Builder.addSnapshot` of Iceberg 1.12; pyiceberg 0.12). In a table whose target has
    no snapshot, it is the empty snapshot that the staged branch starts at.
    """
    table, staging = known_table(description, state.identifier, action="publish"), rows.staging
    if not can_commit(description, table.metadata.format_version):
        return None
    if staging.target not in state.refs:
        table = _beginning_at(table, staging.target, rows.start_id)
    is_moved = state.refs.get(staging.target) not in (None, rows.start_id)
    known, producers = dict(published), list[Any]()
    discard = partial(discard_manifests, producers)
    with translated_answers(description, action=f"read the manifests of {state.identifier} in"), ExitStack() as stack:
        stack.callback(discard)
        transaction = table.transaction()
        for snapshot in rows.snapshots:
            files = files_of(table, snapshot.snapshot_id)
            if files is None:  # pyiceberg writes no delete files
                return None
            upstream = published_upstream(snapshot, known)
            properties = {**kept_properties(snapshot.summary), **({} if upstream is None else {UPSTREAM: upstream})}
            added, removed = files
            kind: SnapshotKind = "overwrite" if removed else "append"
            producer = add_snapshot(transaction, staging.target, properties, added, removed, kind=kind)
            if producer is None:
                return None
            producers.append(producer)
            known[snapshot.snapshot_id] = PublishedSnapshot(producer.snapshot_id, is_moved=is_moved)
        stack.pop_all()
    own = {snapshot.snapshot_id: known[snapshot.snapshot_id] for snapshot in rows.snapshots}
    return _commit_of(table, state, staging, own, added_snapshots(transaction), discard)


def add_snapshot(
    transaction: Transaction,
    branch: str,
    properties: Mapping[str, str],
    added: Sequence[ManifestDataFile],
    removed: Sequence[ManifestDataFile],
    *,
    kind: SnapshotKind,
) -> Any | None:
    """Add a snapshot that adds and removes files to a transaction. Return its producer, or None if it is impossible.

    It is if a file to remove is not found, or one to add has another spec than the newest, under which pyiceberg writes
    all files. The spec may change at any time, which moves no ref.
    """
    if any(file.spec_id != transaction.table_metadata.default_spec_id for file in added):
        return None
    snapshots = transaction.update_snapshot(dict(properties), branch=branch)
    producer: Any = snapshots.fast_append() if kind == "append" else snapshots.overwrite()
    for file in added:
        producer.append_data_file(file)
    for file in removed:
        producer.delete_data_file(file)
    try:
        producer.commit()  # to the transaction
    except ValidationException:
        discard_manifests([producer])
        return None
    return producer


def added_snapshots(transaction: Transaction) -> tuple[TableUpdate, ...]:
    """Return the updates of a transaction that add snapshots, without those that move a branch."""
    return tuple(update for update in transaction._updates if isinstance(update, AddSnapshotUpdate))  # noqa: SLF001


def discard_manifests(producers: Sequence[Any]) -> None:
    """Delete manifests that no snapshot has."""
    for producer in producers:
        producer._clean_all_uncommitted()  # noqa: SLF001 - no public call does it


def file_changes(
    description: CatalogDescription, state: TableState, snapshots: Sequence[Snapshot], columns: tuple[str, ...]
) -> Mapping[int, FileChanges]:
    """Return the files that each snapshot added and removed, by its id.

    Files of deleted rows count as added. The bounds of the columns come from manifests only.
    """
    table = known_table(description, state.identifier, action="publish")
    with translated_answers(description, action=f"read the manifests of {state.identifier} in"):
        try:
            described = description_of(table, columns)
        except ValueError as error:  # another writer has renamed or dropped a column
            raise CommitConflictError.refusing(
                "publish",
                str(state.identifier),
                expected=f"the columns {', '.join(columns)}, which the run is partitioned by",
                found="none of that name: another writer has renamed or dropped one",
                hint="run the asset again.",
            ) from error
        return {snapshot.snapshot_id: _changes_of(table, snapshot, described) for snapshot in snapshots}


def _changes_of(table: Table, snapshot: Snapshot, described: Callable[[ManifestDataFile], DataFile]) -> FileChanges:
    """Return the files that differ from the parent. It is an earlier snapshot than its own if that has expired."""
    known = table.snapshot_by_id(snapshot.snapshot_id)
    if known is not None and known.parent_snapshot_id != snapshot.parent_snapshot_id:
        removed, added = files_between(table, snapshot.parent_snapshot_id, snapshot.snapshot_id)
    else:
        entries = [*entries_of(table, snapshot.snapshot_id)]
        added = [entry.data_file for entry in entries if entry.status == ManifestEntryStatus.ADDED]
        removed = [entry.data_file for entry in entries if entry.status == ManifestEntryStatus.DELETED]
    spec_ids = frozenset(file.spec_id for file in added)
    return FileChanges(tuple(map(described, added)), tuple(map(described, removed)), spec_ids)


def _commit_of(
    table: Table,
    state: TableState,
    staging: Staging,
    published: Mapping[int, PublishedSnapshot],
    updates: tuple[TableUpdate, ...] = (),
    discard: Callable[[], None] = discard_nothing,
) -> TableCommit:
    """Return the commit that moves the target and drops the staged branch, if both are as they were seen."""
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        as_seen(staging.target, state),
        as_seen(staging.branch, state),
    )
    newest = published[state.refs[staging.branch]]
    moved = (
        *updates,
        move_of(table, staging.target, newest.snapshot_id, retention_days=staging.target_retention_days),
        removal_of(staging.branch),
    )
    return TableCommit(state.identifier, table, requirements, moved, published, discard)


def _beginning_at(table: Table, branch: str, snapshot_id: int | None) -> Table:
    """Return the table as if a branch that it lacks were at a snapshot, which becomes the parent of the next one."""
    start = SnapshotRef.model_validate({"type": SnapshotRefType.BRANCH, "snapshot-id": snapshot_id})
    metadata = table.metadata.model_copy(update={"refs": {**table.metadata.refs, branch: start}})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config)


def files_of(table: Table, snapshot_id: int) -> tuple[list[ManifestDataFile], list[ManifestDataFile]] | None:
    """Return the data files that a snapshot added and removed, or None if it changed delete files as well."""
    added, removed = list[ManifestDataFile](), list[ManifestDataFile]()
    for entry in entries_of(table, snapshot_id):
        if entry.data_file.content != DataFileContent.DATA:
            return None
        (added if entry.status == ManifestEntryStatus.ADDED else removed).append(entry.data_file)
    return added, removed


def move_of(table: Table, branch: str, snapshot_id: int, *, retention_days: int | None = None) -> SetSnapshotRefUpdate:
    """Return the update that moves a branch and keeps its retention, which pyiceberg's own updates would reset.

    A new branch is retained for `retention_days`, by default for ever.
    """
    settings = {
        **retention_of(retention_days, keeps_snapshots=True),
        "type": SnapshotRefType.BRANCH,
        "ref-name": branch,
        "snapshot-id": snapshot_id,
    }
    ref = table.metadata.refs.get(branch)
    kept = {} if ref is None else ref.model_dump(by_alias=True, exclude={"snapshot_id", "snapshot_ref_type"})
    return SetSnapshotRefUpdate.model_validate({**settings, **kept})


def as_seen(branch: str, state: TableState) -> AssertRefSnapshotId:
    """Return the requirement that a branch is as it was seen."""
    return AssertRefSnapshotId.model_validate({"ref": branch, "snapshot-id": state.refs.get(branch)})

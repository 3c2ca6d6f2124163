"""Publishes staged snapshots through pyiceberg, each in one commit of metadata, without a JVM.

The catalog verifies that neither the target nor the staged branch has moved since the decision. pyiceberg's own
retries are not used: after a conflict, somebody has to decide again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from dagster_iceberg_spark.catalog.branches import can_commit, removal_of
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import description_of, entries_of
from dagster_iceberg_spark.catalog.look import find_table, translated_answers
from dagster_iceberg_spark.catalog.transaction import TableCommit, commit_table
from dagster_iceberg_spark.errors import CommitConflictError
from dagster_iceberg_spark.failure_kinds import FailureKind
from dagster_iceberg_spark.plan.overwrite_filter import DataFile
from dagster_iceberg_spark.plan.publication import (
    FileChanges,
    Publication,
    StagedRows,
    decide_publication,
    kept_properties,
    passed_snapshots,
)
from dagster_iceberg_spark.plan.staging import Staging
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

Outcome: TypeAlias = Literal["published", "moved", "impossible"]
"""The result of a publication: done, a branch has moved meanwhile, or pyiceberg cannot make it."""


def choose_publication(description: CatalogDescription, state: TableState, rows: StagedRows) -> Publication:
    """Choose how to publish staged rows, by what has happened to their target since the staged branch began.

    Raises:
        CommitConflictError: Another writer has changed these rows.
    """
    passed = passed_snapshots(state, rows.staging, rows.snapshot)
    if not passed:
        return "fast-forward"
    return decide_publication(state, rows, passed, _file_changes(description, state, rows, passed))


def fast_forward(description: CatalogDescription, state: TableState, rows: StagedRows) -> Outcome:
    """Make the staged snapshot the target's, and drop the staged branch."""
    commit = fast_forwarded(description, state, rows)
    return "published" if commit is not None and commit_table(description, commit) else "moved"


def fast_forwarded(description: CatalogDescription, state: TableState, rows: StagedRows) -> TableCommit | None:
    """Return the commit of a fast-forward, or None if the table has been upgraded since the decision."""
    table = _table(description, state.identifier)
    if not can_commit(description, table.metadata.format_version):
        return None
    return _commit_of(table, state, rows.staging, rows.snapshot.snapshot_id)


def rebase(description: CatalogDescription, state: TableState, rows: StagedRows) -> Outcome:
    """Add a snapshot with the files and the properties of the staged one to the target, and drop the staged branch."""
    commit = rebased(description, state, rows)
    if commit is None:
        return "impossible"
    if commit_table(description, commit):
        return "published"
    # A catalog may have made a commit that it reports as rejected, because the request was repeated on the way.
    if _table(description, state.identifier).snapshot_by_id(commit.snapshot_id) is not None:
        return "published"
    commit.discard()
    return "moved"


def rebased(
    description: CatalogDescription,
    state: TableState,
    rows: StagedRows,
    properties: Mapping[str, str] | None = None,
) -> TableCommit | None:
    """Return the commit of a rebase, or None if pyiceberg cannot make it. `properties` replace those of the snapshot.

    The new snapshot has a parent: of one without, no catalog verifies the sequence number, which a commit to another
    branch outdates (`TableMetadata.Builder.addSnapshot` of Iceberg 1.12; pyiceberg 0.12). In a table whose target has
    no snapshot, it is the empty snapshot that the staged branch starts at.
    """
    table, staging = _table(description, state.identifier), rows.staging
    if staging.target not in state.refs:
        table = _beginning_at(table, staging.target, rows.snapshot.parent_snapshot_id)
    with translated_answers(description, action=f"read the manifests of {state.identifier} in"):
        added, removed = _files_of(table, rows.snapshot.snapshot_id)
        # The spec may have changed since the decision, which moves no ref. pyiceberg writes under the newest one.
        is_writable = can_commit(description, table.metadata.format_version)
        if not is_writable or any(file.spec_id != table.metadata.default_spec_id for file in added):
            return None
        kept = {**kept_properties(rows.snapshot.summary), **(properties or {})}
        snapshots = table.transaction().update_snapshot(kept, branch=staging.target)
        producer: Any = snapshots.overwrite() if removed else snapshots.fast_append()
        for file in added:
            producer.append_data_file(file)
        for file in removed:
            producer.delete_data_file(file)
        try:
            updates, _ = producer._commit()  # noqa: SLF001 - `commit` would try again on another head
        except ValidationException:  # a file to remove is not found
            return None
    added_snapshots = tuple(update for update in updates if isinstance(update, AddSnapshotUpdate))
    discard = producer._clean_all_uncommitted  # noqa: SLF001 - manifests that no snapshot has
    return _commit_of(table, state, staging, producer.snapshot_id, added_snapshots, discard)


def _file_changes(
    description: CatalogDescription, state: TableState, rows: StagedRows, passed: Sequence[Snapshot]
) -> Mapping[int, FileChanges]:
    """Return the files that the staged snapshot and each passed one added and removed.

    Files of deleted rows count as added. The bounds of the columns come from manifests only.
    """
    table = _table(description, state.identifier)
    with translated_answers(description, action=f"read the manifests of {state.identifier} in"):
        try:
            described = description_of(table, rows.columns)
        except ValueError as error:  # another writer has renamed or dropped a column
            raise CommitConflictError.refusing(
                "publish",
                str(state.identifier),
                expected=f"the columns {', '.join(rows.columns)}, which the run is partitioned by",
                found="none of that name: another writer has renamed or dropped one",
                hint="run the asset again.",
            ) from error
        return {
            snapshot.snapshot_id: _changes_of(table, snapshot.snapshot_id, described)
            for snapshot in (rows.snapshot, *passed)
        }


def _changes_of(table: Table, snapshot_id: int, described: Callable[[ManifestDataFile], DataFile]) -> FileChanges:
    added, removed, spec_ids = list[DataFile](), list[DataFile](), set[int]()
    for entry in entries_of(table, snapshot_id):
        is_added = entry.status == ManifestEntryStatus.ADDED
        (added if is_added else removed).append(described(entry.data_file))
        if is_added:
            spec_ids.add(entry.data_file.spec_id)
    return FileChanges(tuple(added), tuple(removed), frozenset(spec_ids))


def _commit_of(
    table: Table,
    state: TableState,
    staging: Staging,
    snapshot_id: int,
    updates: tuple[TableUpdate, ...] = (),
    discard: Callable[[], None] = lambda: None,
) -> TableCommit:
    """Return the commit that moves the target and drops the staged branch, if both are as they were seen."""
    as_seen = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        _at(staging.target, state),
        _at(staging.branch, state),
    )
    moved = (*updates, _move(table, staging.target, snapshot_id), removal_of(staging.branch))
    return TableCommit(state.identifier, table, as_seen, moved, snapshot_id, discard)


def _beginning_at(table: Table, branch: str, snapshot_id: int | None) -> Table:
    """Return the table as if a branch that it lacks were at a snapshot, which becomes the parent of the next one."""
    start = SnapshotRef.model_validate({"type": SnapshotRefType.BRANCH, "snapshot-id": snapshot_id})
    metadata = table.metadata.model_copy(update={"refs": {**table.metadata.refs, branch: start}})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config)


def _files_of(table: Table, snapshot_id: int) -> tuple[list[ManifestDataFile], list[ManifestDataFile]]:
    added, removed = list[ManifestDataFile](), list[ManifestDataFile]()
    for entry in entries_of(table, snapshot_id):
        if entry.data_file.content == DataFileContent.DATA:
            (added if entry.status == ManifestEntryStatus.ADDED else removed).append(entry.data_file)
    return added, removed


def _move(table: Table, branch: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    """Return the update that moves a branch and keeps its retention, which pyiceberg's own updates would reset."""
    settings = {"type": SnapshotRefType.BRANCH, "ref-name": branch, "snapshot-id": snapshot_id}
    ref = table.metadata.refs.get(branch)
    kept = {} if ref is None else ref.model_dump(by_alias=True, exclude={"snapshot_id", "snapshot_ref_type"})
    return SetSnapshotRefUpdate.model_validate({**kept, **settings})


def _at(branch: str, state: TableState) -> AssertRefSnapshotId:
    """Return the requirement that a branch is as it was seen."""
    return AssertRefSnapshotId.model_validate({"ref": branch, "snapshot-id": state.refs.get(branch)})


def _table(description: CatalogDescription, identifier: TableIdentifier) -> Table:
    table = find_table(description, identifier)
    if table is None:
        raise FailureKind.TABLE_VANISHED.refusal("publish", str(identifier), "none")
    return table

"""Publishes staged snapshots through pyiceberg, each in one commit of metadata, without a JVM.

The catalog verifies that neither the target nor the staged branch has moved since the decision. pyiceberg's own
retries are not used: after a conflict, somebody has to decide again.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from pyiceberg.exceptions import BadRequestError, CommitFailedException, ValidationException
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
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
from dagster_iceberg_spark.catalog.look import call_catalog, find_table, translated_answers
from dagster_iceberg_spark.errors import CommitConflictError
from dagster_iceberg_spark.failure_kinds import FailureKind
from dagster_iceberg_spark.plan.overwrite_filter import DataFile
from dagster_iceberg_spark.plan.publication import FileChanges, kept_properties
from dagster_iceberg_spark.plan.staging import Staging
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

_OUTDATED: Final = "older than last sequence number"
"""What catalogs say of a new snapshot if a commit to any branch was faster. They check the refs first."""

Outcome: TypeAlias = Literal["published", "moved", "impossible"]
"""The result of a publication: done, a branch has moved meanwhile, or pyiceberg cannot make it."""


def file_changes(
    description: CatalogDescription, state: TableState, snapshot_ids: tuple[int, ...], columns: tuple[str, ...]
) -> tuple[Mapping[int, FileChanges], tuple[int, ...]]:
    """Return the files that each snapshot added and removed, and the specs of the files that the first one added.

    Files of deleted rows count as added. The bounds of the columns come from manifests only.
    """
    table = _table(description, state.identifier)
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
        changes, specs = {}, set[int]()
        for snapshot_id in snapshot_ids:
            added, removed = list[DataFile](), list[DataFile]()
            for entry in entries_of(table, snapshot_id):
                (added if entry.status == ManifestEntryStatus.ADDED else removed).append(described(entry.data_file))
                if snapshot_id == snapshot_ids[0] and entry.status == ManifestEntryStatus.ADDED:
                    specs.add(entry.data_file.spec_id)
            changes[snapshot_id] = FileChanges(tuple(added), tuple(removed))
    return changes, tuple(specs)


def fast_forward(description: CatalogDescription, state: TableState, staging: Staging, staged: Snapshot) -> Outcome:
    """Make the staged snapshot the target's, and drop the staged branch."""
    table = _table(description, state.identifier)
    if not can_commit(description, table.metadata.format_version):  # it has been upgraded since the decision
        return "moved"
    move = _move(table, staging.target, staged.snapshot_id)
    return "published" if _commit(description, table, state, staging, (move,)) else "moved"


def rebase(description: CatalogDescription, state: TableState, staging: Staging, staged: Snapshot) -> Outcome:
    """Add a snapshot with the files and the properties of the staged one to the target, and drop the staged branch.

    The target must have a snapshot: of one without a parent, no catalog verifies the sequence number, which a commit to
    another branch outdates (`TableMetadata.Builder.addSnapshot` of Iceberg 1.12; pyiceberg 0.12).
    """
    table = _table(description, state.identifier)
    with translated_answers(description, action=f"read the manifests of {state.identifier} in"):
        added, removed = _files_of(table, staged.snapshot_id)
        # The spec may have changed since the decision, which moves no ref. pyiceberg writes under the newest one.
        is_writable = can_commit(description, table.metadata.format_version)
        if not is_writable or any(file.spec_id != table.metadata.default_spec_id for file in added):
            return "impossible"
        snapshots = table.transaction().update_snapshot(kept_properties(staged.summary), branch=staging.target)
        producer: Any = snapshots.overwrite() if removed else snapshots.fast_append()
        for file in added:
            producer.append_data_file(file)
        for file in removed:
            producer.delete_data_file(file)
        try:
            updates, _ = producer._commit()  # noqa: SLF001 - `commit` would try again on another head
        except ValidationException:  # a file to remove is not found
            return "impossible"
    add = tuple(update for update in updates if isinstance(update, AddSnapshotUpdate))
    move = _move(table, staging.target, producer.snapshot_id)
    if _commit(description, table, state, staging, (*add, move)):
        return "published"
    # A catalog may have made a commit that it reports as rejected, because the request was repeated on the way.
    if _table(description, state.identifier).snapshot_by_id(producer.snapshot_id) is not None:
        return "published"
    producer._clean_all_uncommitted()  # noqa: SLF001 - manifests that no snapshot has
    return "moved"


def _commit(
    description: CatalogDescription,
    table: Table,
    state: TableState,
    staging: Staging,
    updates: tuple[TableUpdate, ...],
) -> bool:
    """Commit and return true if both branches are as they were seen. The staged branch ends in the same commit."""
    as_seen = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        _at(staging.target, state),
        _at(staging.branch, state),
    )

    def commit() -> bool:
        try:
            table.catalog.commit_table(table, as_seen, (*updates, removal_of(staging.branch)))
        except CommitFailedException:
            return False
        except (ValueError, BadRequestError) as error:
            if _OUTDATED not in str(error):
                raise
            return False
        return True

    return call_catalog(description, commit, action=f"publish {state.identifier} in")


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

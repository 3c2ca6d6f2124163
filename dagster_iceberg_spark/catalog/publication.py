"""Publishes staged rows of one table or of several: at one instant where the catalog can, else one table at a time.

Each table is published by one commit of metadata through pyiceberg, without a JVM, or by the engine where pyiceberg
cannot commit. The catalog verifies that neither the target nor the staged branch has moved since the decision.
pyiceberg's own retries are not used: after a conflict, the publication is decided again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from dagster_iceberg_spark.catalog.branches import ATTEMPTS, removal_of, retention_of, update_of_tag, wait_for_others
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import description_of, entries_of, files_between
from dagster_iceberg_spark.catalog.look import can_commit, known_table, look, translated_answers
from dagster_iceberg_spark.catalog.manifests import masked_file
from dagster_iceberg_spark.catalog.snapshot_files import Base, FileChange, SnapshotFiles
from dagster_iceberg_spark.catalog.transaction import TableCommit, commit_in_order, ignore, is_transactional
from dagster_iceberg_spark.errors import CommitConflictError
from dagster_iceberg_spark.plan.publication.staged_rows import (
    FileChanges,
    Member,
    Publication,
    StagedRows,
    concurrent_commit,
    decide_publication,
    in_order,
    kept_properties,
    overtaken,
    passed_snapshots,
    published_snapshot,
    published_upstream,
    refuse_outdated,
)
from dagster_iceberg_spark.plan.write.overwrite_filter import DataFile
from dagster_iceberg_spark.plan.write.write_request import ReleaseTag
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import BRANCH_START, UPSTREAM, changes_read
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, PublishedSnapshot, Snapshot, TableState

Advance: TypeAlias = Callable[[TableState, StagedRows], bool]
"""Fast-forwards a table that pyiceberg cannot commit to, by an engine. Returns false if the target has moved."""


@dataclass(frozen=True, slots=True)
class PublishedMember:
    """A member of a release that is published.

    Args:
        how: How it was published.
        published: The snapshot that has its rows now.
        before: The target's snapshot before, or None if it had none.
    """

    member: Member
    how: Publication
    published: PublishedSnapshot
    before: int | None


@dataclass(frozen=True, slots=True)
class Release:
    """A release that has been made. `is_atomic` says whether all tables were published at one instant."""

    members: tuple[PublishedMember, ...]
    is_atomic: bool


@dataclass(frozen=True, slots=True)
class _Step:
    """The publication of one member."""

    member: Member
    how: Publication
    commit: TableCommit

    def done(self) -> PublishedMember:
        rows = self.member.rows
        published = self.commit.published[rows.snapshot.snapshot_id]
        return PublishedMember(self.member, self.how, published, self.member.state.refs.get(rows.staging.target))


def publish(
    description: CatalogDescription,
    members: Sequence[Member],
    advance: Advance,
    *,
    published: Mapping[int, PublishedSnapshot] | None = None,
    tagged: Sequence[tuple[TableIdentifier, ReleaseTag]] = (),
    report: Callable[[str], None] = ignore,
) -> Release:
    """Publish the members, or none of them if the catalog can commit several tables at one instant.

    `tagged` has other tables that get the tag of the release, where their `main` is, in the same commits.

    `published` has the snapshots that an earlier attempt has published, by the ids of the staged ones. Without
    transactions, a member is published after those that it was derived from, and an attempt that is interrupted has
    published the first members. The next attempt publishes the others.
    """
    left, ids, done = in_order(members), dict(published or {}), list[PublishedMember]()
    refuse_outdated(left, ids)
    if not left and not tagged:
        return Release((), is_atomic=is_transactional(description))
    for retry in range(ATTEMPTS):
        steps = _prepare(description, left, ids, advance)
        tags = [commit for table, tag in tagged if (commit := _tag_of(description, table, tag)) is not None]
        commits = [*(step.commit for step in steps), *tags]
        made, at_once = commit_in_order(description, commits, done="Published", report=report)
        done += [step.done() for step in steps[:made]]
        if made == len(commits):
            return Release(tuple(done), is_atomic=at_once and len(done) == len(steps) and not published)
        wait_for_others(retry)
        others = [_looked_at(description, step) for step in steps[made:]]
        done += [other for other in others if isinstance(other, PublishedMember)]
        left = tuple(other for other in others if isinstance(other, Member))
        if not left and made >= len(steps) and not tags:
            return Release(tuple(done), is_atomic=False)
        ids |= {key: found for step in steps[:made] for key, found in step.commit.published.items()}
        ids |= {item.member.rows.snapshot.snapshot_id: item.published for item in done}
    if not left:
        raise _moved_while_tagged(tagged[0][0])
    raise concurrent_commit(left[0].state.identifier, left[0].rows.staging)


def _tag_of(description: CatalogDescription, identifier: TableIdentifier, tag: ReleaseTag) -> TableCommit | None:
    """Return the commit that tags the head of a table's `main`. None if it has the tag, or if only an engine can."""
    table = known_table(description, identifier, action="publish")
    main, known = table.metadata.refs.get(MAIN_BRANCH), table.metadata.refs.get(tag.name)
    if main is None or (known is not None and known.snapshot_id == main.snapshot_id):
        return None
    if not can_commit(description):
        return None
    seen = AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": main.snapshot_id})
    requirements = (AssertTableUUID(uuid=table.metadata.table_uuid), seen)
    return TableCommit(identifier, table, {}, requirements, (update_of_tag(tag.at(main.snapshot_id)),))


def _moved_while_tagged(identifier: TableIdentifier) -> CommitConflictError:
    return CommitConflictError.refusing(
        "publish",
        str(identifier),
        expected="a table that stays as it is while the release tags it",
        found="commits of other writers",
        hint="re-execute the run from failure.",
    )


def _prepare(
    description: CatalogDescription,
    members: Sequence[Member],
    published: Mapping[int, PublishedSnapshot],
    advance: Advance,
) -> tuple[_Step, ...]:
    """Decide how to publish each member, and write what its commit needs. Nothing is committed."""
    ids, steps = dict(published), list[_Step]()
    with ExitStack() as stack:
        for member in members:
            how, commit = _chosen(description, member, ids, advance)
            stack.callback(commit.discard)
            steps.append(_Step(member, how, commit))
            ids |= commit.published
        stack.pop_all()
    return tuple(steps)


def _chosen(
    description: CatalogDescription, member: Member, published: Mapping[int, PublishedSnapshot], advance: Advance
) -> tuple[Publication, TableCommit]:
    """Decide how to publish a member. It is rebased if its lineage names snapshots that are published as others."""
    state, rows = member.state, member.rows
    how = choose_publication(description, state, rows)
    table = known_table(description, state.identifier, action="publish")
    in_python = can_commit(description)
    is_renamed = any(published_upstream(snapshot, published) is not None for snapshot in rows.snapshots)
    if how == "rebase" or is_renamed:
        commit = _rebase(description, table, member, published) if in_python else None
        if commit is not None:
            return "rebase", commit
        # The next incremental read continues from the ids in the lineage.
        if how == "rebase" or any(changes_read(snapshot.summary) for snapshot in rows.snapshots):
            raise overtaken(state.identifier, rows.staging.target)
    same = {item.snapshot_id: PublishedSnapshot(item.snapshot_id, is_moved=False) for item in rows.snapshots}
    if not in_python:
        return how, TableCommit(state.identifier, table, published=same, by_engine=partial(advance, state, rows))
    return how, _commit_of(table, member, same)


def choose_publication(description: CatalogDescription, state: TableState, rows: StagedRows) -> Publication:
    """Choose how to publish staged rows, by what has happened to their target since the staged branch began."""
    passed = passed_snapshots(state, rows)
    if not passed:
        return "fast-forward"
    changes = file_changes(description, state, (*rows.snapshots, *passed), rows.columns)
    return decide_publication(state, rows, passed, changes)


def _looked_at(description: CatalogDescription, step: _Step) -> Member | PublishedMember:
    """Return the member as it is now. If the answer to its commit was lost, it is published."""
    member = step.member
    state = look(description, member.state.identifier) or member.state
    found = published_snapshot(state, member.rows.staging, member.rows.snapshot)
    if found is None:
        return replace(member, state=state)
    return replace(step.done(), published=PublishedSnapshot.of(member.rows.snapshot, found))


def _rebase(
    description: CatalogDescription, table: Table, member: Member, published: Mapping[int, PublishedSnapshot]
) -> TableCommit | None:
    """Return the commit that adds snapshots with the files and properties of the staged ones to the target.

    It is None if the target no longer has a file that they remove.

    The lineage of the new snapshots names the snapshots in `published` instead of the staged ones.

    A new snapshot has a parent: of one without, no catalog verifies the sequence number, which a commit to another
    branch outdates (`TableMetadata.Builder.addSnapshot` of Iceberg 1.12; pyiceberg 0.12). In a table whose target has
    no snapshot, it is the empty snapshot that the staged branch starts at.
    """
    state, rows, staging = member.state, member.rows, member.rows.staging
    head = table.metadata.snapshot_by_id(state.refs.get(staging.target, rows.start_id))  # type: ignore[arg-type]
    is_moved = state.refs.get(staging.target) not in (None, rows.start_id)
    known, base = dict(published), Base.of(table, head)
    with translated_answers(description, action=f"read the manifests of {state.identifier} in"), ExitStack() as stack:
        written, added = list[SnapshotFiles](), list[TableUpdate]()
        stack.callback(discard_all, written)
        for snapshot in rows.snapshots:
            upstream = published_upstream(snapshot, known)
            properties = {**kept_properties(snapshot.summary), **({} if upstream is None else {UPSTREAM: upstream})}
            if member.is_kept and head is not None:
                properties[BRANCH_START] = str(head.snapshot_id)
            change = change_of(table, snapshot.snapshot_id)
            written.append(SnapshotFiles(table, base))
            new = change.snapshot(written[-1], properties, Operation(snapshot.operation))
            if new is None:
                return None
            added.append(AddSnapshotUpdate(snapshot=new))
            base = base.after(new, parent=new)
            known[snapshot.snapshot_id] = PublishedSnapshot(new.snapshot_id, is_moved=is_moved)
        stack.pop_all()
    own = {snapshot.snapshot_id: known[snapshot.snapshot_id] for snapshot in rows.snapshots}
    return _commit_of(table, member, own, tuple(added), partial(discard_all, written))


def discard_all(written: Iterable[SnapshotFiles]) -> None:
    """Delete manifests that no snapshot has."""
    for files in written:
        files.delete()


def change_of(table: Table, snapshot_id: int) -> FileChange:
    """Return the files that a snapshot added and removed.

    Added files get the sequence number of the snapshot that adds them again, unless their rows are older, as those that
    a compaction has written.
    """
    snapshot = table.snapshot_by_id(snapshot_id)
    own = None if snapshot is None else snapshot.sequence_number
    added, removed = list[tuple[ManifestDataFile, int | None]](), list[ManifestDataFile]()
    for entry in entries_of(table, snapshot_id):
        if entry.status == ManifestEntryStatus.ADDED:
            added.append((entry.data_file, None if entry.sequence_number == own else entry.sequence_number))
        else:
            removed.append(entry.data_file)
    return FileChange(added, removed)


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
            raise CommitConflictError.to_plan_again(
                "publish",
                state.identifier,
                expected=f"the columns {', '.join(columns)}, which the run is partitioned by",
                found="none of that name: another writer has renamed or dropped one",
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
    deletes = [file for file in (*added, *removed) if file.content != DataFileContent.DATA]
    masked = [masked_file(file) for file in deletes]
    return FileChanges(
        tuple(map(described, added)),
        tuple(map(described, removed)),
        frozenset(path for path in masked if path is not None),
        any(path is None for path in masked),
    )


def _commit_of(
    table: Table,
    member: Member,
    published: Mapping[int, PublishedSnapshot],
    updates: tuple[TableUpdate, ...] = (),
    discard: Callable[[], None] = ignore,
) -> TableCommit:
    """Return the commit that moves the target and drops the staged branch, if both are as they were seen.

    A branch that is kept moves itself, and its target stays.
    """
    state, staging = member.state, member.rows.staging
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        as_seen(staging.target, state),
        as_seen(staging.branch, state),
    )
    newest = published[state.refs[staging.branch]]
    moved = (
        move_of(table, staging.target, newest.snapshot_id, retention_days=staging.target_retention_days),
        removal_of(staging.branch),
        *(() if staging.tag is None else (update_of_tag(staging.tag.at(newest.snapshot_id)),)),
    )
    kept = (move_of(table, staging.branch, newest.snapshot_id),)
    changes = (*updates, *(kept if member.is_kept else moved))
    return TableCommit(state.identifier, table, published, requirements, changes, discard)


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

"""Decides how a staged snapshot is published: how its target branch comes to hold the staged rows.

| the target since the staged branch began | publication |
|---|---|
| has not moved, or has no snapshot | *fast-forward*: the staged snapshot becomes the target's |
| has moved, but not in the rows of the staged write | *rebase*: a new snapshot of the same files on the target |
| the same, but a rebase of files is impossible | a conflict |
| has moved in these rows | a conflict; appended rows are published unless an audit looked at these rows together |

Whether the target has moved in the rows is decided by the files that its new snapshots added and removed, whoever
wrote them. A partition without files has none to be missed: only what others have added shows that they wrote it too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import Final, Literal, TypeAlias

from dagster_iceberg_spark.errors import AuditFailedError, CommitConflictError, UpstreamMissingError
from dagster_iceberg_spark.plan.options.output_options import WriteOptions
from dagster_iceberg_spark.plan.partitions.binding import BoundScope, bind_scope
from dagster_iceberg_spark.plan.schema.renames import StoredNames
from dagster_iceberg_spark.plan.write.overwrite_filter import DataFile, within_file
from dagster_iceberg_spark.plan.write.write_request import Staging
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.audit import AuditResult
from dagster_iceberg_spark.table.change import is_empty_start
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import ASSET_KEY, UPSTREAM, UpstreamRead, upstream_reads, with_published_reads
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import PublishedSnapshot, Snapshot, TableState

_cannot_publish = partial(CommitConflictError.to_plan_again, "publish")

Publication: TypeAlias = Literal["fast-forward", "rebase"]

_FILES: Final = (
    "data-files",
    "delete-files",
    "equality-delete-files",
    "position-delete-files",
    "dvs",
    "records",
    "files-size",
    "position-deletes",
    "equality-deletes",
)
_COMPUTED: Final = frozenset(
    {
        *(f"{done}-{what}" for done in ("added", "deleted", "removed", "total") for what in _FILES),
        "operation",
        "deleted-duplicate-files",
        "changed-partition-count",
        "partition-summaries-included",
        "source-snapshot-id",
        "published-wap-id",
        "replace-partitions",
        "kept-manifests-count",
        "manifests-kept",
        "manifests-created",
        "manifests-replaced",
        "entries-processed",
        "app-id",
        "engine-name",
        "engine-version",
        "environment-context",
        "iceberg-version",
        "spark.app.id",
    }
)
"""What an engine writes to a summary itself (Iceberg's `SnapshotSummary` of 1.12 and `EnvironmentContext`)."""
_PARTITION_SUMMARY: Final = "partitions."


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows to publish: those of a staged write, or of all writes to a branch.

    Args:
        snapshots: The snapshots on the branch since it began, oldest first; one for a staged write.
        owned: The rows that they replaced, updated or deleted.
        audited: The rows that an audit looked at together, such as for repeated keys, or None if every audit checks
            each row on its own.
    """

    staging: Staging
    snapshots: tuple[Snapshot, ...]
    owned: BoundScope
    audited: BoundScope | None

    @property
    def snapshot(self) -> Snapshot:
        """The newest snapshot."""
        return self.snapshots[-1]

    @property
    def start_id(self) -> int | None:
        """The snapshot that the branch began at."""
        return self.snapshots[0].parent_snapshot_id

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose bounds in the data files show which files have these rows."""
        return tuple(dict.fromkeys((*self.owned.columns, *(self.audited.columns if self.audited else ()))))


def rows_of_scope(state: TableState, options: WriteOptions, scope: PartitionScope) -> BoundScope:
    """Return the rows of an asset's partitions, by the table's names of the columns."""
    subject = str(state.identifier)
    names = StoredNames.of(options.renames, Schema(()), state.schema, subject=subject)
    return bind_scope(names.of_scope(scope), state.schema, subject=subject)


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The files that a snapshot added and removed, with the bounds of the columns of the staged rows.

    Args:
        added: The data and delete files that it added.
        removed: Those that it removed.
        masked: The paths of data files of which it added or removed deleted rows.
        masks_others: Whether it added or removed deleted rows of data files that are not known by path.
    """

    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    masked: frozenset[str] = frozenset()
    masks_others: bool = False


def passed_snapshots(state: TableState, rows: StagedRows) -> tuple[Snapshot, ...]:
    """Return the snapshots that the target has had since the staged branch began, newest first.

    The newest snapshot of the branch must be that of the rows, which has been audited. A target that does not exist yet
    has none. If some have expired, the oldest one that is left stands for all of them: its parent is where the branch
    began.
    """
    staging, begin_id = rows.staging, rows.start_id
    if state.refs.get(staging.branch) != rows.snapshot.snapshot_id:
        raise _other_history(state.identifier, staging)
    begin = None if begin_id is None else state.snapshots.get(begin_id)
    begins_empty = begin is not None and is_empty_start(begin)
    passed: list[Snapshot] = []
    for snapshot in state.base_ancestors(staging.target):
        if snapshot.snapshot_id == begin_id:
            break
        passed.append(snapshot)
    else:  # the target began without a snapshot too
        began = begins_empty or _is_first(rows.snapshots[0])
        if begin is not None and passed and passed[-1].parent_snapshot_id not in (None, *state.snapshots):
            passed[-1] = replace(passed[-1], operation="overwrite", parent_snapshot_id=begin_id)
        elif not began or (passed and not _is_first(passed[-1])):
            raise _other_history(state.identifier, staging)
    return tuple(passed) if staging.target in state.refs else ()


def _is_first(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is the first of its table. When others expire, a later one may lose its parent."""
    has_only_its_own = snapshot.count("total-data-files") == snapshot.count("added-data-files")
    return snapshot.parent_snapshot_id is None and has_only_its_own


def is_published(state: TableState, staging: Staging, staged: Snapshot) -> bool:
    """Return whether the target holds the staged snapshot itself."""
    for snapshot in state.ancestors(staging.target):
        if snapshot.snapshot_id in (staged.snapshot_id, staged.parent_snapshot_id):
            return snapshot.snapshot_id == staged.snapshot_id
    return False


def decide_publication(
    state: TableState, rows: StagedRows, passed: Sequence[Snapshot], changes: Mapping[int, FileChanges]
) -> Publication:
    """Decide how to publish staged rows whose target has moved, by the snapshots that it has passed since.

    `changes` has the changes of the staged snapshots and of each passed one, by its id.
    """
    staging, audited = rows.staging, rows.audited
    own = [changes[snapshot.snapshot_id] for snapshot in rows.snapshots]
    summaries = [snapshot.summary for snapshot in rows.snapshots]
    appends = all(summary.get(lineage.WRITE_DISPOSITION) == "append" for summary in summaries)
    reads_changes = any(map(lineage.changes_read, summaries))
    for snapshot in passed:
        if lineage.settled_tokens(snapshot.summary) & staging.rivals:
            raise _conflict(state.identifier, staging, snapshot)  # planned again, the write adopts it
        touched = changes[snapshot.snapshot_id]
        is_harmless = snapshot.is_compaction or (appends and not reads_changes)
        is_unseen = audited is not None and not snapshot.is_compaction and touches(touched, audited)
        if is_unseen or (not is_harmless and (appends or touches(touched, rows.owned))):
            raise _conflict(state.identifier, staging, snapshot)
    others = [changes[snapshot.snapshot_id] for snapshot in passed]
    gone = {file.path for each in others for file in each.removed}
    needed = {file.path for each in own for file in each.removed}
    masked, masked_since = (frozenset().union(*(each.masked for each in side)) for side in (own, others))
    is_lost = needed & gone or masked & (gone | masked_since) or needed & masked_since
    if is_lost or (gone and any(each.masks_others for each in own)):
        raise overtaken(state.identifier, staging.target)
    return "rebase"


def published_snapshot(state: TableState, staging: Staging, staged: Snapshot) -> Snapshot | None:
    """Return the newest snapshot of the target that has the token of the staged one."""
    token = staged.summary.get(lineage.COMMIT_TOKEN)
    for snapshot in state.ancestors(staging.target):
        if snapshot.snapshot_id == staged.snapshot_id:
            return snapshot
        if token is not None and snapshot.summary.get(lineage.COMMIT_TOKEN) == token:
            return snapshot
        if snapshot.snapshot_id == staged.parent_snapshot_id:  # where the staged branch began
            return None
    return None


def kept_properties(summary: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a snapshot that a snapshot with the same rows has too."""
    is_computed = {key: key in _COMPUTED or key.startswith(_PARTITION_SUMMARY) for key in summary}
    return {key: value for key, value in summary.items() if not is_computed[key]}


def touches(changes: FileChanges, owned: BoundScope) -> bool:
    """Return whether a snapshot may have added or removed some of these rows."""
    return any(within_file(owned, file).boxes for file in (*changes.added, *changes.removed))


def _conflict(identifier: TableIdentifier, staging: Staging, snapshot: Snapshot) -> CommitConflictError:
    """Another writer has changed the rows of the staged write on the target."""
    summary = snapshot.summary
    run, keys = summary.get(lineage.RUN_ID), summary.get(lineage.PARTITION_KEYS)
    writer = f"run {run} of {summary.get(lineage.ASSET_KEY)}" if run else "another writer"
    partitions = f", partitions {keys}" if keys else ""
    return _cannot_publish(
        identifier,
        expected=f"the rows of this run in {staging.target!r} as they were when they were staged",
        found=f"snapshot {snapshot.snapshot_id} of {writer}{partitions}, which has added or removed some of them since",
    )


def _other_history(identifier: TableIdentifier, staging: Staging) -> CommitConflictError:
    """The staged branch and its target have no common history, or the branch holds another writer's snapshot."""
    return _cannot_publish(
        identifier,
        expected=f"the staged branch {staging.branch!r} to hold one snapshot on top of a snapshot of "
        f"{staging.target!r}",
        found="another history: another writer has replaced the table, rolled it back or written to the branch",
    )


def concurrent_commit(identifier: TableIdentifier, staging: Staging) -> CommitConflictError:
    """Another writer has committed while the staged rows were being published."""
    return _cannot_publish(
        identifier, expected=f"{staging.target!r} as it was a moment ago", found="a commit of another writer since"
    )


class OvertakenError(CommitConflictError):
    """Another writer has changed other rows of the target, and the staged files cannot be committed on top of them."""


def overtaken(identifier: TableIdentifier, target: str) -> OvertakenError:
    """Return the error for staged files that pyiceberg cannot commit on top of another writer's commit."""
    return OvertakenError.to_plan_again(
        "publish",
        identifier,
        expected=f"files that can be committed to {target!r}, which another writer has changed since they were staged",
        found="a table in a directory, or files of the staged rows that the other writer has rewritten",
    )


def failed_audits(
    identifier: TableIdentifier,
    staging: Staging,
    results: Sequence[AuditResult],
    query: Callable[[AuditResult], str] | None,
) -> AuditFailedError:
    """Rows fail an audit. `query` returns the query that shows the staged rows that fail it.

    It is None if the staged rows are dropped.
    """
    failed = [result for result in results if result.forbids_publication]
    found = "; ".join(f"{result}{_sample(result)}" for result in failed)
    left = "The staged rows are dropped."
    if query is not None:
        left = (
            f"The staged rows stay in the branch {staging.branch!r} for {staging.retention_days} days. To look at "
            f"them: {query(failed[0])}"
        )
    error = AuditFailedError.refusing(
        "publish",
        str(identifier),
        expected="rows that pass every audit",
        found=found,
        hint="fix the rows or the audit, and run the asset again. "
        f"The rows of {staging.target!r} are unchanged. {left}",
    )
    error.results = tuple(results)
    return error


def _sample(result: AuditResult) -> str:
    rows = [", ".join(f"{name}={value}" for name, value in row.items()) for row in result.sample]
    return f", such as {' and '.join(f'({row})' for row in rows)}" if rows else ""


@dataclass(frozen=True, slots=True)
class Member:
    """An asset of a release, with the state of its table and the rows that the run has staged.

    `is_kept` says whether the branch stays and follows its target, which does not get the rows.
    """

    asset: str
    state: TableState
    rows: StagedRows
    is_kept: bool = False

    @property
    def reads(self) -> tuple[UpstreamRead, ...]:
        """The inputs that the rows were derived from."""
        return tuple(read for snapshot in self.rows.snapshots for read in _reads_of(snapshot))


def in_order(members: Sequence[Member]) -> tuple[Member, ...]:
    """Return the members, each after those that it was derived from."""
    by_table = {str(member.state.identifier): member for member in members}
    sources = {
        table: {read.table for read in member.reads} & by_table.keys() - {table} for table, member in by_table.items()
    }
    try:
        return tuple(by_table[table] for table in TopologicalSorter(sources).static_order())
    except CycleError:  # assets that read one another in several runs
        return tuple(members)


def refuse_outdated(members: Sequence[Member], published: Mapping[int, PublishedSnapshot]) -> None:
    """Reject a member that was derived from staged rows which have been staged again since.

    `published` has the snapshots that are published already, by the ids of the staged ones.
    """
    by_table = {str(member.state.identifier): member for member in members}
    for member in members:
        for read in member.reads:
            source = by_table.get(read.table)
            if source is None or source is member or read.snapshot_id is None or read.snapshot_id in published:
                continue
            staged = source.state.history(source.rows.snapshot.snapshot_id)
            known = chain(staged, source.state.ancestors(source.rows.staging.target))
            if all(snapshot.snapshot_id != read.snapshot_id for snapshot in known):
                raise UpstreamMissingError.refusing(
                    "publish",
                    member.asset,
                    expected=f"rows derived from the staged rows of {source.asset}",
                    found=f"rows derived from its snapshot {read.snapshot_id}, after which it was staged again",
                    hint=f"materialize {member.asset} in this run again.",
                )


def published_upstream(staged: Snapshot, published: Mapping[int, PublishedSnapshot]) -> str | None:
    """Return a snapshot's inputs by the ids of the published snapshots, or None if these are the ids that it has.

    An incremental read continues from the published snapshot. What others have committed before it would never be read.
    """
    ids = {before: after.snapshot_id for before, after in published.items() if before != after.snapshot_id}
    reads = [read for read in _reads_of(staged) if read.snapshot_id in ids]
    for read in reads:
        if read.kind is not None and published[read.snapshot_id or 0].is_moved:
            asset, source = staged.summary.get(ASSET_KEY, "the rows"), read.asset_key
            raise CommitConflictError.refusing(
                "publish",
                asset,
                expected=f"no commits of others to {source}, whose changes it has read up to the staged snapshot",
                found="some, which the asset would never read",
                hint=f"materialize {source} and {asset} again.",
            )
    return with_published_reads(staged.summary[UPSTREAM], ids) if reads else None


def _reads_of(snapshot: Snapshot) -> tuple[UpstreamRead, ...]:
    return upstream_reads(snapshot.summary.get(UPSTREAM, ""))

"""Finds out whether a materialization is already in the table, under its commit token or an earlier attempt's.

`docs/exactly-once.md` describes the rules for each scenario.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dagster_iceberg_spark.errors import CommitOutcomeUnknownError, DuplicateCommitError, OrphanedCommitError
from dagster_iceberg_spark.plan.options.output_options import WriteDisposition
from dagster_iceberg_spark.plan.write.write_request import Record, RecordCheck, TokenCandidate
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.change import may_change_rows, with_undone
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import CODE_VERSION, COMMIT_TOKEN, Materialization
from dagster_iceberg_spark.table.predicate import EVERY_ROW, Predicate
from dagster_iceberg_spark.table.scope import share_of
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

CLOCK_TOLERANCE_MS: Final = 10 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Adoption:
    """The snapshot to adopt, or None to write, with a warning for the run's log."""

    snapshot: Snapshot | None = None
    warning: str | None = None


def decide_adoption(
    state: TableState,
    candidates: Sequence[TokenCandidate],
    materialization: Materialization,
    *,
    branch: str,
    disposition: WriteDisposition,
    record_of: RecordCheck,
) -> Adoption:
    """Decide whether to adopt a snapshot of the branch or to write. Without candidates, the write goes ahead."""
    since_ms = searched_since_ms(candidates)
    if since_ms is None:
        return Adoption()
    younger: list[Snapshot] = []
    for snapshot, is_undone in with_undone(state.ancestors(branch)):
        if snapshot.committed_at_ms < since_ms:
            break
        if is_undone:
            continue
        resumed = lineage.resumed_tokens(snapshot.summary)
        if any(candidate.is_same_run and candidate.token in resumed for candidate in candidates):
            run = snapshot.summary.get(lineage.RUN_ID)
            return Adoption(snapshot, f"Run {run} has resumed this run, and has written {state.identifier}.")
        token = snapshot.summary.get(lineage.COMMIT_TOKEN)
        candidate = next((candidate for candidate in candidates if candidate.token == token), None)
        if candidate is None:
            younger.append(snapshot)
            continue
        if disposition == "append":
            line = (item for item, is_undone in with_undone(state.ancestors(branch)) if not is_undone)
            twins = [item for item in line if item.summary.get(lineage.COMMIT_TOKEN) == token]
            refuse_twins(state.identifier, twins, disposition=disposition)
            return _decide_append(state, snapshot, candidate, materialization, record_of(snapshot.snapshot_id))
        is_orphaned = record_of(snapshot.snapshot_id) == "none" and _has_same_code(snapshot, materialization)
        is_unaffected = is_orphaned and all(leaves_alone(item, materialization) for item in younger)
        return Adoption(snapshot if is_unaffected or _has_same_changes(snapshot, materialization) else None)
    if disposition == "append" and younger:
        _require_remembered(state, candidates, younger[-1])
    return Adoption()


def searched_since_ms(candidates: Sequence[TokenCandidate]) -> int | None:
    """Return the earliest time of a candidate's commit, in milliseconds since 1970, or None without candidates."""
    if not candidates:
        return None
    return min(candidate.run_started_at_ms or 0 for candidate in candidates) - CLOCK_TOLERANCE_MS


def _require_remembered(state: TableState, candidates: Sequence[TokenCandidate], oldest: Snapshot) -> None:
    """Reject an append if an earlier attempt may have appended in a snapshot that has expired."""
    begun = [candidate for candidate in candidates if candidate.has_begun]
    since_ms = searched_since_ms(begun)
    is_cut = oldest.parent_snapshot_id is not None and oldest.parent_snapshot_id not in state.snapshots
    if since_ms is None or not is_cut or oldest.committed_at_ms < since_ms:
        return
    runs = [candidate.run_id for candidate in begun]
    raise CommitOutcomeUnknownError.refusing(
        "append again to",
        str(state.identifier),
        expected=f"a history that goes back to the start of run {', '.join(runs)}, which may have appended these rows",
        found=f"snapshots from {oldest.committed_at.isoformat(timespec='seconds')} on: older ones have expired",
        hint="check whether the rows are there. If they are not, launch a new run instead of resuming that one.",
    )


def has_read_changes(snapshot: Snapshot, candidates: Sequence[TokenCandidate]) -> bool:
    """Return whether an earlier attempt of this materialization wrote the snapshot from an incremental read.

    The next attempt reads the same changes and adopts the snapshot. If it wrote them again, rows would be duplicated.
    """
    token = snapshot.summary.get(lineage.COMMIT_TOKEN)
    return any(candidate.token == token for candidate in candidates) and bool(lineage.changes_read(snapshot.summary))


def _has_same_changes(snapshot: Snapshot, materialization: Materialization) -> bool:
    read = lineage.changes_read(snapshot.summary)
    return bool(read) and read == {item.range for item in materialization.upstream if item.kind is not None}


def _has_same_code(snapshot: Snapshot, materialization: Materialization) -> bool:
    return snapshot.summary.get(lineage.CODE_VERSION) == materialization.code_version


def _decide_append(
    state: TableState, snapshot: Snapshot, candidate: TokenCandidate, materialization: Materialization, record: Record
) -> Adoption:
    has_same_code = _has_same_code(snapshot, materialization)
    if record == "none" and not has_same_code:
        raise OrphanedCommitError.refusing(
            "append to",
            str(state.identifier),
            expected="the interrupted append to have the code version that repeats it",
            found=f"snapshot {snapshot.snapshot_id} of run {candidate.run_id} with code version "
            f"{snapshot.summary.get(CODE_VERSION)!r}, this one is {materialization.code_version!r}",
            hint="look at that snapshot: keep it and record the materialization, or roll it back and run again.",
        )
    is_same = candidate.is_same_run or _has_same_changes(snapshot, materialization)
    if is_same or (record != "rejected" and has_same_code):
        return Adoption(snapshot)
    return Adoption(
        warning=f"Appending again to {state.identifier}: run {candidate.run_id} already appended snapshot "
        f"{snapshot.snapshot_id}, which Dagster has recorded"
        f"{' and a blocking check has rejected' if record == 'rejected' else ''}."
    )


def leaves_alone(snapshot: Snapshot, materialization: Materialization) -> bool:
    """Return whether a snapshot is compaction, or a materialization of other partitions of this asset."""
    if snapshot.is_compaction:
        return True
    if snapshot.summary.get(lineage.ASSET_KEY) != materialization.asset_key or materialization.scope.is_whole_table:
        return False
    described = snapshot.summary.get(lineage.PARTITION_KEYS)
    return described is not None and share_of(described, materialization.scope.keys) == "none"


def leaves_merge_alone(snapshot: Snapshot, scope: Predicate, materialization: Materialization) -> bool:
    """Return whether a snapshot has neither changed rows that a merge into the scope has read nor added its keys."""
    return not may_change_rows(snapshot) or (scope != EVERY_ROW and leaves_alone(snapshot, materialization))


def displaced_snapshots(
    state: TableState, committed: Snapshot, known: frozenset[int], *, branch: str
) -> tuple[Snapshot, ...]:
    """Return the snapshots of other writers that a commit has removed from the history: the newest of each line.

    If a catalog reports that it rejected a commit that it made, Iceberg finds its snapshot in the refreshed table and
    moves the branch back to it (`SnapshotProducer.commit` of 1.12). `known` has the ids of the snapshots that existed
    before the commit.
    """
    head = state.head(branch)
    if head is None or head.snapshot_id != committed.snapshot_id:
        return ()
    younger = [state.snapshots[snapshot_id] for snapshot_id in state.snapshots if snapshot_id not in known]
    descendants: dict[int, Snapshot] = {}
    for snapshot in sorted(younger, key=lambda item: item.committed_at_ms):
        if snapshot.parent_snapshot_id == committed.snapshot_id or snapshot.parent_snapshot_id in descendants:
            descendants[snapshot.snapshot_id] = snapshot
    if not descendants:
        return ()
    alive = {snapshot.snapshot_id for ref in state.refs for snapshot in state.ancestors(ref)}
    parents = {snapshot.parent_snapshot_id for snapshot in descendants.values()}
    return tuple(item for item in descendants.values() if item.snapshot_id not in alive | parents)


def refuse_twins(
    identifier: TableIdentifier, twins: Sequence[Snapshot], *, disposition: WriteDisposition
) -> str | None:
    """Return a warning if several snapshots carry one token, which two attempts at the same time may cause.

    The later snapshot of a rewrite replaces the rows of the earlier one. Two appends duplicate the rows: an error.
    """
    if len(twins) <= 1:
        return None
    if disposition == "append":
        raise DuplicateCommitError.refusing(
            "append to",
            str(identifier),
            expected=f"one snapshot with the commit token {twins[0].summary[COMMIT_TOKEN]}",
            found=f"the snapshots {', '.join(str(snapshot.snapshot_id) for snapshot in twins)}",
            hint="roll back the later snapshot: two attempts of one step ran at once.",
        )
    ids = ", ".join(str(snapshot.snapshot_id) for snapshot in twins)
    return (
        f"Two attempts of one step wrote {identifier} at once, as the snapshots {ids}: the newest has replaced what "
        "the others wrote."
    )

"""Whether a materialization is in the table already, under its own commit token or an earlier attempt's.

The rule, scenario by scenario, is in `docs/exactly-once.md`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from dagster_iceberg_spark.plan import history_refusals
from dagster_iceberg_spark.plan.options import WriteDisposition
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import Materialization
from dagster_iceberg_spark.table.scope import share_of
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

CLOCK_TOLERANCE_MS: Final = 10 * 60 * 1000

Record: TypeAlias = Literal["none", "recorded", "rejected"]
"""What Dagster holds of a snapshot: no materialization; one; one whose blocking check failed."""
RecordCheck: TypeAlias = Callable[[int], Record]
"""Says what is recorded of materializations of this asset and partition, by the candidates' runs, with a snapshot."""


def operation_tag(token: str) -> str:
    """Return the tag of what writes under the token; Spark takes no comma and no space in one."""
    return f"dagster-iceberg-{token}"


@dataclass(frozen=True, slots=True)
class TokenCandidate:
    """A token under which the materialization may be in the table already.

    Args:
        token: The commit token.
        run_id: The run that would have written it.
        run_started_at_ms: When that run began, in milliseconds since 1970; None where it is not known.
        is_same_run: Whether that run is this one.
        has_begun: Whether an earlier attempt under the token is known to have begun.
    """

    token: str
    run_id: str
    run_started_at_ms: int | None
    is_same_run: bool
    has_begun: bool = True

    @property
    def tag(self) -> str:
        """The tag of what writes under the token."""
        return operation_tag(self.token)


@dataclass(frozen=True, slots=True)
class RemoteAttempt:
    """Where on a Spark Connect server an attempt writes, or has written.

    Args:
        tag: The tag of its operations; every attempt of a materialization has the same.
        session_id: Spark Connect's id of the session.
        user_id: The user of the session.
        server: The server's host and port.
    """

    tag: str
    session_id: str
    user_id: str
    server: str


@dataclass(frozen=True, slots=True)
class Adoption:
    """The outcome of the look.

    Args:
        snapshot: The snapshot to adopt; None: write.
        warning: What the run's log should say, if anything.
    """

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
    """Say whether to adopt a snapshot that is there, or to write.

    Args:
        state: A fresh look at the table.
        candidates: Tokens to look for; none: write without looking.
        materialization: What this attempt would write.
        branch: The branch whose ancestors count.
        disposition: How the rows are written.
        record_of: Says what Dagster has recorded of a snapshot.

    Raises:
        DuplicateCommitError: Two appends carry one token.
        OrphanedCommitError: An unrecorded append was written under another code version.
        CommitOutcomeUnknownError: An append may have been committed in a snapshot that is expired.
    """
    since_ms = searched_since_ms(candidates)
    if since_ms is None:
        return Adoption()
    younger: list[Snapshot] = []
    for snapshot in state.ancestors(branch):
        if snapshot.committed_at_ms < since_ms:
            break
        token = snapshot.summary.get(lineage.COMMIT_TOKEN)
        candidate = next((candidate for candidate in candidates if candidate.token == token), None)
        if candidate is not None:
            if disposition == "append":
                twins = [item for item in state.ancestors(branch) if item.summary.get(lineage.COMMIT_TOKEN) == token]
                refuse_twins(state.identifier, twins, disposition=disposition)
            found = _Found(snapshot, candidate, tuple(younger), materialization)
            record = record_of(snapshot.snapshot_id)
            is_orphaned = disposition == "append" and record == "none" and not found.has_same_code
            if found.has_same_changes and not is_orphaned:
                return Adoption(snapshot)
            return _decide_append(found, state, record) if disposition == "append" else _decide_rewrite(found, record)
        younger.append(snapshot)
    if disposition == "append" and younger:
        _require_remembered(state, candidates, younger[-1])
    return Adoption()


def searched_since_ms(candidates: Sequence[TokenCandidate]) -> int | None:
    """Return since when a candidate may have been committed, in milliseconds since 1970; None: there is none."""
    if not candidates:
        return None
    return min(candidate.run_started_at_ms or 0 for candidate in candidates) - CLOCK_TOLERANCE_MS


def _require_remembered(state: TableState, candidates: Sequence[TokenCandidate], oldest: Snapshot) -> None:
    """Refuse to append where an earlier attempt may have, in a snapshot that the history has lost."""
    begun = [candidate for candidate in candidates if candidate.has_begun]
    since_ms = searched_since_ms(begun)
    is_cut = oldest.parent_snapshot_id is not None and oldest.parent_snapshot_id not in state.snapshots
    if since_ms is None or not is_cut or oldest.committed_at_ms < since_ms:
        return
    runs = [candidate.run_id for candidate in begun]
    raise history_refusals.forgotten_append(str(state.identifier), runs, oldest)


def has_read_changes(snapshot: Snapshot, candidates: Sequence[TokenCandidate]) -> bool:
    """Say whether a snapshot is an earlier attempt's of this materialization, made of the changes of an input.

    Whoever tries again reads the same changes, and adopts it: made of them once more, its rows would be doubled.
    """
    token = snapshot.summary.get(lineage.COMMIT_TOKEN)
    return any(candidate.token == token for candidate in candidates) and bool(lineage.changes_read(snapshot.summary))


@dataclass(frozen=True, slots=True)
class _Found:
    snapshot: Snapshot
    candidate: TokenCandidate
    younger: tuple[Snapshot, ...]
    materialization: Materialization

    @property
    def has_same_changes(self) -> bool:
        read = lineage.changes_read(self.snapshot.summary)
        return bool(read) and read == {item.range for item in self.materialization.upstream if item.kind is not None}

    @property
    def has_same_code(self) -> bool:
        return self.snapshot.summary.get(lineage.CODE_VERSION) == self.materialization.code_version


def _decide_append(found: _Found, state: TableState, record: Record) -> Adoption:
    if record == "none" and not found.has_same_code:
        raise history_refusals.append_of_other_code(
            str(state.identifier), found.snapshot, found.candidate.run_id, found.materialization.code_version
        )
    if found.candidate.is_same_run or (record != "rejected" and found.has_same_code):
        return Adoption(found.snapshot)
    return Adoption(
        warning=f"Appending again to {state.identifier}: run {found.candidate.run_id} already appended snapshot "
        f"{found.snapshot.snapshot_id}, which Dagster has recorded"
        f"{' and a blocking check has rejected' if record == 'rejected' else ''}."
    )


def _decide_rewrite(found: _Found, record: Record) -> Adoption:
    untouched = all(leaves_alone(snapshot, found.materialization) for snapshot in found.younger)
    return Adoption(found.snapshot) if record == "none" and found.has_same_code and untouched else Adoption()


def leaves_alone(snapshot: Snapshot, materialization: Materialization) -> bool:
    """Say whether a snapshot of others is compaction, or this asset's own of other partitions."""
    if snapshot.is_compaction:
        return True
    if snapshot.summary.get(lineage.ASSET_KEY) != materialization.asset_key or materialization.scope.is_whole_table:
        return False
    described = snapshot.summary.get(lineage.PARTITION_KEYS)
    return described is not None and share_of(described, materialization.scope.keys) == "none"


def displaced_by(state: TableState, own: Snapshot, known: frozenset[int], *, branch: str) -> tuple[Snapshot, ...]:
    """Return the snapshots of other writers that a commit has taken out of the history: the newest of each line.

    Iceberg that is told that its commit was refused, when it was not, finds its own snapshot in the refreshed table and
    moves the branch back to it (`SnapshotProducer.commit` of 1.12).

    Args:
        state: The table after the commit.
        own: The snapshot that was committed.
        known: The snapshots that were there before.
        branch: The branch that was written.
    """
    head = state.head(branch)
    if head is None or head.snapshot_id != own.snapshot_id:
        return ()
    younger = [state.snapshots[snapshot_id] for snapshot_id in state.snapshots if snapshot_id not in known]
    upon: dict[int, Snapshot] = {}
    for snapshot in sorted(younger, key=lambda item: item.committed_at_ms):
        if snapshot.parent_snapshot_id == own.snapshot_id or snapshot.parent_snapshot_id in upon:
            upon[snapshot.snapshot_id] = snapshot
    if not upon:
        return ()
    alive = {snapshot.snapshot_id for ref in state.refs for snapshot in state.ancestors(ref)}
    parents = {snapshot.parent_snapshot_id for snapshot in upon.values()}
    return tuple(item for item in upon.values() if item.snapshot_id not in alive | parents)


def refuse_twins(
    identifier: TableIdentifier, twins: Sequence[Snapshot], *, disposition: WriteDisposition
) -> str | None:
    """Say what is wrong where several snapshots carry one token: a rewrite repeated its rows, an append doubled them.

    Raises:
        DuplicateCommitError: The snapshots are appends.
    """
    if len(twins) <= 1:
        return None
    if disposition == "append":
        raise history_refusals.twin_appends(str(identifier), twins)
    ids = ", ".join(str(snapshot.snapshot_id) for snapshot in twins)
    return (
        f"Two attempts of one step wrote {identifier} at once, as the snapshots {ids}: the newest has replaced what "
        "the others wrote."
    )

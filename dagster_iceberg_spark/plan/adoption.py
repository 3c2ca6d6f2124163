"""Whether a materialization is in the table already, under its own commit token or an earlier attempt's.

The rule, scenario by scenario, is in `docs/exactly-once.md`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dagster_iceberg_spark.errors import DuplicateCommitError, OrphanedCommitError
from dagster_iceberg_spark.plan.options import WriteDisposition
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.lineage import Materialization
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

CLOCK_TOLERANCE_MS: Final = 10 * 60 * 1000


@dataclass(frozen=True, slots=True)
class TokenCandidate:
    """A token under which the materialization may be in the table already.

    Args:
        token: The commit token.
        run_id: The run that would have written it.
        run_started_at_ms: When that run began, in milliseconds since 1970; None where it is not known.
        is_same_run: Whether that run is this one.
    """

    token: str
    run_id: str
    run_started_at_ms: int | None
    is_same_run: bool


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
    is_recorded: Callable[[str, int], bool],
) -> Adoption:
    """Say whether to adopt a snapshot that is there, or to write.

    Args:
        state: A fresh look at the table.
        candidates: Tokens to look for; none: write without looking.
        materialization: What this attempt would write.
        branch: The branch whose ancestors count.
        disposition: How the rows are written.
        is_recorded: Whether Dagster holds a materialization of this asset and partition by that run with that snapshot.

    Raises:
        DuplicateCommitError: Two appends carry one token.
        OrphanedCommitError: An unrecorded append was written under another code version.
    """
    if not candidates:
        return Adoption()
    since_ms = min(candidate.run_started_at_ms or 0 for candidate in candidates) - CLOCK_TOLERANCE_MS
    younger: list[Snapshot] = []
    for snapshot in state.ancestors(branch):
        if snapshot.committed_at_ms < since_ms:
            break
        token = snapshot.summary.get(lineage.COMMIT_TOKEN)
        candidate = next((candidate for candidate in candidates if candidate.token == token), None)
        if candidate is not None:
            _refuse_duplicate(state, snapshot, branch=branch, disposition=disposition)
            found = _Found(snapshot, candidate, tuple(younger), materialization)
            recorded = is_recorded(candidate.run_id, snapshot.snapshot_id)
            return (
                _decide_append(found, state, recorded) if disposition == "append" else _decide_rewrite(found, recorded)
            )
        younger.append(snapshot)
    return Adoption()


@dataclass(frozen=True, slots=True)
class _Found:
    snapshot: Snapshot
    candidate: TokenCandidate
    younger: tuple[Snapshot, ...]
    materialization: Materialization

    @property
    def has_same_code(self) -> bool:
        return self.snapshot.summary.get(lineage.CODE_VERSION) == self.materialization.code_version


def _decide_append(found: _Found, state: TableState, recorded: bool) -> Adoption:  # noqa: FBT001 - two plain facts
    if not recorded and not found.has_same_code:
        raise OrphanedCommitError.refusing(
            "append to",
            str(state.identifier),
            expected="that an interrupted append was made by the code version that repeats it",
            found=f"snapshot {found.snapshot.snapshot_id} of run {found.candidate.run_id} with code version "
            f"{found.snapshot.summary.get(lineage.CODE_VERSION)!r}, this one is "
            f"{found.materialization.code_version!r}",
            hint="look at that snapshot: keep it and record the materialization, or roll it back and run again.",
        )
    if not recorded or found.candidate.is_same_run:
        return Adoption(found.snapshot)
    return Adoption(
        warning=f"Appending again to {state.identifier}: run {found.candidate.run_id} already appended snapshot "
        f"{found.snapshot.snapshot_id}, which Dagster has recorded."
    )


def _decide_rewrite(found: _Found, recorded: bool) -> Adoption:  # noqa: FBT001 - two plain facts
    untouched = all(_leaves_alone(snapshot, found.materialization) for snapshot in found.younger)
    return Adoption(found.snapshot) if not recorded and found.has_same_code and untouched else Adoption()


def _leaves_alone(snapshot: Snapshot, materialization: Materialization) -> bool:
    """Say whether a later snapshot is compaction, or this asset's own of other partitions."""
    if snapshot.operation == "replace":
        return True
    if snapshot.summary.get(lineage.ASSET_KEY) != materialization.asset_key or materialization.scope.is_whole_table:
        return False
    theirs = _listed_keys(snapshot.summary.get(lineage.PARTITION_KEYS))
    return theirs is not None and not theirs & set(materialization.scope.keys)


def _listed_keys(described: str | None) -> set[str] | None:
    """Return the keys that a snapshot lists; None where it only says how many there are."""
    if described is None:
        return None
    if not described.startswith("["):
        return None if described.endswith(")") else {described}
    try:
        return set(json.loads(described))
    except ValueError:  # a key that an older version, or someone else, wrote as it is
        return None


def _refuse_duplicate(state: TableState, found: Snapshot, *, branch: str, disposition: WriteDisposition) -> None:
    """Raise where two appends carry one token: a rewrite may repeat its own, an append never does."""
    if disposition != "append":
        return
    token = found.summary[lineage.COMMIT_TOKEN]
    twins = [item for item in state.ancestors(branch) if item.summary.get(lineage.COMMIT_TOKEN) == token]
    if len(twins) > 1:
        raise DuplicateCommitError.refusing(
            "append to",
            str(state.identifier),
            expected=f"one snapshot with the commit token {token}",
            found=f"the snapshots {', '.join(str(item.snapshot_id) for item in twins)}",
            hint="two attempts of one step ran at once; roll back the later snapshot.",
        )

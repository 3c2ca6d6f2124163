"""The earlier attempts of a step: what they may have committed, and where they may still be writing."""

from collections.abc import Sequence
from typing import Final

import dagster as dg

from dagster_iceberg_spark.dagster_private import (
    StepFacts,
    engine_events,
    has_failed_blocking_check,
    recorded_snapshots,
    resumed_runs,
    run_started_at_ms,
)
from dagster_iceberg_spark.plan.adoption import Record, RemoteAttempt, TokenCandidate
from dagster_iceberg_spark.table.lineage import commit_token
from dagster_iceberg_spark.table.scope import PartitionScope

_ATTEMPT: Final = {
    "tag": "iceberg/tag",
    "session_id": "iceberg/session",
    "user_id": "iceberg/user",
    "server": "iceberg/server",
}
"""Keys of the engine event that records where an attempt writes, by field of `RemoteAttempt`."""


def token_candidates(
    facts: StepFacts | None, *, output: str, scope: PartitionScope, branch: str
) -> tuple[TokenCandidate, ...]:
    """Return the commit tokens to look for: those of this run and of the runs that it resumes.

    On an ephemeral instance, in-process runs may repeat a fixed run id, so the first attempt looks for no token.
    """
    if facts is None or (facts.instance.is_ephemeral and facts.attempt == 0):
        return ()
    runs = [facts.run_id, *resumed_runs(facts)]
    return tuple(
        TokenCandidate(
            token=commit_token(run_id=run_id, output=output, scope=scope, branch=branch),
            run_id=run_id,
            run_started_at_ms=run_started_at_ms(facts.instance, run_id),
            is_same_run=run_id == facts.run_id,
            has_begun=run_id != facts.run_id or facts.attempt > 0,
        )
        for run_id in runs
    )


def record_of(
    facts: StepFacts | None,
    asset_key: dg.AssetKey | None,
    scope: PartitionScope,
    candidates: Sequence[TokenCandidate],
    snapshot_id: int,
) -> Record:
    """Return what the candidates' runs have recorded of a snapshot."""
    if facts is None or asset_key is None:
        return "none"
    runs = [candidate.run_id for candidate in candidates]
    recorded = [run for run in runs if snapshot_id in recorded_snapshots(facts.instance, run, asset_key, scope.keys)]
    if any(has_failed_blocking_check(facts.instance, run, asset_key) for run in recorded):
        return "rejected"
    return "recorded" if recorded else "none"


def announce(facts: StepFacts | None, table: str, attempt: RemoteAttempt) -> None:
    """Record where an attempt writes, so that a later attempt can stop it. A write without a step has none."""
    if facts is not None:
        facts.record_event(
            f"Writing {table} in session {attempt.session_id} of the Spark Connect server {attempt.server}.",
            {key: getattr(attempt, field) for field, key in _ATTEMPT.items()},
        )


def earlier_attempts(facts: StepFacts | None, candidates: Sequence[TokenCandidate]) -> Sequence[RemoteAttempt]:
    """Return the sessions in which earlier attempts of the step, or of the runs that it resumes, wrote."""
    if facts is None:
        return ()
    tags = {candidate.tag for candidate in candidates}
    events = (event for candidate in candidates for event in engine_events(facts.instance, candidate.run_id))
    return tuple(
        RemoteAttempt(**{field: event[key] for field, key in _ATTEMPT.items()})
        for event in events
        if event.get(_ATTEMPT["tag"]) in tags and set(_ATTEMPT.values()) <= set(event)
    )

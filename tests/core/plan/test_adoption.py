"""Whether the table already has this materialization: every row of the table in docs/exactly-once.md."""

import dataclasses
import json
from typing import Any

import pytest

from dagster_iceberg_spark.errors import CommitOutcomeUnknownError, DuplicateCommitError, OrphanedCommitError
from dagster_iceberg_spark.plan.write.adoption import Adoption, decide_adoption, displaced_snapshots, refuse_twins
from dagster_iceberg_spark.plan.write.write_request import Record, TokenCandidate
from dagster_iceberg_spark.table.lineage import Materialization, commit_token
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState
from tests.core.table.samples import chain, daily, snapshot, table

DAY, OTHER_DAY = "2024-01-02", "2024-01-03"
STARTED = 10_000
"""When the runs of these tests started, in seconds since 1970. A snapshot's id is the second of its commit."""
RUN, PARENT = "run-2", "run-1"


def token(run_id: str, *keys: str, output: str = "flights") -> str:
    return commit_token(run_id=run_id, output=output, scope=daily(*(keys or (DAY,))), branch="main")


def candidate(run_id: str, *, started: int | None = STARTED) -> TokenCandidate:
    started_ms = None if started is None else started * 1000
    return TokenCandidate(token(run_id), run_id, started_ms, is_same_run=run_id == RUN)


def materialization(scope: PartitionScope | None = None, code_version: str | None = "v1") -> Materialization:
    return Materialization(
        asset_key="flights",
        run_id=RUN,
        job="job",
        step_key="flights",
        scope=daily(DAY) if scope is None else scope,
        code_version=code_version,
        upstream=(),
        write_disposition="replace",
        commit_token=token(RUN),
        package_version="0",
    )


def commit(
    snapshot_id: int, run_id: str = RUN, *, keys: str | None = DAY, operation: str = "overwrite", **summary: Any
) -> Snapshot:
    """Return a snapshot of this asset by a run."""
    given = {
        "asset_key": "flights",
        "code_version": "v1",
        "partition_keys": keys,
        "commit_token": token(run_id),
        **summary,
    }
    return snapshot(snapshot_id, operation=operation, **given)


def decide(
    *history: Snapshot,
    disposition: str = "replace",
    candidates: tuple[str, ...] = (RUN,),
    recorded: Record = "none",
    **changes: Any,
) -> Adoption:
    state = changes.pop("state", None) or table(snapshots=chain(*history))
    return decide_adoption(
        state,
        changes.pop("tokens", [candidate(run_id) for run_id in candidates]),
        materialization(**changes),
        branch="main",
        disposition=disposition,  # type: ignore[arg-type]
        record_of=lambda _snapshot_id: recorded,
    )


S = STARTED + 100
OTHERS = commit(S - 1, "run-0", keys=OTHER_DAY, commit_token="x")
REWRITES = ("replace", "merge")
ALL = (*REWRITES, "append")


def adopted(adoption: Adoption) -> int | None:
    return adoption.snapshot.snapshot_id if adoption.snapshot else None


@pytest.mark.parametrize("disposition", ALL)
def test_a_retried_killed_or_resumed_step_adopts_its_unrecorded_snapshot(disposition: str) -> None:
    assert adopted(decide(OTHERS, commit(S), disposition=disposition)) == S
    assert adopted(decide(OTHERS, commit(S, PARENT), disposition=disposition, candidates=(RUN, PARENT))) == S


@pytest.mark.parametrize("disposition", ALL)
def test_a_snapshot_that_was_undone_is_written_again(disposition: str) -> None:
    undone = commit(S), commit(S + 1, "undo-1", commit_token=None, undoes=f"[{S}]")
    assert adopted(decide(*undone, disposition=disposition)) is None
    again = commit(S + 2)
    assert adopted(decide(*undone, again, disposition=disposition)) == S + 2
    restored = commit(S + 2, "undo-2", keys=OTHER_DAY, commit_token=None, undoes=f"[{S + 1}]")
    assert adopted(decide(*undone, restored, disposition="append")) == S


@pytest.mark.parametrize(("disposition", "expected"), [("replace", None), ("merge", None), ("append", S)])
def test_a_retried_step_rewrites_a_recorded_snapshot_but_appends_once(disposition: str, expected: int | None) -> None:
    adoption = decide(commit(S), disposition=disposition, recorded="recorded")
    assert (adopted(adoption), adoption.warning) == (expected, None)


@pytest.mark.parametrize(("disposition", "expected"), [("replace", None), ("merge", None), ("append", S)])
def test_a_resumed_run_rewrites_a_recorded_snapshot_but_appends_once(disposition: str, expected: int | None) -> None:
    adoption = decide(commit(S, PARENT), disposition=disposition, candidates=(RUN, PARENT), recorded="recorded")
    assert (adopted(adoption), adoption.warning) == (expected, None)


@pytest.mark.parametrize("disposition", ALL)
def test_a_resumed_run_rewrites_a_snapshot_that_failed_a_blocking_check(disposition: str) -> None:
    adoption = decide(commit(S, PARENT), disposition=disposition, candidates=(RUN, PARENT), recorded="rejected")
    assert adoption.snapshot is None
    if disposition == "append":
        assert adoption.warning == (
            f"Appending again to nyc.flights: run {PARENT} already appended snapshot {S}, which Dagster has recorded "
            "and a blocking check has rejected."
        )
    else:
        assert adoption.warning is None


@pytest.mark.parametrize("disposition", ALL)
def test_an_append_is_not_repeated_if_the_history_is_incomplete(disposition: str) -> None:
    """The snapshots since the start of the run have expired. One of them may have been the append."""
    cut = dataclasses.replace(OTHERS, parent_snapshot_id=STARTED + 1)
    tried = [dataclasses.replace(candidate(RUN), has_begun=False), candidate(PARENT)]
    if disposition != "append":
        assert adopted(decide(state=table(snapshots=[cut]), disposition=disposition, tokens=tried)) is None
        return
    with pytest.raises(
        CommitOutcomeUnknownError, match=rf"start of run {PARENT}, .* snapshots from 1970-01-01T02:48:19"
    ):
        decide(state=table(snapshots=[cut]), disposition=disposition, tokens=tried)
    # No earlier attempt has started; the history reaches back to before the run; the history is complete.
    assert adopted(decide(state=table(snapshots=[cut]), disposition=disposition, tokens=tried[:1])) is None
    old = dataclasses.replace(snapshot(STARTED - 700), parent_snapshot_id=1)
    younger = dataclasses.replace(OTHERS, parent_snapshot_id=old.snapshot_id)
    assert adopted(decide(state=table(snapshots=[old, younger]), disposition=disposition, tokens=tried)) is None
    assert adopted(decide(OTHERS, disposition=disposition, tokens=tried)) is None


def test_a_resumed_run_with_new_code_appends_again_after_a_recorded_append() -> None:
    adoption = decide(
        commit(S, PARENT), disposition="append", candidates=(RUN, PARENT), recorded="recorded", code_version="v2"
    )
    assert adoption.snapshot is None
    assert adoption.warning == (
        f"Appending again to nyc.flights: run {PARENT} already appended snapshot {S}, which Dagster has recorded."
    )


def test_a_token_with_one_commit_has_no_twins() -> None:
    found = commit(S)
    assert refuse_twins(table().identifier, [found], disposition="append") is None
    warning = refuse_twins(table().identifier, [commit(S + 1), found], disposition="replace")
    assert warning is not None
    assert f"as the snapshots {S + 1}, {S}: the newest has replaced" in warning


@pytest.mark.parametrize("disposition", ALL)
def test_a_new_run_does_not_search_for_a_parent_s_snapshot(disposition: str) -> None:
    assert decide(commit(S, PARENT), disposition=disposition) == Adoption()


@pytest.mark.parametrize("disposition", ALL)
def test_without_a_token_the_rows_are_written(disposition: str) -> None:
    assert decide(commit(S), disposition=disposition, candidates=()) == Adoption()


@pytest.mark.parametrize("disposition", ALL)
def test_a_snapshot_that_was_rolled_back_is_written_again(disposition: str) -> None:
    state = table(snapshots=(*chain(snapshot(1), commit(S)),), refs={"main": 1})
    assert decide(state=state, disposition=disposition) == Adoption()


@pytest.mark.parametrize(
    ("younger", "is_left_alone"),
    [
        (snapshot(S + 1, operation="replace"), True),
        (commit(S + 1, "run-3", keys=OTHER_DAY, commit_token="x"), True),
        (commit(S + 1, "run-3", keys=f'["{OTHER_DAY}", "2024-01-04"]', commit_token="x"), True),
        (commit(S + 1, "run-3", keys=DAY, commit_token="x"), False),
        (commit(S + 1, "run-3", keys=f'["{DAY}", "{OTHER_DAY}"]', commit_token="x"), False),
        (commit(S + 1, "run-3", keys="2023-01-01..2024-12-31 (366)", commit_token="x"), False),
        (commit(S + 1, "run-3", keys="[broken", commit_token="x"), False),
        (commit(S + 1, "run-3", keys=None, commit_token="x"), False),
        (commit(S + 1, "run-3", keys=OTHER_DAY, commit_token="x", asset_key="other"), False),
        (snapshot(S + 1, operation="append"), False),
        (snapshot(S + 1, operation="delete"), False),
    ],
)
def test_a_rewrite_is_adopted_if_only_compaction_and_other_partitions_followed(
    younger: Snapshot, is_left_alone: bool
) -> None:
    for disposition in REWRITES:
        assert adopted(decide(commit(S), younger, disposition=disposition)) == (S if is_left_alone else None)
    assert adopted(decide(commit(S), younger, disposition="append")) == S


def test_one_conflicting_commit_among_harmless_ones_causes_a_rewrite() -> None:
    harmless = snapshot(S + 1, operation="replace"), commit(S + 3, "run-3", keys=OTHER_DAY, commit_token="x")
    assert adopted(decide(commit(S), *harmless)) == S
    assert adopted(decide(commit(S), harmless[0], snapshot(S + 2), harmless[1])) is None


def test_any_later_materialization_affects_an_unpartitioned_table() -> None:
    for_all = token(RUN)
    later = commit(S + 1, "run-3", keys=None, commit_token="x")
    assert adopted(decide(commit(S, keys=None, commit_token=for_all), scope=PartitionScope())) == S
    assert adopted(decide(commit(S, keys=None, commit_token=for_all), later, scope=PartitionScope())) is None
    compaction = snapshot(S + 1, operation="replace")
    assert adopted(decide(commit(S, keys=None, commit_token=for_all), compaction, scope=PartitionScope())) == S


@pytest.mark.parametrize("disposition", REWRITES)
@pytest.mark.parametrize(("stored", "current"), [("v1", "v2"), (None, "v1"), ("v1", None)])
def test_a_new_code_version_writes_again(disposition: str, stored: str | None, current: str | None) -> None:
    found = commit(S, code_version=stored)
    assert adopted(decide(found, disposition=disposition, code_version=current)) is None
    assert adopted(decide(found, disposition=disposition, code_version=stored)) == S


def test_an_unrecorded_append_of_another_code_version_needs_investigation() -> None:
    with pytest.raises(OrphanedCommitError) as caught:
        decide(commit(S), disposition="append", code_version="v2")
    assert f"found snapshot {S} of run {RUN} with code version 'v1', this one is 'v2'." in str(caught.value)
    assert adopted(decide(commit(S), disposition="append", code_version="v2", recorded="recorded")) == S


def test_two_appends_with_one_token_are_an_error_that_names_both() -> None:
    with pytest.raises(DuplicateCommitError, match=f"found the snapshots {S + 2}, {S}\\."):
        decide(commit(S), snapshot(S + 1), commit(S + 2), disposition="append")


def test_the_newest_of_several_rewrites_with_one_token_is_adopted() -> None:
    for disposition in REWRITES:
        assert adopted(decide(commit(S), commit(S + 2), disposition=disposition)) == S + 2


def test_the_run_s_own_commit_takes_precedence_over_its_parent_s() -> None:
    adoption = decide(commit(S, PARENT), commit(S + 1, RUN), candidates=(RUN, PARENT))
    assert adopted(adoption) == S + 1


@pytest.mark.parametrize(("age", "is_found"), [(STARTED - 599, True), (STARTED - 600, True), (STARTED - 601, False)])
def test_the_search_ends_ten_minutes_before_the_oldest_candidate_began(age: int, is_found: bool) -> None:
    tokens = [candidate(RUN, started=STARTED + 5000), candidate(PARENT)]
    assert (adopted(decide(commit(age, PARENT), tokens=tokens)) == age) == is_found


def test_the_whole_history_is_searched_if_the_run_s_start_is_unknown() -> None:
    assert adopted(decide(commit(5), tokens=[candidate(RUN, started=None)])) == 5


def test_each_output_of_a_step_has_its_own_token() -> None:
    sibling = commit(S, commit_token=token(RUN, output="other_output"))
    assert decide(sibling) == Adoption()


def test_an_expired_snapshot_is_written_again() -> None:
    state = table(snapshots=[dataclasses.replace(commit(S + 9, "run-3", commit_token="x"), parent_snapshot_id=S)])
    assert decide(state=state) == Adoption()


def test_a_table_without_snapshots_is_written() -> None:
    empty: TableState = table()
    assert decide(state=empty) == Adoption()


def test_dagster_is_asked_only_about_the_snapshot_found() -> None:
    asked: list[int] = []

    def record_of(snapshot_id: int) -> Record:
        asked.append(snapshot_id)
        return "none"

    state = table(snapshots=chain(OTHERS, commit(S, PARENT)))
    tokens = [candidate(RUN), candidate(PARENT)]
    decide_adoption(state, tokens, materialization(), branch="main", disposition="replace", record_of=record_of)
    assert asked == [S]


def test_only_the_target_branch_is_searched() -> None:
    history = chain(snapshot(1), commit(S))
    state = table(snapshots=history, refs={"main": S, "audit": 1})
    found = decide_adoption(
        state, [candidate(RUN)], materialization(), branch="audit", disposition="replace", record_of=lambda _: "none"
    )
    assert found == Adoption()


@pytest.mark.parametrize(
    ("refs", "expected"),
    [
        ({"main": S}, [S + 2]),
        ({"main": S + 2}, []),
        ({"main": 1}, []),
        ({"main": S, "audit": S + 2}, []),
        ({"main": S, "audit": S + 1}, [S + 2]),
        ({"audit": S}, []),
    ],
    ids=str,
)
def test_snapshots_that_a_commit_has_taken_out_of_the_history_are_found(
    refs: dict[str, int], expected: list[int]
) -> None:
    """Two others have followed the commit, before Iceberg moved the branch back to it."""
    history = chain(snapshot(1), commit(S), snapshot(S + 1), snapshot(S + 2))
    state, known = table(snapshots=history, refs=refs), frozenset({1})
    found = displaced_snapshots(state, history[1], known, branch="main")
    assert [item.snapshot_id for item in found] == expected


def test_a_snapshot_beside_the_commit_is_not_displaced_by_it() -> None:
    beside = dataclasses.replace(snapshot(S + 1), parent_snapshot_id=1)
    history = (*chain(snapshot(1), commit(S)), beside)
    assert (
        displaced_snapshots(table(snapshots=history, refs={"main": S}), history[1], frozenset({1}), branch="main") == ()
    )


@pytest.mark.parametrize("disposition", ["append", "merge", "replace"])
@pytest.mark.parametrize("later", [(), (commit(S + 2, "r9", keys=None, asset_key="other"),)])
def test_a_run_that_another_has_resumed_adopts_its_snapshot(disposition: str, later: tuple[Snapshot, ...]) -> None:
    """The run was believed dead. Others may have changed the rows since."""
    theirs = commit(S + 1, "r2", resumes=json.dumps([token(RUN)]), code_version="v2")
    decided = decide(commit(S, "r0"), theirs, *later, disposition=disposition)
    assert decided.snapshot is not None
    assert decided.snapshot.snapshot_id == S + 1
    assert "has resumed this run, and has written" in str(decided.warning)


def test_a_run_that_resumes_the_same_run_does_not_adopt_what_another_one_wrote() -> None:
    theirs = commit(S + 1, "r2", resumes=json.dumps([token("r0")]))
    assert decide(commit(S, "r9"), theirs, candidates=(RUN, "r0")).snapshot is None

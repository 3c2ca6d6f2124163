"""How staged rows are published beside other writers, and when they are not."""

from dataclasses import replace
from typing import Any

import pytest

from dagster_iceberg_spark.errors import AuditFailedError, CommitConflictError
from dagster_iceberg_spark.plan.partitions.binding import EVERYTHING, BoundScope, bind_scope
from dagster_iceberg_spark.plan.publication.staged_rows import (
    FileChanges,
    OvertakenError,
    StagedRows,
    concurrent_commit,
    decide_publication,
    failed_audits,
    is_published,
    kept_properties,
    passed_snapshots,
    published_snapshot,
)
from dagster_iceberg_spark.plan.write.overwrite_filter import ColumnBounds, DataFile
from dagster_iceberg_spark.plan.write.write_request import Staging
from dagster_iceberg_spark.table.audit import Audit, AuditResult, Condition, NotNull
from dagster_iceberg_spark.table.lineage import Materialization, UpstreamRead
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState
from tests.core.table.samples import EMPTY_START, TABLE, chain, keyed, schema, snapshot, table

STAGING = Staging("staged", "main")
SCOPE = keyed("AA")
OWNED = bind_scope(SCOPE, schema(carrier="string"), subject=str(TABLE))
READ = UpstreamRead("up", "db.up", 1, None)


def materialization(disposition: str = "replace", *reads: UpstreamRead) -> Materialization:
    return Materialization("flights", "run", "job", "step", SCOPE, None, reads, disposition, "token", "0.1")


def staged(parent: int | None, snapshot_id: int = 10, token: str | None = "token") -> Snapshot:
    return snapshot(snapshot_id, parent=parent, commit_token=token)


def rows_of(*snapshots: Snapshot, target: str = "main") -> StagedRows:
    return StagedRows(Staging("staged", target), snapshots, OWNED, None)


LINE = chain(*(snapshot(number, commit_token=f"other {number}") for number in (1, 2, 3)))


def state(*others: Snapshot, main: int | None = 3, head: int | None = 10, **refs: int) -> TableState:
    """Return a table with the snapshots 1 to 3, each on top of the one before, and a staged branch."""
    heads = {"main": main, "staged": head, **refs}
    found = {name: snapshot_id for name, snapshot_id in heads.items() if snapshot_id is not None}
    return table(snapshots=(*LINE, *others), refs=found)


class TestLine:
    """Where the staged branch began, and what its target has had since."""

    @pytest.mark.parametrize(("parent", "passed"), [(3, []), (2, [3]), (1, [3, 2])])
    def test_the_target_has_passed_what_is_newer_than_the_start(self, parent: int, passed: list[int]) -> None:
        found = passed_snapshots(state(staged(parent)), rows_of(staged(parent)))
        assert [item.snapshot_id for item in found] == passed

    @pytest.mark.parametrize("parent", [None, 9], ids=["no start", "an empty start"])
    @pytest.mark.parametrize(("main", "passed"), [(None, []), (3, [3, 2, 1])])
    def test_a_branch_of_an_empty_table_has_everything_before_it(
        self, parent: int | None, main: int | None, passed: list[int]
    ) -> None:
        found = passed_snapshots(state(EMPTY_START, staged(parent), main=main), rows_of(staged(parent)))
        assert [item.snapshot_id for item in found] == passed

    def test_a_target_that_does_not_exist_yet_has_passed_nothing(self) -> None:
        assert passed_snapshots(state(staged(2)), rows_of(staged(2), target="audit")) == ()

    def test_only_the_target_counts(self) -> None:
        audit = snapshot(4, parent=1, commit_token="q")
        found = passed_snapshots(state(audit, staged(1), audit=4), rows_of(staged(1), target="audit"))
        assert found == (audit,)

    @pytest.mark.parametrize(
        "given",
        [
            state(head=None),
            state(head=3),
            state(head=77),
            state(EMPTY_START, head=9),
            state(staged(3), staged(10, 11), head=11),
            state(staged(3), snapshot(11, parent=10, operation="replace"), head=11),
            state(staged(3), main=1),
            state(snapshot(20), staged(3), main=20),
        ],
        ids=[
            "no branch",
            "nothing staged",
            "an unknown snapshot",
            "an empty branch",
            "staged twice",
            "compacted",
            "a target that was rolled back",
            "a target that was replaced",
        ],
    )
    def test_another_history_is_refused(self, given: TableState) -> None:
        with pytest.raises(CommitConflictError, match="found another history: another writer has replaced the table"):
            passed_snapshots(given, rows_of(staged(3)))

    def test_a_start_that_has_expired_on_the_target_is_another_history(self) -> None:
        given = state(staged(2))
        expired = replace(given, snapshots={number: given.snapshots[number] for number in (3, 10)})
        with pytest.raises(CommitConflictError, match="one snapshot on top of a snapshot of 'main'"):
            passed_snapshots(expired, rows_of(staged(2)))

    @pytest.mark.parametrize("which", ["branch", "target"])
    def test_a_snapshot_that_has_lost_its_parent_is_not_the_first(self, which: str) -> None:
        """Some engines take an expired parent out of its children."""
        files = {"total-data-files": "2", "added-data-files": "1"}
        own = replace(staged(None), summary={**staged(None).summary, **(files if which == "branch" else {})})
        given = state(own)
        cut = replace(given.snapshots[3], parent_snapshot_id=None, summary=files if which == "target" else {})
        expired = replace(given, snapshots={3: cut, 10: own})
        with pytest.raises(CommitConflictError, match="found another history"):
            passed_snapshots(expired, rows_of(own))

    def test_if_some_have_expired_since_the_oldest_stands_for_all(self) -> None:
        given = state(staged(1))
        expired = replace(given, snapshots={number: given.snapshots[number] for number in (1, 3, 10)})
        (stand_in,) = passed_snapshots(expired, rows_of(staged(1)))
        assert (stand_in.snapshot_id, stand_in.parent_snapshot_id, stand_in.operation) == (3, 1, "overwrite")

    def test_snapshots_before_the_start_may_expire(self) -> None:
        given = state(staged(2))
        expired = replace(given, snapshots={number: given.snapshots[number] for number in (2, 3, 10)})
        assert passed_snapshots(expired, rows_of(staged(2))) == (given.snapshots[3],)


def file(path: str, first: str, last: str | None = None) -> DataFile:
    return DataFile(path, {"carrier": ColumnBounds(first, last or first, may_hold_null=False)}, rows=1)


UNKNOWN_FILE = DataFile("u", {"carrier": ColumnBounds(None, None, may_hold_null=True)}, rows=1)
MINE, THEIRS = file("mine", "AA"), file("theirs", "UA")
OLD = file("old", "AA")


def decide(
    *passed: Snapshot,
    added: tuple[DataFile, ...] = (THEIRS,),
    removed: tuple[DataFile, ...] = (),
    own: Materialization | None = None,
    owned: BoundScope = OWNED,
    audited: BoundScope | None = None,
    masked: tuple[str, ...] = (),
    masks_others: bool = False,
    masked_since: tuple[str, ...] = (),
    given: TableState | None = None,
    staged_snapshot: Snapshot | None = None,
    staging: Staging = STAGING,
) -> str:
    """Decide for a staged snapshot that replaced the file `old`. All passed snapshots have changed the same files."""
    newest = staged_snapshot or staged(1)
    newest = replace(newest, summary={**newest.summary, **(own or materialization()).properties()})
    changes = {item.snapshot_id: FileChanges(added, removed, frozenset(masked_since)) for item in passed}
    changes[newest.snapshot_id] = FileChanges((MINE,), (OLD,), frozenset(masked), masks_others)
    rows = StagedRows(staging, (newest,), owned, audited)
    return decide_publication(given or state(newest), rows, passed, changes)


class TestDecision:
    """How a staged snapshot is published on a target that has moved."""

    @pytest.mark.parametrize("added", [(), (THEIRS,), (THEIRS, file("more", "DL", "ZZ"))])
    def test_other_rows_allow_a_rebase(self, added: tuple[DataFile, ...]) -> None:
        assert decide(LINE[2], LINE[1], added=added, removed=(file("gone", "B6"),)) == "rebase"

    @pytest.mark.parametrize("touching", [MINE, file("wide", "A", "Z"), UNKNOWN_FILE])
    @pytest.mark.parametrize("how", ["added", "removed"])
    def test_changed_rows_are_a_conflict(self, touching: DataFile, how: str) -> None:
        files: dict[str, Any] = {"added": (), "removed": (), how: (THEIRS, touching)}
        with pytest.raises(CommitConflictError, match="found snapshot 3 of another writer, which has added or removed"):
            decide(LINE[2], **files)

    def test_any_change_conflicts_with_the_whole_table(self) -> None:
        with pytest.raises(CommitConflictError):
            decide(LINE[2], owned=EVERYTHING)
        assert decide(LINE[2], added=(), owned=EVERYTHING) == "rebase"

    def test_the_conflict_names_the_writer(self) -> None:
        theirs = snapshot(3, parent=2, run_id="r7", asset_key="nyc/delays", partition_keys="AA")
        with pytest.raises(CommitConflictError) as caught:
            decide(theirs, LINE[1], added=(MINE,))
        assert "the rows of this run in 'main' as they were when they were staged" in str(caught.value)
        assert "found snapshot 3 of run r7 of nyc/delays, partitions AA, which has" in str(caught.value)

    def test_a_compaction_changes_no_rows(self) -> None:
        compaction = replace(LINE[2], operation="replace")
        assert decide(compaction, added=(MINE,)) == "rebase"
        with pytest.raises(OvertakenError):
            decide(compaction, added=(file("new", "AA"),), removed=(OLD,))

    @pytest.mark.parametrize("summary", [{"commit_token": "token"}, {"commit_token": "t2", "resumes": '["token"]'}])
    def test_rows_that_a_rival_has_published_are_a_conflict(self, summary: dict[str, str]) -> None:
        theirs, own = snapshot(3, parent=2, **summary), materialization("append")
        assert decide(theirs, LINE[1], own=own) == "rebase"
        with pytest.raises(CommitConflictError):
            decide(theirs, LINE[1], own=own, staging=replace(STAGING, rivals=frozenset({"token"})))

    def test_appended_rows_are_beside_all_others(self) -> None:
        assert decide(LINE[2], added=(MINE,), own=materialization("append", READ), owned=EVERYTHING) == "rebase"

    def test_rows_that_an_audit_looked_at_together_must_be_all_there_are(self) -> None:
        appends = materialization("append")
        with pytest.raises(CommitConflictError, match="found snapshot 3 of another writer"):
            decide(LINE[2], added=(MINE,), own=appends, owned=EVERYTHING, audited=OWNED)
        assert decide(LINE[2], own=appends, owned=EVERYTHING, audited=OWNED) == "rebase"
        compaction = replace(LINE[2], operation="replace")
        assert decide(compaction, added=(MINE,), own=appends, owned=EVERYTHING, audited=OWNED) == "rebase"

    def test_appended_changes_are_published_once(self) -> None:
        """Another run may have read the same changes, and appended rows anywhere."""
        changes = materialization("append", READ, replace(READ, kind="changes"))
        with pytest.raises(CommitConflictError, match="found snapshot 3"):
            decide(LINE[2], own=changes)
        assert decide(replace(LINE[2], operation="replace"), own=changes) == "rebase"
        assert decide(LINE[2], own=materialization("merge", replace(READ, kind="changes"))) == "rebase"

    def test_deleted_rows_are_committed_again_with_their_files(self) -> None:
        assert decide(LINE[2], masked=("a",), masked_since=("b",)) == "rebase"
        assert decide(LINE[2], masks_others=True) == "rebase"

    @pytest.mark.parametrize(
        "changes",
        [
            {"masked": ("a", "b"), "masked_since": ("b",)},  # a data file has one deletion vector
            {"masked": ("gone",), "removed": (file("gone", "B6"),)},  # its rows are in another file
            {"masks_others": True, "removed": (file("gone", "B6"),)},
            {"masked_since": ("old",)},  # the staged write has copied the rows that are deleted since
        ],
    )
    def test_deleted_rows_stay_deleted(self, changes: dict[str, Any]) -> None:
        with pytest.raises(OvertakenError, match="files of the staged rows that the other writer has rewritten"):
            decide(LINE[2], **changes)


def test_a_staged_snapshot_may_be_published_although_the_target_has_gone_on() -> None:
    newer = snapshot(11, parent=10, commit_token="later")
    assert is_published(state(staged(3), newer, main=11), STAGING, staged(3))
    assert not is_published(state(staged(3)), STAGING, staged(3))
    assert not is_published(state(staged(2)), STAGING, staged(2))


def test_a_snapshot_without_a_token_is_published_as_itself_only() -> None:
    own = staged(3, token=None)
    assert published_snapshot(state(own), STAGING, own) is None
    assert published_snapshot(state(own, main=10), STAGING, own) == own


def test_the_published_snapshot_is_the_newest_with_the_token() -> None:
    rebased = snapshot(11, parent=3, commit_token="token")
    newer = snapshot(12, parent=11, commit_token="later")
    assert published_snapshot(state(staged(1), rebased, newer, main=12), STAGING, staged(1)) == rebased
    assert published_snapshot(state(staged(3), main=10, head=None), STAGING, staged(3)) == staged(3)
    assert published_snapshot(state(staged(3)), STAGING, staged(3)) is None
    assert published_snapshot(state(staged(3)), Staging("staged", "audit"), staged(3)) is None


def test_a_rebase_keeps_what_is_not_computed() -> None:
    kept = {
        "dagster.run_id": "r",
        "dagster_iceberg_spark.boundary": "2024",
        "spark.merge-into.num-target-rows-inserted": "3",
        "team": "data",
        "wap.id": "w",
    }
    names = (
        "operation added-records deleted-data-files removed-files-size total-records engine-name partitions.carrier=AA "
        "changed-partition-count spark.app.id iceberg-version manifests-created"
    )
    computed = dict.fromkeys(names.split(), "1")
    assert kept_properties({**computed, **kept}) == kept
    assert kept_properties({}) == {}


FAILED = AuditResult(Audit("least", Condition("min(v) > 0")), passed=False, found={"min(v)": -1})
SAMPLED = AuditResult(
    Audit("filled", NotNull(("v",))),
    passed=False,
    found={"NULL in v": 2},
    sample=({"v": "NULL", "id": "1"}, {"v": "NULL"}),
)
WARNED = AuditResult(Audit("many", Condition("count(*) > 9"), "warn"), passed=False)
PASSED = AuditResult(Audit("some", Condition("count(*) > 0")), passed=True)


def test_failed_audits_are_told_with_rows_and_a_query() -> None:
    results = [PASSED, WARNED, FAILED, SAMPLED]
    error = failed_audits(TABLE, STAGING, results, lambda result: f"SELECT {result.audit.name}")
    assert isinstance(error, AuditFailedError)
    assert error.results == tuple(results)
    assert (
        "found `least` (min(v) > 0): min(v) = -1; `filled` (not null v): NULL in v = 2, "
        "such as (v=NULL, id=1) and (v=NULL). Hint:"
    ) in str(error)
    assert "The rows of 'main' are unchanged" in str(error)
    assert "in the branch 'staged' for 7 days" in str(error)
    assert str(error).endswith("SELECT least")
    assert "many" not in str(error)


def test_a_target_that_moves_while_rows_are_published_is_a_conflict() -> None:
    error = concurrent_commit(TABLE, STAGING)
    assert "expected 'main' as it was a moment ago" in str(error)
    assert str(error).endswith("Hint: run the asset again.")

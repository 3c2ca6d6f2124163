"""Snapshots, refs and the history of a branch."""

from dagster_iceberg_spark.table.snapshot import Snapshot
from tests.core.table.samples import chain, snapshot, spec, table


def test_the_ancestors_of_a_branch_start_at_its_head() -> None:
    history = chain(snapshot(1), snapshot(2), snapshot(3))
    audit = snapshot(9, parent=2)
    state = table(snapshots=(*history, audit), refs={"main": 3, "audit": 9})
    assert [item.snapshot_id for item in state.ancestors()] == [3, 2, 1]
    assert [item.snapshot_id for item in state.ancestors("audit")] == [9, 2, 1]
    assert list(state.ancestors("gone")) == []


def test_the_history_ends_at_expired_snapshots() -> None:
    state = table(snapshots=[snapshot(5, parent=4)])
    assert [item.snapshot_id for item in state.ancestors()] == [5]


def test_a_table_without_snapshots_has_no_head() -> None:
    assert table().head() is None
    assert table(refs={"main": 7}).head() is None


def test_a_missing_count_in_a_summary_is_zero() -> None:
    summary = Snapshot(1, None, 0, "append", {"added-records": "12"})
    assert (summary.count("added-records"), summary.count("deleted-records")) == (12, 0)


def test_the_default_spec_is_the_newest_one() -> None:
    state = table(specs=[spec("month(ts)", spec_id=0), spec("day(ts)", spec_id=1)])
    assert str(state.spec) == "day(ts)"


def test_a_write_to_a_new_branch_is_based_on_main() -> None:
    state = table(snapshots=chain(snapshot(1), snapshot(2)), refs={"main": 2, "audit": 1})
    found = [None if base is None else base.snapshot_id for base in (state.base("audit"), state.base("new"))]
    assert found == [1, 2]
    assert table().base("new") is None

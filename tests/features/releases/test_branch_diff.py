"""What a branch changes, by partition and by key.

docs/environments.md: Commands
"""

from dataclasses import replace
from typing import Any

import pytest

from dagster_iceberg_spark.errors import CommitConflictError
from dagster_iceberg_spark.features.releases.plan.branch_diff import (
    KeyChanges,
    TableDiff,
    compared_rows,
    markdown,
    own_snapshots,
    refuse_expired_start,
    refuse_rolled_back,
)
from dagster_iceberg_spark.plan.publication.branch import branch_start, start_properties
from tests.core.table.samples import EMPTY_START, TABLE, chain, snapshot, table

STARTED = {"dagster.branch_start": "2"}
OLD: list[dict[str, Any]] = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": None}]
NEW: list[dict[str, Any]] = [{"id": 1, "v": "a"}, {"id": 2, "v": "x"}, {"id": 4, "v": "d"}]


@pytest.mark.parametrize(
    ("keys", "changes"), [(["id"], KeyChanges(1, 1, 1)), ([], KeyChanges(2, 2, 0)), (["id", "v"], KeyChanges(2, 2, 0))]
)
def test_rows_are_compared_by_key_or_as_a_whole(keys: list[str], changes: KeyChanges) -> None:
    assert compared_rows(OLD, NEW, keys, ["id", "v"]) == changes


def test_repeated_rows_count_as_often_as_they_are_there() -> None:
    assert compared_rows(OLD, [*OLD, *OLD[:1]], [], ["id", "v"]) == KeyChanges(added=1)
    assert compared_rows([*OLD, *OLD[:1]], OLD, ["id"], ["id", "v"]) == KeyChanges(changed=1)


def test_a_new_column_is_null_in_rows_that_lack_it() -> None:
    wider = [{"new": None, "v": row["v"], "id": row["id"]} for row in OLD]
    assert compared_rows(OLD, wider, ["id"], ["id", "v", "new"]) == KeyChanges()


def test_a_difference_is_a_table_in_markdown() -> None:
    diff = TableDiff(TABLE, {"day=2024-01-02": (5, 3), "": (1, 0)}, KeyChanges(2, 0, 1))
    assert markdown([diff]).splitlines()[2:] == [
        "| nyc.flights | whole table | 1 | 0 |  |  |  |",
        "| nyc.flights | day=2024-01-02 | 5 | 3 |  |  |  |",
        "| nyc.flights | **all** | 6 | 3 | 2 | 0 | 1 |",
    ]
    assert markdown([]) == "No table differs."


def test_a_branch_has_the_snapshots_that_main_has_not() -> None:
    line = chain(*(snapshot(number, commit_token=f"{number}") for number in (1, 2, 3, 4)))
    assert own_snapshots(table(snapshots=line, refs={"main": 2, "env_pr": 4}), "env_pr") == line[2:]
    assert own_snapshots(table(snapshots=line, refs={"main": 4, "env_pr": 2}), "env_pr") == ()
    of_a_new_table = (EMPTY_START, snapshot(10, parent=9, commit_token="x"))
    assert own_snapshots(table(snapshots=of_a_new_table, refs={"env_pr": 10}), "env_pr") == of_a_new_table[1:]


def test_a_branch_whose_start_main_has_lost_by_expiry_keeps_its_own_snapshots() -> None:
    first, second, third = chain(*(snapshot(number, commit_token=f"{number}") for number in (1, 2, 3)))
    own = [replace(snapshot(number, parent=parent), summary=STARTED) for number, parent in ((4, 2), (5, 4))]
    current = replace(snapshot(7, commit_token="7"), parent_snapshot_id=6)
    given = table(snapshots=(first, second, *own, current), refs={"main": 7, "env_pr": 5})
    assert branch_start(given, "env_pr") == 2
    assert own_snapshots(given, "env_pr") == tuple(own)
    refuse_rolled_back(given, "env_pr", own)
    refuse_expired_start(given, "env_pr")
    lost = replace(given, snapshots={number: item for number, item in given.snapshots.items() if number > 2})
    assert own_snapshots(lost, "env_pr") == tuple(own)
    with pytest.raises(CommitConflictError, match="expected snapshot 2 of `main`, which it began at, found none"):
        refuse_expired_start(lost, "env_pr")
    back = table(snapshots=(first, second, third, *own), refs={"main": 1, "env_pr": 5})
    with pytest.raises(CommitConflictError, match="has snapshot 2, which `main` had before it was rolled back"):
        refuse_rolled_back(back, "env_pr", own)


def test_a_snapshot_of_an_environment_records_where_its_branch_began() -> None:
    line = chain(*(snapshot(number, commit_token=f"{number}") for number in (1, 2)))
    own = replace(snapshot(3, parent=1), summary=STARTED)
    assert start_properties(table(snapshots=line, refs={"main": 2}), "env_pr") == STARTED
    assert start_properties(table(snapshots=(*line, own), refs={"main": 2, "env_pr": 3}), "env_pr") == STARTED
    assert start_properties(table(snapshots=line, refs={"main": 2, "env_pr": 1}), "env_pr") == {
        "dagster.branch_start": "1"
    }
    for given, branch in ((None, "env_pr"), (table(), "env_pr"), (table(snapshots=line, refs={"main": 2}), "audit")):
        assert start_properties(given, branch) == {}


def test_a_branch_that_began_at_a_snapshot_which_main_has_lost_is_refused() -> None:
    line = chain(*(snapshot(number, commit_token=f"{number}") for number in (1, 2, 3)))
    given = table(snapshots=line, refs={"main": 1, "env_pr": 3}, snapshot_log=[(1, 1), (2, 2), (3, 1)])
    with pytest.raises(CommitConflictError, match="has snapshot 2, which `main` had before it was rolled back"):
        refuse_rolled_back(given, "env_pr", line[1:])
    refuse_rolled_back(given, "env_pr", line[2:])

"""The branch that a write is staged on."""

from dataclasses import replace
from typing import Any

import pytest

from dagster_iceberg_spark.plan.write.write_request import STAGED_RETENTION_DAYS, Staging, staged_branch
from dagster_iceberg_spark.table.change import is_empty_start
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState
from dagster_iceberg_spark.table.updates import CreateBranch, DropBranch
from tests.core.table.samples import EMPTY_START, chain, daily, keyed, snapshot, table

STAGING = Staging("staged", "main")
DROP = DropBranch("staged")


def create(start: int | None) -> CreateBranch:
    return CreateBranch("staged", start, STAGED_RETENTION_DAYS)


def state(refs: dict[str, int], *others: Snapshot) -> TableState:
    """Return a table with the snapshots 1 to 3, each on top of the one before."""
    line = chain(snapshot(1, commit_token="x"), snapshot(2, commit_token="y"), snapshot(3, commit_token="z"))
    return table(snapshots=(*line, *others), refs=refs)


@pytest.mark.parametrize(
    ("refs", "updates"),
    [
        ({"main": 2}, (create(2),)),
        ({"main": 2, "staged": 2}, ()),
        ({"main": 3, "staged": 2}, (DROP, create(3))),
        ({"main": 2, "staged": 3}, (DROP, create(2))),
        ({"main": 2, "staged": 9}, (DROP, create(2))),
    ],
    ids=["no branch", "unused", "behind", "with a staged snapshot", "with an empty start"],
)
def test_a_staged_branch_starts_at_the_head_of_its_target(refs: dict[str, int], updates: Any) -> None:
    given = state(refs, EMPTY_START)
    begun, found = STAGING.begun(given)
    assert found == updates
    assert begun == replace(given, refs={"main": refs["main"], "staged": refs["main"]})
    assert begun.base("staged") == given.snapshots[refs["main"]]


@pytest.mark.parametrize(
    ("refs", "updates"),
    [({}, (create(None),)), ({"staged": 9}, ()), ({"staged": 3}, (DROP, create(None)))],
    ids=["no branch", "with an empty start", "with a staged snapshot"],
)
def test_a_table_without_a_snapshot_has_nowhere_to_start(refs: dict[str, int], updates: Any) -> None:
    begun, found = STAGING.begun(state(refs, EMPTY_START))
    assert found == updates
    assert begun is not None
    assert begun.refs == {}
    assert begun.base("staged") is None


@pytest.mark.parametrize("refs", [{"main": 2}, {"main": 2, "staged": 3}])
def test_a_new_target_starts_at_main(refs: dict[str, int]) -> None:
    begun, updates = Staging("staged", "audit").begun(state(refs))
    assert begun is not None
    assert updates[-1] == create(None)
    assert begun.refs == {"main": 2}
    assert begun.base("staged") == begun.head("main")


def test_another_target_and_other_branches_stay_as_they_are() -> None:
    begun, updates = Staging("staged", "audit", retention_days=1).begun(state({"main": 3, "audit": 2, "other": 1}))
    assert updates == (CreateBranch("staged", 2, 1),)
    assert begun is not None
    assert begun.refs == {"main": 3, "audit": 2, "other": 1, "staged": 2}


def test_a_missing_table_is_created_with_the_branch() -> None:
    assert STAGING.begun(None) == (None, (create(None),))


def test_a_branch_whose_snapshot_is_unknown_starts_again() -> None:
    assert STAGING.begun(state({"staged": 77}))[1] == (DROP, create(None))


@pytest.mark.parametrize(
    ("found", "is_empty"),
    [
        (EMPTY_START, True),
        (replace(EMPTY_START, summary={}), False),
        (replace(EMPTY_START, parent_snapshot_id=1), False),
        (replace(EMPTY_START, summary={"total-records": "1"}), False),
        (replace(EMPTY_START, summary={"total-records": "0", "dagster.commit_token": "x"}), False),
    ],
)
def test_an_empty_start_has_no_parent_no_rows_and_no_writer(found: Snapshot, *, is_empty: bool) -> None:
    assert is_empty_start(found) is is_empty


NAME: dict[str, Any] = {"root_run_id": "r", "output": "flights", "scope": keyed("AA", "DL"), "target": "main"}


def test_retries_of_a_run_share_the_branch() -> None:
    name = staged_branch(**NAME)
    assert name == staged_branch(**{**NAME, "scope": keyed("DL", "AA")})
    assert name.startswith("dagster_")
    assert name.isidentifier()
    assert name == name.lower()


@pytest.mark.parametrize(
    "change",
    [
        {"root_run_id": "r2"},
        {"output": "flights.delays"},
        {"scope": keyed("AA")},
        {"scope": PartitionScope()},
        {"scope": daily("2024-01-01")},
        {"target": "audit"},
        {"root_run_id": "r/flights", "output": ""},
    ],
    ids=str,
)
def test_anything_else_is_staged_on_its_own_branch(change: dict[str, Any]) -> None:
    assert staged_branch(**{**NAME, **change}) != staged_branch(**NAME)

"""Who needs which snapshots, and the tags that keep them.

docs/maintenance.md: What is kept, and for whom
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dagster_iceberg_spark.features.maintenance.options import MaintenancePolicy
from dagster_iceberg_spark.features.maintenance.plan.pins import (
    Need,
    RunNeed,
    needs_of_readers,
    needs_of_table,
    planned_pins,
)
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import UpstreamRead, upstream_document
from dagster_iceberg_spark.table.snapshot import RefRetention, Snapshot, TableState
from dagster_iceberg_spark.table.updates import DropTag, SetTag
from tests.core.table.samples import chain, snapshot, table

DAY = 24 * 60 * 60
NOW_MS = 100 * DAY * 1000
POLICY = MaintenancePolicy(replayable_for=timedelta(days=7))


def made(day: int, asset: str = "daily", keys: str | None = None, *reads: UpstreamRead, **more: Any) -> Snapshot:
    lineage: dict[str, Any] = {"asset_key": asset, "partition_keys": keys, "partition_digest": keys or "whole"}
    return snapshot(day * DAY, **lineage, upstream=upstream_document(reads), **more)


def downstream(*snapshots: Snapshot) -> TableState:
    line = chain(*snapshots)
    found = table(snapshots=line, refs={"main": line[-1].snapshot_id})
    return replace(found, identifier=TableIdentifier(("db",), "daily"))


def read(day: int, **more: Any) -> UpstreamRead:
    return UpstreamRead("flights", "db.flights", day * DAY, None, **more)


def needed(*snapshots: Snapshot, policy: MaintenancePolicy = POLICY) -> dict[int, bool]:
    """Return the needed snapshots of the upstream table, by day, and whether the later ones are needed too."""
    needs = needs_of_readers([downstream(*snapshots)], policy, NOW_MS).get("db.flights", [])
    return {need.snapshot_id // DAY: need.keeps_later for need in needs}


def test_the_newest_materialization_of_each_partition_keeps_its_inputs() -> None:
    line = [made(10, "daily", "a", read(1)), made(11, "daily", "b", read(2)), made(12, "daily", "a", read(3))]
    assert needed(*line) == {3: False, 2: False}


def test_where_the_branch_of_an_environment_began_is_needed() -> None:
    line = chain(made(1), made(2))
    own = replace(made(3), parent_snapshot_id=1 * DAY, summary={"dagster.branch_start": f"{DAY}"})
    given = table(snapshots=(*line, own), refs={"main": 2 * DAY, "env_pr": 3 * DAY})
    assert needs_of_table(given) == [Need(DAY, "the environment's branch 'env_pr', which began at it")]


def test_a_recent_materialization_keeps_its_inputs_although_it_was_replaced() -> None:
    line = [made(94, "daily", "a", read(1)), made(95, "daily", "a", read(2)), made(99, "daily", "a", read(3))]
    assert needed(*line) == {3: False, 2: False, 1: False}
    assert needed(*line, policy=POLICY.model_copy(update={"replayable_for": timedelta(days=2)})) == {3: False}


def test_only_the_newest_of_many_partitions_keep_their_inputs() -> None:
    line = [made(day, "daily", f"p{day}", read(day)) for day in range(1, 91)]
    assert len(needed(*line)) == 90
    many = [
        replace(made(1, "daily", f"p{number}", read(number)), snapshot_id=number, committed_at_ms=number)
        for number in range(1, 151)
    ]
    assert set(needed(*many)) == set(range(51, 151))


def test_what_a_branch_has_read_is_kept_too() -> None:
    line = chain(made(1, "daily", None, read(1)), made(2, "daily", None, read(2)))
    beside = made(3, "daily", None, read(3), parent=1 * DAY)
    found = table(snapshots=(*line, beside), refs={"main": 2 * DAY, "env_pr": 3 * DAY}, branches=["main", "env_pr"])
    needs = needs_of_readers([found], POLICY, NOW_MS)["db.flights"]
    assert {need.snapshot_id // DAY for need in needs} == {2, 3}


def test_a_reader_of_changes_keeps_all_that_comes_after_its_position() -> None:
    changes = read(5, kind="changes", since=3 * DAY, digest="whole", input_name="flights")
    assert needed(made(6, "daily", None, changes)) == {5: True, 3: False}


def upstream(**refs: int) -> TableState:
    """Return a table with a snapshot on each of the days 1 to 99."""
    line = chain(*(snapshot(day * DAY) for day in range(1, 100)))
    found = table(snapshots=line, refs={"main": 99 * DAY, **refs}, branches=["main"])
    log = tuple((item.committed_at_ms, item.snapshot_id) for item in line)
    return replace(found, snapshot_log=log, retention={name: RefRetention() for name in refs})


def kept(*needs: Need, state: TableState | None = None) -> list[int]:
    """Return the days of the snapshots that are tagged."""
    pins = planned_pins(state or upstream(), needs, POLICY, NOW_MS)
    return [change.snapshot_id // DAY for change in pins.changes if isinstance(change, SetTag)]


def test_only_snapshots_that_will_soon_expire_are_tagged() -> None:
    assert kept(Need(5 * DAY, "x"), Need(96 * DAY, "y"), Need(97 * DAY, "z")) == [5, 96]
    assert kept(Need(93 * DAY, "x", keeps_later=True)) == [93, 94, 95, 96]
    assert kept(Need(7, "a snapshot that has expired")) == []


def test_the_head_is_tagged_for_readers_only() -> None:
    state = replace(upstream(), refs={"main": 50 * DAY})
    assert kept(Need(50 * DAY, "its owner", is_owner=True), state=state) == []
    assert kept(Need(50 * DAY, "a reader"), state=state) == [50]


def test_a_tag_outlives_two_weeks_without_maintenance_and_is_renewed_in_time() -> None:
    [change] = planned_pins(upstream(), [Need(50 * DAY, "x")], POLICY, NOW_MS).changes
    assert isinstance(change, SetTag)
    assert (change.name, change.retention_days) == (f"dagster_keep_{50 * DAY}", 50 + 14)
    for days, is_renewed in ((64, False), (57, False), (56, True)):
        state = upstream(**{change.name: 50 * DAY})
        state = replace(state, retention={change.name: RefRetention(max_ref_age_ms=days * DAY * 1000)})
        assert bool(planned_pins(state, [Need(50 * DAY, "x")], POLICY, NOW_MS).changes) is is_renewed


def test_a_tag_that_nobody_needs_is_dropped_and_those_of_others_stay() -> None:
    state = upstream(dagster_keep_1=DAY, release_1=DAY)
    assert planned_pins(state, [], POLICY, NOW_MS).changes == (DropTag("dagster_keep_1"),)


def test_a_run_keeps_what_was_current_when_it_began() -> None:
    needs = needs_of_table(upstream(), [RunNeed(90 * DAY * 1000 + 5, "run r")])
    assert needs == [Need(90 * DAY, "run r", keeps_later=True)]
    assert needs_of_table(upstream(), [RunNeed(5, "run r")]) == [Need(DAY, "run r", keeps_later=True)], "all of it"
    assert needs_of_table(replace(upstream(), snapshot_log=()), [RunNeed(5, "run r")]) == []


@pytest.mark.parametrize(("disposition", "days"), [("append", [12, 11]), ("replace", [])])
def test_the_newest_append_of_each_asset_stays(disposition: str, days: list[int]) -> None:
    line = [
        made(day, asset, None, write_disposition=disposition, commit_token=f"token-{day}")
        for day, asset in ((10, "a"), (11, "b"), (12, "a"))
    ]
    assert [need.snapshot_id // DAY for need in needs_of_table(downstream(*line))] == days


def test_the_position_of_each_reader_stays_in_its_own_table() -> None:
    changes = read(5, kind="changes", digest="whole", input_name="flights")
    line = [made(6, "a", None, changes), made(7, "b", None, changes), made(8, "a", None, changes), made(9, "c")]
    found = needs_of_table(downstream(*line))
    assert [(need.snapshot_id // DAY, need.by) for need in found] == [
        (8, "a, whose next read continues from it"),
        (7, "b, whose next read continues from it"),
    ]

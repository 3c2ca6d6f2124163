"""How the snapshots of a run are undone, and what stands in the way."""

import datetime as dt
import json
from dataclasses import replace
from typing import Any

import pytest

from dagster_iceberg_spark.errors import CommitConflictError, ConfigurationError, UpstreamMissingError
from dagster_iceberg_spark.plan.undo import TableUndo, plan_undo
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import UpstreamRead, upstream_document
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState
from tests.table.samples import chain, snapshot, table


def made(snapshot_id: int, run: str, keys: str | None = "a", *reads: UpstreamRead, **more: Any) -> Snapshot:
    keyed = {"partition_keys": keys, "partition_digest": keys or "whole"}
    lineage: dict[str, Any] = {"run_id": run, "asset_key": "t", "upstream": upstream_document(reads), **keyed, **more}
    return snapshot(snapshot_id, **lineage)


def state(name: str, *snapshots: Snapshot, **properties: str) -> TableState:
    line = chain(*snapshots)
    found = table(snapshots=line, refs={"main": line[-1].snapshot_id})
    return replace(found, identifier=TableIdentifier(("db",), name), properties=properties)


def read(name: str, snapshot_id: int, scope: str | None = "a", **more: Any) -> UpstreamRead:
    return UpstreamRead(name, f"db.{name}", snapshot_id, scope, **more)


def planned(run: str, *states: TableState, cascade: bool = False) -> list[tuple[str, str, list[int], int | None]]:
    return [
        (undo.state.identifier.name, undo.how, [item.snapshot_id for item in undo.snapshots], undo.target_id)
        for undo in plan_undo(states, run, cascade=cascade)
    ]


def test_the_newest_snapshots_of_a_run_are_rolled_back() -> None:
    both = state("t", made(1, "r0"), made(2, "r1"), made(3, "r1", "b")), state("u", made(5, "r0"), made(6, "r1"))
    assert planned("r1", *both) == [("t", "rollback", [3, 2], 1), ("u", "rollback", [6], 5)]


def test_older_snapshots_and_the_first_one_are_reverted() -> None:
    assert planned("r1", state("t", made(1, "r0"), made(2, "r1"), made(3, "r2", "b"))) == [("t", "revert", [2], None)]
    assert planned("r1", state("t", made(1, "r1"))) == [("t", "revert", [1], None)]


def test_a_run_without_snapshots_is_refused() -> None:
    with pytest.raises(UpstreamMissingError, match="Cannot undo the run r9: expected a snapshot of it"):
        planned("r9", state("t", made(1, "r0")))


@pytest.mark.parametrize(
    ("later", "is_dependent"),
    [
        (read("t", 2), True),
        (read("t", 2, None), True),
        (read("t", 2, "b"), False),
        (read("t", 1), False),
        (read("t", 3), True),
        (read("elsewhere", 2), False),
        (read("t", 3, None, kind="changes", since=2), False),
        (read("t", 3, None, kind="changes", since=1), True),
    ],
)
def test_snapshots_that_were_made_of_the_rows_stand_in_the_way(later: UpstreamRead, *, is_dependent: bool) -> None:
    source = state("t", made(1, "r0"), made(2, "r1"), made(3, "r2", "b"))
    other = state("u", made(7, "r0"), made(8, "r3", "a", later))
    if not is_dependent:
        assert planned("r1", source, other) == [("t", "revert", [2], None)]
        return
    with pytest.raises(CommitConflictError, match=r"found snapshot 8 of db\.u by run r3\. Hint: undo these runs first"):
        planned("r1", source, other)
    assert planned("r1", source, other, cascade=True) == [("u", "rollback", [8], 7), ("t", "revert", [2], None)]


@pytest.mark.parametrize("keys", ["a", None, '["a", "b"]', "a..z (30)"])
def test_partitions_that_were_written_again_stand_in_the_way(keys: str | None) -> None:
    line = state("t", made(1, "r0"), made(2, "r1"), made(3, "r2", keys))
    with pytest.raises(CommitConflictError, match=r"found snapshot 3 of db\.t by run r2"):
        planned("r1", line)
    assert planned("r1", line, cascade=True) == [("t", "rollback", [3, 2], 1)]


def test_appends_and_compactions_do_not_stand_in_the_way() -> None:
    appends = [made(number, f"r{number}", write_disposition="append") for number in (1, 2, 3)]
    assert planned("r2", state("t", *appends)) == [("t", "revert", [2], None)]
    compacted = replace(snapshot(3), operation="replace")
    assert planned("r1", state("t", made(1, "r0"), made(2, "r1"), compacted)) == [("t", "revert", [2], None)]


def test_a_cascade_goes_on_through_all_tables() -> None:
    first = state("t", made(1, "r0"), made(2, "r1"))
    second = state("u", made(3, "r0"), made(4, "r2", "a", read("t", 2)))
    third = state("w", made(5, "r0"), made(6, "r3", "a", read("u", 4)))
    assert [item[0] for item in planned("r1", first, second, third, cascade=True)] == ["w", "u", "t"]


def test_an_undo_that_moved_main_back_is_undone_by_moving_it_forward() -> None:
    undo = TableUndo(state("t", made(1, "r0"), made(2, "r1")), (), "rollback", 1)
    record = undo.record("r1", "undo-1", dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc))
    assert json.loads(record) == [{"run": "r1", "by": "undo-1", "at": "2026-01-01T00:00:00+00:00", "from": 2, "to": 1}]
    after = state("t", made(1, "r0"), made(2, "r1"), **{"dagster.undone": record})
    back = replace(after, refs={"main": 1})
    assert planned("undo-1", back) == [("t", "restore", [], 2)]
    for moved in (after, replace(back, snapshots={1: back.snapshots[1]})):
        with pytest.raises(
            CommitConflictError, match=r"Cannot undo the undo in db\.t: expected snapshot 1 as the newest"
        ):
            planned("undo-1", moved)


def test_only_the_newest_records_are_kept() -> None:
    undo = TableUndo(state("t", made(1, "r0"), **{"dagster.undone": json.dumps([{}] * 30)}), (), "rollback", 1)
    assert len(json.loads(undo.record("r", "by", dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)))) == 20


def test_a_revert_has_the_inputs_of_the_rows_that_it_restores() -> None:
    line = state("t", made(1, "r0", "a", read("u", 7)), made(2, "r1", "a", read("u", 9)), made(3, "r2", "b"))
    (undo,) = plan_undo([line], "r1")
    properties = undo.properties("undo-1")
    assert json.loads(properties["dagster.upstream"])[0]["snapshot_id"] == 7
    assert (properties["dagster.undoes"], properties["dagster.run_id"]) == ("[2]", "undo-1")
    assert [item.snapshot_id for item in undo.later] == [3]


def test_a_run_whose_earlier_snapshot_has_expired_is_not_undone() -> None:
    line = state("t", made(1, "r0"), made(2, "r1"))
    expired = replace(line, snapshots={2: line.snapshots[2]})
    with pytest.raises(UpstreamMissingError, match="found none: it has expired"):
        planned("r1", expired)
    cut = replace(snapshot(2), summary={**made(2, "r1").summary, "total-data-files": "3", "added-data-files": "1"})
    with pytest.raises(UpstreamMissingError, match="found none: it has expired"):
        planned("r1", state("t", cut))


def test_a_run_that_read_on_stands_in_the_way() -> None:
    reads = [read("u", end, kind="changes", since=since, input_name="u") for end, since in ((5, None), (7, 5), (9, 7))]
    appends = [made(n, f"r{n}", "a", item, write_disposition="append") for n, item in enumerate(reads, 1)]
    with pytest.raises(CommitConflictError, match=r"found snapshot 3 of db\.t by run r3"):
        planned("r2", state("t", *appends))
    assert planned("r2", state("t", *appends), cascade=True) == [("t", "rollback", [3, 2], 1)]


def test_what_is_undone_already_stands_in_no_way() -> None:
    reverted = made(4, "undo-1", "a", write_disposition="undo", undoes="[3]")
    line = state("t", made(1, "r0"), made(2, "r1"), made(3, "r2"), reverted)
    assert planned("r1", line) == [("t", "revert", [2], None)]
    (undo,) = plan_undo([line], "r1")
    assert undo.later == ()
    with pytest.raises(UpstreamMissingError, match="is undone already"):
        planned("r2", line)
    assert planned("undo-1", line) == [("t", "rollback", [4], 3)]
    again = made(5, "undo-2", "a", write_disposition="undo", undoes="[4]")
    with pytest.raises(CommitConflictError, match=r"found snapshot 3 of db\.t by run r2"):
        planned("r1", state("t", made(1, "r0"), made(2, "r1"), made(3, "r2"), reverted, again))


def test_a_snapshot_with_too_many_inputs_to_list_may_be_made_from_any_rows() -> None:
    many = made(8, "r3", "a", upstream='{"digest":"x","count":30}')
    with pytest.raises(CommitConflictError, match=r"found snapshot 8 of db\.u by run r3"):
        planned("r1", state("t", made(1, "r0"), made(2, "r1")), state("u", made(7, "r0"), many))


def test_a_property_that_somebody_else_has_set_is_no_record() -> None:
    for value in ("nonsense", "{}", "[1]"):
        assert planned("r1", state("t", made(1, "r0"), made(2, "r1"), **{"dagster.undone": value})) != []


def test_the_first_incremental_read_cannot_be_taken_back_by_a_snapshot() -> None:
    first = made(1, "r1", "a", read("u", 9, kind="changes"), write_disposition="append")
    line = state("t", first, made(2, "r2", "a", write_disposition="append"))
    (undo,) = plan_undo([line], "r1")
    with pytest.raises(ConfigurationError, match="expected an earlier snapshot of the asset"):
        undo.properties("undo-1")

"""How the snapshots of a run are undone, and what stands in the way.

docs/undo.md: All of it, or nothing; What depends on the rows
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from dagster_iceberg_spark.errors import CommitConflictError, UpstreamMissingError
from dagster_iceberg_spark.features.releases.plan.undo_plan import RecordedSnapshot, TableUndo, UndoPlan, plan_undo
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import UpstreamRead, upstream_document
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState
from tests.core.table.samples import chain, schema, snapshot, table


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


def planned(run: str, *states: TableState, **options: Any) -> list[tuple[str, list[int]]]:
    return [
        (undo.state.identifier.name, [item.snapshot_id for item in undo.snapshots])
        for undo in plan_undo(states, run, **options).tables
    ]


def only(plan: UndoPlan) -> TableUndo:
    (undo,) = plan.tables
    return undo


def test_all_snapshots_of_a_run_are_undone() -> None:
    both = state("t", made(1, "r0"), made(2, "r1"), made(3, "r1", "b")), state("u", made(5, "r0"), made(6, "r1"))
    assert planned("r1", *both) == [("t", [3, 2]), ("u", [6])]


def test_older_snapshots_and_the_first_one_are_undone() -> None:
    assert planned("r1", state("t", made(1, "r0"), made(2, "r1"), made(3, "r2", "b"))) == [("t", [2])]
    assert planned("r1", state("t", made(1, "r1"))) == [("t", [1])]


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
        assert planned("r1", source, other) == [("t", [2])]
        return
    with pytest.raises(CommitConflictError, match=r"found snapshot 8 of db\.u by run r3\. Hint: undo these runs first"):
        planned("r1", source, other)
    assert planned("r1", source, other, cascade=True) == [("u", [8]), ("t", [2])]


@pytest.mark.parametrize("keys", ["a", None, '["a", "b"]', "a..z (30)"])
def test_partitions_that_were_written_again_stand_in_the_way(keys: str | None) -> None:
    line = state("t", made(1, "r0"), made(2, "r1"), made(3, "r2", keys))
    with pytest.raises(CommitConflictError, match=r"found snapshot 3 of db\.t by run r2"):
        planned("r1", line)
    assert planned("r1", line, cascade=True) == [("t", [3, 2])]


def test_appends_and_compactions_do_not_stand_in_the_way() -> None:
    appends = [made(number, f"r{number}", write_disposition="append") for number in (1, 2, 3)]
    assert planned("r2", state("t", *appends)) == [("t", [2])]
    compacted = replace(snapshot(3), operation="replace")
    assert planned("r1", state("t", made(1, "r0"), made(2, "r1"), compacted)) == [("t", [2])]


def test_a_cascade_goes_on_through_all_tables() -> None:
    first = state("t", made(1, "r0"), made(2, "r1"))
    second = state("u", made(3, "r0"), made(4, "r2", "a", read("t", 2)))
    third = state("w", made(5, "r0"), made(6, "r3", "a", read("u", 4)))
    assert [item[0] for item in planned("r1", first, second, third, cascade=True)] == ["w", "u", "t"]


def test_a_revert_has_the_inputs_of_the_rows_that_it_restores() -> None:
    line = state("t", made(1, "r0", "a", read("u", 7)), made(2, "r1", "a", read("u", 9)), made(3, "r2", "b"))
    undo = only(plan_undo([line], "r1"))
    properties = undo.properties("undo-1")
    assert json.loads(properties["dagster.upstream"])[0]["snapshot_id"] == 7
    assert (properties["dagster.undoes"], properties["dagster.run_id"]) == ("[2]", "undo-1")
    assert [item.snapshot_id for item in undo.later] == [3]


def test_a_run_whose_earlier_snapshot_has_expired_is_not_undone() -> None:
    line = state("t", made(1, "r0"), made(2, "r1"))
    expired = replace(line, snapshots={2: line.snapshots[2]})
    with pytest.raises(UpstreamMissingError, match="the snapshot before 2, which it would go back to, has expired"):
        planned("r1", expired)
    cut = replace(snapshot(2), summary={**made(2, "r1").summary, "total-data-files": "3", "added-data-files": "1"})
    with pytest.raises(UpstreamMissingError, match="the snapshot before 2, which it would go back to, has expired"):
        planned("r1", state("t", cut))


def test_a_run_that_read_on_stands_in_the_way() -> None:
    reads = [read("u", end, kind="changes", since=since, input_name="u") for end, since in ((5, None), (7, 5), (9, 7))]
    appends = [made(n, f"r{n}", "a", item, write_disposition="append") for n, item in enumerate(reads, 1)]
    with pytest.raises(CommitConflictError, match=r"found snapshot 3 of db\.t by run r3"):
        planned("r2", state("t", *appends))
    assert planned("r2", state("t", *appends), cascade=True) == [("t", [3, 2])]


def test_what_is_undone_already_stands_in_no_way() -> None:
    reverted = made(4, "undo-1", "a", write_disposition="undo", undoes="[3]")
    line = state("t", made(1, "r0"), made(2, "r1"), made(3, "r2"), reverted)
    assert planned("r1", line) == [("t", [2])]
    undo = only(plan_undo([line], "r1"))
    assert undo.later == ()
    with pytest.raises(UpstreamMissingError, match="is undone already"):
        planned("r2", line)
    assert planned("undo-1", line) == [("t", [4])]
    again = made(5, "undo-2", "a", write_disposition="undo", undoes="[4]")
    with pytest.raises(CommitConflictError, match=r"found snapshot 3 of db\.t by run r2"):
        planned("r1", state("t", made(1, "r0"), made(2, "r1"), made(3, "r2"), reverted, again))


def test_a_snapshot_with_too_many_inputs_to_list_may_be_made_from_any_rows() -> None:
    many = made(8, "r3", "a", upstream='{"digest":"x","count":30}')
    with pytest.raises(CommitConflictError, match=r"found snapshot 8 of db\.u by run r3"):
        planned("r1", state("t", made(1, "r0"), made(2, "r1")), state("u", made(7, "r0"), many))


def test_an_input_that_the_run_was_the_first_to_read_counts_as_not_read() -> None:
    other = read("w", 4, kind="changes", input_name="w")
    first = made(2, "r1", "a", other, read("u", 9, kind="changes", input_name="u"), write_disposition="append")
    line = state("t", made(1, "r0", "a", other, write_disposition="append"), first)
    upstream = only(plan_undo([line], "r1")).properties("undo-1")["dagster.upstream"]
    assert [(item["input"], item["snapshot_id"]) for item in json.loads(upstream)] == [("w", 4), ("u", None)]


LINE = state("t", made(1, "r0"), made(2, "r1"))


def cut(name: str, *snapshots: Snapshot) -> TableState:
    """Return a table whose older snapshots have expired."""
    line = state(name, *snapshots)
    oldest = snapshots[0].snapshot_id
    return replace(line, snapshots={**line.snapshots, oldest: replace(line.snapshots[oldest], parent_snapshot_id=99)})


CUT = cut("u", made(5, "r2"))


@pytest.mark.parametrize(
    ("options", "left_out"),
    [
        ({"recorded": [RecordedSnapshot(2, "t")]}, None),
        ({"recorded": [RecordedSnapshot(2, "t"), RecordedSnapshot(7, "u")]}, "snapshot 7 of u, which no table"),
        ({"recorded": [RecordedSnapshot(7, "u", "published")]}, None),
        ({"unread": ["db.broken"]}, "db.broken, which cannot be read"),
        ({"others": [state("w", made(8, "r0"), made(9, "r1"))]}, "db.w, which no asset of this code location"),
        ({"others": [CUT]}, None),
    ],
)
def test_an_undo_is_complete_or_is_refused(options: dict[str, Any], left_out: str | None) -> None:
    line = state("t", made(1, "r0"), made(2, "r1", commit_token="published"))
    if left_out is not None:
        with pytest.raises(UpstreamMissingError, match=f"{left_out}.*or undo the rest with `--partial`"):
            planned("r1", line, **options)
    plan = plan_undo([line], "r1", partial=True, **options)
    assert ([item.snapshot_id for item in only(plan).snapshots], len(plan.left_out)) == ([2], left_out is not None)


def test_tables_whose_history_begins_after_the_run_may_have_lost_a_part_of_it() -> None:
    with pytest.raises(UpstreamMissingError, match=r"db\.u, whose history begins with snapshot 5, after the run"):
        planned("r1", LINE, CUT)
    assert planned("r1", LINE, CUT, recorded=[RecordedSnapshot(2, "t")]) == [("t", [2])]


def test_snapshots_below_a_hole_in_the_history_are_named() -> None:
    above = cut("t", made(3, "r0"), made(4, "r1"))
    below = replace(above, snapshots={**above.snapshots, 1: made(1, "r1")}, snapshot_log=((0, 1),))
    with pytest.raises(UpstreamMissingError, match=r"snapshot 1 of db\.t, after which snapshots have expired"):
        planned("r1", below, recorded=[RecordedSnapshot(4, "t")])


def test_a_cascade_ends_at_tables_of_other_code_locations() -> None:
    other = state("u", made(8, "r3", "a", read("t", 2)))
    with pytest.raises(CommitConflictError, match=r"found snapshot 8 of db\.u by run r3"):
        planned("r1", LINE, others=[other])
    with pytest.raises(CommitConflictError, match="undo that run in its own code location first"):
        planned("r1", LINE, others=[other], cascade=True)


def test_columns_that_do_not_come_back_are_named() -> None:
    before, after = replace(schema(id="int", name="string"), schema_id=0), replace(schema(id="int"), schema_id=1)
    line = state("t", replace(made(1, "r0"), schema_id=0), replace(made(2, "r1"), schema_id=1))
    for now, lost in ((after, ("name",)), (before, ())):
        changed = replace(line, schema=now, schemas={0: before, 1: after})
        assert only(plan_undo([changed], "r1")).lost_columns() == lost
    assert only(plan_undo([line], "r1")).lost_columns() == ()

"""Where a replay starts, and what its comparison says.

docs/lineage.md: Does today's code make the same rows?
"""

import pytest

from dagster_iceberg_spark.errors import UpstreamMissingError
from dagster_iceberg_spark.features.code_changes.plan.replay_plan import (
    ReplayedTable,
    RowDigest,
    Start,
    compare,
    snapshots_of_run,
    start_of,
)
from dagster_iceberg_spark.table.snapshot import Snapshot
from tests.core.table.samples import table


def by_run(snapshot_id: int, parent: int | None, run: str, disposition: str = "replace", **summary: str) -> Snapshot:
    lineage = {"dagster.run_id": run, "dagster.asset_key": "a", "dagster.write_disposition": disposition}
    return Snapshot(snapshot_id, parent, snapshot_id, "overwrite", {**lineage, **summary})


@pytest.mark.parametrize(
    ("parent", "disposition", "start"),
    [
        (1, "append", Start(1)),
        (None, "replace", Start(2)),
        (None, "merge", Start(2, is_emptied=True)),
        (7, "overwrite_partitions", Start(2)),
    ],
)
def test_a_replay_starts_from_what_the_run_had_found(parent: int | None, disposition: str, start: Start) -> None:
    first = by_run(2, parent, "r", disposition)
    state = table(snapshots=(by_run(1, None, "before"), first) if parent != 7 else (first,))
    assert start_of(state, first) == start


def test_rows_that_a_run_added_to_must_still_be_there() -> None:
    first = by_run(2, 1, "r", "append")
    with pytest.raises(UpstreamMissingError, match="expected the snapshot before it, 1, whose rows the run added to"):
        start_of(table(snapshots=(first,)), first)


def test_the_snapshots_of_a_run_are_its_own() -> None:
    own = [by_run(1, None, "r"), by_run(3, 2, "r")]
    undo = by_run(4, 3, "r", **{"dagster.undoes": "[3]"})
    state = table(snapshots=(own[0], by_run(2, 1, "other"), own[1], undo))
    assert snapshots_of_run(state, "r", "a", "main") == (own[1], own[0])
    assert snapshots_of_run(state, "r", "b", "main") == ()


BEFORE = RowDigest(2, {"a": ("1", "1"), "b": ("2", "2"), "gone": ("9", "9")}, ("3", "3"))


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (RowDigest(2, {"a": ("1", "1"), "b": ("2", "2")}, ("3", "3")), "the same rows"),
        (RowDigest(2, {"a": ("1", "1"), "b": ("4", "2")}, ("5", "3")), "the same rows, but for the last digits of b"),
        (RowDigest(1, {"a": ("0", "0"), "b": ("4", "4")}, ("5", "5")), "other values in a, b"),
        (RowDigest(2, {"a": ("1", "1"), "b": ("2", "2")}, ("5", "5")), "the same values in each column, in other rows"),
    ],
)
def test_a_comparison_in_words(after: RowDigest, words: str) -> None:
    comparison = compare(BEFORE, after)
    assert comparison.words() == words
    replayed = ReplayedTable("a", "db.a", None, (), 1, 2, "b", ("1", "1"), comparison=comparison)
    assert replayed.is_same is words.startswith("the same rows")
    assert replayed.words() == words


def test_a_new_column_is_a_difference() -> None:
    same = compare(BEFORE, BEFORE)
    replayed = ReplayedTable("a", "db.a", None, (), 1, 2, "b", ("1", "2"), ["w"], comparison=same)
    assert not replayed.is_same
    assert replayed.words() == "the same rows; new columns: w; code version 1 then, 2 now"
    assert replayed.document()["comparison"]["columns"] == {"a": "same", "b": "same", "gone": "same"}

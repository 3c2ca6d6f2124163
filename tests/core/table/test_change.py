"""What a snapshot has changed, and why."""

from dataclasses import replace

import pytest

from dagster_iceberg_spark.table.change import (
    Reason,
    may_change_rows,
    may_remove_rows,
    may_take_over_rows,
    outdates_derived_rows,
    reason_of,
    runs_behind,
)
from dagster_iceberg_spark.table.lineage import (
    CARRIES_OVER,
    COMMIT_TOKEN,
    RETENTION,
    RUN_ID,
    UNDO,
    UNDOES,
    WRITE_DISPOSITION,
)
from dagster_iceberg_spark.table.snapshot import Snapshot
from tests.core.table.samples import chain, table

COUNTED = {"total-data-files": "2", "total-records": "20"}
OWN = {COMMIT_TOKEN: "t", RUN_ID: "run"}


def snapshot(operation: str, summary: dict[str, str], snapshot_id: int = 1) -> Snapshot:
    return replace(Snapshot(snapshot_id, 7, 0, operation), summary=summary)


APPENDED = {**COUNTED, "added-data-files": "1", "added-records": "3"}
REWRITTEN = {**COUNTED, "added-data-files": "1", "deleted-data-files": "1"}


@pytest.mark.parametrize(
    ("item", "reason", "changes", "removes", "event"),
    [
        (snapshot("append", {}), "other writer", True, False, True),
        (snapshot("append", APPENDED), "other writer", True, False, True),
        (snapshot("append", COUNTED), "other writer", False, False, False),
        (snapshot("append", {**OWN, **APPENDED}), "materialization", True, False, True),
        (snapshot("overwrite", {**OWN, **COUNTED}), "materialization", False, False, False),
        (snapshot("overwrite", {}), "other writer", True, True, True),
        (snapshot("overwrite", APPENDED), "other writer", True, False, True),
        (snapshot("overwrite", REWRITTEN), "other writer", True, True, True),
        (snapshot("overwrite", {**COUNTED, "added-delete-files": "1"}), "other writer", True, True, True),
        (snapshot("overwrite", {**COUNTED, "removed-delete-files": "1"}), "other writer", True, False, True),
        (snapshot("delete", {}), "other writer", True, True, True),
        (snapshot("replace", REWRITTEN), "compaction", False, False, False),
        (snapshot("delete", {**OWN, WRITE_DISPOSITION: RETENTION, **REWRITTEN}), "retention", True, True, False),
        (snapshot("overwrite", {WRITE_DISPOSITION: UNDO, UNDOES: "[1]", **REWRITTEN}), "undo", True, True, True),
        (replace(snapshot("append", {"total-records": "0"}), parent_snapshot_id=None), "start", False, False, False),
        (replace(snapshot("append", {}), parent_snapshot_id=None), "other writer", True, False, True),
        (
            replace(snapshot("append", {**OWN, "total-records": "0"}), parent_snapshot_id=None),
            "materialization",
            True,
            False,
            True,
        ),
    ],
)
def test_a_summary_tells_what_a_snapshot_changed(
    item: Snapshot, reason: Reason, changes: bool, removes: bool, event: bool
) -> None:
    """What a summary does not count may be anything."""
    assert reason_of(item) == reason
    assert (may_change_rows(item), may_remove_rows(item), outdates_derived_rows(item)) == (changes, removes, event)


@pytest.mark.parametrize(
    ("item", "takes_over"),
    [
        (snapshot("append", {}), False),
        (snapshot("append", APPENDED), False),
        (snapshot("overwrite", {}), True),
        (snapshot("overwrite", APPENDED), False),
        (snapshot("overwrite", REWRITTEN), True),
        (snapshot("overwrite", {**APPENDED, "added-delete-files": "1"}), False),
        (snapshot("delete", {**COUNTED, "deleted-data-files": "1"}), False),
        (snapshot("delete", {**OWN, WRITE_DISPOSITION: RETENTION, **REWRITTEN}), True),
        (snapshot("replace", REWRITTEN), True),
        (snapshot("overwrite", {WRITE_DISPOSITION: UNDO, UNDOES: "[1]", **APPENDED}), True),
        (snapshot("overwrite", {**OWN, WRITE_DISPOSITION: "replace", **REWRITTEN}), False),
        (snapshot("overwrite", {**OWN, WRITE_DISPOSITION: "replace", CARRIES_OVER: "true", **REWRITTEN}), True),
        (snapshot("overwrite", {**OWN, WRITE_DISPOSITION: "merge", **REWRITTEN}), True),
        (snapshot("overwrite", {**OWN, WRITE_DISPOSITION: "merge", **APPENDED}), False),
        (replace(snapshot("append", {"total-records": "0"}), parent_snapshot_id=None), False),
    ],
)
def test_files_have_older_rows_unless_their_writer_is_known_to_add_only(item: Snapshot, takes_over: bool) -> None:
    assert may_take_over_rows(item) == takes_over


def test_an_undo_goes_back_to_the_runs_that_it_undoes() -> None:
    made = snapshot("append", OWN, 1)
    undo = snapshot("overwrite", {UNDOES: "[1, 9]", RUN_ID: "undo-1"}, 2)
    lost = snapshot("overwrite", {UNDOES: "[9]", RUN_ID: "undo-2"}, 3)
    other = snapshot("append", {}, 4)
    state = table(snapshots=chain(made, undo, lost, other))
    assert [list(runs_behind(state, item)) for item in (made, undo, lost, other)] == [["run"], ["run"], ["undo-2"], []]

"""What is new in a table since a sensor looked last.

docs/watching.md: What is recorded
"""

from dataclasses import replace

import pytest

from dagster_iceberg_spark.features.watching.plan import NO_TABLE, Seen, event_of
from dagster_iceberg_spark.table.snapshot import TableState
from tests.core.table.samples import chain, snapshot, table

LINE = chain(*(snapshot(number, commit_token=f"{number}", run_id=f"run-{number}") for number in (1, 2, 3)))
STATE = replace(table(snapshots=LINE, refs={"main": 3}), uuid="u")


def cut(state: TableState, *expired: int) -> TableState:
    return replace(state, snapshots={number: item for number, item in state.snapshots.items() if number not in expired})


@pytest.mark.parametrize(
    ("state", "seen", "event"),
    [
        (STATE, Seen("u", 3), None),
        (STATE, Seen("u", 1), "written"),
        (STATE, Seen(NO_TABLE, None), "written"),
        (STATE, Seen("another", 1), "recreated"),
        (replace(STATE, refs={"main": 1}), Seen("u", 3), "rolled back"),
        (cut(replace(STATE, refs={"main": 2, "old": 3}), 1), Seen("u", 3), "rolled back"),
        (cut(STATE, 1), Seen("u", 1), "history expired"),
        (replace(STATE, refs={}), Seen("u", 1), None),
    ],
)
def test_the_line_shows_what_has_happened(state: TableState, seen: Seen, event: str | None) -> None:
    found = event_of(state, seen)
    assert (found.kind if found else None) == event


def test_what_this_instance_has_recorded_is_no_news() -> None:
    known = {"run-2"}
    event = event_of(STATE, Seen("u", 1), is_known_run=known.__contains__)
    assert event is not None
    assert [item.snapshot_id for item in event.snapshots] == [3]
    assert event_of(STATE, Seen("u", 1), is_known_run={"run-2", "run-3"}.__contains__) is None

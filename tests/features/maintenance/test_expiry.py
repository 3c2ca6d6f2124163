"""Which snapshots an expiry removes.

docs/maintenance.md: What is kept, and for whom
"""

from dataclasses import replace

import pytest

from dagster_iceberg_spark.features.maintenance.plan.pins import planned_expiry
from dagster_iceberg_spark.table.snapshot import RefRetention, Snapshot, TableState
from tests.core.table.samples import chain, snapshot, table

SECOND = 1000
LINE = chain(*map(snapshot, range(1, 7)))
"""Six snapshots of `main`, each committed a second after the one before."""


def state(*others: Snapshot, retention: dict[str, RefRetention] | None = None, **refs: int) -> TableState:
    branches = {name for name in ("main", *refs) if not name.startswith("tag")}
    found = table(snapshots=(*LINE, *others), refs={"main": 6, **refs}, branches=sorted(branches))
    return replace(found, retention=retention or {})


def expired(found: TableState, *, older_than: int = 7, retain_last: int = 1, tagged: tuple[int, ...] = ()) -> list[int]:
    expiry = planned_expiry(
        found, now_ms=10 * SECOND, older_than_ms=older_than * SECOND, retain_last=retain_last, tagged=tagged
    )
    return list(expiry.snapshots)


@pytest.mark.parametrize(
    ("older_than", "retain_last", "gone"),
    [(7, 1, [1, 2, 3, 4, 5]), (7, 3, [1, 2, 3]), (4, 1, [1, 2, 3]), (4, 5, [1]), (1, 1, []), (7, 9, [])],
)
def test_the_newest_and_the_young_snapshots_stay(older_than: int, retain_last: int, gone: list[int]) -> None:
    assert expired(state(), older_than=older_than, retain_last=retain_last) == gone


def test_tags_and_branches_keep_their_snapshots() -> None:
    assert expired(state(tag=2)) == [1, 3, 4, 5]
    assert expired(state(), tagged=(3,)) == [1, 2, 4, 5]
    beside = snapshot(9, parent=3)
    assert expired(state(beside, audit=9)) == [1, 2, 3, 4, 5], "a branch keeps its newest snapshot, not its start"
    keeps = {"audit": RefRetention(min_snapshots_to_keep=2)}
    assert expired(state(beside, audit=9, retention=keeps)) == [1, 2, 4, 5]
    young = {"audit": RefRetention(max_snapshot_age_ms=8 * SECOND)}
    assert expired(state(beside, audit=9, retention=young)) == [1, 4, 5], "snapshots 2 and 3 are 8 and 7 seconds old"


def test_a_ref_ends_with_the_age_of_its_snapshot() -> None:
    ended = {"tag": RefRetention(max_ref_age_ms=7 * SECOND)}
    expiry = planned_expiry(state(tag=2, retention=ended), now_ms=10 * SECOND, older_than_ms=7 * SECOND, retain_last=1)
    assert (expiry.refs, expiry.snapshots) == (("tag",), (1, 2, 3, 4, 5))
    lasting = {"tag": RefRetention(max_ref_age_ms=8 * SECOND)}
    assert expired(state(tag=2, retention=lasting)) == [1, 3, 4, 5]
    by_table = replace(state(tag=2), properties={"history.expire.max-ref-age-ms": "7000"})
    assert expired(by_table) == [1, 2, 3, 4, 5]


def test_snapshots_that_no_branch_has_go_by_their_age() -> None:
    rolled_back = snapshot(8, parent=2)
    assert expired(state(rolled_back), older_than=7) == [1, 2, 3, 4, 5]
    assert expired(state(rolled_back), older_than=9) == [1, 2, 3, 4, 5, 8]


def sized(number: int) -> Snapshot:
    return replace(LINE[number - 1], summary={"removed-files-size": str(10**number)})


def test_an_expiry_frees_what_was_removed_up_to_the_first_snapshot_that_stays() -> None:
    def freed(**options: int) -> int:
        found = replace(state(), snapshots={number: sized(number) for number in range(1, 7)})
        return planned_expiry(
            found, now_ms=10 * SECOND, older_than_ms=7 * SECOND, retain_last=options["retain_last"], tagged=()
        ).freed_bytes

    assert freed(retain_last=6) == 0
    assert freed(retain_last=4) == 10**2 + 10**3
    assert freed(retain_last=1) == sum(10**number for number in range(2, 7))

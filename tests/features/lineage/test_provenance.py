"""Which snapshots were derived from which.

docs/lineage.md: What was derived from a snapshot?; After expiry
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from dagster_iceberg_spark.features.lineage.plan.provenance import MadeSnapshot, Provenance, TableHistory
from dagster_iceberg_spark.plan.read.history import HistoryEntry
from dagster_iceberg_spark.table.lineage import UpstreamRead
from dagster_iceberg_spark.table.snapshot import Snapshot


def snapshot(
    number: int,
    keys: list[str] | None = None,
    *,
    of: dict[str, int] | None = None,
    disposition: str = "replace",
    operation: str = "overwrite",
    summary: Mapping[str, str] | None = None,
) -> Snapshot:
    """Return a snapshot of these partitions that was derived from snapshots of other tables."""
    reads = [
        {"asset": name, "table": name, "snapshot_id": read, "scope": None if keys is None else json.dumps(keys)}
        for name, read in (of or {}).items()
    ]
    described = {} if keys is None else {"dagster.partition_keys": json.dumps(keys)}
    own = {"dagster.write_disposition": disposition, "dagster.upstream": json.dumps(reads), "added-data-files": "1"}
    parent = number - 1 if number % 10 else None  # the snapshots of a table are 10, 11, 12 ...
    return Snapshot(number, parent, number * 1000, operation, {**own, **described, **(summary or {})})


def history(name: str, *snapshots: Snapshot, **changes: Any) -> TableHistory:
    return TableHistory(name, {item.snapshot_id: item for item in snapshots}, snapshots[-1].snapshot_id, **changes)


def read(snapshot_id: int | None, keys: list[str] | None = None, since: int | None = None) -> UpstreamRead:
    return UpstreamRead("a", "a", snapshot_id, None if keys is None else json.dumps(keys), since=since)


def sources(found: tuple[Snapshot, ...]) -> list[int]:
    return [item.snapshot_id for item in found]


DAYS = history(
    "a",
    snapshot(10, ["1", "2"]),
    snapshot(11, ["3"]),
    snapshot(12, ["1"]),
    snapshot(13, operation="replace"),
    snapshot(14, ["2"], disposition="append"),
)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (read(14), [14, 12, 11, 10]),
        (read(14, ["1"]), [12]),
        (read(11, ["1"]), [10]),
        (read(14, ["2"]), [14, 10]),
        (read(14, ["3"]), [11]),
        (read(14, ["4"]), []),
        (read(14, since=11), [14, 12]),
        (read(None), []),
        (read(99), []),
    ],
)
def test_a_read_finds_rows_of_the_snapshots_that_later_ones_have_not_replaced(
    asked: UpstreamRead, expected: list[int]
) -> None:
    assert sources(DAYS.sources_of(asked)) == expected


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        (snapshot(11), [11]),
        (snapshot(11, disposition="append"), [11, 10]),
        (snapshot(11, disposition="undo", summary={"dagster.undoes": "[10]"}), []),
        (snapshot(11, ["x"], disposition="retention"), [11, 10]),
        (snapshot(11, disposition="append", summary={"added-data-files": "0"}), [10]),
    ],
)
def test_whole_tables_are_replaced_undone_and_added_to(later: Snapshot, expected: list[int]) -> None:
    assert sources(history("a", snapshot(10), later).sources_of(read(11))) == expected


def test_many_keys_are_known_by_the_partitions_of_the_asset() -> None:
    many = snapshot(11, summary={"dagster.partition_keys": "1..3 (3)"})
    assert sources(history("a", snapshot(10, ["2"]), many).sources_of(read(11, ["2"]))) == [11, 10]

    def listed(described: str) -> frozenset[str]:
        return frozenset("123") if described == "1..3 (3)" else frozenset(json.loads(described))

    known = history("a", snapshot(10, ["2"]), many, listed=listed)
    assert sources(known.sources_of(read(11, ["2"]))) == [11]
    assert sources(known.sources_of(read(11, ["4"]))) == []


PROVENANCE = Provenance(
    {
        "a": DAYS,
        "b": history("b", snapshot(20, ["1"], of={"a": 11}), snapshot(21, ["1"], of={"a": 12})),
        "c": history("c", snapshot(30, of={"b": 20}), snapshot(31, of={"b": 21})),
        "d": history("d", snapshot(40, of={"elsewhere": 10})),
    }
)


def made(found: tuple[MadeSnapshot, ...]) -> list[tuple[int, int, bool]]:
    return [(item.entry.snapshot.snapshot_id, item.depth, item.is_current) for item in found]


def test_what_was_made_of_a_snapshot_is_followed_down_to_the_last() -> None:
    assert made(PROVENANCE.made_of("a", 10)) == [(20, 1, False), (30, 2, False)]
    assert made(PROVENANCE.made_of("a", 12)) == [(21, 1, True), (31, 2, True)]
    assert PROVENANCE.made_of("a", 14) == ()


def test_a_table_that_reads_itself_is_followed_once() -> None:
    own = history("a", snapshot(10, disposition="append"), snapshot(11, disposition="append", of={"a": 10}))
    assert made(Provenance({"a": own}).made_of("a", 10)) == [(11, 1, True)]


def test_a_snapshot_with_too_many_inputs_may_have_been_made_of_it() -> None:
    many = snapshot(20, summary={"dagster.upstream": json.dumps({"digest": "x", "count": 99})})
    (found,) = Provenance({"a": history("a", snapshot(10)), "b": history("b", many)}).made_of("a", 10)
    assert (found.is_certain, found.document()["certain"]) == (False, False)


@pytest.mark.parametrize(
    ("summary", "change", "writer"),
    [
        ({"dagster.write_disposition": "merge", "dagster.asset_key": "a/b"}, "merge", "a/b"),
        ({"engine-name": "spark", "engine-version": "4.1.4"}, "append", "spark 4.1.4"),
        ({}, "append", "another writer"),
    ],
)
def test_a_snapshot_is_of_an_asset_or_of_another_writer(summary: dict[str, str], change: str, writer: str) -> None:
    entry = HistoryEntry(Snapshot(1, None, 0, "append", summary))
    assert (entry.change, entry.writer) == (change, writer)
    assert HistoryEntry(Snapshot(1, None, 0, "replace", summary)).change == "compaction"


@pytest.mark.parametrize(
    ("described", "expected"),
    [("2013-01-01", "2013-01-01"), ('["a", "b"]', "a, b"), ('["a", "b", "c"]', "a..c (3)"), ("a..z (26)", "a..z (26)")],
)
def test_partitions_are_shown_in_a_short_form(described: str, expected: str) -> None:
    entry = HistoryEntry(Snapshot(1, None, 0, "append", {"dagster.partition_keys": described}))
    assert entry.few_partitions == expected

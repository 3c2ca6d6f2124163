"""The rules of data checks.

docs/audits.md: Checks of published rows
"""

import datetime as dt
from typing import Any

import pytest

from dagster_iceberg_spark.features.checks.plan import Change, Freshness, parse_data_checks
from dagster_iceberg_spark.table.snapshot import Snapshot

NOW = dt.datetime(2026, 11, 27, tzinfo=dt.timezone.utc)
DAY_MS = 24 * 3600 * 1000


def snapshot(days_ago: int, rows: int, operation: str = "append", **summary: str) -> Snapshot:
    counted = {"added-records": str(rows), "total-records": str(rows * 10), "added-data-files": "1"}
    at = int(NOW.timestamp() * 1000) - days_ago * DAY_MS
    return Snapshot(100 - days_ago, None, at, operation, {**counted, **summary})


def test_each_argument_becomes_a_check() -> None:
    checks = parse_data_checks(
        not_null=["a", "b c"],
        in_range={"v": (-1, 2.5), "d": (dt.date(2024, 1, 1), None), "t": (None, "it's")},
        unique=["a", "b c"],
        row_count=(1, 10),
        fresh="30 hours",
        change={"added_rows": 0.5, "bytes": 2},
    )
    assert checks.rules == {
        "not_null_a": "not null a",
        "not_null_b_c": "not null b c",
        "in_range_v": "v >= -1 AND v <= 2.5",
        "in_range_d": "d >= DATE '2024-01-01'",
        "in_range_t": r"t <= 'it\'s'",
        "unique": "unique a, b c",
        "row_count": "count(*) >= 1 AND count(*) <= 10",
        "fresh": "rows have changed within 30 hours",
        "change_in_added_rows": "added_rows within 50% of the median of 10 snapshots before",
        "change_in_bytes": "bytes within 200% of the median of 10 snapshots before",
    }
    assert parse_data_checks(row_count=5).rules == {"row_count": "count(*) >= 5"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "at least one check"),
        ({"in_range": {"v": (None, None)}}, "`in_range`: expected a lower and an upper bound"),
        ({"in_range": {"v": "ab"}}, "`in_range`: expected a lower and an upper bound"),
        ({"in_range": {"v": (True, 1)}}, "`in_range`: expected a number, a text, a date or an instant"),
        ({"row_count": (1, 2, 3)}, "`row_count`: expected a lower and an upper bound"),
        ({"fresh": "soon"}, "`fresh`: expected a duration"),
        ({"change": {"row": 0.5}}, "did you mean 'rows'"),
        ({"change": {"rows": -1}}, "`change`: expected a share such as 0.5"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_data_checks(**arguments)


@pytest.mark.parametrize(
    ("snapshots", "passed"),
    [
        ([snapshot(1, 5)], True),
        ([snapshot(3, 5)], False),
        ([snapshot(0, 5, "replace"), snapshot(3, 5)], False),  # a compaction changes no rows
        ([snapshot(0, 0, **{"added-data-files": "0"}), snapshot(3, 5)], False),
        ([], False),
    ],
)
def test_rows_are_fresh_if_they_have_changed(snapshots: list[Snapshot], passed: bool) -> None:
    assert Freshness(dt.timedelta(days=2)).result(snapshots, NOW).passed == passed


@pytest.mark.parametrize(
    ("added", "passed"),
    [([10], True), ([10, 10, 12, 200], True), ([5, 10, 10], True), ([4, 10, 10], False), ([16, 10, 10], False)],
)
def test_a_change_is_measured_against_the_median(added: list[int], passed: bool) -> None:
    snapshots = [snapshot(day, rows) for day, rows in enumerate(added)]
    for figure in ("added_rows", "rows"):
        assert Change(figure, 0.5).result(snapshots, NOW).passed == passed


def test_columns_that_look_alike_have_checks_of_their_own() -> None:
    checks = parse_data_checks(not_null=["a b", "a_b", "a-b"], in_range={"a_b": (1, None), "a b": (2, None)})
    assert {audit.name: str(audit.rule) for audit in checks.audits} == {
        "not_null_a_b": "not null a b",
        "not_null_a_b_2": "not null a_b",
        "not_null_a_b_3": "not null a-b",
        "in_range_a_b_2": "a_b >= 1",
        "in_range_a_b": "`a b` >= 2",
    }

"""Merging into a history: versions of each key, with the time in which each is valid."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.lakes import Lake, error_of, frame_asset, metadata_of

pytestmark = pytest.mark.spark

FIRST = dt.datetime(2024, 3, 1, tzinfo=dt.timezone.utc)
EMPTY = "select cast(null as int) as id, cast(null as string) as n where false"


def day(number: int) -> dt.datetime:
    return FIRST + dt.timedelta(days=number)


def history(query: str, *, boundary: int | None = None, keys: Sequence[str] = ("id",), **rules: Any) -> Any:
    if boundary is not None:
        rules["boundary"] = day(boundary).isoformat()
    metadata = {
        "iceberg/write_disposition": "merge",
        "iceberg/merge_keys": list(keys),
        "iceberg/merge": {"strategy": "scd2", **rules},
    }
    return frame_asset("t", query, metadata=metadata)


def rows(*pairs: tuple[int, str | None], marks: Mapping[int, bool] | None = None) -> str:
    lines = [
        f"select {key} as id, {'cast(null as string)' if text is None else repr(text)} as n"
        + ("" if marks is None else f", {str(marks.get(key, False)).lower()} as gone")
        for key, text in pairs
    ]
    return " union all ".join(lines) if lines else EMPTY


def versions(lake: Lake) -> list[tuple[Any, ...]]:
    """Rows of key, text, and the days on which they begin and end."""
    found = []
    for row in lake.arrow("t").to_pylist():
        ends = row["valid_to"]
        found.append(
            (row["id"], row["n"], (row["valid_from"] - FIRST).days, None if ends is None else (ends - FIRST).days)
        )
    return sorted(found, key=lambda item: (item[0], item[2]))


@pytest.mark.each_engine
@pytest.mark.feature("merge into a history (scd2)")
def test_a_change_ends_a_version_and_begins_another(lake: Lake) -> None:
    lake.materialize(history(rows((1, "a"), (2, "b")), boundary=0))
    result = lake.materialize(history(rows((1, "A"), (2, "b"), (3, "c")), boundary=2))
    assert versions(lake) == [(1, "a", 0, 2), (1, "A", 2, None), (2, "b", 0, None), (3, "c", 2, None)]
    metadata = metadata_of(result, "t")
    counts = [metadata[f"iceberg/merge_{name}_rows"] for name in ("inserted", "updated", "deleted", "unchanged")]
    assert counts == [2, 1, 0, 1]
    assert len(lake.summaries("t")) == 2
    assert lake.summaries("t")[-1]["dagster.run_id"] == result.run_id


@pytest.mark.full
def test_rows_from_before_the_table_kept_a_history_end_with_the_first_change(lake: Lake) -> None:
    lake.materialize(frame_asset("t", rows((1, "a"), (2, "b"), (3, "c"))))
    query = rows((1, "A"), (2, "b"), (3, None), marks={3: True})
    lake.materialize(history(query, boundary=2, hard_delete="gone"))
    found = {(row["n"], row["valid_from"], row["valid_to"]) for row in lake.arrow("t").to_pylist()}
    assert found == {("a", None, day(2)), ("A", day(2), None), ("b", None, None), ("c", None, day(2))}


@pytest.mark.full
def test_a_batch_without_changes_rewrites_nothing(lake: Lake) -> None:
    for boundary in (0, 1):
        lake.materialize(history(rows((1, "a"), (2, None)), boundary=boundary, retire="all"))
    assert versions(lake) == [(1, "a", 0, None), (2, None, 0, None)]
    assert lake.summaries("t")[-1].get("deleted-data-files", "0") == "0"


@pytest.mark.full
def test_the_same_boundary_may_be_written_again(lake: Lake) -> None:
    lake.materialize(history(rows((1, "a"), (2, "b"), (3, "c")), boundary=0, retire="all"))
    for query in (rows((1, "x"), (2, "b"), (4, "d")), rows((1, "y"), (3, "c"), (4, "d")), rows((2, "b"), (3, "c"))):
        lake.materialize(history(query, boundary=1, retire="all"))
    assert versions(lake) == [(1, "a", 0, 1), (2, "b", 0, None), (3, "c", 0, None)]


@pytest.mark.full
@pytest.mark.parametrize("retire", ["never", "all"])
def test_absent_keys_end_where_they_are_retired_and_may_come_back(lake: Lake, retire: str) -> None:
    for boundary, query in enumerate((rows((1, "a"), (2, "b")), rows((1, "a")), rows((1, "a"), (2, "b")))):
        lake.materialize(history(query, boundary=boundary, retire=retire))
    again = [(2, "b", 0, 1), (2, "b", 2, None)] if retire == "all" else [(2, "b", 0, None)]
    assert versions(lake) == [(1, "a", 0, None), *again]


@pytest.mark.full
def test_an_empty_batch_retires_all(lake: Lake) -> None:
    lake.materialize(history(rows((1, "a")), boundary=0))
    lake.materialize(history(EMPTY, boundary=1))
    assert versions(lake) == [(1, "a", 0, None)]
    lake.materialize(history(EMPTY, boundary=1, retire="all"))
    assert versions(lake) == [(1, "a", 0, 1)]


@pytest.mark.full
def test_marked_keys_end(lake: Lake) -> None:
    lake.materialize(history(rows((1, "a"), (2, "b")), boundary=0))
    query = rows((1, None), (2, "b"), (9, None), marks={1: True, 9: True})
    lake.materialize(history(query, boundary=3, hard_delete="gone"))
    assert versions(lake) == [(1, "a", 0, 3), (2, "b", 0, None)]


@pytest.mark.full
def test_the_columns_have_names_of_one_s_own_and_a_marker(lake: Lake) -> None:
    rules = {"valid_from": "since", "valid_to": "until", "is_current": "now"}
    for boundary, text in enumerate("ab"):
        lake.materialize(history(rows((1, text)), boundary=boundary, **rules))
    found = lake.arrow("t").sort_by("since").to_pylist()
    assert [(row["n"], row["since"], row["until"], row["now"]) for row in found] == [
        ("a", day(0), day(1), False),
        ("b", day(1), None, True),
    ]


@pytest.mark.full
def test_rows_that_say_when_they_begin_find_their_place(lake: Lake) -> None:
    def query(*events: tuple[int, str, int]) -> str:
        return " union all ".join(
            f"select {key} as id, '{text}' as n, timestamp'{day(at).isoformat()}' as valid_from"
            for key, text, at in events
        )

    for events in ([(1, "c", 5), (2, "x", 5)], [(1, "a", 1)], [(1, "b", 3), (2, "x", 7)], [(1, "B", 3)]):
        lake.materialize(history(query(*events)))
    assert versions(lake) == [
        (1, "a", 1, 3), (1, "B", 3, 5), (1, "c", 5, None), (2, "x", 5, 7), (2, "x", 7, None),
    ]  # fmt: skip
    error = lake.failure(history("select 3 as id, 'c' as n, cast(null as timestamp) as valid_from"))
    assert "expected no NULL in a required column" in str(error)
    assert "valid_from" in str(error)


@pytest.mark.full
def test_a_batch_that_is_older_than_the_history_is_refused(lake: Lake) -> None:
    lake.materialize(history(rows((1, "a")), boundary=3))
    error = error_of(lake.materialize(history(rows((1, "b")), boundary=2), raise_on_error=False))
    assert error.class_name == "DataError"
    assert "a boundary not before 2024-03-04T00:00:00+00:00" in str(error)
    assert versions(lake) == [(1, "a", 3, None)]


@pytest.mark.full
def test_another_region_may_be_older(lake: Lake) -> None:
    query = "select '{key}' as region, 1 as id, '{key}' as n"
    for key, boundary in (("eu", 2), ("us", 1)):
        asset = partitioned(query, REGIONS, "region", boundary=day(boundary).isoformat())
        lake.materialize(asset, partition_key=key)
    assert versions(lake) == [(1, "us", 1, None), (1, "eu", 2, None)]
    asset = partitioned(query, REGIONS, "region", boundary=day(1).isoformat())
    assert not lake.materialize(asset, partition_key="eu", raise_on_error=False).success


@pytest.mark.full
def test_without_keys_each_row_is_its_own(lake: Lake) -> None:
    for boundary, query in enumerate((rows((1, "a"), (2, None)), rows((1, "b"), (2, None)))):
        lake.materialize(history(query, boundary=boundary, keys=(), retire="all"))
    assert versions(lake) == [(1, "a", 0, 1), (1, "b", 1, None), (2, None, 0, None)]


@pytest.mark.full
def test_the_start_of_the_run_is_the_boundary(lake: Lake) -> None:
    before = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=1)
    lake.materialize(history(rows((1, "a"))))
    [row] = lake.arrow("t").to_pylist()
    assert before <= row["valid_from"] <= dt.datetime.now(dt.timezone.utc)


DAYS = dg.DailyPartitionsDefinition("2024-03-01", timezone="Europe/Berlin")
REGIONS = dg.StaticPartitionsDefinition(["eu", "us"])


def partitioned(query: str, partitions: Any, expr: str, **rules: Any) -> Any:
    metadata = {
        "partition_expr": expr,
        "iceberg/write_disposition": "merge",
        "iceberg/merge_keys": ["id"],
        "iceberg/merge": {"strategy": "scd2", **rules},
    }
    return frame_asset("t", query, partitions_def=partitions, metadata=metadata)


@pytest.mark.full
def test_a_region_s_run_ends_no_version_of_another(lake: Lake) -> None:
    query = "select '{key}' as region, id, '{key}' as n from values (1), (2) as t(id)"
    for key, boundary, where in (("eu", 0, ""), ("us", 0, ""), ("eu", 1, " where id = 1")):
        rules = {"boundary": day(boundary).isoformat(), "retire": "partitions"}
        lake.materialize(partitioned(query + where, REGIONS, "region", **rules), partition_key=key)
    assert versions(lake) == [
        (1, "eu", 0, None), (1, "us", 0, None), (2, "eu", 0, 1), (2, "us", 0, None),
    ]  # fmt: skip


@pytest.mark.full
def test_a_day_s_run_begins_versions_at_the_day_s_start(lake: Lake) -> None:
    for key in ("2024-03-02", "2024-03-03", "2024-03-03"):
        asset = partitioned("select 1 as id, '{key}' as n", DAYS, "valid_from", boundary="partition", retire="all")
        lake.materialize(asset, partition_key=key)
    found = lake.arrow("t").sort_by("valid_from").to_pylist()
    berlin = dt.timezone(dt.timedelta(hours=1))
    edge = dt.datetime(2024, 3, 3, tzinfo=berlin)
    assert [(row["n"], row["valid_from"], row["valid_to"]) for row in found] == [
        ("2024-03-02", dt.datetime(2024, 3, 2, tzinfo=berlin), edge),
        ("2024-03-03", edge, None),
    ]


def test_rules_that_do_not_fit_the_partitions_are_refused(classic_lake: Lake) -> None:
    asset = partitioned("select '{key}' as region, 1 as id", REGIONS, "region", retire="all")
    error = error_of(classic_lake.materialize(asset, partition_key="eu", raise_on_error=False))
    assert (error.class_name, "'partitions' or 'never'" in str(error)) == ("ConfigurationError", True)
    assert not classic_lake.exists("t")


batches = st.dictionaries(st.integers(0, 3), st.sampled_from([None, "a", "b"]), max_size=4)


@pytest.mark.full
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.tuples(batches, st.integers(0, 1)), min_size=2, max_size=5),
    retire=st.sampled_from(["all", "never"]),
)
def test_the_state_at_any_time_is_that_of_the_batches_until_then(
    lake: Lake, steps: list[tuple[dict[int, str | None], int]], retire: str
) -> None:
    """Each batch is as of a day, some of them of the same day as the one before, which it then stands in for."""
    lake.session.sql("drop table if exists lake.db.t")
    boundary, by_day = 0, dict[int, dict[int, str | None]]()
    for batch, later in steps:
        boundary += later
        lake.materialize(history(rows(*batch.items()), boundary=boundary, retire=retire))
        by_day[boundary] = batch if retire == "all" else {**by_day.get(boundary, {}), **batch}
    found = versions(lake)
    expected: dict[int, str | None] = {}
    for number in range(boundary + 2):
        if retire == "all" and number in by_day:
            expected = by_day[number]
        expected = {**expected, **by_day.get(number, {})}
        valid = {key: text for key, text, begin, end in found if begin <= number and (end is None or number < end)}
        assert valid == expected
        assert sum(begin <= number and (end is None or number < end) for _, _, begin, end in found) == len(valid)

"""The partitions of a run."""

import datetime as dt
import itertools
import json
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from dagster_iceberg_spark.table.scope import Dimension, PartitionScope, PartitionSlice, TimeWindow, merge_windows
from tests.core.table.samples import daily, keyed, utc

DIMENSIONS = ("x", "y", "z")
KEYS = st.sampled_from(["a", "b", "c"])
START = utc(2024, 1, 1)
HOURS = st.integers(0, 50)
WINDOWS = st.builds(lambda start, length: window(start, start + length), HOURS, st.integers(1, 9))


def window(start: int, end: int) -> TimeWindow:
    return TimeWindow(START + dt.timedelta(hours=start), START + dt.timedelta(hours=end))


def product_scope(partitions: list[tuple[str, ...]]) -> PartitionScope:
    width = len(partitions[0]) if partitions else 1
    return PartitionScope(
        tuple(Dimension(name, name) for name in DIMENSIONS[:width]),
        tuple(tuple(PartitionSlice(key) for key in partition) for partition in partitions),
        tuple("|".join(partition) for partition in partitions),
    )


@given(st.integers(1, 3).flatmap(lambda width: st.lists(st.tuples(*[KEYS] * width), max_size=27)))
def test_the_boxes_cover_exactly_the_partitions(partitions: list[tuple[str, ...]]) -> None:
    boxes = product_scope(partitions).boxes
    covered = [tuple(item.key for item in cell) for box in boxes for cell in itertools.product(*box)]
    assert sorted(covered) == sorted(set(partitions))


def test_a_full_range_of_several_dimensions_is_one_box() -> None:
    scope = product_scope(list(itertools.product("abc", "abc", "abc")))
    assert len(scope.boxes) == 1


def test_one_dimension_is_one_box_and_no_dimension_is_no_box() -> None:
    assert len(keyed("a", "b", "c").boxes) == 1
    assert PartitionScope().boxes == ()
    assert PartitionScope().is_whole_table
    assert not keyed("a").is_whole_table


@given(st.permutations(["a", "b", "c", "d"]))
def test_the_digest_does_not_depend_on_the_order_of_the_keys(keys: list[str]) -> None:
    assert keyed(*keys).digest == keyed("a", "b", "c", "d").digest


def test_different_sets_of_keys_have_different_digests() -> None:
    scopes = [PartitionScope(), keyed(), keyed("a"), keyed("b"), keyed("a", "b"), keyed('a", "b'), keyed("ä")]
    digests = {scope.digest for scope in scopes}
    assert len(digests) == len(scopes)
    assert {len(digest) for digest in digests} == {32}


def test_the_digest_is_the_same_in_every_process() -> None:
    assert keyed("a", "b").digest == "3554d2b8a1e34099053865de8576d146"


def test_one_key_is_described_by_itself_and_a_few_by_a_list() -> None:
    assert keyed("ü").describe() == "ü"
    assert json.loads(keyed("b", "ü", "a").describe()) == ["a", "b", "ü"]


def test_many_keys_are_described_by_first_last_and_count() -> None:
    days = [f"2024-01-{day:02}" for day in range(1, 29)]
    assert daily(*reversed(days)).describe() == "2024-01-01..2024-01-28 (28)"
    assert daily(*days[:20]).describe().startswith("[")
    assert daily(*days[:21]).describe().endswith("(21)")


@given(st.lists(WINDOWS, max_size=8))
def test_merged_windows_cover_the_same_hours_without_touching(windows: list[TimeWindow]) -> None:
    merged = merge_windows(windows)
    hours = [START + dt.timedelta(hours=hour) for hour in range(60)]
    for hour in hours:
        assert sum(w.start <= hour < w.end for w in merged) == any(w.start <= hour < w.end for w in windows)
    assert all(before.end < after.start for before, after in itertools.pairwise(merged))


def test_adjacent_windows_are_merged() -> None:
    assert merge_windows([window(2, 4), window(0, 2), window(5, 6)]) == (window(0, 4), window(5, 6))


@given(st.lists(st.integers(0, 30), min_size=1, unique=True))
def test_windows_in_a_repeated_hour_are_distinct(quarters: list[int]) -> None:
    """Half an hour is repeated. A window may end at an earlier local time than it starts."""
    start, zone = utc(2024, 4, 6, 11), ZoneInfo("Australia/Lord_Howe")
    edges = [(start + index * dt.timedelta(minutes=15)).astimezone(zone) for index in range(32)]
    merged = merge_windows(TimeWindow(edges[index], edges[index + 1]) for index in quarters)
    covered = {
        index
        for index, edge in enumerate(edges[:-1])
        if any(window.start <= edge.astimezone(dt.timezone.utc) < window.end for window in merged)
    }
    assert covered == set(quarters)

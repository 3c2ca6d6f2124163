"""Edges of time windows in the calendar of their time zone, compared with a grid of instants."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dagster_iceberg_spark.plan.partitions.binding import coarsest_granule, date_edge, wall_clock_edge
from tests.core.table.samples import local, utc, wall

CHANGES = {
    "America/New_York": [utc(2013, 3, 10, 7), utc(2013, 11, 3, 6)],
    "Europe/London": [utc(2024, 3, 31, 1), utc(2024, 10, 27, 1)],
    "America/Havana": [utc(2024, 3, 10, 5), utc(2024, 11, 3, 5)],
    "Australia/Lord_Howe": [utc(2024, 4, 6, 15), utc(2024, 10, 5, 15, 30)],
    "America/Sao_Paulo": [utc(2018, 2, 18, 2), utc(2018, 11, 4, 3)],
    "Asia/Kathmandu": [utc(1985, 12, 31, 18, 30)],
    "UTC": [utc(2024, 1, 1)],
}
"""Zones and instants at which their clocks change: at midnight, by half an hour, by a quarter of an hour, never."""
STEP = dt.timedelta(minutes=15)
RESOLUTION = dt.timedelta(microseconds=1)
EDGES = st.sampled_from(
    [
        (zone, change + offset * STEP)
        for zone, changes in CHANGES.items()
        for change in changes
        for offset in range(-12, 13)
    ]
)


def wall_clocks_around(zone: str, edge: dt.datetime) -> tuple[list[dt.datetime], list[dt.datetime]]:
    """Return the local times in the three hours before the edge and in the three hours from the edge on."""
    grid = [edge + number * dt.timedelta(minutes=5) for number in range(-36, 37)]
    instants = sorted({*grid, *(instant - RESOLUTION for instant in grid)})
    read = [(instant, instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None)) for instant in instants]
    return [clock for instant, clock in read if instant < edge], [clock for instant, clock in read if instant >= edge]


@pytest.mark.parametrize(
    ("cron_schedule", "granule"),
    [
        ("0 * * * *", "hour"),
        ("@hourly", "hour"),
        ("*/15 * * * *", "hour"),
        ("30 0 * * *", "hour"),
        ("0 6 * * *", "hour"),
        ("0 0,12 * * *", "hour"),
        ("0 0 * * *", "day"),
        ("00 00 * * *", "day"),
        ("@daily", "day"),
        ("@midnight", "day"),
        ("0 0 * * 0", "day"),
        ("@weekly", "day"),
        ("0 0 * * 1-5", "day"),
        ("0 0 15 * *", "day"),
        ("0 0 1,15 * *", "day"),
        ("0 0 1 * 1", "day"),
        ("0 0 1 * *", "month"),
        ("@monthly", "month"),
        ("0 0 1 */3 *", "month"),
        ("0 0 01 4 *", "month"),
        ("0 0 1 1 *", "year"),
        ("@yearly", "year"),
        ("@annually", "year"),
    ],
)
def test_a_schedule_has_the_coarsest_granule_that_divides_its_windows(cron_schedule: str, granule: str) -> None:
    assert coarsest_granule(cron_schedule) == granule


@settings(max_examples=150)
@given(EDGES)
def test_a_wall_clock_edge_separates_earlier_from_later_times(case: tuple[str, dt.datetime]) -> None:
    zone, edge = case
    before, after = wall_clocks_around(zone, edge)
    found = wall_clock_edge(edge, zone)
    if found is None:
        assert max(before) >= min(after), "a wall clock that separates them exists"
    else:
        assert max(before) < found <= min(after)
        assert (found.tzinfo, found.fold) == (None, 0)


@settings(max_examples=150)
@example(("America/Havana", local("America/Havana", 2024, 11, 3)))
@example(("America/Havana", utc(2024, 11, 3, 5)))
@given(EDGES)
def test_a_date_edge_separates_two_days(case: tuple[str, dt.datetime]) -> None:
    zone, edge = case
    before, after = wall_clocks_around(zone, edge)
    found = date_edge(edge, zone)
    last, first = max(clock.date() for clock in before), min(clock.date() for clock in after)
    assert found == (first if last < first else None)


@pytest.mark.parametrize(
    ("zone", "edge", "expected"),
    [
        ("America/New_York", utc(2013, 11, 3, 5), wall(2013, 11, 3, 1)),
        ("America/New_York", utc(2013, 11, 3, 5, 30), None),
        ("America/New_York", utc(2013, 11, 3, 6), None),
        ("America/New_York", utc(2013, 11, 3, 7), wall(2013, 11, 3, 2)),
        ("America/New_York", utc(2013, 3, 10, 7), wall(2013, 3, 10, 3)),
        ("America/Havana", local("America/Havana", 2024, 11, 3), wall(2024, 11, 3)),
        ("America/Havana", local("America/Havana", 2024, 11, 3, fold=1), None),
        ("Asia/Kathmandu", utc(2024, 5, 1, 18, 15), wall(2024, 5, 2)),
    ],
)
def test_an_edge_inside_a_repeated_hour_has_no_wall_clock(
    zone: str, edge: dt.datetime, expected: dt.datetime | None
) -> None:
    assert wall_clock_edge(edge, zone) == expected


@pytest.mark.parametrize(
    ("zone", "edge", "expected"),
    [
        ("America/Havana", utc(2024, 3, 10, 5), dt.date(2024, 3, 10)),
        ("America/Havana", local("America/Havana", 2024, 11, 3), dt.date(2024, 11, 3)),
        ("America/Havana", local("America/Havana", 2024, 11, 3, fold=1), None),
        ("Pacific/Apia", utc(2011, 12, 30, 10), dt.date(2011, 12, 31)),
        ("America/New_York", utc(2013, 1, 1), None),
        ("UTC", utc(2013, 1, 1), dt.date(2013, 1, 1)),
    ],
)
def test_the_first_instant_of_a_day_is_the_edge_of_its_date(
    zone: str, edge: dt.datetime, expected: dt.date | None
) -> None:
    assert date_edge(edge, zone) == expected


def test_a_day_whose_midnight_comes_twice_has_no_date_edge() -> None:
    assert date_edge(local("America/St_Johns", 2006, 10, 29), "America/St_Johns") is None

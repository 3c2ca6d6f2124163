"""The calendar of time partitions, and the values of a column that separate them."""

import datetime as dt
from typing import Final
from zoneinfo import ZoneInfo

from dagster_iceberg_spark.table.partitioning import TimeTransform

_CRON_NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MICROSECOND = dt.timedelta(microseconds=1)


def coarsest_granule(cron_schedule: str) -> TimeTransform:
    """Return the coarsest of year, month, day and hour that divides every window of the schedule into whole units.

    A schedule that is finer than an hour, or not on the hour, gets `hour`, because Iceberg has no finer transform.
    """
    minute, hour, day_of_month, month, day_of_week = _CRON_NICKNAMES.get(cron_schedule, cron_schedule).split()[:5]
    if minute not in ("0", "00") or hour not in ("0", "00"):
        return "hour"
    if day_of_month not in ("1", "01") or day_of_week != "*":
        return "day"
    return "year" if month in ("1", "01") else "month"


def wall_clock_edge(edge: dt.datetime, timezone: str) -> dt.datetime | None:
    """Return the wall clock that separates the rows before the edge from those at or after it.

    Return None if there is none: the edge lies in an hour that a clock change repeats, so rows on both sides of it have
    the same wall clocks.
    """
    wall = edge.astimezone(ZoneInfo(timezone))
    before = (wall.replace(tzinfo=None) - _MICROSECOND).replace(tzinfo=wall.tzinfo)
    if _is_repeated(wall) and (wall.fold == 1 or _is_repeated(before)):
        return None
    return wall.replace(tzinfo=None, fold=0)


def date_edge(edge: dt.datetime, timezone: str) -> dt.date | None:
    """Return the date that separates the rows before the edge from those at or after it, or None if there is none.

    If a clock change skips midnight, the day starts at the first instant after it. If a clock change turns the clock
    back over midnight, the day before continues after the edge.
    """
    zone = ZoneInfo(timezone)
    before = (edge.astimezone(dt.timezone.utc) - _MICROSECOND).astimezone(zone)
    after = edge.astimezone(zone)
    if before.date() == after.date():
        return None
    last_of_before = dt.datetime.combine(before.date(), dt.time.max, zone).replace(fold=1)
    return after.date() if last_of_before.astimezone(dt.timezone.utc) < edge else None


def _is_repeated(wall: dt.datetime) -> bool:
    return wall.replace(fold=0).utcoffset() != wall.replace(fold=1).utcoffset()

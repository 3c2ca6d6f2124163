"""The results, from a few flights."""

import datetime as dt
from zoneinfo import ZoneInfo

from dagster_iceberg_spark.testing import Lake, assert_rows

NEW_YORK = ZoneInfo("America/New_York")
MIDNIGHT = dt.datetime(2013, 1, 1, tzinfo=NEW_YORK)
FLIGHT = {"time_hour": MIDNIGHT, "origin": "EWR", "carrier": "UA", "dep_time": 5, "dep_delay": 5.0, "distance": 1400}
LATE = {**FLIGHT, "time_hour": MIDNIGHT + dt.timedelta(hours=23), "dep_delay": 45.0}
CANCELLED = {**FLIGHT, "dep_time": None, "dep_delay": None}


def test_a_month_has_the_flights_of_each_airline(lake: Lake) -> None:
    lake.given("flights", [FLIGHT, LATE, CANCELLED, {**FLIGHT, "carrier": "XX"}])
    lake.given("airlines", [{"carrier": "UA", "name": "United"}])
    lake.materialize("monthly_carriers", partition="2013-01-01")
    month = {"month": dt.date(2013, 1, 1)}
    united = {"carrier": "UA", "airline": "United", "flights": 3, "cancelled": 1, "mean_delay": 25.0, "miles": 2800}
    unknown = {"carrier": "XX", "airline": None, "flights": 1, "cancelled": 0, "mean_delay": 5.0, "miles": 1400}
    assert_rows(lake.rows("monthly_carriers"), [month | united, month | unknown])


def test_a_day_without_weather_has_its_flights(lake: Lake) -> None:
    lake.given("flights", [FLIGHT, LATE, CANCELLED], partition="2013-01-01")
    weather = {
        "time_hour": "timestamptz",
        "origin": "string",
        "wind_speed": "double",
        "precip": "double",
        "visib": "double",
    }
    for origin in ("EWR", "JFK", "LGA"):
        lake.given("weather", [], partition=f"{origin}|2013-01-01", columns=weather)
    with lake.dies_after_commit():
        lake.materialize("daily_delays", "delays_release", partition="2013-01-01")
    expected = {"day": dt.date(2013, 1, 1), "origin": "EWR", "flights": 3, "cancelled": 1, "late": 1, "max_wind": None}
    assert_rows(lake.rows("daily_delays"), [expected], partial=True)

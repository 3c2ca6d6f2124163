"""Tests of an asset that reads the temperatures of `without_spark.py`."""

import datetime as dt

import dagster as dg
import pandas as pd
from without_spark import days, temperatures

from dagster_iceberg_spark.testing import Lake, assert_rows

DAY = dt.datetime(2024, 1, 2, tzinfo=dt.timezone.utc)


@dg.asset(
    io_manager_key="iceberg",
    partitions_def=days,
    metadata={"partition_expr": "day", "iceberg/write_disposition": "append"},
)
def warmest(temperatures: pd.DataFrame) -> pd.DataFrame:
    """Find the highest temperature of the day."""
    by_day = temperatures.groupby(temperatures["at"].dt.floor("D"))
    return by_day["celsius"].max().rename_axis("day").reset_index()


def test_the_highest_temperature(lake: Lake) -> None:
    lake.given(temperatures, [{"at": DAY, "celsius": 3}, {"at": DAY, "celsius": 7}], partition="2024-01-02")
    lake.materialize(warmest, partition="2024-01-02")
    assert_rows(lake.rows(warmest), [{"day": DAY, "celsius": 7}])


def test_a_day_that_is_retried_is_there_once(lake: Lake) -> None:
    with lake.dies_after_commit():
        lake.materialize(temperatures, warmest, partition="2024-01-02")
    assert_rows(lake.rows(warmest), [{"day": DAY, "celsius": 23}])

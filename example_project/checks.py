"""Checks that run after their assets are materialized, on the same partitions. They start no JVM of their own.

The checks of staged rows read these rows, before anybody else does.
"""

import dagster as dg
import polars as pl

from dagster_iceberg_spark import build_audit_checks, build_table_checks
from example_project.assets.delays import daily_delays
from example_project.assets.observations import flights, weather
from example_project.assets.reference import planes
from example_project.partitions import airport_days, new_york_days


@dg.asset_check(asset=weather, partitions_def=airport_days, description="An airport's hour is observed at most once.")
def weather_is_hourly(weather: pl.DataFrame) -> dg.AssetCheckResult:
    """Find duplicate hours."""
    duplicates = int(weather.select("time_hour", "origin").is_duplicated().sum())
    return dg.AssetCheckResult(passed=duplicates == 0, metadata={"rows": len(weather), "duplicates": duplicates})


@dg.asset_check(
    asset=daily_delays,
    partitions_def=new_york_days,
    blocking=True,  # the release requires that it has passed
    description="No more flights are late or cancelled than were scheduled, and the weather is known.",
)
def delays_are_plausible(daily_delays: pl.DataFrame) -> dg.AssetCheckResult:
    """Compare the counts; days without weather are a warning."""
    wrong = daily_delays.filter(pl.col("late") + pl.col("cancelled") > pl.col("flights"))
    without_weather = daily_delays.filter(pl.col("max_wind").is_null())
    return dg.AssetCheckResult(
        passed=wrong.is_empty() and without_weather.is_empty(),
        severity=dg.AssetCheckSeverity.ERROR if len(wrong) else dg.AssetCheckSeverity.WARN,
        metadata={"wrong": len(wrong), "without_weather": len(without_weather)},
    )


@dg.asset_check(asset=planes, description="Every tail number is there once.")
def planes_are_unique(planes: pl.DataFrame) -> dg.AssetCheckResult:
    """Find duplicate planes."""
    duplicates = int(planes["tailnum"].is_duplicated().sum())
    return dg.AssetCheckResult(passed=duplicates == 0, metadata={"rows": len(planes), "duplicates": duplicates})


table_checks = build_table_checks([flights, weather, daily_delays, planes])
"""Compares the tables with their definitions."""
audit_checks = build_audit_checks([flights])
"""Show the audits of the flights, which ran before their rows were published."""

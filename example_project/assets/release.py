"""The day's flights and delays, published together."""

from dagster_iceberg_spark import build_release
from example_project.assets.delays import daily_delays
from example_project.assets.observations import flights

delays_release = build_release(
    "delays_release",
    [flights, daily_delays],
    group_name="delays",
    description="Publishes the days' flights and delays at one instant, after their audits and checks have passed.",
    owners=["team:analytics"],
)

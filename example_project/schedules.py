"""Jobs and their schedules."""

import dagster as dg

weather_job = dg.define_asset_job("load_weather", selection=["weather"], description="A day's weather at one airport.")
delays_job = dg.define_asset_job(
    "load_delays",
    selection=["flights", "daily_delays", "delays_release"],
    description="A day's flights, and what became of them.",
)
reference_job = dg.define_asset_job(
    "load_reference", selection=["planes", "airlines", "airports"], description="What flights refer to."
)

# The partitions end with 2013, so each tick requests its last day, once. Open-ended partitions need no other schedule.
schedules = [
    dg.build_schedule_from_partitioned_job(weather_job, hour_of_day=4),
    dg.build_schedule_from_partitioned_job(delays_job, hour_of_day=5),
    dg.ScheduleDefinition(job=reference_job, cron_schedule="0 3 * * 1", execution_timezone="America/New_York"),
]

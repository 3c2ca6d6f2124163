"""What Dagster loads: `dagster dev -m example_project.definitions`. Loading it starts no JVM."""

import dagster as dg

from example_project import assets, checks
from example_project.resources import LAKE, resources_in
from example_project.schedules import delays_job, reference_job, schedules, weather_job

defs = dg.Definitions(
    assets=dg.load_assets_from_package_module(assets),
    asset_checks=dg.load_asset_checks_from_modules([checks]),
    jobs=[weather_job, delays_job, reference_job],
    schedules=schedules,
    resources=resources_in(LAKE),
    # Dagster's default executor runs each step in its own process, and each process that uses Spark starts a JVM. That
    # costs seconds and a gigabyte of memory for each step. In one process, all steps of a run share one Spark session,
    # which uses all cores anyway. With a Spark Connect server, `IcebergSparkResource(remote=...)`, use either executor.
    executor=dg.in_process_executor,
)

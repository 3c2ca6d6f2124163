"""What Dagster loads: `dg dev -m example_project.definitions`. Loading it starts no JVM."""

import dagster as dg

from example_project import assets, checks
from example_project.maintenance import maintenance
from example_project.resources import LAKE, resources_in
from example_project.schedules import delays_job, reference_job, schedules, weather_job
from example_project.watching import closures, closures_sensor

defs = dg.Definitions(
    assets=[*dg.load_assets_from_package_module(assets), closures],
    asset_checks=[*dg.load_asset_checks_from_modules([checks]), *maintenance.checks],
    jobs=[weather_job, delays_job, reference_job, maintenance.job],
    schedules=[*schedules, maintenance.schedule],
    sensors=[closures_sensor],
    # All runs share one Spark Connect server on this machine. Without it, each run would start a JVM.
    resources=resources_in(LAKE, remote="local"),
    # Dagster's default executor starts a process for each step, which imports everything again: about two seconds.
    executor=dg.in_process_executor,
)

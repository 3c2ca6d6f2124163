"""The maintenance of the tables that grow each day."""

from dagster_iceberg_spark import build_maintenance
from example_project.assets.delays import daily_delays, monthly_carriers
from example_project.assets.observations import flights, weather

maintenance = build_maintenance([flights, weather, daily_delays, monthly_carriers])

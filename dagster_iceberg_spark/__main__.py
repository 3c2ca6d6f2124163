"""`python -m dagster_iceberg_spark`: the command line."""

from dagster_iceberg_spark.cli.app import app

app(prog_name="dagster-iceberg-spark")

"""The job that computes the routes: `example_project.assets.routes` launches it. It needs neither Dagster nor Spark."""

import polars as pl

from dagster_iceberg_spark.pipes import open_iceberg_pipes

if __name__ == "__main__":
    with open_iceberg_pipes() as lake:
        flights: pl.DataFrame = lake.read("flights", "polars.DataFrame")
        departed = flights.filter(pl.col("dep_delay").is_not_null())
        routes = departed.group_by("origin", "dest").agg(
            flights=pl.len().cast(pl.Int64), mean_delay=pl.mean("dep_delay")
        )
        lake.write(routes.sort("flights", descending=True))
        lake.pipes.log.info(f"{len(routes)} routes")

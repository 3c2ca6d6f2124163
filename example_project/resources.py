"""The Spark session, the catalog and the IO manager. To use another catalog or cluster, change only this file."""

import os
from pathlib import Path
from typing import Any

from dagster_iceberg_spark import (
    DuckLakeMirror,
    IcebergPipes,
    IcebergPySparkIOManager,
    IcebergSparkResource,
    ReattachableSubprocessClient,
    SqlCatalog,
)
from example_project.sources import NycFlights13

NAMESPACE = "nyc"
CHECKOUT = Path(__file__).parents[1]
LAKE = Path(os.environ.get("NYC_LAKE", CHECKOUT / "lake")).absolute()


def mirror_in(lake: Path) -> DuckLakeMirror:
    """Return the mirror beside the catalog: no row is copied, because its tables are derived from Iceberg's own files.

    Args:
        lake: The directory of the catalog.
    """
    return DuckLakeMirror(catalog=f"sqlite:///{lake}/mirror.ducklake", mode="register")


def resources_in(lake: Path, *, remote: str | None = None) -> dict[str, Any]:
    """Return the resources on a catalog and tables in one directory.

    Args:
        lake: The directory, which is made when something is first written.
        remote: The Spark Connect server, or None for a session in this process.
    """
    spark = IcebergSparkResource(
        catalog=SqlCatalog(name="lake", uri=f"sqlite:///{lake}/catalog.db", warehouse=str(lake / "warehouse")),
        remote=remote,
        spark_config={
            "spark.master": "local[*]",
            "spark.driver.memory": "1g",
            # A JVM with little to do is sooner done without the optimizing compiler.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.log.level": "ERROR",
            "spark.ui.enabled": "false",
            # partitions.py relies on a time zone without daylight saving time.
            "spark.sql.session.timeZone": "UTC",
            # Spark's default of 200 suits a cluster. Here it would mean 200 tasks for a few thousand rows.
            "spark.sql.shuffle.partitions": "4",
            # For tables outside any catalog. The example has none, but Spark creates the directory anyway.
            "spark.sql.warehouse.dir": str(lake / "spark-warehouse"),
        },
    )
    return {
        "spark": spark,
        "source": NycFlights13(spark=spark, cache_directory=str(lake / "source")),
        "iceberg": IcebergPySparkIOManager(spark=spark, namespace=NAMESPACE),
        "client": ReattachableSubprocessClient(cwd=str(CHECKOUT)),
        "jobs": IcebergPipes(),
        # Its tables are shown in a DuckLake too, for people who work with DuckDB.
        "iceberg_mirrored": IcebergPySparkIOManager(spark=spark, namespace=NAMESPACE, mirror=mirror_in(lake)),
    }

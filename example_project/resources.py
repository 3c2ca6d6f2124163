"""The Spark session, the catalog, the IO manager: another catalog or cluster means other values here, and no more."""

import os
from pathlib import Path
from typing import Any

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog
from example_project.sources import NycFlights13

NAMESPACE = "nyc"
CHECKOUT = Path(__file__).parents[1]
LAKE = Path(os.environ.get("NYC_LAKE", CHECKOUT / "lake")).absolute()


def resources_in(lake: Path) -> dict[str, Any]:
    """Return the resources on a catalog and tables in one directory.

    Args:
        lake: The directory, which is made when something is first written.
    """
    spark = IcebergSparkResource(
        catalog=SqlCatalog(name="lake", uri=f"sqlite:///{lake}/catalog.db", warehouse=str(lake / "warehouse")),
        spark_config={
            "spark.master": "local[*]",
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.log.level": "ERROR",
            "spark.ui.enabled": "false",
            # partitions.py counts on a time zone without summer time.
            "spark.sql.session.timeZone": "UTC",
            # 200, Spark's default, suits a cluster: here it would be 200 tasks for a few thousand rows.
            "spark.sql.shuffle.partitions": "4",
            # For tables of no catalog, which the example has none of: Spark makes the directory all the same.
            "spark.sql.warehouse.dir": str(lake / "spark-warehouse"),
        },
    )
    return {
        "spark": spark,
        "source": NycFlights13(spark=spark, cache_directory=str(lake / "source")),
        "iceberg": IcebergPySparkIOManager(spark=spark, namespace=NAMESPACE),
    }

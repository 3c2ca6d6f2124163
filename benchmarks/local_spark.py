"""The Spark session and the catalog that the benchmarks measure in."""

from pathlib import Path

from benchmarks.settings import SETTINGS
from dagster_iceberg_spark import IcebergSparkResource, SqlCatalog


def local_spark(directory: Path, **further: str) -> IcebergSparkResource:
    """Return two cores of Spark with a catalog on SQLite and local files. `further` adds to its configuration."""
    return IcebergSparkResource(
        catalog=SqlCatalog(uri=f"sqlite:///{directory}/catalog.db", warehouse=str(directory / "warehouse")),
        spark_config={**SETTINGS, **further},
    )

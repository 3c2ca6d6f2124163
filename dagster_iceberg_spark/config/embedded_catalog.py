"""The default: a catalog under the Dagster instance's storage directory."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.config.catalog import BaseCatalog
from dagster_iceberg_spark.config.sql_catalog import describe_in


class EmbeddedCatalog(BaseCatalog):
    """A SQLite catalog and local files under the Dagster instance's storage directory: nothing to configure."""

    kind: Literal["embedded"] = Field(default="embedded", description="An embedded catalog.")
    directory: str | None = Field(
        default=None,
        description="Directory of the catalog and the tables. Default: `iceberg` under the Dagster instance's storage "
        "directory.",
    )

    def describe(self, storage_directory: str) -> CatalogDescription:
        """Return the description of the catalog in that directory, which is created."""
        return describe_in(Path(self.directory or Path(storage_directory, "iceberg")).absolute(), self)

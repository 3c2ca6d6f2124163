"""The default catalog, in the Dagster instance's storage directory."""

import os
from pathlib import Path
from typing import Literal

import dagster as dg
from pydantic import Field

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.config.catalog import Catalog
from dagster_iceberg_spark.config.sql_catalog import describe_in
from dagster_iceberg_spark.errors import ConfigurationError


class EmbeddedCatalog(Catalog):
    """A SQLite catalog and local files in the Dagster instance's storage directory. It needs no configuration."""

    kind: Literal["embedded"] = Field(default="embedded", description="An embedded catalog.")
    directory: str | None = Field(
        default=None,
        description="Directory of the catalog and its tables. Default: `iceberg` in the Dagster instance's storage "
        "directory.",
    )

    def of_instance(self, storage_directory: str) -> "EmbeddedCatalog":
        """Return the catalog in its directory: `iceberg` in the instance's storage directory unless configured."""
        return self.model_copy(update={"directory": self.directory or str(Path(storage_directory, "iceberg"))})

    def describe(self) -> CatalogDescription:
        """Create the directory, and return what Spark and pyiceberg need."""
        if self.directory:
            return describe_in(Path(self.directory).absolute(), self)
        if os.environ.get("DAGSTER_HOME"):
            return self.of_instance(dg.DagsterInstance.get().storage_directory()).describe()
        raise ConfigurationError.refusing(
            "place",
            "the embedded catalog",
            expected="a Dagster instance, which has a storage directory for it",
            found="neither a run nor DAGSTER_HOME",
            hint="set DAGSTER_HOME, or `EmbeddedCatalog(directory=...)`.",
        )

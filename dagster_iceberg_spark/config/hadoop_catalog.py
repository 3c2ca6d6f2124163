"""A directory as a catalog."""

from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import Field

from dagster_iceberg_spark.catalog.description import CatalogDescription, EngineProperties
from dagster_iceberg_spark.config.catalog import BaseCatalog, make_directory
from dagster_iceberg_spark.config.uri import as_uri, scheme_of, without_password
from dagster_iceberg_spark.errors import ConfigurationError

_HADOOP_CATALOG: Final = "dagster_iceberg_spark.catalog.hadoop.HadoopCatalog"


class HadoopCatalog(BaseCatalog):
    """A directory on a local disk or HDFS, and nothing beside it: Spark writes it, pyiceberg reads it.

    Example:
        >>> HadoopCatalog(warehouse="hdfs://namenode/lake").kind
        'hadoop'
    """

    kind: Literal["hadoop"] = Field(default="hadoop", description="A directory, and nothing beside it.")
    warehouse: str = Field(
        description="Directory or URI of the tables: a local disk or HDFS, which rename in one step."
    )

    def describe(self) -> CatalogDescription:
        """Return what Spark and pyiceberg need.

        Raises:
            ConfigurationError: The warehouse is in a store that cannot rename in one step, or cannot be made.
        """
        warehouse = as_uri(self.warehouse)
        if scheme_of(warehouse) not in ("file", "hdfs", "viewfs"):
            raise ConfigurationError.refusing(
                "use",
                f"the Hadoop catalog {self.name!r}",
                expected="a `warehouse` on a local disk or HDFS, where a rename is one step",
                found=repr(without_password(self.warehouse)),
                hint="in an object store two writers would overwrite each other: use a SQL, REST or Glue catalog.",
            )
        if scheme_of(warehouse) == "file":
            make_directory(Path(urlsplit(warehouse).path), f"the Hadoop catalog {self.name!r}")
        common = {"warehouse": warehouse}
        directory = EngineProperties(
            spark={"type": "hadoop", **common}, pyiceberg={"py-catalog-impl": _HADOOP_CATALOG, **common}
        )
        return self._described(
            directory, self._store_in(warehouse), kind="Hadoop catalog", endpoint=warehouse, warehouse=warehouse
        )

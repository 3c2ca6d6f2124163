"""Tables in a directory, without a catalog service."""

from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field

from dagster_iceberg_spark.catalog.description import HADOOP_CATALOG, CatalogDescription, EngineProperties
from dagster_iceberg_spark.config.catalog import Catalog, make_directory
from dagster_iceberg_spark.config.uri import as_uri, scheme_of, without_password


class HadoopCatalog(Catalog):
    """A directory on a local disk or HDFS, without a catalog service: Spark writes it, pyiceberg reads it.

    Example:
        >>> HadoopCatalog(warehouse="hdfs://namenode/lake").kind
        'hadoop'
    """

    kind: Literal["hadoop"] = Field(default="hadoop", description="A directory, without a catalog service.")
    warehouse: str = Field(
        description="Directory or URI of the tables, on a local disk or HDFS, which rename atomically."
    )

    def describe(self) -> CatalogDescription:
        """Return what Spark and pyiceberg need."""
        warehouse = as_uri(self.warehouse)
        scheme = scheme_of(warehouse)
        if scheme not in ("file", "hdfs", "viewfs"):
            raise self._refusal(
                "a `warehouse` on a local disk or HDFS, which rename atomically",
                found=repr(without_password(self.warehouse)),
                hint="use a SQL, REST or Glue catalog: in an object store, two writers would overwrite each other.",
                kind="Hadoop catalog",
            )
        if scheme == "file":
            make_directory(Path(urlsplit(warehouse).path), f"the Hadoop catalog {self.name!r}")
        return self._described(
            EngineProperties(
                spark={"type": "hadoop", "warehouse": warehouse},
                pyiceberg={"py-catalog-impl": HADOOP_CATALOG, "warehouse": warehouse},
            ),
            kind="Hadoop catalog",
            endpoint=warehouse,
            warehouse=warehouse,
        )

"""The choice of a catalog."""

from typing import Annotated, TypeAlias

from pydantic import Field

from dagster_iceberg_spark.config.embedded_catalog import EmbeddedCatalog
from dagster_iceberg_spark.config.glue_catalog import GlueCatalog
from dagster_iceberg_spark.config.hadoop_catalog import HadoopCatalog
from dagster_iceberg_spark.config.hive_catalog import HiveCatalog
from dagster_iceberg_spark.config.in_memory_catalog import InMemoryCatalog
from dagster_iceberg_spark.config.rest_catalog import RestCatalog
from dagster_iceberg_spark.config.spark_catalog import SparkCatalogByName
from dagster_iceberg_spark.config.sql_catalog import SqlCatalog

CatalogConfig: TypeAlias = Annotated[
    EmbeddedCatalog
    | SqlCatalog
    | RestCatalog
    | GlueCatalog
    | HiveCatalog
    | HadoopCatalog
    | InMemoryCatalog
    | SparkCatalogByName,
    Field(discriminator="kind"),
]

"""Spark's and pyiceberg's properties for a Hadoop store."""

from typing import Any

import pytest

from dagster_iceberg_spark import HadoopStore, SqlCatalog
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.config.catalog import StoreConfig
from dagster_iceberg_spark.versions import SQLITE_JDBC


def described(warehouse: str, store: StoreConfig, **fields: Any) -> CatalogDescription:
    return SqlCatalog(uri="sqlite:////tmp/lake.db", warehouse=warehouse, store=store, **fields).describe()


def without(properties: Any) -> dict[str, Any]:
    """The properties without those of the catalog itself."""
    return {key: value for key, value in properties.items() if key not in ("type", "uri", "warehouse")}


@pytest.mark.parametrize("warehouse", ["hdfs://namenode/wh", "viewfs://cluster/wh", "s3a://lake/wh", "/tmp/wh"])
def test_a_hadoop_store_uses_hadoop_s_clients(warehouse: str) -> None:
    description = described(warehouse, HadoopStore())
    assert description.spark_properties["io-impl"] == "org.apache.iceberg.hadoop.HadoopFileIO"
    assert (description.packages, description.aws) == ((SQLITE_JDBC,), None)
    assert description.is_local == warehouse.startswith("/")


def test_every_hadoop_field_reaches_an_engine() -> None:
    fields: dict[str, Any] = {"configuration": {"dfs.nameservices": "lake", "fs.azure.sas.lake.account": "hush"}}
    assert {"kind", *fields} == set(HadoopStore.model_fields)
    description = described("hdfs:///wh", HadoopStore(**fields))
    assert description.spark_properties["hadoop.dfs.nameservices"] == "lake"
    assert description.spark_secrets == {"hadoop.fs.azure.sas.lake.account": "hush"}
    assert without(description.pyiceberg_properties) == {
        "py-io-impl": "dagster_iceberg_spark.catalog.clients.hadoop.HdfsFileIO",
        "hadoop.dfs.nameservices": "lake",
        "hadoop.fs.azure.sas.lake.account": "hush",
    }
    assert "hush" not in f"{description!r}{HadoopStore(**fields)!r}{description.redact('hush')}"

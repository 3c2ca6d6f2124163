"""What stores on Google's cloud and on Hadoop say to Spark and to pyiceberg."""

import re
from typing import Any

import pytest

from dagster_iceberg_spark import ConfigurationError, GcsStore, HadoopStore, SqlCatalog
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.config.stores import StoreConfig
from dagster_iceberg_spark.versions import ICEBERG_GCP_BUNDLE, SQLITE_JDBC


def described(warehouse: str, store: StoreConfig, **fields: Any) -> CatalogDescription:
    return SqlCatalog(uri="sqlite:////tmp/lake.db", warehouse=warehouse, store=store, **fields).describe()


def without(properties: Any) -> dict[str, Any]:
    """The properties without those of the catalog itself."""
    return {key: value for key, value in properties.items() if key not in ("type", "uri", "warehouse")}


def test_gcs_is_opened_with_iceberg_s_client_and_google_s_default_chain() -> None:
    description = described("gs://lake/wh", GcsStore())
    assert description.spark_properties["io-impl"] == "org.apache.iceberg.gcp.gcs.GCSFileIO"
    assert without(description.pyiceberg_properties) == {}
    assert (description.packages, description.spark_secrets) == ((SQLITE_JDBC, ICEBERG_GCP_BUNDLE), {})
    assert not description.is_local


def test_every_field_of_gcs_reaches_both_engines() -> None:
    fields = {"project_id": "p", "token": "hush", "endpoint": "http://127.0.0.1:4443/"}
    assert {"kind", *fields} == set(GcsStore.model_fields)
    description = described("gs://lake/wh", GcsStore(**fields))  # type: ignore[arg-type]
    common = {"gcs.project-id": "p", "gcs.service.host": "http://127.0.0.1:4443"}
    secret = {"gcs.oauth2.token": "hush"}
    assert description.spark_properties.items() >= common.items()
    assert description.spark_secrets == secret
    expiry = {"gcs.oauth2.token-expires-at": "4102444800000"}
    assert without(description.pyiceberg_properties) == {**common, **expiry, **secret}
    assert "hush" not in f"{description!r}{description.spark_properties}{description.redact('hush')}"


@pytest.mark.parametrize("warehouse", ["hdfs://namenode/wh", "viewfs://cluster/wh", "s3a://lake/wh", "/tmp/wh"])
def test_hadoop_opens_what_it_has_a_client_for(warehouse: str) -> None:
    description = described(warehouse, HadoopStore())
    assert description.spark_properties["io-impl"] == "org.apache.iceberg.hadoop.HadoopFileIO"
    assert (description.packages, description.aws) == ((SQLITE_JDBC,), None)
    assert description.is_local == warehouse.startswith("/")


def test_every_field_of_hadoop_reaches_an_engine() -> None:
    fields: dict[str, Any] = {
        "configuration": {"dfs.nameservices": "lake", "fs.azure.sas.lake.account": "hush"},
    }
    assert {"kind", *fields} == set(HadoopStore.model_fields)
    description = described("hdfs:///wh", HadoopStore(**fields))
    assert description.spark_properties["hadoop.dfs.nameservices"] == "lake"
    assert description.spark_secrets == {"hadoop.fs.azure.sas.lake.account": "hush"}
    assert without(description.pyiceberg_properties) == {
        "py-io-impl": "dagster_iceberg_spark.catalog.hdfs.HdfsFileIO",
        "hadoop.dfs.nameservices": "lake",
        "hadoop.fs.azure.sas.lake.account": "hush",
    }
    assert "hush" not in f"{description!r}{HadoopStore(**fields)!r}{description.redact('hush')}"


@pytest.mark.parametrize(
    ("warehouse", "store", "expected"),
    [
        ("s3://lake/wh", GcsStore(), "a `warehouse` that is a URI of gs where `store` is GcsStore"),
        ("s3://lake/wh", HadoopStore(), "a `warehouse` that is a URI of hdfs or viewfs or file"),
    ],
)
def test_a_store_that_does_not_fit_is_refused(warehouse: str, store: StoreConfig, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        described(warehouse, store)


@pytest.mark.parametrize("store", [GcsStore(), HadoopStore()])
def test_a_property_that_the_store_sets_is_refused(store: StoreConfig) -> None:
    with pytest.raises(ConfigurationError, match="found 'io-impl'"):
        described("gs://lake/wh", store, properties={"io-impl": "com.example.Theirs"})

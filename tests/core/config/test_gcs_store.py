"""Spark's and pyiceberg's properties for a store on Google Cloud."""

from typing import Any

from dagster_iceberg_spark import GcsStore, SqlCatalog
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.config.catalog import StoreConfig
from dagster_iceberg_spark.versions import ICEBERG_GCP_BUNDLE, SQLITE_JDBC


def described(warehouse: str, store: StoreConfig, **fields: Any) -> CatalogDescription:
    return SqlCatalog(uri="sqlite:////tmp/lake.db", warehouse=warehouse, store=store, **fields).describe()


def without(properties: Any) -> dict[str, Any]:
    """The properties without those of the catalog itself."""
    return {key: value for key, value in properties.items() if key not in ("type", "uri", "warehouse")}


def test_gcs_uses_iceberg_s_client_and_google_s_default_credentials() -> None:
    description = described("gs://lake/wh", GcsStore())
    assert description.spark_properties["io-impl"] == "org.apache.iceberg.gcp.gcs.GCSFileIO"
    assert without(description.pyiceberg_properties) == {}
    assert (description.packages, description.spark_secrets) == ((SQLITE_JDBC, ICEBERG_GCP_BUNDLE), {})
    assert not description.is_local


def test_every_gcs_field_reaches_both_engines() -> None:
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

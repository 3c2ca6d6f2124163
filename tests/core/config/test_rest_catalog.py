"""Spark's and pyiceberg's properties for a REST catalog."""

from pathlib import Path

import pytest

from dagster_iceberg_spark.config.rest_catalog import RestCatalog
from dagster_iceberg_spark.errors import ConfigurationError
from tests.servers.authority import Authority


@pytest.mark.parametrize("key", ["token", "credential", "jdbc.PASSWORD", "s3.access-key-id", "s3.secret-access-key"])
def test_a_property_that_may_hold_a_secret_is_treated_as_a_secret(key: str) -> None:
    description = RestCatalog(uri="http://h", properties={key: "hunter2"}).describe()
    assert key not in description.spark_properties
    assert (description.spark_secrets, description.secrets) == ({key: "hunter2"}, ("hunter2",))


@pytest.mark.parametrize(
    ("uri", "host", "warehouse"),
    [
        ("https://catalog.example.com/api", ("catalog.example.com", 443), None),
        ("http://127.0.0.1:8181", ("127.0.0.1", 8181), "lake"),
        ("http://[::1]", ("::1", 80), None),
    ],
)
def test_a_rest_catalog_reaches_both_engines(uri: str, host: tuple[str, int], warehouse: str | None) -> None:
    description = RestCatalog(uri=uri, warehouse=warehouse, properties={"header.x": "y"}).describe()
    common = {"type": "rest", "uri": uri, "header.x": "y", **({"warehouse": warehouse} if warehouse else {})}
    timeouts = {"rest.client.connection-timeout-ms": "10000", "rest.client.socket-timeout-ms": "60000"}
    assert description.spark_properties == {**common, **timeouts}
    assert description.pyiceberg_properties == {**common, "header.X-Iceberg-Access-Delegation": None}
    assert (description.host, description.warehouse, description.packages) == (host, None, ())


def test_a_password_in_a_custom_property_is_a_secret() -> None:
    properties = {"http.proxy": "http://me:hunter2@proxy"}
    assert RestCatalog(uri="http://h", properties=properties).describe().spark_secrets == properties


def test_no_secret_of_a_rest_catalog_is_shown() -> None:
    catalog = RestCatalog(uri="https://h", properties={"credential": "a:hunter2"})
    assert "hunter2" not in repr(catalog) + str(catalog) + repr(catalog.describe())


def test_credentials_in_a_rest_uri_are_refused_without_showing_them() -> None:
    with pytest.raises(ConfigurationError) as caught:
        RestCatalog(uri="https://u:hunter2@h").describe()
    assert "hunter2" not in str(caught.value)


def test_a_private_certificate_authority_reaches_pyiceberg(tmp_path: Path) -> None:
    bundle = Authority(tmp_path).bundle
    description = RestCatalog(uri="https://h", ca_bundle=str(bundle)).describe()
    assert description.pyiceberg_properties["ssl"] == {"cabundle": str(bundle)}
    assert "ssl" not in RestCatalog(uri="https://h").describe().pyiceberg_properties


@pytest.mark.parametrize(("content", "found"), [(None, "No such file"), ("", "no certificate"), ("no PEM", "no cert")])
def test_a_bundle_without_certificates_is_refused(content: str | None, found: str, tmp_path: Path) -> None:
    bundle = tmp_path / "authority.pem"
    if content is not None:
        bundle.write_text(content)
    with pytest.raises(ConfigurationError, match=f"a PEM file with certificates at `ca_bundle`, found .*{found}"):
        RestCatalog(uri="https://h", ca_bundle=str(bundle)).describe()

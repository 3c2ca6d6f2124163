"""From the options of the command line to a resource."""

from typing import Any

import pytest

from dagster_iceberg_spark import IcebergSparkResource, OAuth2, RestCatalog, S3Store, SqlCatalog
from dagster_iceberg_spark.cli.code_location import assignments, resource_of
from dagster_iceberg_spark.errors import ConfigurationError


def made(*spark_config: str, remote: str | None = None, **catalog: str) -> IcebergSparkResource:
    fields = {name.replace("__", "."): value for name, value in catalog.items()}
    return resource_of(catalog=fields, spark_config=spark_config, remote=remote, jars="maven")


def test_options_name_the_kind_of_the_catalog_and_its_fields() -> None:
    resource = made("spark.a=1", "spark.b=x=y", kind="sql", uri="sqlite:////c.db", warehouse="/wh")
    assert isinstance(resource.catalog, SqlCatalog)
    assert resource.catalog.warehouse == "/wh"
    assert resource.spark_config == {"spark.a": "1", "spark.b": "x=y"}


def test_dotted_paths_reach_into_parts_that_have_a_kind() -> None:
    resource = made(
        kind="rest",
        uri="http://c",
        authentication__kind="oauth2",
        authentication__client_id="id",
        authentication__client_secret="secret",
        store__kind="s3",
        store__region="eu",
    )
    assert isinstance(resource.catalog, RestCatalog)
    assert isinstance(resource.catalog.authentication, OAuth2)
    assert isinstance(resource.catalog.store, S3Store)
    assert resource.catalog.store.region == "eu"


def test_the_name_of_a_property_has_dots_of_its_own() -> None:
    resource = made(kind="sql", uri="sqlite:////c.db", warehouse="/wh", properties__a__b="1")
    assert isinstance(resource.catalog, SqlCatalog)
    assert resource.catalog.properties == {"a.b": "1"}


def test_a_secret_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_CREDENTIAL", "s3cret")
    oauth2 = {"kind": "oauth2", "client_id": "id", "client_secret": "env:LAKE_CREDENTIAL"}
    fields = {f"authentication__{name}": value for name, value in oauth2.items()}
    resource = made(kind="rest", uri="http://c", **fields)
    assert isinstance(resource.catalog, RestCatalog)
    assert isinstance(resource.catalog.authentication, OAuth2)
    assert resource.catalog.authentication.client_secret == "s3cret"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "sql", "uri": "env:NOT_SET_ANYWHERE"}, r"an environment variable NOT_SET_ANYWHERE, found none"),
        ({"kind": "rest", "uri": "http://c", "store__region": "eu"}, r"without its `kind`"),
        ({"kind": "sql", "uri": "sqlite:////c.db"}, r"warehouse"),
    ],
)
def test_options_that_do_not_fit_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        made(**fields)


@pytest.mark.parametrize("text", ["spark.master", "=local"])
def test_an_assignment_has_a_name_and_a_value(text: str) -> None:
    with pytest.raises(ConfigurationError, match="expected name=value"):
        assignments([text], flag="--spark-config")

"""Spark's and pyiceberg's properties for each kind of authentication."""

from typing import Any

import pytest

from dagster_iceberg_spark import (
    AwsCredentials,
    BasicAuthentication,
    BearerToken,
    ConfigurationError,
    OAuth2,
    RestCatalog,
    S3Store,
    SigV4,
)
from dagster_iceberg_spark.catalog.description import AwsIdentity, CatalogDescription
from dagster_iceberg_spark.config.rest_catalog import NoAuthentication
from dagster_iceberg_spark.versions import ICEBERG_AWS_BUNDLE

KEYS = AwsCredentials(access_key_id="AKIAEXAMPLE", secret_access_key="hushhush")


def described(login: Any, **fields: Any) -> CatalogDescription:
    return RestCatalog(uri="https://h/api/", authentication=login, **fields).describe()


def test_client_credentials_are_sent_to_the_catalog_s_token_endpoint() -> None:
    description = described(OAuth2(client_id="me", client_secret="hushhush"))
    asked = {"oauth2-server-uri": "https://h/api/v1/oauth/tokens", "scope": "catalog"}
    assert description.spark_properties.items() >= {**asked, "token-exchange-enabled": "false"}.items()
    assert description.spark_secrets == {"credential": "me:hushhush"}
    assert description.pyiceberg_properties.items() >= {**asked, "credential": "me:hushhush"}.items()
    assert description.redact("hushhush") == "********"


def test_client_credentials_may_be_sent_to_another_server() -> None:
    login = OAuth2(
        client_id="me", client_secret="hushhush", server_uri="https://id/token", scope="s", audience="a", resource="r"
    )
    asked = {"oauth2-server-uri": "https://id/token", "scope": "s", "audience": "a", "resource": "r"}
    description = described(login)
    assert description.spark_properties.items() >= asked.items()
    assert description.pyiceberg_properties.items() >= asked.items()


def test_a_token_is_sent_unchanged() -> None:
    description = described(BearerToken(token="hushhush"))
    assert description.spark_secrets == {"token": "hushhush"}
    assert description.spark_properties["token-refresh-enabled"] == "false"
    assert description.pyiceberg_properties["token"] == "hushhush"


def test_username_and_password_reach_both_engines() -> None:
    description = described(BasicAuthentication(username="me", password="hushhush"))
    assert description.spark_properties["rest.auth.basic.username"] == "me"
    assert description.spark_secrets == {"rest.auth.basic.password": "hushhush"}
    assert description.pyiceberg_properties["auth"] == {
        "type": "basic",
        "basic": {"username": "me", "password": "hushhush"},
    }
    assert "hushhush" not in repr(description)


def test_requests_can_be_signed_with_sigv4() -> None:
    description = described(SigV4(region="eu-west-1", service="glue"))
    signing = {"rest.signing-region": "eu-west-1", "rest.signing-name": "glue"}
    assert description.spark_properties.items() >= {**signing, "rest.auth.type": "sigv4"}.items()
    assert description.pyiceberg_properties.items() >= {**signing, "rest.sigv4-enabled": "true"}.items()
    assert (description.packages, description.aws) == ((ICEBERG_AWS_BUNDLE,), AwsIdentity())
    given = described(SigV4(region="eu-west-1", credentials=KEYS))
    assert given.spark_secrets == {"rest.access-key-id": "AKIAEXAMPLE", "rest.secret-access-key": "hushhush"}


def test_the_catalog_s_aws_credentials_also_apply_to_its_store() -> None:
    assert described(SigV4(credentials=KEYS), store=S3Store()).spark_secrets["s3.access-key-id"] == "AKIAEXAMPLE"
    role = AwsCredentials(role_arn="arn:aws:iam::1:role/lake")
    for other in (KEYS, AwsCredentials(profile="other")):
        with pytest.raises(ConfigurationError, match="one identity that signs for the catalog and for its store"):
            described(SigV4(credentials=role), store=S3Store(credentials=other))
    vended = described(SigV4(credentials=role), store=S3Store(), access_delegation="vended-credentials")
    assert vended.aws == AwsIdentity(role_arn="arn:aws:iam::1:role/lake")


def test_the_store_has_the_catalog_s_region_unless_it_sets_its_own() -> None:
    assert described(SigV4(region="eu-west-1"), store=S3Store()).spark_properties["client.region"] == "eu-west-1"
    elsewhere = described(SigV4(region="eu-west-1"), store=S3Store(region="us-east-1")).spark_properties
    assert (elsewhere["rest.signing-region"], elsewhere["client.region"]) == ("eu-west-1", "us-east-1")


def test_a_store_with_keys_does_not_request_vended_credentials() -> None:
    header = "header.X-Iceberg-Access-Delegation"
    description = described(NoAuthentication(), store=S3Store(credentials=KEYS))
    assert header not in description.spark_properties
    assert description.pyiceberg_properties[header] is None, (
        "the header that pyiceberg would send by default is removed"
    )


def test_headers_and_prefix_reach_both_engines() -> None:
    description = RestCatalog(uri="https://h", prefix="p", headers={"Realm": "lake", "X-Token": "hushhush"}).describe()
    assert description.spark_properties.items() >= {"prefix": "p", "header.Realm": "lake"}.items()
    assert description.spark_secrets == {"header.X-Token": "hushhush"}
    shown = {"prefix": "p", "header.Realm": "lake", "header.X-Token": "hushhush"}
    assert description.pyiceberg_properties.items() >= shown.items()


def test_a_property_that_a_login_sets_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="found 'token'"):
        described(BearerToken(token="hushhush"), properties={"token": "x"})


PRESETS = [
    (
        RestCatalog.polaris("https://p/api/catalog", catalog="lake", client_id="me", client_secret="hushhush"),
        {"warehouse": "lake", "scope": "PRINCIPAL_ROLE:ALL"},
    ),
    (RestCatalog.nessie("http://n:19120/iceberg", warehouse="lake"), {"warehouse": "lake"}),
    (
        RestCatalog.lakekeeper(
            "https://l/catalog", warehouse="lake", client_id="me", client_secret="hushhush", server_uri="https://id/t"
        ),
        {"warehouse": "lake", "oauth2-server-uri": "https://id/t", "scope": "lakekeeper"},
    ),
    (
        RestCatalog.unity("https://w/api/2.1/unity-catalog/iceberg-rest", catalog="main", token="hushhush"),
        {"warehouse": "main", "rest.auth.type": "oauth2"},
    ),
    (
        RestCatalog.glue(region="eu-west-1", account_id="123456789012"),
        {
            "uri": "https://glue.eu-west-1.amazonaws.com/iceberg",
            "warehouse": "123456789012",
            "rest.signing-name": "glue",
            "rest.signing-region": "eu-west-1",
            "client.region": "eu-west-1",
        },
    ),
    (
        RestCatalog.s3_tables(region="eu-west-1", table_bucket="arn:aws:s3tables:eu-west-1:1:bucket/lake"),
        {
            "uri": "https://s3tables.eu-west-1.amazonaws.com/iceberg",
            "warehouse": "arn:aws:s3tables:eu-west-1:1:bucket/lake",
            "rest.signing-name": "s3tables",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        },
    ),
]


@pytest.mark.parametrize(
    ("catalog", "properties"), PRESETS, ids=["polaris", "nessie", "lakekeeper", "unity", "glue", "s3"]
)
def test_a_preset_sets_what_its_service_needs(catalog: RestCatalog, properties: dict[str, str]) -> None:
    assert catalog.describe().spark_properties.items() >= properties.items()


@pytest.mark.parametrize(("catalog", "_"), PRESETS[:4], ids=["polaris", "nessie", "lakekeeper", "unity"])
def test_a_preset_lets_the_catalog_vend_credentials(catalog: RestCatalog, _: Any) -> None:
    description = catalog.model_copy(update={"store": S3Store(region="eu-west-1")}).describe()
    header = {"header.X-Iceberg-Access-Delegation": "vended-credentials"}
    assert description.spark_properties.items() >= header.items()
    assert description.pyiceberg_properties.items() >= header.items()
    assert description.aws is None


def test_a_field_given_to_a_preset_overrides_it() -> None:
    catalog = RestCatalog.nessie("http://n/iceberg", authentication=BearerToken(token="hushhush"), name="other")
    assert (catalog.name, catalog.describe().spark_secrets) == ("other", {"token": "hushhush"})

"""Spark's and pyiceberg's properties for a store on S3, and its credentials."""

import re
from typing import Any

import pytest

from dagster_iceberg_spark import AwsCredentials, ConfigurationError, S3Store, SqlCatalog
from dagster_iceberg_spark.catalog.description import AwsIdentity, AwsKeys, CatalogDescription
from dagster_iceberg_spark.versions import ICEBERG_AWS_BUNDLE, SQLITE_JDBC

KEYS = {"access_key_id": "AKIAEXAMPLE", "secret_access_key": "hushhush"}


def described(warehouse: str = "s3://lake/wh", **fields: Any) -> CatalogDescription:
    return SqlCatalog(uri="sqlite:////tmp/lake.db", warehouse=warehouse, **fields).describe()


@pytest.mark.parametrize(
    ("warehouse", "fields"),
    [("s3://lake/wh", {}), ("s3a://lake/wh", {"store": S3Store()}), ("s3n://lake/wh", {"store": S3Store()})],
)
def test_s3_uses_iceberg_s_client(warehouse: str, fields: dict[str, Any]) -> None:
    description = described(warehouse, **fields)
    assert description.spark_properties["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert (description.packages, description.aws) == ((SQLITE_JDBC, ICEBERG_AWS_BUNDLE), AwsIdentity())


def test_properties_override_what_the_warehouse_s_scheme_implies() -> None:
    theirs = described(properties={"io-impl": "com.example.Theirs", "s3.endpoint": "http://h"})
    assert theirs.spark_properties["io-impl"] == "com.example.Theirs"
    assert (theirs.packages, theirs.aws) == ((SQLITE_JDBC,), None)
    keys = described(properties={"s3.access-key-id": "AKIAEXAMPLE", "s3.secret-access-key": "hushhush"})
    assert (keys.aws, keys.spark_secrets["s3.secret-access-key"]) == (None, "hushhush")


@pytest.mark.parametrize("warehouse", ["/tmp/wh", "file:///tmp/wh", "hdfs://namenode/wh", "gs://lake/wh", "s3a://l/w"])
def test_other_schemes_are_left_to_the_environment(warehouse: str) -> None:
    description = described(warehouse)
    assert "io-impl" not in description.spark_properties
    assert (description.packages, description.aws) == ((SQLITE_JDBC,), None)


@pytest.mark.parametrize(
    ("warehouse", "fields", "found"),
    [
        ("htps://lake/wh", {}, "found 'htps://lake/wh'"),
        ("gs://lake/wh", {"store": S3Store()}, "where `store` is S3Store, found 'gs://lake/wh'"),
        ("/tmp/wh", {"store": S3Store()}, "where `store` is S3Store, found 'file:///tmp/wh'"),
        ("s3://lake", {"store": S3Store(kms_key_id="k")}, "where `kms_key_id` is set, found 'default'"),
    ],
)
def test_an_unsuitable_store_is_refused(warehouse: str, fields: dict[str, Any], found: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(found)):
        described(warehouse, **fields)


def test_an_s3_compatible_service_reaches_both_engines() -> None:
    store = S3Store(endpoint="http://127.0.0.1:9000", path_style_access=True, region="eu-west-1")
    description = described(store=store)
    common = {"s3.endpoint": "http://127.0.0.1:9000", "client.region": "eu-west-1"}
    assert description.spark_properties.items() >= {**common, "s3.path-style-access": "true"}.items()
    assert description.pyiceberg_properties.items() >= common.items()
    assert "s3.force-virtual-addressing" not in description.pyiceberg_properties
    virtual = described(store=store.model_copy(update={"path_style_access": False}))
    assert virtual.pyiceberg_properties["s3.force-virtual-addressing"] == "true"
    assert "s3.path-style-access" not in virtual.spark_properties


def test_encryption_is_set_for_spark() -> None:
    description = described(store=S3Store(encryption="kms", kms_key_id="arn:aws:kms:x"))
    assert description.spark_properties.items() >= {"s3.sse.type": "kms", "s3.sse.key": "arn:aws:kms:x"}.items()


def test_given_keys_reach_both_engines_and_are_never_shown() -> None:
    store = S3Store(credentials=AwsCredentials(**KEYS, session_token="hushtoken"))
    description = described(store=store)
    secrets = {"s3.access-key-id": "AKIAEXAMPLE", "s3.secret-access-key": "hushhush", "s3.session-token": "hushtoken"}
    assert description.spark_secrets == secrets
    assert description.pyiceberg_properties.items() >= secrets.items()
    assert "hush" not in repr(description) + str(description.spark_properties) + repr(store)
    assert description.redact("AKIAEXAMPLE hushhush hushtoken") == "******** ******** ********"


def test_keys_with_a_role_are_only_used_to_assume_it() -> None:
    given = AwsCredentials(**KEYS, role_arn="arn:aws:iam::1:role/lake", external_id="x7", role_session_name="dagster")
    description = described(store=S3Store(credentials=given))
    assert description.spark_secrets == {}
    assert description.aws == AwsIdentity(
        keys=AwsKeys("AKIAEXAMPLE", "hushhush"),
        role_arn="arn:aws:iam::1:role/lake",
        external_id="x7",
        role_session_name="dagster",
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"access_key_id": "a"}, "expected both keys or neither, found `access_key_id`"),
        ({"session_token": "t"}, "expected `session_token` with its keys, found `session_token`"),
        ({**KEYS, "profile": "p"}, "expected either keys or a `profile`"),
        ({"external_id": "x"}, "expected the role's `role_arn`, found `external_id`"),
    ],
)
def test_incomplete_credentials_are_refused(fields: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        described(store=S3Store(credentials=AwsCredentials(**fields)))


def test_a_store_with_vended_credentials_needs_no_identity() -> None:
    properties = S3Store(endpoint="http://h").describe(is_vended=True)
    assert (properties.aws, properties.spark_secrets) == (None, {})
    assert properties.pyiceberg["client.region"] == "us-east-1"
    assert S3Store(credentials=AwsCredentials(**KEYS)).describe(is_vended=True).spark_secrets


def test_the_identity_of_a_catalog_includes_its_credentials() -> None:
    others = [described(), described(store=S3Store(credentials=AwsCredentials(profile="other")))]
    assert len({item.identity for item in others}) == 2

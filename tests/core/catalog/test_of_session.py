"""Turning a session's configuration of a catalog into pyiceberg's."""

from typing import Any

import pytest

from dagster_iceberg_spark import SparkCatalogByName
from dagster_iceberg_spark.catalog.description import HDFS_FILE_IO, CatalogDescription
from dagster_iceberg_spark.catalog.of_session import resolve
from dagster_iceberg_spark.errors import ConfigurationError

S3 = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.endpoint": "http://s3:9000", "client.region": "eu-west-1"}
GLUE = {"type": "glue", "warehouse": "s3://lake", "glue.id": "1"}
KEYS = {"s3.access-key-id": "AKIA", "s3.secret-access-key": "hunter2"}


def resolved(conf: dict[str, str], **properties: str) -> CatalogDescription:
    named = SparkCatalogByName(name="prod", properties=properties).describe()
    catalog = {"": "org.apache.iceberg.spark.SparkCatalog", **{f".{key}": value for key, value in conf.items()}}
    return resolve(
        named, {"spark.master": "local", **{f"spark.sql.catalog.prod{key}": catalog[key] for key in catalog}}
    )


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        (
            {"type": "rest", "uri": "http://rest:8181", "warehouse": "lake", "credential": "a:hunter2", "scope": "x"},
            {
                "type": "rest",
                "uri": "http://rest:8181",
                "warehouse": "lake",
                "credential": "a:hunter2",
                "scope": "x",
                "header.X-Iceberg-Access-Delegation": None,
            },
        ),
        (
            {"type": "rest", "uri": "http://r", "header.X-Iceberg-Access-Delegation": "vended-credentials"},
            {"type": "rest", "uri": "http://r", "header.X-Iceberg-Access-Delegation": "vended-credentials"},
        ),
        (
            {
                "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
                "uri": "jdbc:sqlite:/d/c.db?busy_timeout=1",
                "warehouse": "/d",
            },
            {"type": "sql", "uri": "sqlite:////d/c.db?timeout=60", "warehouse": "/d"},
        ),
        (
            {
                "type": "jdbc",
                "uri": "jdbc:postgresql://db:5433/lake?loginTimeout=3&sslmode=require",
                "jdbc.user": "u",
                "jdbc.password": "p@ss",
                "warehouse": "s3://lake",
                **S3,
                **KEYS,
            },
            {
                "type": "sql",
                "uri": "postgresql+psycopg2://u:p%40ss@db:5433/lake?sslmode=require",
                "pool_pre_ping": "true",
                "warehouse": "s3://lake",
                "s3.endpoint": "http://s3:9000",
                "client.region": "eu-west-1",
                **KEYS,
            },
        ),
        (
            {"type": "glue", "warehouse": "s3://lake", "glue.id": "1"},
            {"type": "glue", "warehouse": "s3://lake", "glue.id": "1"},
        ),
        (
            {"type": "hive", "uri": "thrift://a:9083,thrift://b", "warehouse": "hdfs://n/lake"},
            {
                "py-catalog-impl": "dagster_iceberg_spark.catalog.clients.hive.HiveCatalog",
                "uri": "thrift://a:9083,thrift://b",
                "hive.hive2-compatible": "true",
                "warehouse": "hdfs://n/lake",
                "py-io-impl": HDFS_FILE_IO,
            },
        ),
        (
            {"type": "hadoop", "warehouse": "hdfs://n/lake"},
            {
                "py-catalog-impl": "dagster_iceberg_spark.catalog.clients.hadoop.HadoopCatalog",
                "warehouse": "hdfs://n/lake",
                "py-io-impl": HDFS_FILE_IO,
            },
        ),
    ],
)
def test_each_kind_of_catalog_is_opened_by_pyiceberg_too(conf: dict[str, str], expected: dict[str, Any]) -> None:
    assert resolved(conf).pyiceberg_properties == expected


def test_every_address_of_a_metastore_is_used() -> None:
    description = resolved({"type": "hive", "uri": "thrift://a:9084,thrift://b"})
    assert (description.host, description.other_hosts) == (("a", 9084), (("b", 9083),))
    assert description.is_hive


def test_explicit_properties_override_the_session_s() -> None:
    assert (
        resolved({"type": "rest", "uri": "http://inside"}, uri="http://outside").pyiceberg_properties["uri"]
        == "http://outside"
    )


def test_secrets_of_the_session_are_redacted() -> None:
    description = resolved(
        {"type": "jdbc", "uri": "jdbc:postgresql://db/lake", "jdbc.user": "u", "jdbc.password": "hunter2"}
    )
    assert "hunter2" not in repr(description)
    assert description.redact("no hunter2 here") == "no ******** here"
    assert description.host == ("db", 5432)


def test_keys_missing_in_the_session_are_found_by_boto3() -> None:
    assert resolved({"type": "glue", "warehouse": "s3://lake", **S3}).aws is not None
    assert resolved({"type": "glue", "warehouse": "s3://lake", **S3, **KEYS}).aws is None


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"catalog-impl": "com.example.Catalog"}, "'com.example.Catalog'"),
        ({"type": "jdbc", "uri": "jdbc:oracle:thin:@db"}, "one of oracle"),
    ],
)
def test_a_catalog_that_pyiceberg_lacks_is_refused(conf: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        resolved(conf)


def test_properties_can_replace_a_catalog_that_pyiceberg_lacks() -> None:
    description = resolved({"catalog-impl": "com.example.Catalog"}, type="rest", uri="http://r")
    assert description.pyiceberg_properties == {"type": "rest", "uri": "http://r"}


def test_a_missing_catalog_is_named_with_the_session_s_catalogs() -> None:
    named = SparkCatalogByName(name="prod").describe()
    conf = {"spark.sql.catalog.lake": "x", "spark.sql.catalog.lake.uri": "y"}
    with pytest.raises(ConfigurationError, match="found the catalogs lake"):
        resolve(named, conf)


def test_a_password_in_a_jdbc_uri_is_redacted_encoded_and_decoded() -> None:
    description = resolved({"type": "jdbc", "uri": "jdbc:postgresql://db/lake?user=u&password=p@ss%2Fw"})
    assert "p@ss" not in repr(description)
    for spelling in ("p@ss%2Fw", "p@ss/w", "p%40ss%2Fw"):
        assert spelling not in description.redact(f"FATAL: {spelling} is wrong")


def test_s3_keys_are_found_by_boto3_unless_the_rest_catalog_vends_them() -> None:
    rest = {"type": "rest", "uri": "http://r", **S3}
    assert resolved(rest).aws is not None
    assert resolved({**rest, "header.X-Iceberg-Access-Delegation": "vended-credentials"}).aws is None


def test_the_cluster_s_metastore_is_found_in_the_session_s_configuration() -> None:
    named, conf = (
        SparkCatalogByName(name="prod"),
        {"spark.sql.catalog.prod": "x", "spark.sql.catalog.prod.type": "hive"},
    )
    with pytest.raises(ConfigurationError, match="thrift://host:9083"):
        resolve(named.describe(), conf)
    known = resolve(named.describe(), {**conf, "spark.hadoop.hive.metastore.uris": "thrift://m1:1,thrift://m2:2"})
    assert (known.host, known.other_hosts) == (("m1", 1), (("m2", 2),))

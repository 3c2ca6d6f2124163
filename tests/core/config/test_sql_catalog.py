"""Spark's and pyiceberg's properties for a SQL catalog."""

from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.config.sql_catalog import SqlCatalog
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.versions import ICEBERG_AWS_BUNDLE, MYSQL_JDBC, POSTGRESQL_JDBC, SQLITE_JDBC

PASSWORD = "p@ss:w/rd"
POSTGRES = f"postgresql://iceberg:{quote(PASSWORD, safe='')}@db.example.com:6543/lake"


def postgres(uri: str = POSTGRES, **fields: Any) -> CatalogDescription:
    return SqlCatalog(uri=uri, warehouse="s3://lake/wh", **fields).describe()


def test_sqlite_reaches_both_engines(tmp_path: Path) -> None:
    path = tmp_path / "new" / "catalog.db"
    description = SqlCatalog(
        name="mine", uri=f"sqlite:///{path}", warehouse=str(tmp_path / "wh"), properties={"a": "b"}
    ).describe()
    assert description.spark_properties == {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{path}?busy_timeout=60000",
        "warehouse": f"file://{tmp_path}/wh",
        "jdbc.schema-version": "V1",
        "a": "b",
    }
    assert description.pyiceberg_properties == {
        "type": "sql",
        "uri": f"sqlite:///{path}?timeout=60",
        "warehouse": f"file://{tmp_path}/wh",
        "a": "b",
    }
    assert (description.packages, description.host, description.secrets) == ((SQLITE_JDBC,), None, ())
    assert str(description) == f"SQLite catalog 'mine' at {path}"
    assert path.parent.is_dir()


def test_paths_stay_the_same_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    description = SqlCatalog(uri="sqlite:///lake/catalog.db", warehouse="lake/wh").describe()
    assert description.endpoint == f"{tmp_path}/lake/catalog.db"
    assert description.warehouse == f"file://{tmp_path}/lake/wh"
    assert description.pyiceberg_properties["uri"] == f"sqlite:///{tmp_path}/lake/catalog.db?timeout=60"


def test_postgresql_reaches_both_engines() -> None:
    description = postgres(f"{POSTGRES}?sslmode=require")
    assert description.spark_properties == {
        "type": "jdbc",
        "uri": "jdbc:postgresql://db.example.com:6543/lake?loginTimeout=10&sslmode=require",
        "warehouse": "s3://lake/wh",
        "jdbc.schema-version": "V1",
        "jdbc.user": "iceberg",
        "retryable_status_codes": "57P01,57P02,57P03",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    }
    assert description.spark_secrets == {"jdbc.password": PASSWORD}
    uri = urlsplit(description.pyiceberg_properties["uri"])
    assert (uri.scheme, uri.hostname, uri.port, uri.path) == ("postgresql+psycopg2", "db.example.com", 6543, "/lake")
    assert (unquote(uri.username or ""), unquote(uri.password or "")) == ("iceberg", PASSWORD)
    assert uri.query == "connect_timeout=10&sslmode=require"
    assert (description.packages, description.host) == ((POSTGRESQL_JDBC, ICEBERG_AWS_BUNDLE), ("db.example.com", 6543))


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pymysql"])
def test_mysql_reaches_both_engines(scheme: str) -> None:
    uri = f"{scheme}://iceberg:{quote(PASSWORD, safe='')}@db.example.com/lake"
    description = SqlCatalog(uri=uri, warehouse="/wh").describe()
    assert description.spark_properties == {
        "type": "jdbc",
        "uri": "jdbc:mysql://db.example.com:3306/lake?connectTimeout=10000",
        "warehouse": "file:///wh",
        "jdbc.schema-version": "V1",
        "jdbc.user": "iceberg",
        "retryable_status_codes": "08S01",
    }
    assert description.spark_secrets == {"jdbc.password": PASSWORD}
    found = urlsplit(description.pyiceberg_properties["uri"])
    assert (found.scheme, found.hostname, found.port, found.path) == ("mysql+pymysql", "db.example.com", 3306, "/lake")
    assert unquote(found.password or "") == PASSWORD
    assert (description.packages, description.host) == ((MYSQL_JDBC,), ("db.example.com", 3306))


@pytest.mark.parametrize("uri", ["mysql://u:hunter2@db/lake?ssl_ca=x", "mysql://u:hunter2@db:port/lake"])
def test_an_unsupported_mysql_uri_is_refused_without_showing_it(uri: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        SqlCatalog(uri=uri, warehouse="/w").describe()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg2"])
def test_postgresql_needs_neither_port_nor_account(scheme: str) -> None:
    description = postgres(f"{scheme}://db/lake")
    assert description.host == ("db", 5432)
    assert description.spark_secrets == {}
    assert "jdbc.user" not in description.spark_properties
    assert description.pyiceberg_properties["uri"].startswith("postgresql+psycopg2://db:5432/lake?")


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=12))
def test_any_password_reaches_both_engines_unchanged(password: str) -> None:
    description = postgres(f"postgresql://me:{quote(password, safe='')}@db/lake")
    assert description.spark_secrets["jdbc.password"] == password
    assert unquote(urlsplit(description.pyiceberg_properties["uri"]).password or "") == password


@pytest.mark.parametrize("password", ["hunter2", PASSWORD, "ünï", "a b+c"])
def test_the_password_is_never_shown(password: str) -> None:
    quoted = quote(password, safe="")
    catalog = SqlCatalog(uri=f"postgresql://me:{quoted}@db/lake", warehouse="/w")
    resource = IcebergSparkResource(catalog=catalog)
    description = catalog.describe()
    shown = [catalog, resource, IcebergPySparkIOManager(spark=resource), description, description.endpoint]
    for text in [text for item in shown for text in (repr(item), str(item), f"{item}")]:
        assert password not in text
        assert quoted not in text
    assert password not in str(description.spark_properties)
    assert description.redact(f"a {password} b {quoted} c") == "a ******** b ******** c"


def test_secrets_in_properties_are_not_shown() -> None:
    properties = {"s3.secret-access-key": "hunter2", "s3.endpoint": "http://minio"}
    description = postgres(properties=properties)
    assert description.spark_properties["s3.endpoint"] == "http://minio"
    assert description.spark_secrets["s3.secret-access-key"] == "hunter2"
    assert description.pyiceberg_properties.items() >= properties.items()
    assert "hunter2" not in repr(description) + repr(SqlCatalog(uri=POSTGRES, warehouse="/w", properties=properties))
    assert description.redact("a hunter2 b") == "a ******** b"


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
@pytest.mark.parametrize(
    "account", [f"me:{mark}{PASSWORD}" for mark in "p/?#[℀"] + ["me:12/x", "me:1?a=b", "m/e:hunter2"]
)
def test_a_password_without_percent_encoding_is_refused_without_showing_it(scheme: str, account: str) -> None:
    with pytest.raises(ConfigurationError, match="percent-encode special characters") as caught:
        SqlCatalog(uri=f"{scheme}://{account}@db.example.com/lake", warehouse="/w").describe()
    assert account.partition(":")[2] not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("key", ["type", "uri", "warehouse", "jdbc.schema-version", "jdbc.user", "jdbc.password"])
def test_a_property_that_another_field_sets_is_refused(key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"expected properties that no other field sets, found '{key}'"):
        postgres(properties={key: "x"})


def test_the_identity_of_a_catalog_includes_all_its_settings() -> None:
    others = [postgres(), postgres(name="b"), postgres(POSTGRES.replace("6543", "1")), postgres(properties={"a": "b"})]
    others.append(postgres(POSTGRES.replace("p%40", "x")))
    assert len({item.identity for item in others}) == len(others)
    assert postgres().identity == postgres().identity


def test_very_short_secrets_are_not_redacted() -> None:
    assert postgres("postgresql://u:a@db/x").redact("a banana") == "a banana"


@pytest.mark.parametrize("uri", ["postgresql://u:p@ss:hunter2/rd@h/db", "postgresql://u@h/db?sslpassword=hunter2"])
def test_an_invalid_postgresql_uri_is_refused_without_showing_it(uri: str) -> None:
    catalog = SqlCatalog(uri=uri, warehouse="/w")
    with pytest.raises(ConfigurationError, match="percent-encode") as caught:
        catalog.describe()
    assert "hunter2" not in str(caught.value) + repr(catalog)


def test_a_password_in_the_uri_s_options_is_a_secret() -> None:
    description = SqlCatalog(uri="postgresql://h/db?user=u&password=hunter2", warehouse="/w").describe()
    assert "hunter2" not in repr(description)
    assert description.spark_secrets == {"jdbc.password": "hunter2"}


@pytest.mark.parametrize("uri", ["sqlite://", "sqlite://lake/c.db", "sqlite:///:memory:"])
def test_a_sqlite_uri_without_a_file_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="sqlite:///lake"):
        SqlCatalog(uri=uri, warehouse="/w").describe()


def test_a_directory_that_cannot_be_created_is_named() -> None:
    with pytest.raises(ConfigurationError, match="/proc/nowhere"):
        SqlCatalog(uri="sqlite:////proc/nowhere/c.db", warehouse="/w").describe()

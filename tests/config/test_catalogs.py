"""What a user configures, and what of it reaches Spark and pyiceberg."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.config.adls import AdlsStore
from dagster_iceberg_spark.config.authentication import (
    BasicAuthentication,
    BearerToken,
    NoAuthentication,
    OAuth2,
    SigV4,
)
from dagster_iceberg_spark.config.aws import AwsCredentials
from dagster_iceberg_spark.config.catalog import as_uri
from dagster_iceberg_spark.config.catalogs import GlueCatalog, HadoopCatalog
from dagster_iceberg_spark.config.gcs import GcsStore
from dagster_iceberg_spark.config.hadoop import HadoopStore
from dagster_iceberg_spark.config.hive import HiveCatalog
from dagster_iceberg_spark.config.local import InMemoryCatalog, SparkCatalogByName
from dagster_iceberg_spark.config.rest import RestCatalog
from dagster_iceberg_spark.config.sql import EmbeddedCatalog, SqlCatalog
from dagster_iceberg_spark.config.stores import AutomaticStore, S3Store
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.versions import ICEBERG_AWS_BUNDLE, MYSQL_JDBC, POSTGRESQL_JDBC, SQLITE_JDBC
from tests.servers.authority import Authority

CONFIGS: list[type[BaseModel]] = [
    EmbeddedCatalog,
    SqlCatalog,
    RestCatalog,
    GlueCatalog,
    HiveCatalog,
    HadoopCatalog,
    InMemoryCatalog,
    SparkCatalogByName,
    AutomaticStore,
    S3Store,
    AdlsStore,
    GcsStore,
    HadoopStore,
    AwsCredentials,
    NoAuthentication,
    BearerToken,
    OAuth2,
    BasicAuthentication,
    SigV4,
    IcebergSparkResource,
    IcebergPySparkIOManager,
]
PASSWORD = "p@ss:w/rd"
POSTGRES = f"postgresql://iceberg:{quote(PASSWORD, safe='')}@db.example.com:6543/lake"


def postgres(uri: str = POSTGRES, **fields: Any) -> CatalogDescription:
    return SqlCatalog(uri=uri, warehouse="s3://lake/wh", **fields).describe("/unused")


@pytest.mark.parametrize("config", CONFIGS)
def test_every_field_is_described(config: type[BaseModel]) -> None:
    bare = [name for name, field in config.model_fields.items() if not field.description]
    assert set(bare) <= {"spark", "pyspark"}, "nested resources are described by their own fields"
    assert all((field.description or ".").endswith(".") for field in config.model_fields.values())


def test_sqlite_reaches_both_engines(tmp_path: Path) -> None:
    path = tmp_path / "new" / "catalog.db"
    description = SqlCatalog(
        name="mine", uri=f"sqlite:///{path}", warehouse=str(tmp_path / "wh"), properties={"a": "b"}
    ).describe("")
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


def test_paths_are_absolute_wherever_the_process_moves_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    description = SqlCatalog(uri="sqlite:///lake/catalog.db", warehouse="lake/wh").describe("")
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
    description = SqlCatalog(uri=uri, warehouse="/wh").describe("/unused")
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
def test_a_mysql_uri_that_both_clients_cannot_read_is_refused_unseen(uri: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        SqlCatalog(uri=uri, warehouse="/w").describe("")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg2"])
def test_postgresql_needs_neither_port_nor_account(scheme: str) -> None:
    description = postgres(f"{scheme}://db/lake")
    assert description.host == ("db", 5432)
    assert description.spark_secrets == {}
    assert "jdbc.user" not in description.spark_properties
    assert description.pyiceberg_properties["uri"].startswith("postgresql+psycopg2://db:5432/lake?")


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=12))
def test_any_password_reaches_both_engines_as_it_is(password: str) -> None:
    description = postgres(f"postgresql://me:{quote(password, safe='')}@db/lake")
    assert description.spark_secrets["jdbc.password"] == password
    assert unquote(urlsplit(description.pyiceberg_properties["uri"]).password or "") == password


@pytest.mark.parametrize("password", ["hunter2", PASSWORD, "ünï", "a b+c"])
def test_the_password_is_shown_nowhere(password: str) -> None:
    quoted = quote(password, safe="")
    catalog = SqlCatalog(uri=f"postgresql://me:{quoted}@db/lake", warehouse="/w")
    resource = IcebergSparkResource(catalog=catalog)
    description = catalog.describe("")
    shown = [catalog, resource, IcebergPySparkIOManager(spark=resource), description, description.endpoint]
    for text in [text for item in shown for text in (repr(item), str(item), f"{item}")]:
        assert password not in text
        assert quoted not in text
    assert password not in str(description.spark_properties)
    assert description.redact(f"a {password} b {quoted} c") == "a ******** b ******** c"


def test_secrets_among_the_properties_stay_out_of_what_is_shown() -> None:
    properties = {"s3.secret-access-key": "hunter2", "s3.endpoint": "http://minio"}
    description = postgres(properties=properties)
    assert description.spark_properties["s3.endpoint"] == "http://minio"
    assert description.spark_secrets["s3.secret-access-key"] == "hunter2"
    assert description.pyiceberg_properties.items() >= properties.items()
    assert "hunter2" not in repr(description) + repr(SqlCatalog(uri=POSTGRES, warehouse="/w", properties=properties))
    assert description.redact("a hunter2 b") == "a ******** b"


@pytest.mark.parametrize("key", ["token", "credential", "jdbc.PASSWORD", "s3.access-key-id", "s3.secret-access-key"])
def test_a_property_that_may_hold_a_secret_is_treated_as_one(key: str) -> None:
    description = RestCatalog(uri="http://h", properties={key: "hunter2"}).describe("")
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
def test_rest_reaches_both_engines(uri: str, host: tuple[str, int], warehouse: str | None) -> None:
    description = RestCatalog(uri=uri, warehouse=warehouse, properties={"header.x": "y"}).describe("")
    common = {"type": "rest", "uri": uri, "header.x": "y", **({"warehouse": warehouse} if warehouse else {})}
    timeouts = {"rest.client.connection-timeout-ms": "10000", "rest.client.socket-timeout-ms": "60000"}
    assert description.spark_properties == {**common, **timeouts}
    assert description.pyiceberg_properties == {**common, "header.X-Iceberg-Access-Delegation": None}
    assert (description.host, description.warehouse, description.packages) == (host, None, ())


@pytest.mark.parametrize(
    ("catalog", "found"),
    [
        (SqlCatalog(uri="oracle://u:hunter2@db/lake", warehouse="/w"), "found 'oracle://u:********@db/lake'"),
        (SqlCatalog(uri="lake.db", warehouse="/w"), "found 'lake.db'"),
        (RestCatalog(uri="ftp://u:hunter2@h"), "found 'ftp://u:********@h'"),
        (RestCatalog(uri="catalog:8181"), "found 'catalog:8181'"),
        (RestCatalog(uri="http://"), "found 'http://'"),
        (HiveCatalog(uri="http://h:9083", warehouse="/w"), "found 'http://h:9083'"),
        (HiveCatalog(uri="thrift://a:9083,b:9083", warehouse="/w"), "found 'thrift://a:9083,b:9083'"),
        (HiveCatalog(uri="thrift://u:hunter2@h", warehouse="/w"), "found 'thrift://u:********@h'"),
        (HiveCatalog(uri="thrift://h:port", warehouse="/w"), "found 'thrift://h:********'"),
        (HiveCatalog(uri="thrift://", warehouse="/w"), "found 'thrift://'"),
        (HiveCatalog(uri="h:9083", warehouse="/w"), "found 'h:9083'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_uri_of_another_kind_is_refused_without_its_password(catalog: Any, found: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(found)):
        catalog.describe("/unused")


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
@pytest.mark.parametrize(
    "account", [f"me:{mark}{PASSWORD}" for mark in "p/?#[℀"] + ["me:12/x", "me:1?a=b", "m/e:hunter2"]
)
def test_a_password_that_is_not_percent_encoded_is_refused_unseen(scheme: str, account: str) -> None:
    with pytest.raises(ConfigurationError, match="percent-encode special characters") as caught:
        SqlCatalog(uri=f"{scheme}://{account}@db.example.com/lake", warehouse="/w").describe("")
    assert account.partition(":")[2] not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "catalog",
    [
        RestCatalog(uri="http://h:hunter2"),
        RestCatalog(uri="http://h?token=hunter2"),
        RestCatalog(uri="http://h", warehouse="http://me:hunter2@h"),
        RestCatalog(uri="http://h", store=S3Store(endpoint="http://me:hunter2@h")),
        RestCatalog(
            uri="http://h", authentication=OAuth2(client_id="a", client_secret="b", server_uri="http://me:hunter2@h")
        ),
        GlueCatalog(endpoint="http://me:hunter2@h", warehouse="s3://w"),
        GlueCatalog(endpoint="http://h:hunter2", warehouse="s3://w"),
        HadoopCatalog(warehouse="hdfs://me:hunter2@h/w"),
        HadoopCatalog(warehouse="s3n://me:hunter2@h/w"),
        SqlCatalog(uri="postgresql://me:hunter2", warehouse="/w"),
        SqlCatalog(uri="sqlite+pysqlcipher://:hunter2@/w", warehouse="/w"),
    ],
    ids=repr,
)
def test_a_password_in_a_uri_that_takes_none_is_refused_unseen(catalog: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        catalog.describe("")
    assert "hunter2" not in str(caught.value) + repr(catalog)


def test_a_password_in_a_free_property_is_a_secret() -> None:
    properties = {"http.proxy": "http://me:hunter2@proxy"}
    assert RestCatalog(uri="http://h", properties=properties).describe("").spark_secrets == properties


@pytest.mark.parametrize("key", ["type", "uri", "warehouse", "jdbc.schema-version", "jdbc.user", "jdbc.password"])
def test_a_property_that_another_field_sets_is_refused(key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"expected properties that no other field sets, found '{key}'"):
        postgres(properties={key: "x"})


def test_the_embedded_catalog_lives_under_the_storage_directory(tmp_path: Path) -> None:
    description = EmbeddedCatalog().describe(str(tmp_path))
    assert description.endpoint == f"{tmp_path}/iceberg/catalog.db"
    assert description.warehouse == f"file://{tmp_path}/iceberg/warehouse"
    assert (tmp_path / "iceberg").is_dir()


def test_the_embedded_catalog_may_live_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    description = EmbeddedCatalog(name="mine", directory="here", properties={"a": "b"}).describe("/nowhere")
    assert (description.name, description.endpoint) == ("mine", f"{tmp_path}/here/catalog.db")
    assert description.spark_properties["a"] == "b"


@pytest.mark.parametrize(
    ("warehouse", "uri"),
    [
        ("s3://b/p", "s3://b/p"),
        ("file:///a/b", "file:///a/b"),
        ("/a/b", "file:///a/b"),
        ("abfss://c@a/x", "abfss://c@a/x"),
    ],
)
def test_a_warehouse_is_a_uri(warehouse: str, uri: str) -> None:
    assert as_uri(warehouse) == uri


def test_catalogs_are_told_apart_by_everything_that_opens_them() -> None:
    others = [postgres(), postgres(name="b"), postgres(POSTGRES.replace("6543", "1")), postgres(properties={"a": "b"})]
    others.append(postgres(POSTGRES.replace("p%40", "x")))
    assert len({item.identity for item in others}) == len(others)
    assert postgres().identity == postgres().identity


def test_a_secret_of_a_letter_or_two_does_not_blacken_every_word() -> None:
    assert postgres("postgresql://u:a@db/x").redact("a banana") == "a banana"


def test_no_secret_of_a_rest_catalog_is_shown() -> None:
    catalog = RestCatalog(uri="https://h", properties={"credential": "a:hunter2"})
    assert "hunter2" not in repr(catalog) + str(catalog) + repr(catalog.describe(""))


def test_credentials_in_a_rest_uri_are_refused_unseen() -> None:
    with pytest.raises(ConfigurationError) as caught:
        RestCatalog(uri="https://u:hunter2@h").describe("")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("uri", ["postgresql://u:p@ss:hunter2/rd@h/db", "postgresql://u@h/db?sslpassword=hunter2"])
def test_a_postgresql_uri_that_cannot_be_read_is_refused_unseen(uri: str) -> None:
    catalog = SqlCatalog(uri=uri, warehouse="/w")
    with pytest.raises(ConfigurationError, match="percent-encode") as caught:
        catalog.describe("")
    assert "hunter2" not in str(caught.value) + repr(catalog)


def test_a_password_among_the_options_of_a_uri_is_a_secret_too() -> None:
    description = SqlCatalog(uri="postgresql://h/db?user=u&password=hunter2", warehouse="/w").describe("")
    assert "hunter2" not in repr(description)
    assert description.spark_secrets == {"jdbc.password": "hunter2"}


@pytest.mark.parametrize("uri", ["sqlite://", "sqlite://lake/c.db", "sqlite:///:memory:"])
def test_a_sqlite_uri_without_a_file_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="sqlite:///lake"):
        SqlCatalog(uri=uri, warehouse="/w").describe("")


def test_glue_reaches_both_engines_and_signs_for_the_store_too() -> None:
    keys = AwsCredentials(access_key_id="AKIAEXAMPLE", secret_access_key="hushhush")
    description = GlueCatalog(
        warehouse="s3://lake/wh", region="eu-west-1", catalog_id="123456789012", credentials=keys
    ).describe("")
    common = {"type": "glue", "warehouse": "s3://lake/wh", "client.region": "eu-west-1", "glue.id": "123456789012"}
    assert description.spark_properties.items() >= common.items()
    assert description.pyiceberg_properties.items() >= common.items()
    assert description.spark_secrets["s3.secret-access-key"] == "hushhush"
    assert (description.host, description.packages) == (None, (ICEBERG_AWS_BUNDLE,))
    assert not description.is_local, "questions to it have a deadline all the same"
    elsewhere = GlueCatalog(warehouse="s3://lake/wh", endpoint="http://127.0.0.1:5000").describe("")
    assert (elsewhere.host, str(elsewhere)) == (("127.0.0.1", 5000), "Glue catalog 'lake' at http://127.0.0.1:5000")
    with pytest.raises(ConfigurationError, match=r"'client.region' .* expected one value, found 'a' and 'b'"):
        GlueCatalog(warehouse="s3://lake/wh", region="a", store=S3Store(region="b")).describe("")
    with pytest.raises(ConfigurationError, match="one identity that signs"):
        GlueCatalog(
            warehouse="s3://lake/wh", credentials=keys, store=S3Store(credentials=AwsCredentials(profile="p"))
        ).describe("")


def test_a_hive_metastore_reaches_both_engines() -> None:
    description = HiveCatalog(uri="thrift://a.example.com, thrift://[::1]:9084/", warehouse="/wh").describe("")
    common = {"uri": "thrift://a.example.com:9083,thrift://[::1]:9084", "warehouse": "file:///wh"}
    client = {"hadoop.hive.metastore.client.socket.timeout": "60s"}
    assert description.spark_properties == {"type": "hive", **common, **client}
    ours = {"py-catalog-impl": "dagster_iceberg_spark.catalog.hive.HiveCatalog", "hive.hive2-compatible": "true"}
    assert description.pyiceberg_properties == {**ours, **common}
    assert (description.host, description.other_hosts) == (("a.example.com", 9083), (("::1", 9084),))
    assert (description.warehouse, description.packages) == ("file:///wh", ())
    assert str(description) == "Hive Metastore 'lake' at thrift://a.example.com:9083,thrift://[::1]:9084"
    newer = HiveCatalog(uri="thrift://h", warehouse="s3://lake/wh", hive2_compatible=False).describe("")
    assert newer.pyiceberg_properties["hive.hive2-compatible"] == "false"
    assert newer.spark_properties["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"


def test_the_principal_of_a_metastore_reaches_both_engines() -> None:
    principal = "metastore/_HOST@EXAMPLE.COM"
    description = HiveCatalog(uri="thrift://h", warehouse="/w", kerberos_principal=principal).describe("")
    spark, pyiceberg = description.spark_properties, description.pyiceberg_properties
    assert spark["hadoop.hive.metastore.sasl.enabled"] == "true"
    assert spark["hadoop.hive.metastore.kerberos.principal"] == principal
    assert pyiceberg["hive.kerberos-authentication"] == "true"
    assert pyiceberg["hive.kerberos-service-name"] == "metastore"


def test_unknown_configuration_fields_are_refused() -> None:
    with pytest.raises(ValueError, match="warehose"):
        SqlCatalog(uri="sqlite:///x", warehouse="/w", warehose="/v")  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="namespace"):
        IcebergPySparkIOManager(namespac="x")
    with pytest.raises(ConfigurationError, match="spark_config"):
        IcebergSparkResource(sparkconfig={})


def test_a_directory_that_cannot_be_made_is_named() -> None:
    with pytest.raises(ConfigurationError, match="/proc/nowhere"):
        SqlCatalog(uri="sqlite:////proc/nowhere/c.db", warehouse="/w").describe("")


def test_environment_variables_reach_the_fields_that_hold_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAKE_URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("LAKE_TOKEN", "hush")
    catalog = SqlCatalog(
        uri=dg.EnvVar("LAKE_URI"), warehouse=str(tmp_path), properties={"token": dg.EnvVar("LAKE_TOKEN")}
    )
    seen: list[CatalogDescription] = []

    @dg.asset
    def reads(spark: IcebergSparkResource) -> None:
        seen.append(spark.catalog_description)

    dg.materialize([reads], resources={"spark": IcebergSparkResource(catalog=catalog)})
    assert seen[0].endpoint == str(tmp_path / "catalog.db")
    assert seen[0].spark_secrets == {"token": "hush"}
    assert "hush" not in repr(seen[0])


LEAVES_NOTHING = """
from pathlib import Path
from dagster_iceberg_spark import InMemoryCatalog
description = InMemoryCatalog().describe("")
directory = Path(description.endpoint).parent
assert directory.is_dir()
print(directory)
"""


def test_a_catalog_in_memory_is_gone_with_its_process() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", LEAVES_NOTHING], capture_output=True, text=True, check=True, timeout=60
    )
    assert not Path(answer.stdout.strip()).exists()


def test_a_session_s_catalog_takes_no_store() -> None:
    with pytest.raises(ConfigurationError, match="the session has one already"):
        SparkCatalogByName(name="prod", store=S3Store()).describe("")


def test_an_authority_of_one_s_own_reaches_pyiceberg(tmp_path: Path) -> None:
    bundle = Authority(tmp_path).bundle
    description = RestCatalog(uri="https://h", ca_bundle=str(bundle)).describe("")
    assert description.pyiceberg_properties["ssl"] == {"cabundle": str(bundle)}
    assert "ssl" not in RestCatalog(uri="https://h").describe("").pyiceberg_properties


@pytest.mark.parametrize(("content", "found"), [(None, "No such file"), ("", "no certificate"), ("no PEM", "no cert")])
def test_a_bundle_without_certificates_is_refused(content: str | None, found: str, tmp_path: Path) -> None:
    bundle = tmp_path / "authority.pem"
    if content is not None:
        bundle.write_text(content)
    with pytest.raises(ConfigurationError, match=f"a PEM file with certificates at `ca_bundle`, found .*{found}"):
        RestCatalog(uri="https://h", ca_bundle=str(bundle)).describe("")


@pytest.mark.parametrize("uri", ["thrift://[::1:9083", "thrift://:9083", "http://m:9083", "thrift://m:port", "m:9083"])
def test_an_address_that_is_no_metastore_s_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="thrift://host:9083"):
        HiveCatalog(uri=uri, warehouse="/wh").describe("")

"""Rules for every kind of catalog."""

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pydantic import BaseModel

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource
from dagster_iceberg_spark.config.catalog import AutomaticStore, GcsStore, HadoopStore
from dagster_iceberg_spark.config.catalogs import (
    GlueCatalog,
    HadoopCatalog,
    HiveCatalog,
    InMemoryCatalog,
    SparkCatalogByName,
)
from dagster_iceberg_spark.config.rest_catalog import (
    BasicAuthentication,
    BearerToken,
    NoAuthentication,
    OAuth2,
    RestCatalog,
    SigV4,
)
from dagster_iceberg_spark.config.sql_catalog import EmbeddedCatalog, SqlCatalog
from dagster_iceberg_spark.config.stores import AdlsStore, AwsCredentials, S3Store
from dagster_iceberg_spark.errors import ConfigurationError

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


@pytest.mark.parametrize("config", CONFIGS)
def test_every_field_is_described(config: type[BaseModel]) -> None:
    bare = [name for name, field in config.model_fields.items() if not field.description]
    assert set(bare) <= {"spark", "pyspark"}, "nested resources are described by their own fields"
    assert all((field.description or ".").endswith(".") for field in config.model_fields.values())


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
def test_a_uri_of_another_kind_is_refused_without_showing_its_password(catalog: Any, found: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(found)):
        catalog.describe()


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
def test_a_misplaced_password_in_a_uri_is_refused_without_showing_it(catalog: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        catalog.describe()
    assert "hunter2" not in str(caught.value) + repr(catalog)


def test_unknown_configuration_fields_are_refused() -> None:
    with pytest.raises(ValueError, match="warehose"):
        SqlCatalog(uri="sqlite:///x", warehouse="/w", warehose="/v")  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="namespace"):
        IcebergPySparkIOManager(namespac="x")
    with pytest.raises(ConfigurationError, match="spark_config"):
        IcebergSparkResource(sparkconfig={})


def test_environment_variables_reach_the_fields_that_hold_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAKE_URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("LAKE_TOKEN", "hush")
    catalog = SqlCatalog(
        uri=dg.EnvVar("LAKE_URI"), warehouse=str(tmp_path), properties={"token": dg.EnvVar("LAKE_TOKEN")}
    )
    seen: list[Any] = []

    @dg.asset
    def reads(spark: IcebergSparkResource) -> None:
        seen.append(spark.catalog_description)

    dg.materialize([reads], resources={"spark": IcebergSparkResource(catalog=catalog)})
    assert seen[0].endpoint == str(tmp_path / "catalog.db")
    assert seen[0].spark_secrets == {"token": "hush"}
    assert "hush" not in repr(seen[0])

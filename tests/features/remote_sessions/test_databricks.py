"""Databricks is refused by name, wherever it is given.

docs/clusters.md: Databricks
"""

from types import SimpleNamespace
from typing import Any

import pytest

from dagster_iceberg_spark import ConfigurationError, IcebergSparkResource, InMemoryCatalog
from dagster_iceberg_spark.spark.session.databricks import require_not_databricks
from dagster_iceberg_spark.spark.session.session import attach_catalog, open_session

TOKEN = "dapi123"


def theirs(name: str) -> Any:
    """A class as of databricks-connect, which brings a pyspark of its own."""
    return type(name, (), {"__module__": "databricks.connect.session", "getOrCreate": lambda self: None})


@pytest.mark.parametrize(
    "host",
    [
        "adb-1.7.azuredatabricks.net",
        "dbc-1.cloud.databricks.com",
        "1.gcp.databricks.com",
        "DBC-1.Cloud.Databricks.com:443",
        "adb-1.databricks.azure.cn",
    ],
)
def test_an_address_of_databricks_is_refused(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"Spark session of Databricks.*RestCatalog") as refused:
        IcebergSparkResource(remote=f"sc://{host}/;token={TOKEN};x-databricks-cluster-id=1")
    assert TOKEN not in str(refused.value)
    assert host.partition(":")[0] in str(refused.value)


@pytest.mark.parametrize("remote", [theirs("DatabricksSession"), theirs("Builder")()])
def test_a_session_of_databricks_connect_is_refused(remote: Any) -> None:
    with pytest.raises(ConfigurationError, match="found `DatabricksSession`"):
        IcebergSparkResource(remote=remote)


def test_an_address_that_is_handed_out_is_refused() -> None:
    catalog = InMemoryCatalog(key="refused")
    resource = IcebergSparkResource(remote=lambda: f"sc://dbc-1.cloud.databricks.com/;token={TOKEN}", catalog=catalog)
    with pytest.raises(ConfigurationError, match=r"found the workspace dbc-1\.cloud\.databricks\.com") as refused:
        open_session(resource.session_settings())
    assert TOKEN not in str(refused.value)


def test_a_wrapped_session_is_refused() -> None:
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    session.client = SimpleNamespace(host="dbc-1.cloud.databricks.com")
    with pytest.raises(ConfigurationError, match="Spark session of Databricks"):
        attach_catalog(session, IcebergSparkResource(catalog=InMemoryCatalog(key="wrapped")).configured_description)


@pytest.mark.parametrize(
    "remote", ["sc://databricks.com.example.com", "sc://example.com/;x=.databricks.com", "sc://notdatabricks.com", None]
)
def test_other_addresses_are_accepted(remote: str | None) -> None:
    require_not_databricks(remote)

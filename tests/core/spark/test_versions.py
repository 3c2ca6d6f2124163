"""Which version decides, and what is refused because of it. No session is needed."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.connect.session import SparkSession as ConnectSession

from dagster_iceberg_spark import EmbeddedCatalog, IcebergSparkResource
from dagster_iceberg_spark.errors import ConfigurationError, SparkEnvironmentError
from dagster_iceberg_spark.spark import versions
from dagster_iceberg_spark.spark.session import runtime as java
from dagster_iceberg_spark.spark.session import session
from dagster_iceberg_spark.spark.versions.spark_3_5 import Spark35
from dagster_iceberg_spark.spark.versions.spark_4_1 import Spark41


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Ask for the installed version anew, in each test and after it."""
    versions.installed_version.cache_clear()
    yield
    versions.installed_version.cache_clear()


@pytest.mark.parametrize("found", ["4.2.0", "3.4.1", "4.10.0", None])
def test_a_pyspark_without_a_runtime_is_refused(found: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed_pyspark", lambda: found)
    with pytest.raises(SparkEnvironmentError, match=r"expected pyspark 3\.5, 4\.0 or 4\.1.*pip install 'pyspark==4\.1"):
        versions.installed_version()


@pytest.mark.parametrize(
    ("client", "server", "version"),
    [
        ("4.1.4", "4.1.0", "4.1"),
        ("4.1.4", "4.0.2", "4.0"),
        ("4.1.4", "3.5.9", "3.5"),
        ("4.1.4", "4.2.0", "4.1"),
        ("4.0.1", "4.1.4", "4.0"),
        ("3.5.9", "4.10.0", "3.5"),
    ],
)
def test_the_older_of_client_and_server_decides(
    client: str, server: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "installed_pyspark", lambda: client)
    assert versions.version_of(connected_to(server, monkeypatch)).name == version


@pytest.mark.parametrize("server", ["3.4.4", "2.4.8"])
def test_a_server_that_is_too_old_is_refused(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SparkEnvironmentError, match=rf"expected Spark 3\.5 or newer, found Spark {server[:3]}"):
        versions.version_of(connected_to(server, monkeypatch))


def test_a_classic_session_needs_more_than_the_client(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (java, session):
        monkeypatch.setattr(module, "has_jvm", lambda: False)
    settings = IcebergSparkResource(catalog=EmbeddedCatalog(directory=str(tmp_path))).session_settings()
    with pytest.raises(SparkEnvironmentError, match=r"expected pyspark, which has a JVM.*\[classic\]"):
        session.open_session(settings)


@pytest.mark.parametrize(
    ("merges", "mixes_specs", "refusal"),
    [
        (False, False, None),
        (False, True, "'overwrite_partitions' after a change of the partition spec"),
        (True, False, "'merge'"),
    ],
)
def test_what_connect_3_5_cannot_carry_is_refused(
    merges: bool, mixes_specs: bool, refusal: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = connected_to("3.5.9", monkeypatch)
    Spark41().require_supported(spark, "db.t", merges=merges, mixes_specs=mixes_specs)
    if refusal is None:
        Spark35().require_supported(spark, "db.t", merges=merges, mixes_specs=mixes_specs)
        return
    with pytest.raises(ConfigurationError, match=refusal) as refused:
        Spark35().require_supported(spark, "db.t", merges=merges, mixes_specs=mixes_specs)
    assert "db.t: expected a classic session, or Spark Connect 4.0 or newer" in str(refused.value)


def connected_to(server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a session of a server of this version that no server is asked for."""
    monkeypatch.setattr(ConnectSession, "version", server)
    return object.__new__(ConnectSession)

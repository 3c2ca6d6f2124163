"""Checking a resource before an asset uses it."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark import (
    CatalogUnavailableError,
    CheckReport,
    HadoopCatalog,
    IcebergPySparkIOManager,
    IcebergSparkResource,
    RestCatalog,
    SparkCatalogByName,
    SqlCatalog,
)
from dagster_iceberg_spark.assets.definition_checks import check_table
from dagster_iceberg_spark.check.catalog import CatalogCheck
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.spark.session import probe
from tests.lakes import SPARK_CONF, Lake, frame_asset

STEPS = ["configuration", "Java", "catalog", "session", "namespace", "write", "read by Spark", "read by pyiceberg"]


def outcomes(report: CheckReport) -> dict[str, str]:
    return {finding.step: finding.outcome for finding in report.findings}


def namespaces(lake: Lake) -> list[tuple[str, ...]]:
    return list(lake.spark.pyiceberg_catalog.list_namespaces())


@pytest.mark.spark
def test_a_working_resource_passes_and_nothing_is_left_behind(lake: Lake) -> None:
    report = lake.spark.check()
    assert outcomes(report) == dict.fromkeys([*STEPS, "clean up"], "ok"), str(report)
    session = next(finding for finding in report.findings if finding.step == "session")
    assert "Spark 4.1" in session.found
    assert "Iceberg 1.12.0" in session.found
    assert "org.xerial:sqlite-jdbc" in session.found
    assert ("Spark Connect" in session.found) == (lake.spark.remote is not None)
    assert namespaces(lake) == []
    assert list((lake.directory / "wh").rglob("*")) == []


@pytest.mark.spark
def test_an_existing_namespace_keeps_its_tables(classic_lake: Lake) -> None:
    classic_lake.materialize(frame_asset("t", "select 1 as id"))
    report = classic_lake.spark.check(namespace="db")
    assert report.is_fit
    assert "db exists" in str(report)
    assert namespaces(classic_lake) == [("db",)]
    assert classic_lake.spark.pyiceberg_catalog.list_tables("db") == [("db", "t")]


@pytest.mark.spark
def test_a_requested_namespace_is_neither_created_nor_dropped(tmp_path: Path) -> None:
    """The catalog is a directory, so that the namespace is a directory too."""
    catalog = HadoopCatalog(warehouse=str(tmp_path))
    spark = IcebergSparkResource(catalog=catalog, spark_config=SPARK_CONF)
    report = spark.check(namespace="scratch")
    assert [finding.step for finding in report.failures] == ["namespace"]
    assert not (tmp_path / "scratch").exists()
    (tmp_path / "scratch").mkdir()
    report = spark.check(namespace="scratch")
    assert report.is_fit, str(report)
    assert list(tmp_path.iterdir()) == [tmp_path / "scratch"]
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.full
@pytest.mark.spark
def test_clean_up_waits_for_a_late_write(classic_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    written, may_write = probe.write_rows, threading.Event()

    def late(*args: Any, **kwargs: Any) -> str:
        may_write.wait()
        return written(*args, **kwargs)

    assert classic_lake.session.range(1).count() == 1
    monkeypatch.setattr(probe, "write_rows", late)
    found: dict[str, str] = {}
    for finding in classic_lake.spark.findings(seconds=8):
        found[finding.step] = finding.outcome
        if finding.step == "read by pyiceberg":
            may_write.set()
    assert (found["write"], found["clean up"]) == ("failed", "ok")
    assert namespaces(classic_lake) == []


@pytest.mark.spark
def test_a_failed_step_s_table_is_dropped(classic_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise IcebergSparkError("Cannot read.")

    monkeypatch.setattr(probe, "count_rows", refuse)
    report = classic_lake.spark.check()
    found = outcomes(report)
    assert (found["read by Spark"], found["read by pyiceberg"], found["clean up"]) == ("failed", "not tried", "ok")
    assert namespaces(classic_lake) == []


@pytest.mark.spark
def test_closing_the_findings_early_leaves_nothing_behind(classic_lake: Lake) -> None:
    findings = classic_lake.spark.findings()
    assert isinstance(findings, Iterator)
    for finding in findings:
        if finding.step == "write":
            break
    findings.close()  # type: ignore[attr-defined]
    assert namespaces(classic_lake) == []


@pytest.mark.spark
def test_an_unwritable_warehouse_is_named(tmp_path: Path) -> None:
    (tmp_path / "wh").write_text("a file")
    catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh"))
    report = IcebergSparkResource(catalog=catalog, spark_config=SPARK_CONF).check()
    assert outcomes(report)["write"] == "failed"
    assert "`warehouse`" in report.failures[0].setting
    assert outcomes(report)["clean up"] == "ok", str(report)


def test_an_unreachable_host_fails_before_a_jvm_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        monkeypatch.setattr(CatalogCheck, "_session", lambda _: pytest.fail("a session was asked for"))
        report = IcebergSparkResource(catalog=RestCatalog(uri=uri)).check()
    assert outcomes(report)["catalog"] == "failed"
    assert outcomes(report)["session"] == "not tried"
    assert "`uri`" in report.failures[0].setting


def test_a_connect_server_that_is_down_fails_the_check_of_its_catalog() -> None:
    spark = IcebergSparkResource(remote="sc://127.0.0.1:1", catalog=SparkCatalogByName(name="prod"))
    report = spark.check()
    assert [finding.step for finding in report.failures] == ["session"]
    assert report.failures[0].is_transient
    with pytest.raises(CatalogUnavailableError):
        report.require()
    table = check_table(IcebergPySparkIOManager(spark=spark), dg.AssetSpec("t"), seconds=60)
    assert table.outcome == "failed"


def test_without_java_the_check_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    report = IcebergSparkResource(catalog=catalog).check()
    assert [finding.step for finding in report.failures] == ["Java"]
    assert "install Java 17" in report.failures[0].found


def test_a_wrong_configuration_is_reported_without_the_password() -> None:
    report = IcebergSparkResource(catalog=SqlCatalog(uri="oracle://u:hunter2@db/x", warehouse="lake")).check()
    assert [finding.step for finding in report.failures] == ["configuration"]
    assert "hunter2" not in str(report)

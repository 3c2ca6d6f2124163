"""Catalogs that a session has already, and catalogs for tests."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from dagster_iceberg_spark import (
    ConfigurationError,
    IcebergPySparkIOManager,
    IcebergSparkResource,
    InMemoryCatalog,
    SparkCatalogByName,
)
from dagster_iceberg_spark.resource import SESSIONS
from tests.lakes import CONNECT_CONF, SPARK_CONF, Lake, frame_asset

pytestmark = pytest.mark.spark

MERGE = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}


@pytest.fixture
def theirs(own_lake: Lake) -> Iterator[Lake]:
    """A session that somebody has given a catalog, on the files of another lake; the resource knows only its name."""
    conf = {
        "spark.sql.catalog.theirs": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.theirs.type": "jdbc",
        "spark.sql.catalog.theirs.uri": f"jdbc:sqlite:{own_lake.directory}/theirs.db",
        "spark.sql.catalog.theirs.jdbc.schema-version": "V1",
        "spark.sql.catalog.theirs.warehouse": f"file://{own_lake.directory}/theirs",
    }
    assert own_lake.session.range(1).count() == 1  # a JVM runs, or the server does
    remote = own_lake.spark.remote
    spark = IcebergSparkResource(
        catalog=SparkCatalogByName(name="theirs"),
        spark_config={**(CONNECT_CONF if remote else SPARK_CONF), **conf},
        remote=remote,
    )
    io_manager = IcebergPySparkIOManager(spark=spark, namespace="db")
    yield Lake(spark, io_manager, own_lake.instance, own_lake.directory)
    SESSIONS.release(id(spark), stops_when_unused="yes" if remote else "no")


@pytest.mark.parametrize("metadata", [{}, MERGE], ids=["replace", "merge"])
def test_a_catalog_that_only_the_session_knows_is_written_and_read(theirs: Lake, metadata: dict[str, Any]) -> None:
    for _ in range(2):
        theirs.materialize(frame_asset("t", "select 1 as id", metadata=metadata))
    assert theirs.rows("t", "id") == [1]
    assert len(theirs.summaries("t")) == 2
    assert theirs.spark.spark_session.sql("select * from theirs.db.t").collect()[0].id == 1


def test_an_input_without_spark_comes_from_the_session_s_catalog_too(theirs: Lake) -> None:
    seen: list[pd.DataFrame] = []
    asset = frame_asset("t", "select 1 as id")

    @dg.asset
    def reader(t: pd.DataFrame) -> None:
        seen.append(t)

    theirs.materialize(asset, reader)
    assert list(seen[0]["id"]) == [1]


def test_what_others_write_into_it_is_seen(theirs: Lake) -> None:
    """Its cache of tables is on, as Spark's default is."""
    theirs.materialize(frame_asset("t", "select 1 as id"))
    asset = frame_asset("t", "select 2 as id", metadata={"iceberg/write_disposition": "append"})
    theirs.table("t").append(theirs.arrow("t"))
    theirs.materialize(asset)
    assert theirs.rows("t", "id") == [1, 1, 2]


def test_the_check_tries_it_out(theirs: Lake) -> None:
    report = theirs.spark.check()
    assert report.is_fit, str(report)
    assert "Spark catalog 'theirs'" in str(report)


def test_a_catalog_that_the_session_does_not_have_is_named(theirs: Lake) -> None:
    conf = {key: value for key, value in theirs.spark.spark_config.items() if "catalog.theirs" not in key}
    spark = IcebergSparkResource(
        catalog=SparkCatalogByName(name="nobodys"), spark_config=conf, remote=theirs.spark.remote
    )
    with pytest.raises(ConfigurationError, match=r"`spark\.sql\.catalog\.nobodys`"):
        _ = spark.pyiceberg_catalog


def test_catalogs_in_memory_are_told_apart_by_their_keys(classic_lake: Lake) -> None:
    def lake(key: str) -> Lake:
        spark = IcebergSparkResource(catalog=InMemoryCatalog(key=key), spark_config=SPARK_CONF)
        io_manager = IcebergPySparkIOManager(spark=spark, namespace="db")
        return Lake(spark, io_manager, classic_lake.instance, classic_lake.directory)

    first, again, other = lake("first"), lake("first"), lake("other")
    first.materialize(frame_asset("t", "select 1 as id"))
    again.materialize(frame_asset("t", "select 2 as id"))
    assert first.rows("t", "id") == [2]
    assert len(first.summaries("t")) == 2
    assert not other.exists("t")

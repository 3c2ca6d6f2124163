"""The sensor on tables that plain Spark and pyiceberg write, through servers."""

import os
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import dagster as dg
import pyarrow as pa
import pytest

from dagster_iceberg_spark import IcebergSparkResource, RestCatalog, build_table_sensor, foreign_table
from tests.lakes import frame_asset, open_lake
from tests.servers.conftest import emptied
from tests.servers.guards import GuardedProxy
from tests.servers.rest import RestServer

TABLES: Final = int(os.environ.get("WATCHED_TABLES", "5"))

pytestmark = [pytest.mark.server, pytest.mark.spark]


def test_what_plain_spark_writes_through_rest_is_recorded(rest: RestServer, tmp_path: Path) -> None:
    catalog = emptied(RestCatalog(uri=rest.uri))
    for lake in open_lake(catalog, tmp_path, None):
        lake.materialize(frame_asset("t", "select 1 as id"))
        sensor = build_table_sensor([foreign_table("t", table="db.t")], lake.spark)
        cursor, found = None, []
        name = f"{lake.spark.iceberg_session.catalog.name}.db.t"
        statements = (
            None,
            f"insert into {name} values (2)",
            None,
            f"delete from {name} where id = 1",
            f"call {lake.spark.iceberg_session.catalog.name}.system.rewrite_manifests('db.t')",
        )
        for statement in statements:
            if statement is not None:
                lake.session.sql(statement).collect()
            result = sensor.evaluate_tick(dg.build_sensor_context(lake.instance, cursor=cursor))
            cursor = result.cursor
            found.append([event.metadata["iceberg/engine"].value for event in result.asset_events])
        assert found == [[], ["spark"], [], ["spark"], []]
        lake.materialize(frame_asset("t", "select 3 as id"))
        assert sensor.evaluate_tick(dg.build_sensor_context(lake.instance, cursor=cursor)).asset_events == []


def test_a_tick_asks_a_rest_catalog_once_for_each_table(rest: RestServer, capsys: pytest.CaptureFixture[str]) -> None:
    emptied(RestCatalog(uri=rest.uri))
    with closing(GuardedProxy(rest.uri, lambda _: True)) as proxy:
        spark = IcebergSparkResource(catalog=RestCatalog(uri=proxy.uri))
        catalog = spark.pyiceberg_catalog
        catalog.create_namespace_if_not_exists("db")
        rows = pa.table({"id": pa.array([1], pa.int64())})
        names = [f"watched_{number}" for number in range(TABLES)]
        tables = [catalog.create_table(("db", name), rows.schema) for name in names]
        for table in tables:
            table.append(rows)
        sensor = build_table_sensor([foreign_table(name, table=f"db.{name}") for name in names], spark)
        cursor, seen = None, []
        with dg.DagsterInstance.ephemeral() as instance:
            for writes in (False, False, True):
                for table in tables if writes else ():
                    table.append(rows)
                passed, began = len(proxy.passed), time.monotonic()
                result = sensor.evaluate_tick(dg.build_sensor_context(instance, cursor=cursor))
                cursor = result.cursor
                seen.append((len(result.asset_events), len(proxy.passed) - passed))
                with capsys.disabled():
                    sys.stdout.write(f"\n{TABLES} tables: {seen[-1]}, {time.monotonic() - began:.2f} s")
        assert [events for events, _ in seen] == [0, 0, TABLES]
        assert {requests for _, requests in seen} == {TABLES}

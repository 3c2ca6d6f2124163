"""The sensor on tables that plain Spark writes, through servers."""

from pathlib import Path

import dagster as dg
import pytest

from dagster_iceberg_spark import RestCatalog, build_table_sensor, foreign_table
from tests.conftest import frame_asset, open_lake
from tests.servers.conftest import emptied
from tests.servers.rest import RestServer

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

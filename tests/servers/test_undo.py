"""Undo on catalogs that commit one table at a time."""

import time
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark.features.releases.undo import undo_run
from tests.lakes import Lake, frame_asset

pytestmark = [pytest.mark.server, pytest.mark.spark]

PARTITIONS = dg.StaticPartitionsDefinition(["a", "b"])


@pytest.mark.parametrize("catalog", ["rest", "hive"], indirect=True)
def test_a_run_is_undone_and_its_files_outlive_the_snapshot_that_removed_them(classic_lake: Lake) -> None:
    lake = classic_lake

    def assets(query: str = "") -> list[dg.AssetsDefinition]:
        metadata = {"partition_expr": "k"}
        return [frame_asset(name, query, partitions_def=PARTITIONS, metadata=metadata) for name in ("t", "u")]

    def run(key: str, value: int) -> str:
        return str(lake.materialize(*assets(f"select '{key}' as k, {value} as v"), partition_key=key).run_id)

    definitions = dg.Definitions(assets(), resources=lake.resources)
    run("a", 1)
    undone = run("a", 2)
    run("b", 3)
    done = undo_run(definitions, undone, instance=lake.instance, report=lambda _: None)
    assert done.is_atomic is False
    java: Any = lake.session
    for name in ("t", "u"):
        assert lake.rows(name, "k", "v") == [("a", 1), ("b", 3)]
        table = java._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            java._jsparkSession, f"{lake.spark.catalog_description.name}.db.{name}"
        )
        table.expireSnapshots().expireOlderThan(time.time_ns() // 1_000_000 + 1).retainLast(1).commit()
        assert lake.rows(name, "k", "v") == [("a", 1), ("b", 3)]

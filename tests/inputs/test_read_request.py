"""Turning an InputContext into a read request."""

from typing import Any

import dagster as dg

from dagster_iceberg_spark.addressing import partition_scope
from dagster_iceberg_spark.inputs.read_request import read_request
from dagster_iceberg_spark.plan.read_options import ReadOptions
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.scope import PartitionScope

KEY = dg.AssetKey(["raw", "nyc", "flights"])


def scope(definition: dg.PartitionsDefinition, keys: list[str], columns: Any = "ts") -> PartitionScope:
    return partition_scope(definition, keys, columns, subject="nyc/flights")


def output(**context: Any) -> dg.OutputContext:
    return dg.build_output_context(**{"asset_key": KEY, **context})


def test_an_input_reads_the_table_of_its_upstream_asset() -> None:
    upstream = output(definition_metadata={"schema": "other"})
    context = dg.build_input_context(
        name="flights",
        upstream_output=upstream,
        asset_key=KEY,
        dagster_type=dg.PythonObjectDagsterType(int),
        definition_metadata={"columns": ["a"], "iceberg/ref": "v1"},
    )
    request = read_request(context, namespace="db")
    assert request.annotation.type is int
    assert request.identifier == TableIdentifier(("other",), "flights")
    assert (request.asset, request.options) == ("raw/nyc/flights", ReadOptions(columns=("a",), ref="v1"))
    assert request.scope.is_whole_table

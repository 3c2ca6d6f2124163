"""Turning an InputContext into a read request."""

from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark.assets.address import partition_scope
from dagster_iceberg_spark.assets.asking import input_facts
from dagster_iceberg_spark.assets.read_requests import ReadRequest, read_request
from dagster_iceberg_spark.errors import MetadataKeyError, PartitioningError
from dagster_iceberg_spark.plan.read.read_options import ReadOptions
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
    request = read_request(input_facts(context), namespace="db")
    assert request.annotation.type is int
    assert request.identifier == TableIdentifier(("other",), "flights")
    assert (request.asset, request.options) == ("raw/nyc/flights", ReadOptions(columns=("a",), ref="v1"))
    assert request.scope.is_whole_table


def of_input(rows: Any = int, **context: Any) -> ReadRequest:
    """Return the request of an input whose rows have this annotation."""
    dagster_type = dg.DagsterType(lambda _, __: True, name="rows", typing_type=rows)
    return read_request(
        input_facts(dg.build_input_context(name="rows", dagster_type=dagster_type, **context)), namespace="db"
    )


def test_an_input_of_an_op_names_its_table() -> None:
    named = of_input(definition_metadata={"iceberg/table": "a.up"})
    assert (named.identifier, named.is_of_asset) == (TableIdentifier(("a",), "up"), False)
    with pytest.raises(MetadataKeyError) as caught:
        of_input()
    assert str(caught.value).startswith("Cannot load the input 'rows': expected the table's name")
    assert 'Hint: use `In(input_manager_key=..., metadata={"iceberg/table"' in str(caught.value)


def test_an_input_of_an_asset_names_no_table() -> None:
    with pytest.raises(MetadataKeyError, match="`iceberg/table` in the definition of the upstream asset or output"):
        of_input(asset_key=KEY, definition_metadata={"iceberg/table": "db.other"})


def test_an_asset_without_partitions_has_none_one_by_one() -> None:
    with pytest.raises(PartitioningError, match="Cannot load raw/nyc/flights: expected partitions, for an input"):
        of_input(dict[str, int], asset_key=KEY)


def test_a_limit_is_not_of_each_partition() -> None:
    with pytest.raises(MetadataKeyError, match="expected no limit for an input by partition key, found 3"):
        of_input(dict[str, int], asset_key=KEY, definition_metadata={"iceberg/limit": 3})

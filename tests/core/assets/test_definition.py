"""The table that an asset's definition asks for."""

import dagster as dg
import pytest

from dagster_iceberg_spark.assets.write_requests import defined_table, table_request
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.options.output_options import parse_write_options
from dagster_iceberg_spark.table.identifier import TableIdentifier

SCHEMA = dg.TableSchema([dg.TableColumn("ts", "timestamptz", "When it left."), dg.TableColumn("id", "long")])


def test_a_definition_asks_for_the_table_of_its_key() -> None:
    spec = dg.AssetSpec(dg.AssetKey(["nyc", "flights"]))
    defined = defined_table(spec, namespace="lake", configuration={})
    assert defined.request.identifier == TableIdentifier(("lake",), "flights")
    assert (defined.request.asset_key, defined.request.is_named_explicitly) == ("nyc/flights", False)
    assert (defined.partition_columns, defined.declared_types) == ((), None)


def test_its_metadata_names_another_table_and_its_columns() -> None:
    spec = dg.AssetSpec(
        "flights",
        metadata={"iceberg/table": "a.b", "dagster/column_schema": SCHEMA, "partition_expr": "ts"},
        partitions_def=dg.DailyPartitionsDefinition("2013-01-01"),
    )
    defined = defined_table(spec, namespace=None, configuration={})
    assert (defined.request.identifier, defined.request.is_named_explicitly) == (TableIdentifier(("a",), "b"), True)
    assert defined.partition_columns == ("ts",)
    assert defined.declared_types == {"ts": "timestamptz", "id": "long"}
    assert defined.request.column_docs == {"ts": "When it left."}


def test_the_output_of_an_op_owns_no_table() -> None:
    options = parse_write_options({}, None, {}, subject="an op")
    request = table_request(TableIdentifier(("a",), "b"), None, None, options)
    assert request.asset_key is None


def test_a_column_schema_of_another_type_is_refused() -> None:
    spec = dg.AssetSpec("flights", metadata={"dagster/column_schema": "ts, id"})
    with pytest.raises(ConfigurationError, match=r"expected a dagster.TableSchema, found str|TextMetadataValue"):
        defined_table(spec, namespace="lake", configuration={})

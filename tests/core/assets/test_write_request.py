"""Turning an OutputContext into a write request."""

from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark.assets.address import partition_scope
from dagster_iceberg_spark.assets.asking import output_facts
from dagster_iceberg_spark.assets.write_requests import write_request
from dagster_iceberg_spark.errors import ConfigurationError, MetadataKeyError, PartitioningError
from dagster_iceberg_spark.plan.write.placement import TableCreation
from dagster_iceberg_spark.plan.write.write_request import RetryLimits, WriteRequest
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import RUN_WITHOUT_STEP
from dagster_iceberg_spark.table.scope import PartitionScope
from tests.core.table.samples import NEW_YORK

DAYS = dg.DailyPartitionsDefinition("2013-01-01", timezone=NEW_YORK)
KEY = dg.AssetKey(["raw", "nyc", "flights"])


def scope(definition: dg.PartitionsDefinition, keys: list[str], columns: Any = "ts") -> PartitionScope:
    return partition_scope(definition, keys, columns, subject="nyc/flights")


def output(**context: Any) -> dg.OutputContext:
    return dg.build_output_context(**{"asset_key": KEY, **context})


def requested(context: dg.OutputContext) -> WriteRequest:
    return write_request(
        output_facts(context), namespace="db", configuration={}, creation=TableCreation(), limits=RetryLimits()
    )


def written(**context: Any) -> WriteRequest:
    return requested(output(**context))


def test_a_write_request_has_the_table_and_options() -> None:
    request = written(definition_metadata={"iceberg/write_disposition": "append"})
    assert request.table.identifier == TableIdentifier(("db",), "flights")
    assert (request.table.asset_key, request.table.is_named_explicitly) == ("raw/nyc/flights", False)
    assert request.table.options.write_disposition == request.materialization.write_disposition == "append"
    assert request.materialization.scope.is_whole_table


def test_an_explicit_table_name_is_marked_as_explicit() -> None:
    request = written(definition_metadata={"iceberg/table": "a.b"})
    assert request.table.is_named_explicitly
    assert request.table.identifier == TableIdentifier(("a",), "b")


def test_run_metadata_overrides_the_definition() -> None:
    request = written(
        definition_metadata={"iceberg/write_disposition": "append"},
        output_metadata={"iceberg/write_disposition": "replace"},
    )
    assert request.table.options.write_disposition == "replace"


def test_a_context_built_by_hand_never_finds_an_earlier_commit() -> None:
    first, second = written(), written()
    assert first.materialization.run_id == RUN_WITHOUT_STEP
    assert first.candidates == ()
    assert first.materialization.commit_token != second.materialization.commit_token
    assert first.record_of(1) == "none"


def test_an_output_of_a_partition_owns_its_window() -> None:
    metadata = {"partition_expr": "scheduled_at"}
    request = written(partition_key="2013-01-01", asset_partitions_def=DAYS, definition_metadata=metadata)
    assert request.materialization.scope.keys == ("2013-01-01",)
    assert request.materialization.scope.dimensions[0].column == "scheduled_at"


def test_an_output_of_a_partition_names_its_column() -> None:
    with pytest.raises(PartitioningError, match="Cannot partition raw/nyc/flights: expected `partition_expr` with"):
        written(partition_key="2013-01-01", asset_partitions_def=DAYS)


def test_an_output_of_an_op_names_its_table() -> None:
    with pytest.raises(MetadataKeyError) as caught:
        written(asset_key=None, name="result", step_key="make")
    assert "Cannot store the output 'result' of make: expected the table's name in its metadata" in str(caught.value)
    assert 'Hint: use `Out(io_manager_key=..., metadata={"iceberg/table": ' in str(caught.value)


@pytest.mark.parametrize("key", [None, ""])
def test_a_run_without_partitions_writes_none(key: str | None) -> None:
    errors: list[PartitioningError] = []

    class Writes(dg.IOManager):
        def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
            with pytest.raises(PartitioningError) as caught:
                requested(context)
            errors.append(caught.value)

        def load_input(self, context: dg.InputContext) -> None: ...

    @dg.asset(
        io_manager_key="iceberg",
        partitions_def=dg.StaticPartitionsDefinition(["a", ""]),
        metadata={"partition_expr": "k"},
    )
    def t() -> int:
        return 1

    dg.materialize([t], resources={"iceberg": Writes()}, partition_key=key)
    (error,) = errors
    assert "Cannot write t: expected a run of some of the asset's partitions, found a run without" in str(error)


def test_column_descriptions_become_docs() -> None:
    columns = dg.TableSchema([dg.TableColumn("a", description="the a"), dg.TableColumn("b")])
    request = written(definition_metadata={"dagster/column_schema": columns})
    assert request.table.column_docs == {"a": "the a"}
    with pytest.raises(ConfigurationError, match=r"expected a dagster.TableSchema, found dict"):
        written(definition_metadata={"dagster/column_schema": {"a": "x"}})


def test_an_unknown_key_is_refused_with_the_asset_s_name() -> None:
    with pytest.raises(MetadataKeyError, match=r"the metadata of raw/nyc/flights: .*did you mean `iceberg/branch`"):
        written(definition_metadata={"iceberg/branh": "x"})


def test_a_table_of_none_is_not_explicit() -> None:
    request = written(definition_metadata={"iceberg/table": None})
    assert not request.table.is_named_explicitly
    assert request.table.identifier == TableIdentifier(("db",), "flights")


def test_unneeded_address_keys_are_not_parsed() -> None:
    """Another tool's `schema` does not matter if `iceberg/table` names the table."""
    request = written(definition_metadata={"iceberg/table": "a.b", "schema": 3, "partition_expr": ["no"]})
    assert request.table.identifier == TableIdentifier(("a",), "b")

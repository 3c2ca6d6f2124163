"""Asset checks of tables, run by Dagster.

docs/check.md: In Dagster
"""

from typing import Any

import dagster as dg
import pytest
from pyiceberg.types import StringType

from dagster_iceberg_spark import build_table_checks
from tests.lakes import Lake, frame_asset

pytestmark = pytest.mark.spark


def evaluated(lake: Lake, *definitions: Any, **kwargs: Any) -> dg.AssetCheckEvaluation:
    result = lake.materialize(*definitions, **kwargs)
    [evaluation] = result.get_asset_check_evaluations()
    return evaluation


def checked(lake: Lake, asset: dg.AssetsDefinition, **options: Any) -> dg.AssetCheckEvaluation:
    """Return the evaluation of the asset's check. Nothing is materialized."""
    [check] = build_table_checks([asset], **options)
    selection = dg.AssetSelection.checks(check)
    return evaluated(lake, asset, check, selection=selection)


def test_a_table_that_matches_passes_in_the_run_that_writes_it(classic_lake: Lake) -> None:
    asset = frame_asset("t", "select 1 as id", metadata={"iceberg/table_properties": {"write.format.default": "orc"}})
    evaluation = evaluated(classic_lake, asset, *build_table_checks([asset]))
    assert (evaluation.passed, evaluation.description) == (True, "db.t matches the definition")


def test_a_missing_table_passes(classic_lake: Lake) -> None:
    evaluation = checked(classic_lake, frame_asset("t", "select 1 as id"))
    assert evaluation.passed
    assert "does not exist yet" in str(evaluation.description)


def test_a_missing_namespace_is_an_error_without_auto_create(classic_lake: Lake) -> None:
    asset, careful = frame_asset("t", "select 1 as id"), classic_lake.with_options(auto_create_namespace=False)
    evaluation = checked(careful, asset)
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert "as `auto_create_namespace` is false" in str(evaluation.description)
    classic_lake.spark.pyiceberg_catalog.create_namespace("db")
    assert checked(careful, asset).passed


def test_a_change_by_the_next_write_is_a_warning(classic_lake: Lake) -> None:
    asset = frame_asset("t", "select 1 as id")
    classic_lake.materialize(asset)
    evaluation = checked(classic_lake, frame_asset("t", "select 1 as id", metadata={"iceberg/partition_by": ["id"]}))
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert evaluation.description == "db.t: add partition field id"


def test_a_change_by_another_program_is_detected(classic_lake: Lake) -> None:
    columns = dg.TableSchema(columns=[dg.TableColumn("id", "int")])
    asset = frame_asset("t", "select 1 as id", metadata={"dagster/column_schema": columns})
    classic_lake.materialize(asset)
    assert checked(classic_lake, asset).passed
    with classic_lake.table("t").update_schema() as update:
        update.add_column("note", StringType())
    evaluation = checked(classic_lake, asset)
    assert not evaluation.passed
    assert "the table has the column 'note'" in str(evaluation.description)


def test_a_difference_that_the_next_write_would_refuse_is_an_error(classic_lake: Lake) -> None:
    classic_lake.materialize(frame_asset("t", "select 1 as id", key_prefix="a"))
    evaluation = checked(classic_lake, frame_asset("t", "select 1 as id", key_prefix="b"))
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert "found a table of the asset 'a/t'" in str(evaluation.description)


def test_a_partitioned_asset_without_partition_expr_is_an_error(classic_lake: Lake) -> None:
    asset = frame_asset("t", "select 1 as id", partitions_def=dg.StaticPartitionsDefinition(["x"]))
    evaluation = checked(classic_lake, asset)
    assert evaluation.severity == dg.AssetCheckSeverity.ERROR
    assert "`partition_expr`" in str(evaluation.description)


def test_the_catalog_is_checked_on_request(lake: Lake) -> None:
    evaluation = checked(lake, frame_asset("t", "select 1 as id"), extent="catalog")
    assert evaluation.passed, evaluation.description
    table = evaluation.metadata["iceberg/findings"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [record.data["step"] for record in table.records][-3:] == ["read by pyiceberg", "clean up", "table"]


def test_another_io_manager_is_refused_by_name(classic_lake: Lake) -> None:
    @dg.asset(io_manager_key="io_manager")
    def elsewhere() -> int:
        return 1

    result = classic_lake.materialize(elsewhere, *build_table_checks([elsewhere]), raise_on_error=False)
    [failure] = [event for event in result.all_events if event.is_step_failure]
    assert "expected an IcebergPySparkIOManager" in str(failure.step_failure_data.error)

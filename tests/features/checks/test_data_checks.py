"""Asset checks of the rows that a table shows.

docs/audits.md: Checks of published rows
"""

import datetime as dt
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog as PyIcebergSqlCatalog

from dagster_iceberg_spark import (
    ConfigurationError,
    IcebergPySparkIOManager,
    IcebergSparkResource,
    SqlCatalog,
    build_data_checks,
)
from tests.lakes import Lake, frame_asset

ASKED: Any = {
    "not_null": ["id"],
    "in_range": {"v": (0, 10)},
    "row_count": (2, 5),
    "fresh": dt.timedelta(hours=1),
    "change": {"added_rows": 0.5},
}


@dg.asset(io_manager_key="iceberg")
def t() -> None: ...


def evaluated(resources: dict[str, Any], *checks: dg.AssetChecksDefinition) -> dict[str, dg.AssetCheckEvaluation]:
    """Run the checks alone."""
    job = dg.define_asset_job("checks", dg.AssetSelection.checks(*checks))
    definitions = dg.Definitions([t], asset_checks=checks, jobs=[job], resources=resources)
    result = definitions.resolve_job_def("checks").execute_in_process()
    return {item.check_name: item for item in result.get_asset_check_evaluations()}


@pytest.fixture
def resources(tmp_path: Path) -> dict[str, Any]:
    """A lake whose Spark cannot start."""
    catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh"))
    spark = IcebergSparkResource(catalog=catalog, remote="sc://127.0.0.1:1")
    return {"iceberg": IcebergPySparkIOManager(spark=spark, namespace="db")}


def test_metadata_answers_without_spark(resources: dict[str, Any], tmp_path: Path) -> None:
    checks = build_data_checks(t, **ASKED)
    before = evaluated(resources, checks)
    assert {name: item.passed for name, item in before.items()} == {
        "not_null_id": False,
        "in_range_v": False,
        "row_count": False,
        "fresh": False,
        "change_in_added_rows": True,
    }
    catalog = PyIcebergSqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh"))
    catalog.create_namespace("db")
    table = catalog.create_table(("db", "t"), pa.schema([("id", pa.int64()), ("v", pa.int64())]))
    table.append(pa.table({"id": [1, 2], "v": [3, None]}))
    found = evaluated(resources, checks)
    assert {item.passed for item in found.values()} == {True}
    assert {item.metadata["iceberg/evaluated_by"].value for item in found.values()} == {"metadata"}
    table.append(pa.table({"id": [1, 2, 3, 4], "v": [3, 4, 5, 6]}))
    found = evaluated(resources, checks)
    assert {name for name, item in found.items() if not item.passed} == {"row_count", "change_in_added_rows"}
    assert found["row_count"].metadata["count(*)"].value == 6
    assert "Expected added_rows within 50%" in str(found["change_in_added_rows"].description)


@pytest.mark.spark
@pytest.mark.full
def test_what_metadata_does_not_determine_is_one_aggregate(lake: Lake) -> None:
    lake.materialize(frame_asset("t", "select 1L as id, 20L as v union all select 1L, 5L union all select null, 1L"))
    checks = build_data_checks(t, **ASKED, unique=["id"], severity="warn")
    found = evaluated(lake.resources, checks)
    assert {name for name, item in found.items() if not item.passed} == {"not_null_id", "in_range_v", "unique"}
    assert {item.severity for item in found.values()} == {dg.AssetCheckSeverity.WARN}
    assert found["unique"].metadata["iceberg/evaluated_by"].value == "scan"


def test_wrong_arguments_are_configuration_errors() -> None:
    with pytest.raises(ConfigurationError, match="Cannot build data checks: expected arguments as documented"):
        build_data_checks(t, fresh="soon")

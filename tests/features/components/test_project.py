"""A project as Dagster's command line makes it: three files, and its assets are materialized.

docs/components.md: Three files and `dg dev`
"""

import datetime as dt
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import NestedField, TimestamptzType

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HOURS = """\
/* ---
partitions_def: {type: daily, start_date: "2024-01-01", timezone: Europe/Berlin}
partition_expr: at
--- */
SELECT explode(sequence({{ partition.start }}, {{ partition.end }} - INTERVAL 1 HOUR, INTERVAL 1 HOUR)) AS at
"""
DAYS = """\
/* ---
partitions_def: {type: daily, start_date: "2024-01-01", timezone: Europe/Berlin}
partition_expr: day
--- */
SELECT date({{ partition.key }}) AS day, count(*) AS hours FROM {{ ref('hours') }}
"""
MASTER = "spark_config: {spark.ui.enabled: 'false', spark.master: 'local[1]', spark.driver.host: 127.0.0.1}"


def run(directory: Path, *command: str) -> str:
    """Run a command of the environment in which the tests run, and return what it prints."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(directory / "src"),
        "DAGSTER_HOME": "",
        "PYTHONWARNINGS": "ignore",
        "CI": "true",
    }
    script = Path(sys.executable).with_name(command[0])
    done = subprocess.run(
        [str(script), *command[1:]], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.timeout(600)
def test_three_files_make_a_project_that_runs(tmp_path: Path) -> None:
    run(tmp_path, "create-dagster", "project", "proj", "--no-uv-sync")
    project = tmp_path / "proj"
    assert "dagster_iceberg_spark.SparkSqlComponent" in run(project, "dg", "list", "components", "--json")
    run(project, "dg", "scaffold", "defs", "dagster_iceberg_spark.IcebergLakeComponent", "lake")
    run(project, "dg", "scaffold", "defs", "dagster_iceberg_spark.SparkSqlComponent", "models")
    definitions = project / "src" / "proj" / "defs"
    lake, models = definitions / "lake" / "defs.yaml", definitions / "models"
    lake.write_text(lake.read_text().replace("  io_manager:", f"    {MASTER}\n  io_manager:"))
    (models / "hours.sql").write_text(HOURS)
    (models / "days.sql").write_text(DAYS)
    run(project, "dg", "check", "yaml")
    run(project, "dg", "check", "defs")
    listed = json.loads(run(project, "dg", "list", "defs", "--json"))
    deps = {asset["asset_key"]: asset["dependency_keys"] for asset in listed["assets"]}
    assert deps == {"example": [], "hours": [], "days": ["hours"]}
    run(project, "dg", "launch", "--assets", "hours,days", "--partition", "2024-03-31")
    catalog = SqlCatalog("lake", uri=f"sqlite:///{project}/lake/catalog.db", warehouse=str(project / "lake"))
    (row,) = catalog.load_table(("public", "days")).scan().to_arrow().to_pylist()
    assert (str(row["day"]), row["hours"]) == ("2024-03-31", 23)  # the clocks go forward
    lake.write_text(lake.read_text() + "  maintenance:\n    policy: {min_snapshots: 1}\n")
    run(project, "dg", "launch", "--assets", "hours,days", "--partition", "2024-03-31")
    run(project, "dg", "launch", "--job", "iceberg_maintenance")
    assert "dagster.maintained_at" in catalog.load_table(("public", "hours")).properties

    catalog.create_namespace("raw")
    sensors = catalog.create_table(("raw", "sensors"), Schema(NestedField(1, "at", TimestamptzType())))
    with sensors.update_spec() as update:
        update.add_field("at", DayTransform(), "at_day")
    sensors.append(
        pa.table({"at": pa.array([dt.datetime(2024, 3, 31, tzinfo=dt.timezone.utc)], pa.timestamp("us", "UTC"))})
    )
    run(project, "dg", "scaffold", "defs", "dagster_iceberg_spark.IcebergTablesComponent", "foreign")
    foreign = definitions / "foreign" / "defs.yaml"
    written = foreign.read_text()
    run(project, "dg", "check", "yaml")
    run(project, "dg", "utils", "refresh-defs-state")
    listed = json.loads(run(project, "dg", "list", "defs", "--json"))
    assert {asset["asset_key"] for asset in listed["assets"]} == {"example", "hours", "days", "raw/sensors"}
    assert [sensor["name"] for sensor in listed["sensors"]] == ["foreign_tables"]
    assert "watch: true" in written

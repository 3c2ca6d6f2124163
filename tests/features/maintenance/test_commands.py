"""The commands `health` and `maintain`, on tables that pyiceberg makes.

docs/maintenance.md: By hand; Health
"""

import datetime as dt
import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog.sql import SqlCatalog as PyIcebergSqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.types import LongType, NestedField, TimestamptzType

from dagster_iceberg_spark.cli.app import app

LOCATION = """
import dagster as dg
from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog

@dg.asset(io_manager_key="iceberg", metadata=%(metadata)r)
def flights(): ...

catalog = SqlCatalog(uri="sqlite:///%(path)s/catalog.db", warehouse="%(path)s/wh")
io_manager = IcebergPySparkIOManager(spark=IcebergSparkResource(catalog=catalog), namespace="db")
defs = dg.Definitions(assets=[flights], resources={"iceberg": io_manager})
"""
BROKEN = """
@dg.asset(io_manager_key="iceberg")
def broken(): ...

defs = dg.Definitions(assets=[broken, flights"""
SCHEMA = Schema(NestedField(1, "ts", TimestamptzType()), NestedField(2, "id", LongType()))
DAILY = PartitionSpec(PartitionField(1, 1000, DayTransform(), "ts_day"))


@pytest.fixture
def flights(tmp_path: Path) -> Table:
    """A table with five files of one day, and a file of another one."""
    catalog = PyIcebergSqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh"))
    catalog.create_namespace("db")
    table = catalog.create_table(("db", "flights"), SCHEMA, partition_spec=DAILY)
    for hour in (0, 1, 2, 3, 4, 24):
        at = dt.datetime(2026, 11, 1, tzinfo=dt.timezone.utc) + dt.timedelta(hours=hour)
        columns = {"ts": pa.array([at], pa.timestamp("us", "UTC")), "id": pa.array([hour], pa.int64())}
        table.append(pa.table(columns))
    return table


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def location(directory: Path, **metadata: Any) -> str:
    path = directory / "location.py"
    keyed = {f"iceberg/{key}": value for key, value in metadata.items()}
    path.write_text(LOCATION % {"path": directory, "metadata": keyed})
    return str(path)


def by_flags(directory: Path) -> list[str]:
    return ["--kind", "sql", "--uri", f"sqlite:///{directory}/catalog.db", "--warehouse", str(directory / "wh")]


def test_the_health_of_a_code_location_is_shown(flights: Table, tmp_path: Path) -> None:
    result = run("health", "-f", location(tmp_path))
    assert result.exit_code == 1, result.output
    assert "db.flights" in result.output
    assert "db.flights: needs compaction of 1 partition: ts_day=2026-11-01." in result.output


def test_an_asset_has_its_own_thresholds(flights: Table, tmp_path: Path) -> None:
    result = run("health", "-f", location(tmp_path, maintenance={"min_input_files": 6}), "--json")
    assert result.exit_code == 0, result.output
    [found] = json.loads(result.output)
    assert (found["is_healthy"], found["files"], found["small_files"], found["snapshots"]) == (True, 6, 6, 6)
    assert found["bytes"] == sum(item.file.file_size_in_bytes for item in flights.scan().plan_files())
    assert found["metadata_bytes"] == Path(flights.metadata_location.removeprefix("file://")).stat().st_size
    manifests = flights.inspect.manifests()
    assert found["manifests"] == len(manifests)
    assert found["average_manifest_bytes"] == sum(manifests.column("length").to_pylist()) // len(manifests)


def test_the_health_of_a_catalog_is_shown_and_of_what_cannot_be_read(flights: Table, tmp_path: Path) -> None:
    flights.catalog.create_table(("db", "empty"), SCHEMA)
    result = run("health", *by_flags(tmp_path), "--json")
    assert [item["table"] for item in json.loads(result.output)] == ["db.empty", "db.flights"]
    assert result.exit_code == 1
    result = run("health", *by_flags(tmp_path), "--table", "db.empty", "--table", "db.missing", "--json")
    assert (result.exit_code, [item.get("error") for item in json.loads(result.output)]) == (
        2,
        [None, "The table does not exist."],
    )
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        database.execute("update iceberg_tables set metadata_location = '/nowhere' where table_name = 'empty'")
    result = run("health", *by_flags(tmp_path))
    assert result.exit_code == 2
    assert "db.empty: unknown. Cannot" in result.output
    assert "db.flights: needs compaction" in result.output


def test_a_file_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    for command in ("health", "history"):
        table = ["db.flights"] if command == "history" else []
        result = run(command, *table, "--kind", "sql", "--uri", f"sqlite:///{tmp_path}/typo/c.db", "--warehouse", "wh")
        assert (result.exit_code, f"There is no SQLite file {tmp_path}/typo/c.db" in result.output) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_branch_shows_what_it_keeps(flights: Table, tmp_path: Path) -> None:
    first = flights.snapshots()[0].snapshot_id
    flights.manage_snapshots().create_tag(first, "audit").commit()
    settings = {"older_than": "0 days", "retain_last": 1, "min_snapshots": 2}
    result = run("health", "-f", location(tmp_path, maintenance=settings))
    assert "the tag 'audit' keeps a snapshot and 0 bytes of data files" in result.output
    assert "needs expiry of 4 of 6 snapshots" in result.output


def test_a_dry_run_shows_the_plan_and_changes_nothing(flights: Table, tmp_path: Path) -> None:
    settings = {"older_than": "0 days", "retain_last": 1, "min_snapshots": 2}
    before = flights.refresh().metadata_location
    result = run("maintain", "-f", location(tmp_path, maintenance=settings), "--dry-run")
    assert result.exit_code == 0, result.output
    assert [line.strip() for line in result.output.splitlines()][:4] == [
        "db.flights:",
        "compact ts_day=2026-11-01",
        "expire 5 snapshots",
        "look for files that belong to no snapshot",
    ]
    assert "one of the newest snapshots of `main`" in result.output
    result = run("maintain", "-f", location(tmp_path, maintenance=settings), "--dry-run", "--json")
    [found] = json.loads(result.output)
    assert found["plan"]["actions"][1] == "expire 5 snapshots"
    assert flights.refresh().metadata_location == before


def test_the_command_asks_and_does_nothing_without_an_answer(flights: Table, tmp_path: Path) -> None:
    before = flights.refresh().metadata_location
    result = run("maintain", "-f", location(tmp_path))
    assert (result.exit_code, "Do this?" in result.output) == (1, True)
    assert flights.refresh().metadata_location == before


def test_an_excluded_table_is_left_alone(flights: Table, tmp_path: Path) -> None:
    result = run("maintain", "-f", location(tmp_path, maintenance=False), "--dry-run")
    assert (result.exit_code, result.output) == (0, "There is no table.\n")


def test_the_error_of_a_table_does_not_stop_the_others(flights: Table, tmp_path: Path) -> None:
    flights.catalog.create_table(("db", "broken"), SCHEMA)
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        database.execute("update iceberg_tables set metadata_location = '/nowhere' where table_name = 'broken'")
    path = Path(location(tmp_path))
    path.write_text(path.read_text().replace("defs = dg.Definitions(assets=[flights", BROKEN))
    result = run("maintain", "-f", str(path), "--dry-run")
    assert result.exit_code == 2, result.output
    lines = [line.strip() for line in result.output.splitlines()]
    assert lines[lines.index("db.broken:") + 1].startswith("cannot be maintained: Cannot")
    assert lines[lines.index("db.flights:") + 1] == "compact ts_day=2026-11-01"


def test_nothing_expires_while_a_table_cannot_be_read(flights: Table, tmp_path: Path) -> None:
    flights.catalog.create_table(("db", "reader"), SCHEMA)
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        database.execute("update iceberg_tables set metadata_location = '/nowhere' where table_name = 'reader'")
    settings = {"older_than": "0 days", "retain_last": 1, "min_snapshots": 2}
    result = run("maintain", "-f", location(tmp_path, maintenance=settings), "--dry-run")
    assert result.exit_code == 0, result.output
    assert (
        "all snapshots stay, because what db.reader needs cannot be determined: it could not be read" in result.output
    )
    assert "expire 5 snapshots" not in result.output

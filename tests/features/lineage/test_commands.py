"""The commands `history`, `impact` and `why`, on tables that pyiceberg makes.

docs/lineage.md: What has happened to a table?; What was derived from a snapshot?
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog.sql import SqlCatalog as PyIcebergSqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from dagster_iceberg_spark.cli.app import app

LOCATION = """
import dagster as dg
from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog

days = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-03-01")

@dg.asset(io_manager_key="iceberg", partitions_def=days, metadata={"partition_expr": "day"})
def flights(): ...

@dg.asset(io_manager_key="iceberg")
def report(flights): ...

catalog = SqlCatalog(uri="sqlite:///%(path)s/catalog.db", warehouse="%(path)s/wh")
io_manager = IcebergPySparkIOManager(spark=IcebergSparkResource(catalog=catalog), namespace="db")
defs = dg.Definitions(assets=[flights, report], resources={"iceberg": io_manager})
"""
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", StringType()))
RUN = "5d0f3c1e-0000-4000-8000-00000000000"


def write(table: Table, number: int, day: str, *, run: int, reads: Any = (), **summary: str) -> int:
    """Add a row with the summary of a run of the asset, and return the snapshot."""
    lineage = {
        "dagster.asset_key": table.name()[-1],
        "dagster.run_id": f"{RUN}{run}",
        "dagster.write_disposition": "replace",
        "dagster.upstream": json.dumps(list(reads)),
        **summary,
    }
    rows = pa.table({"id": pa.array([number], pa.int64()), "day": [day]})
    table.append(rows, snapshot_properties=lineage)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


@pytest.fixture
def snapshots(tmp_path: Path) -> list[int]:
    """Two days of flights, the first of them written twice, and a report of the first."""
    (tmp_path / "location.py").write_text(LOCATION % {"path": tmp_path})
    catalog = PyIcebergSqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh"))
    catalog.create_namespace("db")
    flights, report = (catalog.create_table(("db", name), SCHEMA) for name in ("flights", "report"))
    first, second = ({"dagster.partition_keys": f"2013-01-0{day}"} for day in (1, 2))
    made = [write(flights, 1, "2013-01-01", run=1, **first, **{"dagster.code_version": "7"})]
    made.append(write(flights, 2, "2013-01-02", run=2, **second))
    read = {"asset": "flights", "table": "db.flights", "snapshot_id": made[-1], "scope": "2013-01-01"}
    made.append(write(report, 5, "x", run=3, reads=[read]))
    made.append(write(flights, 3, "2013-01-01", run=4, **first))
    return made


def run(directory: Path, command: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, [command, *arguments, "-f", str(directory / "location.py")])


def test_the_history_is_a_table_of_snapshots(snapshots: list[int], tmp_path: Path) -> None:
    found = json.loads(run(tmp_path, "history", "db.flights", "--json").output)
    assert [(item["snapshot_id"], item["run_id"][-1], item["partitions"], item["change"]) for item in found] == [
        (str(snapshots[3]), "4", "2013-01-01", "replace"),
        (str(snapshots[1]), "2", "2013-01-02", "replace"),
        (str(snapshots[0]), "1", "2013-01-01", "replace"),
    ]
    text = run(tmp_path, "history", "db.flights", "--limit", "1").output
    assert f"{snapshots[3]}  replace  2013-01-01      1        0  flights  5d0f3c1e" in text
    assert "2013-01-02" not in text


def test_the_impact_of_a_snapshot_is_what_was_made_of_its_rows(snapshots: list[int], tmp_path: Path) -> None:
    found = json.loads(run(tmp_path, "impact", f"db.flights@{snapshots[0]}", "--json").output)
    assert [(item["table"], item["snapshot_id"], item["current"]) for item in found] == [
        ("db.report", str(snapshots[2]), True)
    ]
    assert f"db.report  {snapshots[2]}" in run(tmp_path, "impact", f"db.flights@{snapshots[0]}").output
    assert "Nothing was derived from it." in run(tmp_path, "impact", f"db.flights@{snapshots[1]}").output


def test_a_branch_names_its_newest_snapshot(snapshots: list[int], tmp_path: Path) -> None:
    catalog = PyIcebergSqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh"))
    catalog.load_table("db.flights").manage_snapshots().create_tag(snapshots[0], "first").commit()
    assert f"db.report  {snapshots[2]}" in run(tmp_path, "impact", "db.flights@first").output
    assert "Nothing was derived from it." in run(tmp_path, "impact", "db.flights@main").output
    text = run(tmp_path, "history", "db.flights").output
    assert [line.split()[-1] for line in text.splitlines() if "refs" in line or "first" in line] == ["refs", "first"]
    found = json.loads(run(tmp_path, "history", "db.flights", "--json").output)
    assert [item["refs"] for item in found] == [[], [], ["first"]]


def test_what_a_rollback_has_taken_off_main_is_in_the_history(snapshots: list[int], tmp_path: Path) -> None:
    catalog = PyIcebergSqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh"))
    catalog.load_table("db.flights").manage_snapshots().rollback_to_snapshot(snapshots[0]).commit()
    found = json.loads(run(tmp_path, "history", "db.flights", "--json").output)
    assert [(item["snapshot_id"], item["rolled_back"]) for item in found] == [
        (str(snapshots[3]), True),
        (str(snapshots[1]), True),
        (str(snapshots[0]), False),
    ]
    assert "flights (rolled back)  5d0f3c1e" in run(tmp_path, "history", "db.flights", "--limit", "1").output


def test_a_row_is_explained_by_the_run_that_wrote_it_and_what_it_read(snapshots: list[int], tmp_path: Path) -> None:
    text = run(tmp_path, "why", "db.report", "--where", "id = 5", "--deep").output.splitlines()
    assert text[0] == "id=5, day=x"
    assert f"db.report: snapshot {snapshots[2]}" in text[1]
    assert text[1].endswith(f"replace of the whole table by report, run {RUN}3")
    assert text[2] == f"    derived from db.flights, snapshot {snapshots[1]}, 2013-01-01"
    assert text[3].startswith(f"      db.flights: snapshot {snapshots[0]}")
    assert text[3].endswith(f"replace of 2013-01-01 by flights, run {RUN}1, code version 7")
    assert len(text) == 4
    (found,) = json.loads(run(tmp_path, "why", "db.flights", "--where", "id > 2", "--json").output)
    assert (found["snapshot_id"], found["rows"], found["inputs"]) == (
        str(snapshots[3]),
        [{"id": 3, "day": "2013-01-01"}],
        [],
    )
    assert "No row of db.flights matches." in run(tmp_path, "why", "db.flights", "--where", "id = 9").output


@pytest.mark.full
def test_a_catalog_without_a_code_location_has_a_history_too(snapshots: list[int], tmp_path: Path) -> None:
    place = ("--kind", "sql", "--uri", f"sqlite:///{tmp_path}/catalog.db", "--warehouse", f"{tmp_path}/wh")
    result = CliRunner().invoke(app, ["impact", f"db.flights@{snapshots[0]}", *place])
    assert str(snapshots[2]) in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("history", "db.none"), "expected a table in the SQLite catalog"),
        (("history", "none"), "Cannot show the history of none: expected `namespace.table`"),
        (("impact", "db.flights"), "Expected NAMESPACE.TABLE@SNAPSHOT, found 'db.flights'."),
        (("impact", "db.flights@12"), "expected the snapshot 12, or a record of it, found neither"),
        (("impact", "db.flights@mian"), "expected a branch or tag 'mian', found main."),
        (("why", "db.flights", "--where", "ident = 1"), "Cannot use `--where` of db.flights: expected one of the"),
    ],
)
def test_what_is_not_there_is_refused(
    snapshots: list[int], tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = run(tmp_path, *arguments)
    assert result.exit_code == 2
    assert message in result.output

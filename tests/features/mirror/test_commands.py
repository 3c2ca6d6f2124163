"""The command `mirror sync`, on tables that pyiceberg makes.

docs/mirror.md: What the mirror promises
"""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dagster_iceberg_spark.cli.app import app
from tests.features.mirror.conftest import NUMBERS, Mirrors, lake_in, numbers

LOCATION = """
import dagster as dg
from dagster_iceberg_spark import DuckLakeMirror, IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog

@dg.asset(io_manager_key="iceberg")
def t(): ...

@dg.asset(io_manager_key="iceberg", metadata={"iceberg/mirror": {"mode": "copy", "table": "other.u"}})
def u(): ...

@dg.asset(io_manager_key="iceberg", metadata={"iceberg/mirror": None})
def excluded(): ...

spark = IcebergSparkResource(catalog=SqlCatalog(uri="sqlite:///%(path)s/catalog.db", warehouse="%(path)s/warehouse"))
mirror = DuckLakeMirror(
    catalog="sqlite:///%(path)s/nested/mirror.ducklake", data_path="%(path)s/files", mode="register"
)
io_manager = IcebergPySparkIOManager(spark=spark, namespace="db", mirror=mirror)
defs = dg.Definitions(assets=[t, u, excluded], resources={"iceberg": io_manager})
"""


@pytest.fixture
def mirrors(tmp_path: Path) -> Mirrors:
    (tmp_path / "location.py").write_text(LOCATION % {"path": tmp_path})
    mirrors = lake_in(tmp_path)
    mirrors.create("t", NUMBERS).append(numbers(1))
    return mirrors


def run(directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["mirror", "sync", "-f", str(directory / "location.py"), *arguments])


@pytest.mark.full
def test_mirrors_are_brought_up_to_date(mirrors: Mirrors, tmp_path: Path) -> None:
    other = mirrors.create("u", NUMBERS)
    other.append(numbers(2))
    head = other.current_snapshot()
    result = run(tmp_path, "--json")
    assert result.exit_code == 0, result.output
    found = {item["table"]: item for item in json.loads(result.output)}
    told = {name: (item["mirror"], item["mode"], item["has_changed"]) for name, item in found.items()}
    assert told == {"db.t": ("db.t", "register", True), "db.u": ("other.u", "copy", True)}
    assert head is not None
    assert found["db.u"]["snapshot_id"] == str(head.snapshot_id)
    assert (mirrors.shown("t"), mirrors.query("from m.other.u")) == (mirrors.written("t"), [(2, "a")])
    result = run(tmp_path, "--table", "db.t")
    assert "was current" in result.output
    assert "other.u" not in result.output


@pytest.mark.full
def test_a_failure_is_told_and_the_others_are_mirrored(mirrors: Mirrors, tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "db.u: Cannot mirror db.u: expected a table in the SQLite catalog 'lake'" in result.output
    assert mirrors.shown("t") == mirrors.written("t")

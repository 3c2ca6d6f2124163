"""Plans with an id, which another process applies: of an undo, a promotion and maintenance.

docs/undo.md: Plan, then apply
"""

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog
from dagster_iceberg_spark.cli.app import app

LOCATION = """
import dagster as dg
from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog

@dg.asset(io_manager_key="iceberg")
def numbers(): ...

catalog = SqlCatalog(uri="sqlite:///%(path)s/catalog.db", warehouse="%(path)s/wh")
io_manager = IcebergPySparkIOManager(spark=IcebergSparkResource(catalog=catalog), namespace="db")
defs = dg.Definitions(assets=[numbers], resources={"iceberg": io_manager})
"""


class Lake:
    """A table that Arrow writes, and a code location with its asset."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.file = directory, directory / "planned_location.py"
        self.catalog = SqlCatalog(uri=f"sqlite:///{directory}/catalog.db", warehouse=f"{directory}/wh")
        self.file.write_text(LOCATION % {"path": directory})

    def write(self, value: int, **options: Any) -> str:
        @dg.asset(io_manager_key="iceberg")
        def numbers() -> pa.Table:
            return pa.table({"v": [value]})

        spark = IcebergSparkResource(catalog=self.catalog)
        io_manager = IcebergPySparkIOManager(spark=spark, namespace="db", **options)
        return str(dg.materialize([numbers], resources={"iceberg": io_manager}).run_id)

    def values(self) -> list[int]:
        table = IcebergSparkResource(catalog=self.catalog).pyiceberg_catalog.load_table("db.numbers")
        return list(table.scan().to_arrow().column("v").to_pylist())

    def run(self, *arguments: str) -> Result:
        sys.modules.pop(self.file.stem, None)
        return CliRunner().invoke(app, [*arguments, "-f", str(self.file)])

    def plan(self, *arguments: str) -> str:
        """Return the id of a plan, as it is printed for people and as JSON."""
        before = self.values()
        printed = self.run(*arguments, "--plan")
        assert printed.exit_code == 0, printed.output
        (plan,) = re.findall(r"--apply (\S+)", printed.output)
        document = self.run(*arguments, "--plan", "--json")
        assert set(json.loads(document.stdout)) >= {"plan"}
        assert self.values() == before
        return str(plan)

    def refusal(self, *arguments: str) -> str:
        before = self.values()
        result = self.run(*arguments)
        assert result.exit_code == 2, result.output
        assert self.values() == before
        return " ".join(result.output.split())


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    yield Lake(tmp_path)
    sys.modules.pop("planned_location", None)


def test_an_undo_is_applied_by_the_id_of_its_plan_once(lake: Lake) -> None:
    lake.write(1)
    run = lake.write(2)
    plan = lake.plan("undo", "--run", run)
    done = lake.run("undo", "--run", run, "--apply", plan)
    assert done.exit_code == 0, done.output
    assert lake.values() == [1]
    assert "is undone already" in lake.refusal("undo", "--run", run, "--apply", plan)


def test_a_plan_is_refused_if_a_table_has_moved(lake: Lake) -> None:
    lake.write(1)
    run = lake.write(2)
    plan = lake.plan("undo", "--run", run)
    lake.write(3, environment="pr")  # a branch that the undo leaves alone
    message = lake.refusal("undo", "--run", run, "--apply", plan)
    assert f"Cannot apply the plan {plan}: expected the tables and the plan as they were, found the plan " in message
    assert "Nothing was changed." in message


def test_a_plan_is_not_that_of_other_options(lake: Lake) -> None:
    first, second = lake.write(1), lake.write(2)
    plan = lake.plan("undo", "--run", second)
    assert "Cannot apply the plan" in lake.refusal("undo", "--run", first, "--cascade", "--apply", plan)


def test_an_environment_is_promoted_by_the_id_of_its_plan(lake: Lake) -> None:
    lake.write(1)
    lake.write(2, environment="pr")
    plan = lake.plan("env", "promote", "pr")
    lake.write(3, environment="pr")
    assert "Cannot apply the plan" in lake.refusal("env", "promote", "pr", "--apply", plan)
    done = lake.run("env", "promote", "pr", "--apply", lake.plan("env", "promote", "pr"))
    assert done.exit_code == 0, done.output
    assert lake.values() == [3]


def test_the_plan_of_a_promotion_refuses_what_the_promotion_refuses(lake: Lake) -> None:
    lake.write(1)
    lake.write(2, environment="pr")
    lake.run("env", "drop", "pr")
    assert "Cannot find the environment 'pr'" in lake.refusal("env", "promote", "pr", "--plan")


def test_maintenance_is_refused_if_a_table_has_moved(lake: Lake) -> None:
    lake.write(1)
    plan = lake.plan("maintain")
    lake.write(2)
    assert "Cannot apply the plan" in lake.refusal("maintain", "--apply", plan)


@pytest.mark.spark
@pytest.mark.full
def test_maintenance_is_applied_as_of_its_plan(lake: Lake, classic_directory: Path) -> None:
    lake.write(1)
    plan = lake.plan("maintain")
    time.sleep(1.1)  # now, the plan would have another id
    done = lake.run("maintain", "--apply", plan, "--json")
    assert done.exit_code == 0, done.output
    (maintained,) = json.loads(done.stdout)
    assert [item["action"] for item in maintained["done"]] == maintained["plan"]["actions"]
    assert lake.values() == [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--apply", "latest"], "Expected the id of a plan, such as 19acf1b3a40-0c5e2b1f9a7d, found 'latest'."),
        (["--apply", "138a9f3c400-0c5e2b1f9a7d"], "was made at 2012-07-21 14:32 UTC, which is too long ago"),
        (["--apply", "138a9f3c400-0c5e2b1f9a7d", "--plan"], "--apply changes tables: leave out --plan and --dry-run."),
        (
            ["--apply", "138a9f3c400-0c5e2b1f9a7d", "--dry-run"],
            "--apply changes tables: leave out --plan and --dry-run.",
        ),
    ],
)
@pytest.mark.parametrize("command", [("maintain",), ("undo", "--run", "r")])
def test_ids_that_are_refused(lake: Lake, command: tuple[str, ...], arguments: list[str], message: str) -> None:
    lake.write(1)
    assert message in lake.refusal(*command, *arguments)

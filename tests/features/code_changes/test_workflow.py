"""The workflow of the page, run step by step on a project in a Git repository.

docs/reviewing.md: In a pull request; What does the new code make of the same inputs?
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagster_iceberg_spark.features.code_changes.changed_runs import replay
from dagster_iceberg_spark.features.code_changes.revisions import Checkout
from tests.features.code_changes.test_asset_code import git

PAGE = (Path(__file__).parents[3] / "docs" / "reviewing.md").read_text(encoding="utf-8")
DAYS = 'partitions_def: {type: daily, start_date: "2024-01-01", end_date: "2024-01-03"}\npartition_expr: day'
FILES = {
    ".gitignore": "/lake/\n/deployment/\n__pycache__/\n/summary.md\n",
    "pyproject.toml": '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "shop"\n',
    "src/shop/__init__.py": "",
    "src/shop/definitions.py": "from pathlib import Path\nimport dagster as dg\n"
    "defs = dg.Definitions.merge(dg.Definitions(executor=dg.in_process_executor), "
    "dg.load_from_defs_folder(path_within_project=Path(__file__).parent))\n",
    "src/shop/rates.py": "VAT = 0.19\n\ndef with_tax(cents):\n    return cents * (1 + VAT)\n",
    "src/shop/defs/__init__.py": "",
    "src/shop/defs/lake/defs.yaml": "type: dagster_iceberg_spark.IcebergLakeComponent\nattributes:\n  spark:\n"
    '    catalog: {kind: sql, uri: "sqlite:///lake/catalog.db", warehouse: lake}\n'
    "    spark_config: {spark.ui.enabled: 'false', spark.master: 'local[1]', spark.driver.host: 127.0.0.1}\n"
    "  io_manager: {namespace: shop}\n",
    "src/shop/defs/models/defs.yaml": "type: dagster_iceberg_spark.SparkSqlComponent\nattributes: {path: .}\n",
    "src/shop/defs/models/orders.sql": f"/* ---\n{DAYS}\n--- */\n"
    "SELECT date({{ partition.key }}) AS day, 1 AS id, 100L AS cents, 'x' AS note",
    "src/shop/defs/models/daily.sql": f"/* ---\n{DAYS}\n--- */\n"
    "SELECT day, sum(cents) AS cents, count(*) AS orders FROM orders GROUP BY day",
    "src/shop/defs/assets.py": """
import dagster as dg
from pyspark.sql import DataFrame, functions as F
from shop.rates import with_tax

days = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-03")
stored = {"io_manager_key": "iceberg", "partitions_def": days, "metadata": {"partition_expr": "day"}}

@dg.asset(**stored)
def taxes(orders: DataFrame) -> DataFrame:
    return orders.where("id > 0").select("day", with_tax(orders.cents).alias("gross"))

@dg.asset(**stored)
def drawn(orders: DataFrame) -> DataFrame:
    return orders.where("id > 0").select("day", F.rand().alias("r"))
""",
}
CHANGES = {
    "src/shop/rates.py": ("0.19", "0.2"),
    "src/shop/defs/models/daily.sql": ("GROUP BY day", "GROUP BY 1"),
    "src/shop/defs/assets.py": ('F.rand().alias("r")', 'F.rand().alias("r"), F.lit(1).alias("one")'),
}


def run(command: list[str], directory: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.processes
@pytest.mark.timeout(900)
def test_the_workflow_of_the_page_reports_what_a_pull_request_changes(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "production")
    (home := tmp_path / "deployment").mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "PYTHONPATH": str(tmp_path / "src"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_BASE_REF": "main",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    for day in ("2024-01-01", "2024-01-02"):
        done = run(["dg", "launch", "--assets", "*", "--partition", day], tmp_path, environment)
        assert done.returncode == 0, done.stderr[-3000:]
    git(tmp_path, "update-ref", "refs/remotes/origin/main", "main")
    git(tmp_path, "checkout", "-q", "-b", "work")
    for name, (old, new) in CHANGES.items():
        (tmp_path / name).write_text(FILES[name].replace(old, new))
    git(tmp_path, "commit", "-q", "-a", "-m", "change")

    (block,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    job: Any = yaml.safe_load(block)["jobs"]["tables"]
    assert job["env"] == {"DAGSTER_HOME": "${{ github.workspace }}/deployment"}
    install, *steps = [step for step in job["steps"] if "run" in step]
    assert install["run"] == "pip install -e ."
    codes = []
    for step in steps:
        assert step["shell"] == "bash", "GitHub runs it with these options"
        done = run(["bash", "-eo", "pipefail", "-c", step["run"]], tmp_path, environment)
        codes.append(done.returncode)
    summary = (tmp_path / "summary.md").read_text()
    assert codes == [0, 1], f"{summary}{done.stderr[-3000:]}"
    rows = {line.split("|")[1].strip(): line for line in summary.splitlines() if line.startswith("| ")}
    assert "| taxes | code | not known | all may change | 2 partitions," in summary
    assert "| daily | query | the same | the same |  |" in summary
    assert "differs | other values in gross" in rows["taxes"]
    assert "| same | the same rows" in rows["daily"]
    assert "not deterministic | the old code makes other values in r" in rows["drawn"]
    assert "orders" not in rows
    _, _, rebuild = summary.partition("To rebuild:\n\n")
    assert rebuild.splitlines()[0] == "- taxes: 2024-01-02; not replayed: 1 other partition"
    assert "do not show what to rebuild of drawn" in rebuild
    assert git(tmp_path, "status", "--short") == ""


@pytest.mark.parametrize(
    ("code", "printed", "expected"),
    [
        (0, '[{"asset": "a", "is_same": true}]', {"a": {"asset": "a", "is_same": True}}),
        (1, '[{"asset": "a"}]', {"a": {"asset": "a"}}),
        (2, "", "Cannot replay the step a: expected a step that succeeds, found none."),
        (1, "no JSON", "Cannot replay the step a: expected a step that succeeds, found none."),
    ],
)
def test_why_a_replay_has_failed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, printed: str, expected: Any
) -> None:
    said = "Usage: replay\n\nError: Cannot replay the step a: expected a step that succeeds, found none.\n"
    commands = list[Any]()

    def run(_: Checkout, arguments: Any) -> subprocess.CompletedProcess[str]:
        commands.append(arguments)
        return subprocess.CompletedProcess(arguments, code, printed, said)

    monkeypatch.setattr(Checkout, "run", run)
    options = {"module": "shop", "attribute": None, "workspace": (), "python_file": None, "working_directory": tmp_path}
    assert replay(Checkout(tmp_path, tmp_path), "r1", ["a"], options) == expected
    assert commands[0][2:] == [
        *("replay", "--run=r1", "--asset=a", "--compare", "--json", "--module=shop"),
        f"--working-directory={tmp_path}",
    ]

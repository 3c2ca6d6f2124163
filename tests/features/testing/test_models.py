"""Tests of SQL models, by the command line and by pytest.

docs/testing.md: Tests of SQL models; A code location
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagster_iceberg_spark.cli.app import app
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.testing.model_tests import TestFile

DAILY = 'partitions_def: {type: daily, start_date: "2024-01-01", timezone: Europe/Berlin}'
FILES = {
    "pyproject.toml": '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "lake_models"\n'
    '[tool.pytest.ini_options]\niceberg_code_location = "lake_models.definitions"\npythonpath = "src"\n',
    "src/lake_models/__init__.py": "",
    "src/lake_models/definitions.py": "from pathlib import Path\nimport dagster as dg\n"
    "defs = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)\n",
    "src/lake_models/defs/__init__.py": "",
    "src/lake_models/defs/lake/defs.yaml": "type: dagster_iceberg_spark.IcebergLakeComponent\n"
    "attributes:\n  spark: {catalog: {kind: rest, uri: http://production.invalid}}\n  io_manager: {namespace: nyc}\n",
    "src/lake_models/defs/models/defs.yaml": "type: dagster_iceberg_spark.SparkSqlComponent\nattributes: {path: .}\n",
    "src/lake_models/defs/models/readings.sql": f"/* ---\n{DAILY}\npartition_expr: at\n--- */\nSELECT 1",
    "src/lake_models/defs/models/warmest.sql": f"/* ---\n{DAILY}\npartition_expr: day\n--- */\n"
    "SELECT date({{ partition.key }}) AS day, max(celsius) AS warmest, count(*) AS hours FROM readings",
    "src/lake_models/defs/models/orders.sql": "/* ---\nkey: shop/orders\n--- */\nSELECT 1 AS id, 2 AS v",
    "src/lake_models/defs/models/latest.sql": "/* ---\niceberg/write_disposition: merge\niceberg/merge_keys: [id]\n"
    "--- */\nSELECT id, max(v) AS v FROM {{ ref('shop/orders') }} GROUP BY id",
}
GOOD = """\
- name: the highest temperature of a day
  partition: 2024-03-31
  given:
    readings:
      - {at: 2024-03-31T00:00:00Z, celsius: 3.5}
      - {at: 2024-03-31T01:00:00Z, celsius: 7.25}
      - {at: 2024-04-01T01:00:00Z, celsius: 70.0}
  expect:
    - {day: 2024-03-31, warmest: 7.25, hours: 2}
- name: a day without readings
  partition: 2024-03-31
  given:
    readings:
      partition: 2024-03-31
      columns: {at: timestamptz, celsius: double}
      rows: []
  expect:
    - {day: 2024-03-31, warmest: null, hours: 0}
"""
BAD = """\
- name: rows are merged
  given:
    latest: [{id: 1, v: 1}, {id: 2, v: 2}]
    orders: [{id: 1, v: 5}, {id: 3, v: 3}]
  expect: [{id: 1, v: 4}, {id: 2, v: 2}, {id: 3, v: 3}]
- name: a table is missing
  expect: []
- name: the query fails
  given: {shop/orders: [{id: 1}]}
  expect: []
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A project with models and without tests."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "lake_models"]:
        del sys.modules[name]


def models(project: Path) -> Path:
    return project / "src" / "lake_models" / "defs" / "models"


@pytest.mark.spark
def test_the_command_runs_all_tests_and_shows_what_differs(project: Path, classic_directory: Path) -> None:
    (models(project) / "warmest.test.yml").write_text(GOOD)
    (models(project) / "latest.test.yml").write_text(BAD)
    location = ["-m", "lake_models.definitions", "-d", str(project / "src")]
    result = CliRunner().invoke(app, ["test", str(models(project)), *location])
    assert result.exit_code == 1, result.output
    lines = [line.rstrip() for line in result.output.splitlines()]
    outcomes = [line.split()[0] for line in lines if line.startswith(("passed", "failed"))]
    assert outcomes == ["failed"] * 3 + ["passed"] * 2
    shown = lines.index("The rows differ: 2 equal, 1 different.")
    assert [line.split() for line in lines[shown + 2 : shown + 6]] == [
        ["id", "v"],
        ["expected", "1", "4"],
        ["found", "1", "5"],
        ["^"],
    ]
    assert "expected rows of all tables that the model reads, found none of shop/orders." in result.output
    assert "AnalysisException: [UNRESOLVED_COLUMN" in result.output
    assert lines[-1] == "5 tests, 3 failed"


def test_a_folder_without_tests_is_a_usage_error(project: Path) -> None:
    result = CliRunner().invoke(app, ["test", str(project)])
    assert result.exit_code == 2
    assert "There is no file *.test.yml in" in result.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x", "expected a list of tests, each with `name`, `given` and `expect`, found a mapping"),
        ("", "found an empty file"),
        ("- [1", "expected YAML, found "),
        ("- 1", "Cannot use test 1 of .*: expected a mapping, found a int"),
        ("- {name: x, expect: [], givn: {}}", "Cannot use test 1 of .*: expected the keys name, .*, found `givn`: "),
        ("- {name: x, expect: [], given: {a: {rows: [], kolumns: {}}}}", "found `given.a.kolumns`: Extra"),
        ("- {name: x}", "found `expect`: Field required"),
    ],
)
def test_a_wrong_file_is_refused(project: Path, text: str, message: str) -> None:
    path = models(project) / "warmest.test.yml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        TestFile(path).tests()


def test_tests_without_a_model_are_refused(project: Path) -> None:
    path = models(project) / "wramest.test.yml"
    path.write_text(GOOD)
    with pytest.raises(ConfigurationError, match=r"expected wramest\.sql beside it, found none"):
        TestFile(path).tests()


@pytest.mark.spark
@pytest.mark.full
def test_pytest_runs_the_tests_of_models_and_those_in_python(project: Path) -> None:
    (models(project) / "warmest.test.yml").write_text(GOOD.replace("7.25, hours", "7.5, hours"))
    (project / "test_readings.py").write_text(
        "def test_empty(lake):\n"
        "    lake.given('readings', [], columns={'at': 'timestamptz'})\n"
        "    assert lake.rows('readings') == []\n"
        "    assert lake.table('readings').name() == ('nyc', 'readings')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error::pytest.PytestWarning"]
    done = subprocess.run(
        command, cwd=project, env=os.environ, capture_output=True, text=True, check=False, timeout=240
    )
    assert "1 failed, 2 passed" in done.stdout, done.stdout[-3000:] + done.stderr[-2000:]
    assert "  found       2024-03-31  7.25     2\n" in done.stdout
    assert "Traceback" not in done.stdout.partition("Captured")[0]


def test_the_example_of_the_page_passes() -> None:
    examples = Path(__file__).parents[3] / "docs" / "examples"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    done = subprocess.run(command, cwd=examples, capture_output=True, text=True, check=False, timeout=120)
    assert "2 passed" in done.stdout, done.stdout[-3000:]


def test_the_plugin_imports_nothing_before_a_test_needs_it() -> None:
    code = (
        "import sys, pytest, yaml; before = set(sys.modules);"
        "import dagster_iceberg_spark.features.testing.pytest_plugin;"
        "print(sorted(name for name in set(sys.modules) - before if not name.startswith('dagster_iceberg_spark')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    heavy = ("dagster", "pyarrow", "pydantic", "pyiceberg", "pyspark")
    assert not [name for name in heavy if f"'{name}'" in done.stdout]

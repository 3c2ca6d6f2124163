"""The command line."""

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from dagster_iceberg_spark import OAuth2
from dagster_iceberg_spark.assets import definition_checks
from dagster_iceberg_spark.check.findings import Finding
from dagster_iceberg_spark.cli.app import app
from dagster_iceberg_spark.config import configuration
from tests.lakes import SPARK_CONF

LOCATION = """
import dagster as dg
from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog

@dg.asset(io_manager_key="iceberg", metadata={"iceberg/table_properties": {"write.format.default": "orc"}})
def flights(spark: IcebergSparkResource): return spark.spark_session.range(1)

@dg.asset(io_manager_key="iceberg", metadata={"iceberg/tabel": "db.t"})
def mistaken(): ...

@dg.asset
def elsewhere(): ...

spark = IcebergSparkResource(
    catalog=SqlCatalog(uri="sqlite:///%(path)s/catalog.db", warehouse="%(path)s/wh"), spark_config=%(conf)r
)
iceberg = IcebergPySparkIOManager(spark=spark, namespace="db")
"""
DEFINITIONS = 'defs = dg.Definitions(assets=[flights, elsewhere], resources={"spark": spark, "iceberg": iceberg})\n'
MISTAKEN = 'defs = dg.Definitions(assets=[flights, mistaken], resources={"spark": spark, "iceberg": iceberg})\n'
LAZY = """
@dg.definitions
def made():
    return dg.Definitions(assets=[flights], resources={"spark": spark, "iceberg": iceberg})
"""


def check(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["check", *arguments])


def document(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def outcomes(result: Result) -> dict[tuple[str, str], str]:
    return {(item["subject"], item["step"]): item["outcome"] for item in document(result)["findings"]}


@pytest.fixture
def location(tmp_path: Path) -> Path:
    path = tmp_path / "location.py"
    path.write_text(textwrap.dedent(LOCATION % {"path": tmp_path, "conf": SPARK_CONF}))
    return path


def added(path: Path, text: str) -> str:
    path.write_text(path.read_text() + text)
    return str(path)


@pytest.mark.spark
def test_a_catalog_given_by_flags_is_checked(tmp_path: Path) -> None:
    conf = [argument for key, value in SPARK_CONF.items() for argument in ("--spark-config", f"{key}={value}")]
    result = check("--kind", "sql", "--uri", f"sqlite:///{tmp_path}/c.db", "--warehouse", str(tmp_path / "wh"), *conf)
    assert result.exit_code == 0, result.output
    assert "read by pyiceberg" in result.stdout
    assert "not tried" not in result.stdout


@pytest.mark.spark
def test_a_code_location_s_catalog_and_tables_are_checked(location: Path) -> None:
    result = check("-f", added(location, DEFINITIONS), "--json")
    assert result.exit_code == 0, result.output
    assert outcomes(result)[("lake", "write")] == "ok"
    assert outcomes(result)[("flights", "table")] == "ok"
    assert ("elsewhere", "table") not in outcomes(result)


@pytest.mark.spark
def test_a_mistake_in_an_asset_s_metadata_is_found_without_running_it(location: Path) -> None:
    result = check("-f", added(location, MISTAKEN), "--json")
    assert result.exit_code == 1
    [failed] = [item for item in document(result)["findings"] if item["outcome"] == "failed"]
    assert (failed["subject"], failed["step"]) == ("mistaken", "table")
    assert "did you mean `iceberg/table`?" in failed["found"]


@pytest.mark.full
@pytest.mark.spark
def test_a_difference_fails_with_strict(location: Path, tmp_path: Path) -> None:
    """Another program created the table. Its properties differ from the definition."""
    path = added(location, LAZY)
    run = added(location, "spark_only = spark\n")
    assert path == run
    namespace: dict[str, Any] = {}
    exec(compile(location.read_text(), str(location), "exec"), namespace)
    namespace["spark"].pyiceberg_catalog.create_namespace("db")
    namespace["spark"].spark_session.sql("create table lake.db.flights (id long)")
    relaxed, strict = check("-f", path, "--json"), check("-f", path, "--json", "--strict")
    assert outcomes(relaxed)[("flights", "table")] == "differs"
    assert (relaxed.exit_code, strict.exit_code) == (0, 1)


def test_a_host_that_is_down_exits_with_code_1(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration, "_warned", set())
    result = check(
        "--kind",
        "rest",
        "--uri",
        "http://127.0.0.1:1",
        "--set",
        "authentication.kind=bearer",
        "--set",
        "authentication.token=hunter2",
        "--json",
    )
    assert result.exit_code == 1
    assert outcomes(result)[("lake", "catalog")] == "failed"
    assert "hunter2" not in result.output
    # Secrets in flags cause no warning. Secrets in a later definition of this process do.
    assert "A secret stands" not in caplog.text
    OAuth2(client_id="me", client_secret="hunter2")
    assert "`OAuth2.client_secret` holds a literal secret" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "a", "--kind", "sql"], "Name one of"),
        (["--kind", "rast"], "'embedded'"),
        (["--kind", "rest", "--uri", "http://h", "--set", "ur=x"], "did you mean `uri`?"),
        (["--kind", "rest", "--uri", "http://h", "--set", "store.endpoint=x"], "without its `kind`"),
        (["--kind", "rest", "--set", "uri"], "expected name=value"),
        (["--kind", "sql", "--set", "store.kind=hadoop", "--set", "store.configuration.a.b=c"], "catalog.sql.uri"),
        (["--kind", "rest", "--set", "uri=env:NOT_THERE"], "an environment variable NOT_THERE"),
        (["-m", "no.such.module"], "No module named 'no'"),
    ],
)
def test_wrong_arguments_exit_with_code_2(arguments: list[str], message: str) -> None:
    result = check(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


PLAIN = "import dagster as dg\ndefs = dg.Definitions(assets=[dg.AssetSpec('{name}')])\n"
WORKSPACE = """
load_from:
  - python_file: {directory}/first.py
  - python_module: {{module_name: second_of_two, working_directory: {directory}}}
"""
PYPROJECT = '[tool.dagster]\nmodule_name = "second_of_two"\n'


@pytest.mark.parametrize(
    ("file", "text", "arguments", "expected"),
    [
        ("workspace.yaml", WORKSPACE, ["-d", "{directory}"], ["first", "second"]),
        ("lake.yaml", WORKSPACE, ["-w", "{directory}/lake.yaml"], ["first", "second"]),
        ("pyproject.toml", PYPROJECT, ["-d", "{directory}"], ["second"]),
    ],
)
def test_code_locations_are_found_in_dagster_s_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, arguments: list[str], expected: list[str]
) -> None:
    checked: list[str] = []

    def noted(definitions: dg.Definitions, **_: Any) -> Iterator[Finding]:
        checked.extend(spec.key.to_user_string() for spec in definitions.resolve_all_asset_specs())
        yield from ()

    monkeypatch.setattr(definition_checks, "check_assets", noted)
    monkeypatch.setattr(
        "dagster_iceberg_spark.assets.stored_tables.stored_assets", lambda definitions: {"iceberg": definitions}
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    for loaded in ("first", "second_of_two"):
        monkeypatch.delitem(sys.modules, loaded, raising=False)
    for name, path in (("first", "first.py"), ("second", "second_of_two.py")):
        (tmp_path / path).write_text(PLAIN.format(name=name))
    (tmp_path / file).write_text(text.format(directory=tmp_path))
    result = check(*(argument.format(directory=tmp_path) for argument in arguments))
    assert result.exit_code == 0, result.output
    assert checked == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "has no workspace.yaml or pyproject.toml that names a code location"),
        ("load_from:\n  - grpc_server: {host: localhost, port: 1}\n", "found a server"),
        ("load_from: 1\n", "expected code locations as Dagster reads them"),
    ],
)
def test_files_without_code_locations_exit_with_code_2(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "workspace.yaml").write_text(text)
    result = check("-d", str(tmp_path))
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_each_example_in_the_help_is_on_its_own_line() -> None:
    lines = [line.strip() for line in check("--help").output.splitlines()]
    assert "dagster-iceberg-spark check -m my_project.definitions" in lines
    assert "--set authentication.kind=bearer --set authentication.token=env:CATALOG_TOKEN" in lines


def test_a_secret_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_URI", "oracle://u:hunter2@db/x")
    result = check("--kind", "sql", "--uri", "env:LAKE_URI", "--warehouse", "lake", "--json")
    assert document(result)["findings"][0]["outcome"] == "failed"
    assert "hunter2" not in result.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found none"),
        (DEFINITIONS + "others = dg.Definitions()\n", "'defs', 'others'"),
        ("defs = dg.Definitions(assets=[elsewhere])\n", "expected a resource that is an IcebergPySparkIOManager"),
        ("raise RuntimeError('broken')\n", "broken"),
    ],
)
def test_a_code_location_that_cannot_be_checked_says_why(location: Path, text: str, message: str) -> None:
    result = check("-f", added(location, text))
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_an_unset_environment_variable_is_a_finding(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    text = location.read_text().replace('uri="sqlite', 'uri=dg.EnvVar("NOT_THERE"), name="sqlite').split(", warehouse")
    location.write_text(text[0].split('name="sqlite')[0] + "warehouse" + text[1])
    result = check("-f", added(location, DEFINITIONS), "--json")
    assert result.exit_code == 1
    found = document(result)["findings"][0]["found"]
    assert found == "not set in this environment: NOT_THERE of `spark.catalog.uri`"


def test_an_embedded_catalog_needs_the_instance(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    text = 'defs = dg.Definitions(assets=[flights], resources={"iceberg": IcebergPySparkIOManager(), "spark": spark})\n'
    result = check("-f", added(location, text), "--json")
    assert result.exit_code == 1
    assert "DAGSTER_HOME" in document(result)["findings"][0]["found"]


def branches(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["branches", *arguments])


@pytest.fixture
def staged(location: Path) -> str:
    """A code location whose table has a staged branch with rows, and one without."""
    path = added(location, DEFINITIONS)
    namespace: dict[str, Any] = {}
    exec(compile(location.read_text(), str(location), "exec"), namespace)
    catalog = namespace["spark"].pyiceberg_catalog
    catalog.create_namespace("db")
    table = catalog.create_table(("db", "flights"), pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    for name in ("dagster_00000000000000ff", "dagster_0000000000000000", "theirs"):
        table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, name).commit()
    lineage = {"dagster.commit_token": "t", "dagster.asset_key": "flights", "dagster.run_id": "run-7"}
    table.append(pa.table({"id": [2, 3]}), branch="dagster_00000000000000ff", snapshot_properties=lineage)
    return path


def test_staged_branches_are_listed_as_text_and_json(staged: str) -> None:
    text, listed = branches("-f", staged), json.loads(branches("-f", staged, "--json").stdout)
    assert "db.flights" in text.stdout
    assert "theirs" not in text.stdout
    assert [(item["branch"], item["run_id"], item["rows"]) for item in listed] == [
        ("dagster_0000000000000000", None, 0),
        ("dagster_00000000000000ff", "run-7", 2),
    ]


def test_a_staged_branch_is_dropped_and_no_other(staged: str) -> None:
    assert "dropped" in branches("-f", staged, "--drop", "dagster_00000000000000ff").stdout
    unknown = branches("-f", staged, "--drop", "theirs", "--drop", "dagster_00000000000000ff")
    assert (
        unknown.exit_code,
        "No table has the staged branch 'dagster_00000000000000ff', 'theirs'." in unknown.stderr,
    ) == (2, True)
    assert [item["branch"] for item in json.loads(branches("-f", staged, "--json").stdout)] == [
        "dagster_0000000000000000"
    ]
    branches("-f", staged, "--drop", "dagster_0000000000000000")
    assert branches("-f", staged).stdout == "No table has a staged branch.\n"


def test_a_code_location_without_an_io_manager_has_no_staged_branches(location: Path) -> None:
    result = branches("-f", added(location, "defs = dg.Definitions(assets=[elsewhere])\n"))
    assert result.exit_code == 2
    assert "expected a resource that is an IcebergPySparkIOManager, found the resources none" in result.stderr


def env(command: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["env", command, *arguments])


@pytest.fixture
def reviewed(location: Path) -> str:
    """A code location whose table has the branch of an environment, with rows that `main` has not."""
    path = added(location, DEFINITIONS)
    namespace: dict[str, Any] = {}
    exec(compile(location.read_text(), str(location), "exec"), namespace)
    catalog = namespace["spark"].pyiceberg_catalog
    catalog.create_namespace("db")
    table = catalog.create_table(("db", "flights"), pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "env_pr").commit()
    table.append(pa.table({"id": [2, 3]}), branch="env_pr")
    return path


def test_environments_are_listed_and_compared(reviewed: str) -> None:
    (listed,) = json.loads(env("list", "-f", reviewed, "--json").stdout)
    assert (listed["branch"], listed["table"], listed["snapshots"]) == ("env_pr", "db.flights", 1)
    assert "env_pr" in env("list", "-f", reviewed).stdout
    assert env("diff", "pr", "-f", reviewed).stdout.split("\n")[1].split() == ["db.flights", "whole", "table", "2", "0"]
    (document,) = json.loads(env("diff", "pr", "-f", reviewed, "--json", "--keys").stdout)
    assert (document["added_rows"], document["keys"]) == (2, {"added": 2, "removed": 0, "changed": 0})
    assert "db.flights: 2 new keys, 0 removed, 0 changed." in env("diff", "pr", "-f", reviewed, "--keys").stdout
    assert env("diff", "pr", "-f", reviewed, "--markdown").stdout.splitlines() == [
        "| table | partition | added rows | removed rows |",
        "|---|---|---|---|",
        "| db.flights | whole table | 2 | 0 |",
        "| db.flights | **all** | 2 | 0 |",
    ]


def test_an_environment_is_promoted_or_dropped(reviewed: str) -> None:
    promoted = env("promote", "pr", "-f", reviewed)
    assert promoted.stdout.split("\n")[1].split()[:2] == ["db.flights", "fast-forward"]
    assert env("list", "-f", reviewed).stdout == "No table has a branch of an environment.\n"
    missing = env("drop", "pr", "-f", reviewed)
    assert missing.exit_code == 2
    assert "expected a table with the branch 'env_pr', found none" in missing.stderr


def test_an_environment_is_dropped(reviewed: str) -> None:
    assert env("drop", "pr", "-f", reviewed).stdout == "Dropped env_pr of db.flights.\n"
    assert env("list", "-f", reviewed).stdout == "No table has a branch of an environment.\n"


@pytest.fixture
def written(location: Path) -> str:
    """A code location whose table has the snapshots of two runs."""
    path = added(location, DEFINITIONS)
    namespace: dict[str, Any] = {}
    exec(compile(location.read_text(), str(location), "exec"), namespace)
    catalog = namespace["spark"].pyiceberg_catalog
    catalog.create_namespace("db")
    table = catalog.create_table(("db", "flights"), pa.schema([("id", pa.int64())]))
    for number in (1, 2):
        lineage = {"dagster.run_id": f"run-{number}", "dagster.asset_key": "flights", "dagster.upstream": "[]"}
        table.append(pa.table({"id": [number]}), snapshot_properties=lineage)
    return path


def rows_of(path: str) -> list[int]:
    namespace: dict[str, Any] = {}
    exec(compile(Path(path).read_text(), path, "exec"), namespace)
    table = namespace["spark"].pyiceberg_catalog.load_table(("db", "flights"))
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def undo(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["undo", *arguments])


def test_a_run_is_undone_and_the_undo_too(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    planned = undo("--run", "run-2", "-f", written, "--dry-run")
    assert planned.stdout.splitlines()[1].split()[0] == "db.flights"
    assert planned.stdout.splitlines()[-1] == "Nothing was changed."
    assert rows_of(written) == [1, 2]
    (done,) = json.loads(undo("--run", "run-2", "-f", written, "--json").stdout)
    assert ([table["lost_columns"] for table in done["tables"]], done["left_out"], rows_of(written)) == ([[]], [], [1])
    assert "Undo this with: undo --run undo-" in undo("--run", done["by"], "-f", written).stdout
    assert rows_of(written) == [1, 2]


def test_an_undo_names_what_stands_in_the_way(written: str) -> None:
    refused = undo("--run", "run-1", "-f", written)
    assert (refused.exit_code, rows_of(written)) == (2, [1, 2])
    assert "by run run-2. Hint: undo these runs first" in " ".join(refused.stderr.split())
    assert undo("--run", "run-9", "-f", written).exit_code == 2

"""What agents can ask.

docs/agents.md: Tools by the Model Context Protocol; What an agent cannot do; A skill, pages and errors
"""

import asyncio
import json
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from click.testing import CliRunner

import dagster_iceberg_spark
from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog
from dagster_iceberg_spark.cli.app import app
from dagster_iceberg_spark.features.agents.tools import TOOLS, Tool, tools_allowed

SKILL = Path(dagster_iceberg_spark.__file__).with_name("SKILL.md").read_text(encoding="utf-8")
PAGE = (Path(__file__).parents[3] / "docs" / "agents.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", SKILL, re.DOTALL | re.MULTILINE)


def tool(name: str) -> Tool:
    return next(item for item in TOOLS if item.name == name)


@pytest.mark.parametrize("item", TOOLS, ids=lambda item: item.name)
def test_each_tool_describes_itself_and_prints_json(item: Tool) -> None:
    assert item.description(app)
    assert "Examples" not in item.description(app)
    assert set(item.schema(app)["properties"]) == set(item.options)
    assert all(argument["description"] for argument in item.schema(app)["properties"].values())
    assert f"`{item.name}`" in PAGE
    given: dict[str, Any] = {"string": "x", "integer": 1, "boolean": True, "number": 1.0, "array": ["x"]}
    arguments = {name: given[kind["type"]] for name, kind in item.schema(app)["properties"].items()}
    arguments |= {"snapshot": "a.b@1"} if "snapshot" in arguments else {}
    arguments |= {"applied": f"{int(time.time() * 1000):011x}-{'0' * 12}"} if "applied" in arguments else {}
    command = item.arguments(app, arguments, ["--module=nowhere"])
    result = CliRunner().invoke(app, command)
    assert "No such option" not in result.output
    assert "Missing" not in result.output
    assert "nowhere" in result.output, result.output


def test_arguments_become_a_command_line_without_options_in_disguise() -> None:
    arguments = {"table": "--drop", "limit": 3}
    assert tool("history").arguments(app, arguments, ["--module=m"]) == [
        "history", "--module=m", "--json", "--limit=3", "--", "--drop",
    ]  # fmt: skip
    assert tool("env_diff").arguments(app, {"name": "pr", "by_key": True}, []) == [
        "env", "diff", "--json", "--keys", "--", "pr",
    ]  # fmt: skip
    assert tool("health").arguments(app, {"tables": ["a.b", "c.d"]}, []) == [
        "health", "--json", "--table=a.b", "--table=c.d", "--",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("history", {}, "expected 'table', found none"),
        ("history", {"table": 3}, "expected 'table' of the type string, found int"),
        ("history", {"table": "a.b", "limit": "3"}, "expected 'limit' of the type integer, found str"),
        ("history", {"table": "a.b", "limit": True}, "expected 'limit' of the type integer, found bool"),
        ("health", {"tables": "a.b"}, "expected 'tables' of the type array, found str"),
        ("branches", {"drop": ["dagster_1"]}, "expected the arguments none, found 'drop'"),
        ("history", {"table": "a.b", "uri": "x"}, "expected the arguments table, limit, found 'uri'"),
    ],
)
def test_arguments_that_are_refused(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tool(name).arguments(app, arguments, [])


def test_rows_and_writes_are_allowed_by_name() -> None:
    without = set(tools_allowed(()))
    assert not without & {"why", "check", "replay"}
    assert not [name for name in without if name.endswith("_apply")]
    assert set(tools_allowed(("rows",))) == without | {"why"}
    assert set(tools_allowed(("rows", "writes", "changes"))) == {item.name for item in TOOLS}


def test_nothing_is_applied_without_the_id_of_a_plan() -> None:
    with pytest.raises(ValueError, match="expected 'applied', found none"):
        tool("undo_apply").arguments(app, {"run_id": "r"}, [])
    assert "--plan" in tool("undo_plan").arguments(app, {"run_id": "r"}, [])
    assert "--apply=i" in tool("undo_apply").arguments(app, {"run_id": "r", "applied": "i"}, [])


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """A code location with a table."""
    catalog = f"SqlCatalog(uri='sqlite:///{tmp_path}/catalog.db', warehouse='{tmp_path}/wh')"
    path = tmp_path / "served.py"
    path.write_text(
        "import dagster as dg\n"
        "from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog\n"
        "@dg.asset(io_manager_key='iceberg', key=['shop', 'orders'])\ndef orders(): ...\n"
        f"io_manager = IcebergPySparkIOManager(spark=IcebergSparkResource(catalog={catalog}))\n"
        "defs = dg.Definitions([orders], resources={'iceberg': io_manager})\n"
    )

    @dg.asset(io_manager_key="iceberg", key=["shop", "orders"])
    def orders() -> pa.Table:
        return pa.table({"id": [1, 2]})

    stored = SqlCatalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/wh")
    dg.materialize([orders], resources={"iceberg": IcebergPySparkIOManager(spark=IcebergSparkResource(catalog=stored))})
    return path


def test_an_agent_asks_by_the_official_client(location: Path) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("tables", {}),
        ("history", {"table": "shop.orders"}),
        ("why", {}),
        ("tables", {"a": 1}),
    ]
    answers = asyncio.run(ask(location, calls))
    listed, (is_error, tables), (_, history), (is_refused, refusal), (is_wrong, wrong) = answers
    assert listed == sorted(tools_allowed(()))
    assert not is_error
    (table,) = json.loads(tables)
    assert (table["asset"], table["table"], table["rows"]) == ("shop/orders", "shop.orders", "2")
    assert table["columns"] == [{"name": "id", "type": "long", "required": False, "description": None}]
    assert json.loads(history)[0]["added_rows"] == 2
    assert (is_refused, "expected one of tables, history" in refusal) == (True, True)
    assert (is_wrong, wrong) == (True, "Cannot run tables: expected the arguments names, found 'a'.")


async def ask(location: Path, calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    from mcp import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    server = StdioServerParameters(
        command=str(Path(sys.executable).with_name("dagster-iceberg-spark")), args=["mcp", "-f", str(location)]
    )
    async with stdio_client(server) as (received, sent), ClientSession(received, sent) as session:
        await session.initialize()
        answers: list[Any] = [sorted(item.name for item in (await session.list_tools()).tools)]
        for name, arguments in calls:
            result: Any = await session.call_tool(name, arguments)
            answers.append((bool(result.is_error), result.content[0].text))
    return answers


def test_the_tables_are_listed_for_people_too(location: Path) -> None:
    result = CliRunner().invoke(app, ["tables", "-f", str(location)])
    assert result.exit_code == 0, result.output
    assert [line.split() for line in result.output.splitlines()] == [
        ["table", "asset", "rows", "partitioned", "by", "columns"],
        ["shop.orders", "shop/orders", "2", "id", "long"],
    ]
    sys.modules.pop("served", None)


def test_the_snippets_of_the_skill_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dagster_iceberg_spark.testing import Lake

    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "skill"}
    for block in blocks("python"):
        exec(compile(block, "SKILL.md", "exec"), names)
    lake = Lake(tmp_path / "lake")
    names["test_readings"](lake)
    lake.close()


def test_the_commands_of_the_skill_exist(location: Path) -> None:
    for line in blocks("sh")[0].splitlines():
        _, *arguments = shlex.split(line)
        arguments = ["shop.orders" if text == "weather.readings" else text for text in arguments]
        result = CliRunner().invoke(app, [*arguments, "-f", str(location)])
        sys.modules.pop("served", None)
        is_without_contract = arguments[0] == "contract" and "No asset has a contract" in result.output
        assert result.exit_code == 0 or is_without_contract, f"{line}: {result.output}"

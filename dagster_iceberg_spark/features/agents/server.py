"""The server of the Model Context Protocol. Each call is a process of its own, which a time limit ends."""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, TextContent, ToolAnnotations
from mcp_types import Tool as DescribedTool

from dagster_iceberg_spark.cli.app import app
from dagster_iceberg_spark.distribution import PACKAGE_VERSION
from dagster_iceberg_spark.features.agents.tools import Tool

_LONGEST_RESULT: Final = 40_000
"""Characters of a result. An agent that needs the rest asks for less."""
_NAME: Final = "dagster-iceberg-spark"


@dataclass(frozen=True, slots=True)
class AgentServer:
    """The tools of a code location.

    Args:
        tools: The tools by name.
        location: The options that name the code location.
        seconds: The time limit of a call.
    """

    tools: Mapping[str, Tool]
    location: Sequence[str]
    seconds: float

    def run(self) -> None:
        """Serve standard input and output until the client closes them."""
        anyio.run(self._serve)

    async def _serve(self) -> None:
        server: Any = Server(_NAME, version=PACKAGE_VERSION, on_list_tools=self._list, on_call_tool=self._call)
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())

    async def _list(self, _context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(
            tools=[
                DescribedTool(
                    name=name,
                    description=tool.description(app),
                    input_schema=tool.schema(app),
                    annotations=ToolAnnotations(
                        read_only_hint=tool.needs not in ("writes", "changes"), destructive_hint=tool.needs == "changes"
                    ),
                )
                for name, tool in self.tools.items()
            ]
        )

    async def _call(self, _context: Any, params: Any) -> CallToolResult:
        tool = self.tools.get(params.name)
        if tool is None:
            return _failed(f"Cannot run {params.name!r}: expected one of {', '.join(self.tools)}.")
        try:
            arguments = tool.arguments(app, params.arguments or {}, self.location)
        except ValueError as error:
            return _failed(f"Cannot run {params.name}: {error}.")
        return await self._result(params.name, arguments)

    async def _result(self, name: str, arguments: Sequence[str]) -> CallToolResult:
        command = [sys.executable, "-m", "dagster_iceberg_spark", *arguments]
        with anyio.move_on_after(self.seconds):
            done = await anyio.run_process(command, check=False, stdin=None)
            output, errors = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
            with suppress(ValueError):
                return _shown(json.loads(output))
            return _failed(errors.strip()[-_LONGEST_RESULT:] or output.strip() or f"exit code {done.returncode}")
        return _failed(f"Cannot run {name}: expected an answer within {self.seconds:.0f} seconds, found none.")


def _shown(document: Any) -> CallToolResult:
    text = json.dumps(document, indent=1)
    if len(text) > _LONGEST_RESULT:
        text = f"{text[:_LONGEST_RESULT]}\n... {len(text) - _LONGEST_RESULT} characters more: ask for less"
    return CallToolResult(content=[TextContent(type="text", text=text)])


def _failed(message: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=message)], is_error=True)

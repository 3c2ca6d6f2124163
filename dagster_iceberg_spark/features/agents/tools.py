"""The tools for agents. Each runs a command of the command line that prints JSON, and has its description."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import click

Permission: TypeAlias = Literal["rows", "writes", "changes"]
PERMISSIONS: Final[Mapping[Permission, str]] = {
    "rows": "tools that return rows of tables",
    "writes": "tools that write a check's own table or branches that no other process reads, or run another revision",
    "changes": "tools that apply a plan to tables: an undo, a promotion, maintenance",
}

_TYPES: Final = {"boolean": "boolean", "integer": "integer", "float": "number"}


@dataclass(frozen=True, slots=True)
class Tool:
    """A command that an agent may run.

    Args:
        command: The command, such as `("env", "diff")`.
        options: The parameters that the agent may set, by the names that the command gives them.
        fixed: Options that are always given.
        needs: What the server must allow, or None.
        title: The name of the tool, if it is not that of the command.
        required: Parameters that the agent must set, besides those that the command requires.
    """

    command: tuple[str, ...]
    options: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    needs: Permission | None = None
    title: str | None = None
    required: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.title or "_".join(self.command)

    def description(self, app: click.Group) -> str:
        """Return the text that the command shows as its help, without the examples."""
        text = inspect.cleandoc(self._command(app).help or "")
        return text.partition("\b")[0].strip()

    def schema(self, app: click.Group) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        parameters = self._parameters(app)
        return {
            "type": "object",
            "properties": {name: _property(parameter) for name, parameter in parameters.items()},
            "required": [name for name, parameter in parameters.items() if self._requires(parameter)],
            "additionalProperties": False,
        }

    def arguments(self, app: click.Group, given: Mapping[str, Any], location: Sequence[str]) -> list[str]:
        """Return the command line for the arguments of a call.

        Raises:
            ValueError: An argument is unknown or missing, or has another type.
        """
        parameters = self._parameters(app)
        for name in given:
            if name not in parameters:
                raise ValueError(f"expected the arguments {', '.join(parameters) or 'none'}, found {name!r}")
        options, positional = list[str](), list[str]()
        for name, parameter in parameters.items():
            value = given.get(name)
            if value is None:
                if self._requires(parameter):
                    raise ValueError(f"expected {name!r}, found none")
                continue
            texts = _texts(name, value, _property(parameter))
            if isinstance(parameter, click.Argument):
                positional += texts
            elif _is_flag(parameter):
                options += [parameter.opts[0]] if value else []
            else:
                options += [f"{parameter.opts[-1]}={text}" for text in texts]
        # After `--`, a text that begins with a dash is no option.
        return [*self.command, *location, *self.fixed, "--json", *options, "--", *positional]

    def _requires(self, parameter: click.Parameter) -> bool:
        return parameter.required or parameter.name in self.required

    def _command(self, app: click.Group) -> click.Command:
        found: Any = app
        for name in self.command:
            found = found.commands[name]
        return found  # type: ignore[no-any-return]

    def _parameters(self, app: click.Group) -> dict[str, click.Parameter]:
        known = {str(parameter.name): parameter for parameter in self._command(app).params}
        return {name: known[name] for name in self.options}


def _is_flag(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.is_flag


def _property(parameter: click.Parameter) -> dict[str, Any]:
    kind = "boolean" if _is_flag(parameter) else _TYPES.get(parameter.type.name.partition(" ")[0], "string")
    described = getattr(parameter, "help", None) or str(parameter.human_readable_name)
    if parameter.multiple or parameter.nargs == -1:
        return {"type": "array", "items": {"type": kind}, "description": described}
    return {"type": kind, "description": described}


_PYTHON_TYPES: Final[Mapping[str, Any]] = {"boolean": bool, "integer": int, "number": int | float, "string": str}


def _texts(name: str, value: Any, expected: Mapping[str, Any]) -> list[str]:
    """Return the texts of a value: several for a list."""
    if expected["type"] == "array":
        if not isinstance(value, list):
            raise ValueError(f"expected {name!r} of the type array, found {type(value).__name__}")
        return [text for item in value for text in _texts(name, item, expected["items"])]
    is_fit = isinstance(value, _PYTHON_TYPES[expected["type"]])
    if not is_fit or (isinstance(value, bool) and expected["type"] != "boolean"):
        raise ValueError(f"expected {name!r} of the type {expected['type']}, found {type(value).__name__}")
    return [str(value)]


def _plan_and_apply(command: tuple[str, ...], options: tuple[str, ...]) -> tuple[Tool, Tool]:
    """Return the tools that make a plan of a command that changes tables, and that apply it by its id."""
    name = "_".join(command)
    apply = Tool(command, (*options, "applied"), needs="changes", title=f"{name}_apply", required=("applied",))
    return Tool(command, options, fixed=("--plan",), title=f"{name}_plan"), apply


TOOLS: Final = (
    Tool(("tables",), ("names",)),
    Tool(("history",), ("table", "limit")),
    Tool(("impact",), ("snapshot",), required=("snapshot",)),
    Tool(("impact",), ("change",), needs="writes", title="impact_of_change", required=("change",)),
    Tool(("health",), ("tables",)),
    Tool(("contract", "check")),
    Tool(("branches",)),
    Tool(("env", "list")),
    Tool(("env", "diff"), ("name", "by_key")),
    Tool(("diff",), ("before", "after", "by_key")),
    Tool(("why",), ("table", "where", "is_deep", "limit"), needs="rows"),
    Tool(("check",), ("namespace",), needs="writes"),
    Tool(("replay",), ("run_id", "assets"), fixed=("--compare",), needs="writes", required=("run_id",)),
    Tool(("replay",), ("changed", "last"), needs="writes", title="replay_changed", required=("changed",)),
    *_plan_and_apply(("undo",), ("run_id", "cascade", "is_partial")),
    *_plan_and_apply(("env", "promote"), ("name",)),
    *_plan_and_apply(("maintain",), ("tables",)),
)


def tools_allowed(permissions: Sequence[str]) -> dict[str, Tool]:
    """Return the tools that a server with these permissions has, by name."""
    return {tool.name: tool for tool in TOOLS if tool.needs is None or tool.needs in permissions}

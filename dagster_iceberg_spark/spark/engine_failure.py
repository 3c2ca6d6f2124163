"""Extracts the facts from an error of Spark, py4j or Spark Connect, whatever wraps it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import PySparkException

from dagster_iceberg_spark.spark import versions

try:
    from py4j.protocol import Py4JError
except ModuleNotFoundError:

    class Py4JError(Exception):  # type: ignore[no-redef]
        """Never raised: pyspark-client comes without a JVM."""


ENGINE_ERRORS: Final = (PySparkException, Py4JError)
"""The errors that Spark's public API raises, classic and Connect."""

_CONNECT_CLASS = re.compile(r"^\(([\w.$]+)\)\s*(.*)", re.DOTALL)
_STACKTRACE: Final = "\n\nJVM stacktrace:"
_CONNECT_CAUSE = re.compile(r"^Caused by: ([\w.$]+): (.*?)(?=\n\s+at |\nCaused by: |\Z)", re.MULTILINE | re.DOTALL)
_AZURE_SAYS = re.compile(r"<Code>(\w+)</Code>\s*<Message>([^<\n]*)")
_STACK_LINE = re.compile(r"^\t+at \S+\(.*\n?", re.MULTILINE)
"""A line of a stack trace in a message of Hive's client. Its class names are no sign of the failure."""
_GRPC = re.compile(r'status = StatusCode\.(?P<status>\w+)\s+details = "(?P<details>.*)"')
"""The status and details in the message of a grpc error, whose first line names a Python class."""
_PYTHON_ERROR = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", re.MULTILINE)
"""The line with the error of a Python function, after its traceback."""
_CAUSE: Final = "\n| caused by: "
_WRAPPERS: Final = ("Exception thrown in awaitResult", "Job aborted", "Writing job aborted")
"""Messages in which Spark wraps the error of a task. Without a cause, they are all that is known."""
_MAXIMUM_CAUSES: Final = 10
_MAXIMUM_LINE: Final = 400


@dataclass(frozen=True, slots=True)
class EngineFailure:
    """The facts about an engine's error."""

    class_names: tuple[str, ...]  # of the error and its causes, outermost first
    condition: str  # Spark's, such as `TABLE_OR_VIEW_NOT_FOUND`
    text: str  # the messages, without stack traces

    @property
    def summary(self) -> str:
        """The first lines of the message, unless it only wraps a cause, and of its deepest causes."""
        first, *causes = self.text.split(_CAUSE)
        parts = causes[-2:] if causes and first.startswith(_WRAPPERS) else (first, *causes[-1:])
        lines = [_first_line(part) for part in parts]
        return "; ".join(dict.fromkeys(line[:_MAXIMUM_LINE] for line in lines if line)) or "no message"

    def mentions(self, *needles: str) -> bool:
        """Return whether a class name or the text contains one of the needles."""
        return any(needle in self.text or any(needle in name for name in self.class_names) for needle in needles)


def inspect_failure(error: Exception) -> EngineFailure:
    """Return the facts about the error, whatever Spark wraps it in."""
    condition = versions.installed().condition_of(error) if isinstance(error, PySparkException) else None
    text = _STACK_LINE.sub("", _text_of(error))
    connect = _CONNECT_CLASS.match(text)
    causes = _connect_causes(error)
    # The client has one class for lost connections and for errors of the server that it has no class for.
    own = connect[1] if connect else type(error).__name__
    return EngineFailure(
        class_names=(*_java_names(error), *(name for name, _ in causes), own),
        condition=condition or "",
        text=_CAUSE.join([connect[2] if connect else text, *(f"{name}: {message}" for name, message in causes)]),
    )


def _first_line(text: str) -> str:
    python = _PYTHON_ERROR.findall(text)
    if python:
        return str(python[-1])
    azure = _AZURE_SAYS.search(text)
    if azure is not None:
        return f"{azure[1]}: {azure[2]}"
    first, *others = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return f"{first} {others[0]}" if others and first.endswith(":") else first  # which announces the next one


def _text_of(error: Exception) -> str:
    if hasattr(error, "java_exception"):
        return _CAUSE.join(
            f"{name}: {message}" if index else message for index, (name, message) in enumerate(_java_causes(error))
        )
    text = str(error).split(_STACKTRACE, maxsplit=1)[0]
    grpc = _GRPC.search(text)
    return f"{grpc['status']}: {grpc['details']}" if grpc else text


def _java_names(error: Exception) -> Iterator[str]:
    if hasattr(error, "java_exception"):
        yield from (name for name, _ in _java_causes(error))


def _java_causes(error: Any) -> Iterator[tuple[str, str]]:
    throwable = error.java_exception
    for _ in range(_MAXIMUM_CAUSES):
        if throwable is None:
            return
        yield throwable.getClass().getName(), str(throwable.getMessage() or throwable.getClass().getName())
        throwable = throwable.getCause()


def _connect_causes(error: Exception) -> list[tuple[str, str]]:
    """Return the class and message of each cause. A Connect client has them only in the text of the server's stack."""
    stack_of = getattr(error, "getStackTrace", None)
    return _CONNECT_CAUSE.findall((stack_of and stack_of()) or "")

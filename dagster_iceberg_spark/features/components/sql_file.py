"""A file with a query and, in a comment at its top, the definition of its asset in YAML."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NoReturn

import dagster as dg
from dagster.components.resolved.base import resolve_fields
from dagster.components.resolved.core_models import AssetSpecUpdateKwargs
from dagster.components.resolved.errors import ResolutionException
from dagster_shared.yaml_utils import parse_yaml_with_source_position
from dagster_shared.yaml_utils.source_position import SourcePositionTree
from jinja2 import Environment, StrictUndefined, TemplateError, TemplateSyntaxError
from pydantic import ValidationError
from yaml import MarkedYAMLError

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.components.plan.sql_query import SqlQuery, parse_query, reference
from dagster_iceberg_spark.plan.metadata_key import PREFIX
from dagster_iceberg_spark.plan.options import PARTITION_EXPR, SCHEMA
from dagster_iceberg_spark.table.notation import NotationError

_BEGINNING: Final = r"/\*\s*---"
_HEADER: Final = re.compile(
    rf"\A(?:\s|--[^\n]*\n|/\*(?!\s*---).*?\*/)*{_BEGINNING}[^\S\n]*\n(.*?)\n\s*---\s*\*/", re.DOTALL
)
"""A comment that begins and ends with three dashes. Other comments may stand before it, such as a license."""
_HEADERS: Final = re.compile(_BEGINNING)
_PARTITION: Final = SimpleNamespace(start="NULL", end="NULL", key="NULL", keys="(NULL)")
"""Stands for the values of a partition where only the tables of the query matter."""
_METADATA_KEYS: Final = (PARTITION_EXPR, SCHEMA)
"""Keys of the header that are metadata, as are all keys with the prefix of the package."""
CHECKS: Final = "checks"
"""Key of the header with the arguments of `build_data_checks`."""
_IS_TYPE: Final = re.compile(r"^[A-Z]|\[")
"""The name of a class or a type, which pydantic puts between the keys of a choice."""
_UNKNOWN_KEY: Final = "Extra inputs are not permitted"
"""Pydantic's words for a key that a model does not have."""


@dataclass(frozen=True, slots=True)
class SqlFile:
    """A file with a query.

    Args:
        path: The file.
        template: The text. Its header is left out, but not its lines.
        attributes: The attributes of the asset, from the header.
    """

    path: Path
    template: str
    attributes: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path, context: dg.ResolutionContext) -> "SqlFile":
        """Read a file.

        Raises:
            ConfigurationError: The header is wrong. The message has the line.
        """
        text = path.read_text(encoding="utf-8-sig")
        header = _HEADER.match(text)
        if len(_HEADERS.findall(text)) > (header is not None):
            raise ConfigurationError.refusing(
                "use",
                str(path),
                expected="one header before the query: a comment that begins with `/* ---` and ends with `--- */`",
                found="a comment that begins so, and ends otherwise or stands elsewhere",
            )
        if header is None:
            return cls(path, text, {})
        lines = "\n" * text[: header.start(1)].count("\n")
        attributes = _attributes(path, lines + header[1], context)
        return cls(path, "\n" * header[0].count("\n") + text[header.end() :], attributes)

    @property
    def name(self) -> str:
        """The name of the asset without `key`: that of the file."""
        return self.path.stem

    def query(self, partition: Any = None) -> SqlQuery:
        """Return the query, with the values of a run's partition or, without a partition, as far as it is known.

        Raises:
            ConfigurationError: The template or the query is wrong.
        """
        values = _PARTITION if partition is None else partition
        try:
            text = _ENVIRONMENT.from_string(self.template).render(ref=reference, partition=values)
            return parse_query(text)
        except TemplateSyntaxError as error:
            self._refuse(f"{error.message} in line {error.lineno}", error)
        except TemplateError as error:
            self._refuse(str(error), error)
        except NotationError as error:
            self._refuse(error.found, error)

    def _refuse(self, found: str, error: Exception) -> NoReturn:
        raise ConfigurationError.refusing(
            "use",
            str(self.path),
            expected="one query in Spark SQL, with `{{ ref('asset') }}` and `{{ partition.start }}`",
            found=found,
        ) from error


_ENVIRONMENT: Final = Environment(undefined=StrictUndefined, autoescape=False)  # noqa: S701 - the text is SQL


def _attributes(path: Path, header: str, context: dg.ResolutionContext) -> Mapping[str, Any]:
    """Return the attributes of the asset in a header whose lines are those of the file."""
    refused = partial(ConfigurationError.refusing, "use", str(path))
    try:
        parsed = parse_yaml_with_source_position(header, str(path))
    except MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        raise refused(expected="YAML in the comment at the top", found=f"{error.problem}{line}") from error
    given = parsed.value
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise refused(expected="a mapping in the comment at the top", found=type(given).__name__)
    positions = parsed.source_position_tree
    metadata = {key: value for key, value in given.items() if key.startswith(PREFIX) or key in _METADATA_KEYS}
    others = {key: value for key, value in given.items() if key not in metadata and key != CHECKS}
    try:
        model = _MODEL(**others)
    except ValidationError as error:
        keys, reason = _closest(error)
        known = f"one of the keys {', '.join((*_MODEL.model_fields, CHECKS, *_METADATA_KEYS))} or `{PREFIX}...`"
        raise refused(
            expected=known if reason == _UNKNOWN_KEY else "keys that fit together",
            found=f"`{'.'.join(map(str, keys))}` in line {_line(positions, keys)}"
            f"{'' if reason == _UNKNOWN_KEY else f': {reason}'}",
        ) from None
    try:
        resolved = dict(resolve_fields(model, AssetSpecUpdateKwargs, context.with_source_position_tree(positions)))
    except ResolutionException as error:
        lines = str(error).strip().splitlines()
        raise refused(expected="values that Dagster accepts", found=f"{lines[0]}: {lines[-1]}") from error
    given_metadata = {key: context.resolve_value(value) for key, value in metadata.items()}
    checks = {CHECKS: context.resolve_value(given[CHECKS])} if CHECKS in given else {}
    return {**resolved, **checks, "metadata": {**resolved.get("metadata", {}), **given_metadata}}


_MODEL: Final = AssetSpecUpdateKwargs.model()


def _line(positions: SourcePositionTree, keys: Sequence[Any]) -> int:
    position, _ = positions.lookup_closest_and_path(list(keys), trace=None)
    return int(position.start.line)


def _closest(error: ValidationError) -> tuple[list[Any], str]:
    """Return the keys and the reason of an error. Of several models, the one whose `type` is given counts."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    others = {item["loc"][:-1] for item in found if item["type"] == "literal_error"}
    first = next((item for item in found if item["loc"][:-1] not in others), found[0])
    return [part for part in first["loc"] if not _IS_TYPE.search(str(part))], first["msg"]

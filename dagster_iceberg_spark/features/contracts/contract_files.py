"""Reads contracts, by the package of the standard."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from dagster_shared.yaml_utils import parse_yaml_with_source_position
from pydantic import ValidationError
from yaml import MarkedYAMLError

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.contracts.plan import (
    Contract,
    ContractColumn,
    UnheldError,
    age_of,
    audits_of_column,
    audits_of_rules,
    type_of,
)

_VERSION: Final = re.compile(r"v?3\.\d+\.\d+.*")


def read_contract(place: str) -> Contract:
    """Return the contract of a file, or of one of its tables, as in `orders.odcs.yaml#lines`.

    A file that has changed is read again.

    Raises:
        ConfigurationError: The file is missing or no contract, or has a type that a table cannot have. The message has
            the file, the line and the element.
    """
    file, _, table = place.partition("#")
    path = Path(file).absolute()
    if not path.is_file():
        raise ConfigurationError.refusing(
            "use",
            f"the contract {file}",
            expected="a file, relative to the working directory",
            found=f"none at {path}",
            hint="name it by `dg.file_relative_path(__file__, ...)`.",
        )
    return _read(path, table or None, path.stat().st_mtime_ns)


@cache
def _read(path: Path, table: str | None, _changed_at: int) -> Contract:
    reader = _Reader(path)
    document = reader.document
    schema = document.get("schema") or []
    names = [item.get("name") or item.get("physicalName") for item in schema]
    if table is None and len(schema) != 1:
        raise reader.refusal(("schema",), "one table, or `#name` after the file", ", ".join(map(str, names)) or "none")
    if table is not None and table not in names:
        raise reader.refusal(("schema",), f"a table {table!r}", ", ".join(map(str, names)) or "none")
    position = 0 if table is None else names.index(table)
    return reader.contract(schema[position], ("schema", position))


class _Reader:
    """A file with a contract, and the lines of its elements."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            parsed = parse_yaml_with_source_position(path.read_text(encoding="utf-8"), str(path))
        except MarkedYAMLError as error:
            line = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
            raise self._error("YAML", f"{error.problem}{line}") from error
        self._positions = parsed.source_position_tree
        self.document: Mapping[str, Any] = self._validated(parsed.value)

    def _validated(self, document: Any) -> Mapping[str, Any]:
        try:
            from open_data_contract_standard.model import OpenDataContractStandard
        except ImportError as error:
            raise ConfigurationError.missing_package(
                "use",
                f"the contract {self._path}",
                package="open-data-contract-standard",
                install="dagster-iceberg-spark[contracts]",
            ) from error
        if not isinstance(document, dict):
            raise self._error("a contract", f"a {type(document).__name__}")
        if not _VERSION.fullmatch(str(document.get("apiVersion"))):
            raise self.refusal(("apiVersion",), "version 3 of the standard", str(document.get("apiVersion")))
        try:
            OpenDataContractStandard(**document)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)[0]
            keys = tuple(part for part in found["loc"] if isinstance(part, int) or not re.match(r"[A-Z]|list\[", part))
            raise self.refusal(keys, "a contract of the standard", found["msg"]) from None
        if not document.get("version"):
            raise self.refusal(("version",), "a version, such as 1.0.0", "none")
        return document

    def contract(self, table: Mapping[str, Any], place: tuple[Any, ...]) -> Contract:
        """Return the contract of a table."""
        document, unheld, audits = self.document, list[str](), dict[str, Any]()
        columns = tuple(self._columns(table, (*place, "properties"), audits, unheld))
        if not columns:
            raise self.refusal((*place, "properties"), "columns", "none")
        keys = [column.name for column in columns if column.is_key]
        if keys:
            audits["primary_key"] = {"unique": keys}
        others = ["relationships"] if table.get("relationships") else []
        self._add(audits, unheld, audits_of_rules("table", (), table.get("quality") or (), others), "the table")
        fresh, levels = age_of(document.get("slaProperties") or ())
        names = (document.get("name"), document.get("id"), table.get("name"), table.get("physicalName"))
        return Contract(
            names=tuple(dict.fromkeys(str(name) for name in names if name)),
            version=str(document["version"]),
            columns=columns,
            description=table.get("description"),
            audits=audits,
            fresh=fresh,
            unheld=(*unheld, *levels),
        )

    def _columns(
        self, table: Mapping[str, Any], place: tuple[Any, ...], audits: dict[str, Any], unheld: list[str]
    ) -> Iterator[ContractColumn]:
        for position, column in enumerate(table.get("properties") or ()):
            name = column.get("physicalName") or column.get("name")
            if not name:
                raise self.refusal((*place, position), "a name", "none")
            if column.get("semanticType") == "measure":
                unheld.append(f"the measure {name}")
                continue
            try:
                kind = type_of(column)
            except UnheldError as error:
                raise self.refusal((*place, position), f"a type of {name} that a table can have", str(error)) from None
            self._add(audits, unheld, audits_of_column(name, column), name)
            is_key = bool(column.get("primaryKey"))
            yield ContractColumn(name, kind, bool(column.get("required")) or is_key, is_key, column.get("description"))

    def _add(self, audits: dict[str, Any], unheld: list[str], found: Iterator[tuple[str, Any]], subject: str) -> None:
        """Add audits, and what cannot be held, in words."""
        try:
            for name, audit in found:
                audits[name if name not in audits else f"{name}_{len(audits)}"] = audit
        except UnheldError as error:
            unheld.append(f"{subject}: {error}")

    def refusal(self, keys: tuple[Any, ...], expected: str, found: str) -> ConfigurationError:
        """Return the error for an element, with its line."""
        position, _ = self._positions.lookup_closest_and_path(list(keys), trace=None)
        element = ".".join(map(str, keys))
        return self._error(expected, f"{found} in `{element}`, line {position.start.line}")

    def _error(self, expected: str, found: str) -> ConfigurationError:
        return ConfigurationError.refusing("use", f"the contract {self._path}", expected=expected, found=found)

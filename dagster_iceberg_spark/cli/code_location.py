"""The code locations that the command line names."""

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import dagster as dg
from dagster_shared.check import CheckError
from pydantic import ValidationError

from dagster_iceberg_spark.assets.dagster_private.graph import definitions_in, targets_in
from dagster_iceberg_spark.config import configuration
from dagster_iceberg_spark.config.configuration import selection
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.resource import IcebergSparkResource

_FILES_OF_A_DIRECTORY: Final = ("workspace.yaml", "pyproject.toml")
"""The files in which Dagster's commands look for code locations if none is named, in this order."""


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """The module or file with the `Definitions` of a code location, and the first directory of the import path.

    Without an attribute, there must be one `Definitions`.
    """

    module: str | None
    python_file: Path | None
    attribute: str | None
    directory: Path


def locations_in(files: Sequence[Path], directory: Path) -> tuple[CodeLocation, ...]:
    """Return the code locations of workspace files, by default of the directory's workspace.yaml or pyproject.toml."""
    if not files:
        files = [path for name in _FILES_OF_A_DIRECTORY if (path := directory / name).exists()][:1]
    return tuple(location for path in files for location in _locations_in(path, directory))


def _locations_in(path: Path, directory: Path) -> Iterator[CodeLocation]:
    try:
        targets = targets_in(path)
    except Exception as error:  # Dagster raises errors of many classes
        raise ConfigurationError.refusing(
            "load", str(path), expected="code locations as Dagster reads them", found=repr(error)
        ) from error
    for target in targets:
        module = None if target is None else target.module_name or target.package_name
        if target is None or not (module or target.python_file):
            raise ConfigurationError.refusing(
                "load",
                f"a code location of {path}",
                expected="a module, a package or a Python file",
                found="a server" if target is None else "a folder of definitions that are loaded automatically",
                hint="name a module with the Definitions by `--module`.",
            )
        yield CodeLocation(
            module=module,
            python_file=Path(target.python_file) if target.python_file else None,
            attribute=target.attribute,
            # For a pyproject.toml, Dagster imports modules from the current directory of the process.
            directory=directory if path.suffix == ".toml" else Path(target.working_directory or directory),
        )


def load_definitions(location: CodeLocation) -> dg.Definitions:
    """Import a code location and return its `Definitions`."""
    module, python_file, attribute = location.module, location.python_file, location.attribute
    place = module or str(python_file)
    sys.path.insert(0, str(location.directory))
    try:
        loaded = importlib.import_module(module) if module else _import_file(python_file or Path())
        found = definitions_in(loaded)
    except Exception as error:  # whatever the user's code raises
        raise ConfigurationError.refusing(
            "load", f"the code location {place}", expected="a module that can be imported", found=repr(error)
        ) from error
    if attribute is None and len(found) == 1:
        return next(iter(found.values()))
    if attribute in found:
        return found[attribute]
    raise ConfigurationError.refusing(
        "load",
        f"the code location {place}",
        expected="one dagster.Definitions" if attribute is None else f"a dagster.Definitions named {attribute!r}",
        found=", ".join(map(repr, found)) or "none",
        hint="name one of them by `--attribute`." if found and attribute is None else None,
    )


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        message = f"{path} is not a Python file"
        raise ImportError(message)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    spec.loader.exec_module(loaded)
    return loaded


_ENVIRONMENT: Final = "env:"
"""Prefix of the name of an environment variable, which keeps a secret out of the command line."""

_MAPPINGS: Final = ("properties", "headers", "configuration")
"""Fields that map names to values. The names may contain dots."""


def resource_of(
    *, catalog: Mapping[str, str], spark_config: Iterable[str], remote: str | None, jars: str
) -> IcebergSparkResource:
    """Return the resource that the options describe: fields of the catalog by dotted path, `key=value` for Spark."""
    try:
        return IcebergSparkResource(
            catalog=selection(_nest({path: _value(text) for path, text in catalog.items()})),
            spark_config=assignments(spark_config, flag="--spark-config"),
            remote=remote,
            jars=jars,
        )
    except (ValidationError, CheckError, TypeError) as error:
        raise ConfigurationError.refusing(
            "use", "the catalog of the options", expected="fields that fit together", found=_reasons(error)
        ) from None


@contextmanager
def literal_secrets_allowed() -> Iterator[None]:
    """Suppress the warning about literal secrets: no UI shows the options of a command line."""
    logger = logging.getLogger(configuration.__name__)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def assignments(texts: Iterable[str], *, flag: str) -> dict[str, str]:
    """Return the values of texts such as `name=value` by name."""
    pairs = [text.partition("=") for text in texts]
    for name, sign, _ in pairs:
        if not sign or not name:
            raise ConfigurationError.refusing("use", flag, expected="name=value", found=repr(name))
    return {name: value for name, _, value in pairs}


def _nest(values: Mapping[str, str]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for path, value in values.items():
        *parents, name = _parts(path)
        inner = document
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = value
    return document


def _parts(path: str) -> list[str]:
    """Return the fields of a dotted path. What follows a mapping is one name."""
    fields = path.split(".")
    for position, field in enumerate(fields[:-1], start=1):
        if field in _MAPPINGS:
            return [*fields[:position], ".".join(fields[position:])]
    return fields


def _value(text: str) -> str:
    if not text.startswith(_ENVIRONMENT):
        return text
    name = text.removeprefix(_ENVIRONMENT)
    if name not in os.environ:
        raise ConfigurationError.refusing("use", f"`{text}`", expected=f"an environment variable {name}", found="none")
    return os.environ[name]


def _reasons(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg'].rstrip('.')}" for item in error.errors())
    return "a `store` or an `authentication` without its `kind`"

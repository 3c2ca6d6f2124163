"""The code locations that the command line names."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

import dagster as dg

from dagster_iceberg_spark.assets.dagster_private import definitions_in, targets_in
from dagster_iceberg_spark.errors import ConfigurationError

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

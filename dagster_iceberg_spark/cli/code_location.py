"""The code location that the command line is pointed at."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import dagster as dg

from dagster_iceberg_spark.dagster_private import definitions_in
from dagster_iceberg_spark.errors import ConfigurationError


def load_definitions(
    *, module: str | None, python_file: Path | None, attribute: str | None, directory: Path
) -> dg.Definitions:
    """Import a code location and return its `Definitions`.

    Args:
        module: A module's dotted name.
        python_file: A file instead of a module.
        attribute: The name of the `Definitions` in it. Default: the only one.
        directory: Put in front of the import path.

    Raises:
        ConfigurationError: It cannot be imported, or has no such `Definitions`.
    """
    place = module or str(python_file)
    sys.path.insert(0, str(directory))
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
        message = f"{path} is no Python file"
        raise ImportError(message)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    spec.loader.exec_module(loaded)
    return loaded

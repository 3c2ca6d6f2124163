"""The assets of a code location, as its code defines them.

A process of its own loads the code of a revision: `python -m` with the options that name code locations.
"""

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import click
import dagster as dg

from dagster_iceberg_spark.assets.address import plain_metadata
from dagster_iceberg_spark.assets.dagster_private.graph import functions_in
from dagster_iceberg_spark.cli.locations import definitions_of, location_options, usage_errors
from dagster_iceberg_spark.features.code_changes.plan.code_state import AssetCode
from dagster_iceberg_spark.features.components.sql_assets import SqlModel, SqlPartition, model_of
from dagster_iceberg_spark.features.lineage.plan.column_origins import digest_of
from dagster_iceberg_spark.plan.options.metadata_key import PREFIX
from dagster_iceberg_spark.plan.options.output_options import PARTITION_EXPR, SCHEMA

_OWN_PACKAGE: Final = str(__package__).partition(".")[0]
_CONSTANTS: Final = (str, bytes, int, float, complex, tuple, list, dict, set, frozenset, type(None))


def assets_in(definitions: dg.Definitions, root: Path) -> Iterator[AssetCode]:
    """Yield the assets that runs of a code location materialize.

    Args:
        definitions: The code location.
        root: The directory of the repository. Code elsewhere is that of libraries, and does not count.
    """
    for assets in definitions.resolve_asset_graph().assets_defs:
        if not assets.is_executable:
            continue
        model = model_of(assets)
        texts = [model.file.template] if model else _sources(functions_in(assets.node_def), root)
        code = digest_of(*texts)
        for spec in assets.specs:
            yield AssetCode(
                "/".join(spec.key.path),
                code,
                tuple(sorted("/".join(dep.asset_key.path) for dep in spec.deps)),
                None if model is None else _query_of(model, spec.partitions_def),
                () if model is None else _tables_of(model),
                _settings_of(spec, is_model=model is not None),
            )


def _tables_of(model: SqlModel) -> tuple[tuple[tuple[str, ...], str], ...]:
    return tuple((parts, "/".join(key.path)) for parts, key in model.tables.items() if key is not None)


def _query_of(model: SqlModel, definition: dg.PartitionsDefinition | None) -> str:
    """Return the query for the newest partition or, where none is known, without one."""
    try:
        key = None if definition is None else definition.get_last_partition_key()
    except dg.DagsterError:  # partitions that only an instance knows
        key = None
    partition = None if key is None else SqlPartition(model.file.path, definition, [key])
    return model.file.query(partition).text


def _settings_of(spec: dg.AssetSpec, *, is_model: bool) -> dict[str, str]:
    metadata = plain_metadata(spec.metadata)
    settings = {
        key: str(value) for key, value in metadata.items() if key.startswith(PREFIX) or key in (PARTITION_EXPR, SCHEMA)
    }
    if spec.partitions_def is not None:
        settings["partitions_def"] = str(spec.partitions_def)
    if spec.code_version is not None and not is_model:  # that of a model is a digest of its query
        settings["code_version"] = spec.code_version
    return settings


def _sources(functions: Iterable[Callable[..., Any]], root: Path) -> Iterator[str]:
    """Yield the code of functions, and of the functions, classes and constants of the repository that they name."""
    seen, waiting = set[Any](), [inspect.unwrap(function) for function in functions]
    while waiting:
        item = waiting.pop(0)
        if item in seen:
            continue
        seen.add(item)
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(item)))
        except (OSError, TypeError, SyntaxError):  # made by code, not written
            yield _text_of(getattr(getattr(item, "__code__", None), "co_code", item), root)
            continue
        known = {**vars(sys.modules.get(item.__module__, object)), **_closure_of(item)}
        yield ast.dump(_rows_only(tree, known))
        for owner, name, value in _named(tree, known):
            if isinstance(value, FunctionType | type):
                waiting += [inspect.unwrap(value)] if _is_within(value, root) else []
            elif isinstance(value, _CONSTANTS) and (owner is None or _is_within(owner, root)):
                yield f"{name}={_text_of(value, root)}"


def _text_of(value: Any, root: Path) -> str:
    """Return a text of a constant that is the same in each process and each copy of the repository.

    Of an object that is no constant, this is its class.
    """
    kind = type(value)  # subclasses, such as asset keys, are no constants
    if kind is dict:
        return f"{{{', '.join(f'{_text_of(key, root)}: {_text_of(item, root)}' for key, item in value.items())}}}"
    if kind in (list, tuple):
        return f"[{', '.join(_text_of(item, root) for item in value)}]"
    if kind in (set, frozenset):
        return f"{{{', '.join(sorted(_text_of(item, root) for item in value))}}}"
    return repr(value).replace(str(root), "") if kind in _CONSTANTS else kind.__qualname__


def _rows_only(tree: ast.Module, known: Mapping[str, Any]) -> ast.Module:
    """Return the code without docstrings, and without Dagster's decorators: what they say is among the settings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.decorator_list = [item for item in node.decorator_list if not _is_of_dagster(item, known)]
            node.body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return tree


def _is_of_dagster(decorator: ast.expr, known: Mapping[str, Any]) -> bool:
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    return any(str(getattr(value, "__module__", "")).startswith("dagster") for *_, value in _named(node, known))


def _named(tree: ast.AST, known: Mapping[str, Any]) -> Iterator[tuple[ModuleType | None, str, Any]]:
    """Yield what code names: variables of its module and of the functions around it, and those of a module it names."""
    for name in sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & known.keys()):
        yield None, name, known[name]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = known.get(node.value.id)
            if isinstance(owner, ModuleType):
                yield owner, f"{node.value.id}.{node.attr}", getattr(owner, node.attr, None)


def _closure_of(item: Any) -> Mapping[str, Any]:
    return inspect.getclosurevars(item).nonlocals if isinstance(item, FunctionType) else {}


def _is_within(item: Any, root: Path) -> bool:
    try:
        path = Path(inspect.getfile(item)).resolve()
    except (OSError, TypeError):
        return False
    module = getattr(item, "__module__", None) or item.__name__
    is_own = module.partition(".")[0] == _OWN_PACKAGE
    return path.is_relative_to(root) and "site-packages" not in path.parts and not is_own


@click.command()
@location_options
@click.option("--root", type=click.Path(path_type=Path), required=True)
@click.option("--output", type=click.Path(path_type=Path), required=True)
def _write(*, root: Path, output: Path, **options: Any) -> None:
    """Write the assets of code locations to a file."""
    with usage_errors():
        found = [asdict(asset) for definitions in definitions_of(**options) for asset in assets_in(definitions, root)]
    output.write_text(json.dumps(found))


if __name__ == "__main__":
    _write()

"""What all commands share: the code locations that options name, and errors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dagster_iceberg_spark.cli.terminal import printable
from dagster_iceberg_spark.errors import IcebergSparkError, UpstreamMissingError

if TYPE_CHECKING:
    from dagster import Definitions

    from dagster_iceberg_spark.resource import IcebergSparkResource

_ItemT = TypeVar("_ItemT")

_LOCATION_OPTIONS: Final = (
    click.option(
        "-w",
        "--workspace",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Workspace file with the code locations. Default: workspace.yaml or pyproject.toml in the working "
        "directory.",
    ),
    click.option("-m", "--module", "--module-name", help="Module of a code location, such as my_project.definitions."),
    click.option(
        "-f",
        "--python-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Python file of a code location.",
    ),
    click.option("-a", "--attribute", help="Name of the Definitions in the module or file. Default: the only one."),
    click.option(
        "-d",
        "--working-directory",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        default=Path(),
        help="First directory of the import path. Default: the current directory.",
    ),
)


def location_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name code locations."""
    for option in reversed(_LOCATION_OPTIONS):
        command = option(command)
    return command


_CATALOG_OPTIONS: Final = (
    click.option("--kind", help="Kind of a catalog without a code location, such as sql, rest or glue."),
    click.option("--uri", help="The catalog's `uri`."),
    click.option("--warehouse", help="The catalog's `warehouse`."),
    click.option(
        "--set",
        "fields",
        multiple=True,
        metavar="FIELD=VALUE",
        help="Another field of the catalog, such as store.region=eu-west-1. env:NAME reads an environment variable.",
    ),
    click.option("--remote", help="Spark Connect server, sc://host:port. Default: a session in this process."),
    click.option("--spark-config", multiple=True, metavar="KEY=VALUE", help="Spark configuration."),
    click.option("--jars", type=click.Choice(["maven", "provided"]), default="maven", help="Source of the libraries."),
)
_CATALOG_NAMES: Final = ("kind", "uri", "warehouse", "fields", "remote", "spark_config", "jars")


def catalog_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that describe a catalog without a code location."""
    for option in reversed(_CATALOG_OPTIONS):
        command = option(command)
    return command


@contextmanager
def catalog_resource(options: dict[str, Any], *, creates: bool = False) -> "Iterator[IcebergSparkResource | None]":
    """Yield the resource of the catalog that options describe, or None without one. Its options are removed.

    A file that the catalog needs must exist, unless the command may create it.
    """
    from dagster_iceberg_spark.cli.code_location import assignments, literal_secrets_allowed, resource_of

    given = {name: options.pop(name) for name in _CATALOG_NAMES}
    if given["kind"] is None:
        yield None
        return
    if options["workspace"] or options["module"] or options["python_file"]:
        raise click.UsageError("Name one of: --workspace, --module, --python-file, --kind.")
    catalog = {name: given[name] for name in ("kind", "uri", "warehouse") if given[name] is not None}
    catalog |= assignments(given["fields"], flag="--set")
    file = str(catalog.get("uri", "")).partition("?")[0].removeprefix("sqlite:///")
    if not creates and str(catalog.get("uri", "")).startswith("sqlite:///") and not Path(file).exists():
        raise click.UsageError(f"There is no SQLite file {file}.")
    with literal_secrets_allowed():
        yield resource_of(
            catalog=catalog, spark_config=given["spark_config"], remote=given["remote"], jars=given["jars"]
        )


def definitions_of(
    *,
    workspace: Sequence[Path],
    module: str | None,
    python_file: Path | None,
    attribute: str | None,
    working_directory: Path,
    others: Sequence[str] = (),
) -> list[Any]:
    """Return the definitions of the code locations that have an IO manager of this package, or else of the first."""
    from dagster_iceberg_spark.assets.stored_tables import stored_assets
    from dagster_iceberg_spark.cli.code_location import CodeLocation, load_definitions, locations_in

    choice = f"Name one of: {', '.join(('--workspace', '--module', '--python-file', *others))}."
    if len([place for place in (*workspace[:1], module, python_file) if place is not None]) > 1:
        raise click.UsageError(choice)
    directory = working_directory.absolute()
    named = CodeLocation(module, python_file, attribute, directory)
    locations = (named,) if module or python_file else locations_in(workspace, directory)
    if not locations:
        found = f"{directory} has no workspace.yaml or pyproject.toml that names a code location."
        raise click.UsageError(f"{choice} {found}")
    loaded = [load_definitions(location) for location in locations]
    return [each for each in loaded if stored_assets(each)] or loaded[:1]


def in_locations(options: Mapping[str, Any], action: "Callable[[Definitions], list[_ItemT]]") -> "list[_ItemT]":
    """Return what an action returns for each code location. At least one of them must have what the action is about."""
    found, missing = list[Any](), None
    for definitions in definitions_of(**options):
        try:
            found += action(definitions)
        except UpstreamMissingError as error:
            missing = error
    if missing is not None and not found:
        raise missing
    return found


@contextmanager
def usage_errors() -> Iterator[None]:
    """Show the errors of the package as those of the command line."""
    try:
        yield
    except IcebergSparkError as error:
        raise click.UsageError(printable(str(error))) from error

"""The commands `mcp` and `tables`."""

import json
from pathlib import Path
from typing import Any, Final

import click

from dagster_iceberg_spark.cli.locations import definitions_of, location_options, usage_errors
from dagster_iceberg_spark.cli.terminal import print_table
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.agents.tools import PERMISSIONS, tools_allowed

_CALL_SECONDS: Final = 300.0


@click.command()
@location_options
@click.option("-t", "--table", "names", multiple=True, metavar="NAMESPACE.TABLE", help="Only this table.")
@click.option("--json", "as_json", is_flag=True, help="Print the tables as JSON.")
def tables(*, names: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """List the tables of code locations, with their columns and partitions. This starts no Spark session.

    \b
    Examples:
      dagster-iceberg-spark tables
      dagster-iceberg-spark tables --table nyc.flights --json
    """  # noqa: D301 - click needs the character \b
    from dagster_iceberg_spark.features.agents.tables import describe_tables

    with usage_errors():
        found = [table for each in definitions_of(**options) for table in describe_tables(each, names)]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    rows = [
        (
            item["table"],
            item["asset"],
            item["rows"] or "",
            ", ".join(item["partitioned_by"]),
            ", ".join(f"{column['name']} {column['type']}" for column in item["columns"]),
        )
        for item in found
    ]
    columns = ("table", "asset", "rows", "partitioned by", "columns")
    print_table(columns, rows, numbers=("rows",), empty="No asset has a table yet.")


@click.command()
@location_options
@click.option(
    "--allow",
    "permissions",
    multiple=True,
    type=click.Choice(tuple(PERMISSIONS)),
    help=f"{'; '.join(f'{name}: {text}' for name, text in PERMISSIONS.items())}. Default: neither.",
)
@click.option("--seconds", type=float, default=_CALL_SECONDS, show_default=True, help="Time limit of each call.")
def mcp(*, permissions: tuple[str, ...], seconds: float, **options: Any) -> None:
    """Serve the tables of code locations to agents, by the Model Context Protocol over standard input and output.

    The tools are the commands that print JSON. By default, they read metadata only: no rows, and nothing is written.

    \b
    Examples:
      dagster-iceberg-spark mcp -m my_project.definitions
      dagster-iceberg-spark mcp -m my_project.definitions --allow rows
    """  # noqa: D301 - click needs the character \b
    with usage_errors():
        try:
            from dagster_iceberg_spark.features.agents.server import AgentServer
        except ImportError as error:
            raise ConfigurationError.missing_package(
                "start", "the server", package="mcp", install="dagster-iceberg-spark[mcp]"
            ) from error
    AgentServer(tools_allowed(permissions), _location(options), seconds).run()


def _location(options: dict[str, Any]) -> list[str]:
    """Return the options that name the code location, for another process."""
    given = list[str]()
    for name, value in options.items():
        for item in value if isinstance(value, tuple) else (value,):
            if item is not None:
                text = str(item.absolute()) if isinstance(item, Path) else str(item)
                given.append(f"--{name.replace('_', '-')}={text}")
    return given

"""`dagster-iceberg-spark check`."""

import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dagster_iceberg_spark.check.findings import CheckReport, Finding, Outcome
from dagster_iceberg_spark.check.steps import THREAD_NAME
from dagster_iceberg_spark.distribution import PACKAGE_VERSION
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.timeouts import STEP_SECONDS

_STYLES: Final[dict[Outcome, str]] = {"ok": "green", "differs": "yellow", "failed": "bold red", "not tried": "dim"}
_WIDTH: Final = 120
"""Characters in a line if the output is not a terminal."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(PACKAGE_VERSION, package_name="dagster-iceberg-spark")
def app() -> None:
    """Iceberg tables of Dagster assets."""


@app.command()
@click.option(
    "-w",
    "--workspace",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Workspace file with the code locations. Default: workspace.yaml or pyproject.toml in the working directory.",
)
@click.option("-m", "--module", "--module-name", help="Module of a code location, such as my_project.definitions.")
@click.option(
    "-f",
    "--python-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Python file of a code location.",
)
@click.option("-a", "--attribute", help="Name of the Definitions in the module or file. Default: the only one.")
@click.option(
    "-d",
    "--working-directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="First directory of the import path. Default: the current directory.",
)
@click.option("--kind", help="Kind of a catalog without a code location, such as sql, rest or glue.")
@click.option("--uri", help="The catalog's `uri`.")
@click.option("--warehouse", help="The catalog's `warehouse`.")
@click.option(
    "--set",
    "fields",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Another field of the catalog, such as store.region=eu-west-1. env:NAME reads an environment variable.",
)
@click.option("--remote", help="Spark Connect server, sc://host:port. Default: a session in this process.")
@click.option("--spark-config", multiple=True, metavar="KEY=VALUE", help="Spark configuration.")
@click.option("--jars", type=click.Choice(["maven", "provided"]), default="maven", help="Source of the libraries.")
@click.option("--namespace", help="Existing namespace for the check's table. Default: the check creates one.")
@click.option("--seconds", type=float, default=STEP_SECONDS, show_default=True, help="Time limit of each step.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--strict", is_flag=True, help="Also fail if a table differs from its asset's definition.")
def check(as_json: bool, strict: bool, **options: Any) -> None:  # noqa: FBT001 - click's flags
    """Check the catalogs and tables of code locations, or a catalog that options describe.

    The check creates a table in each catalog, replaces it, reads it with Spark and with pyiceberg, and drops it. It
    compares the table of each asset of a code location with the asset's definition. The exit code is 0 on success, 1
    if a step failed, and 2 if there is nothing to check.

    \b
    Examples:
      dagster-iceberg-spark check
      dagster-iceberg-spark check -w workspace.yaml
      dagster-iceberg-spark check -m my_project.definitions
      dagster-iceberg-spark check --kind sql --uri sqlite:///lake/catalog.db --warehouse lake
      dagster-iceberg-spark check --kind rest --uri https://catalog.example.com \\
          --set authentication.kind=bearer --set authentication.token=env:CATALOG_TOKEN
    """  # noqa: D301 - click needs the character \b
    console = Console(stderr=as_json, width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
    try:
        report = _shown(_findings(**options), console)
    except IcebergSparkError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(report.document(), indent=2))
    _leave(0 if report.is_fit and not (strict and report.has_differences) else 1)


def _findings(  # noqa: PLR0913 - the command line's options
    *,
    workspace: Sequence[Path],
    module: str | None,
    python_file: Path | None,
    attribute: str | None,
    working_directory: Path,
    kind: str | None,
    uri: str | None,
    warehouse: str | None,
    fields: Sequence[str],
    remote: str | None,
    spark_config: Sequence[str],
    jars: str,
    namespace: str | None,
    seconds: float,
) -> Iterator[Finding]:
    # Loading Dagster takes longer than showing the help.
    from dagster_iceberg_spark.asset_tables import check_assets, stored_assets
    from dagster_iceberg_spark.cli.code_location import CodeLocation, load_definitions, locations_in
    from dagster_iceberg_spark.cli.settings import assignments, literal_secrets_allowed, resource_of

    places = [place for place in (*workspace[:1], module, python_file, kind) if place is not None]
    if len(places) > 1:
        raise click.UsageError("Name one of: --workspace, --module, --python-file, --kind.")
    if kind is None:
        directory = working_directory.absolute()
        named = CodeLocation(module, python_file, attribute, directory)
        locations = (named,) if module or python_file else locations_in(workspace, directory)
        if not locations:
            found = f"{directory} has no workspace.yaml or pyproject.toml that names a code location."
            raise click.UsageError(f"Name one of: --workspace, --module, --python-file, --kind. {found}")
        loaded = [load_definitions(location) for location in locations]
        for definitions in [each for each in loaded if stored_assets(each)] or loaded[:1]:
            yield from check_assets(definitions, namespace=namespace, seconds=seconds)
        return
    given = {"kind": kind, "uri": uri, "warehouse": warehouse}
    catalog = {name: value for name, value in given.items() if value is not None}
    catalog |= assignments(fields, flag="--set")
    with literal_secrets_allowed():
        resource = resource_of(catalog=catalog, spark_config=spark_config, remote=remote, jars=jars)
        yield from resource.findings(namespace=namespace, seconds=seconds)


def _shown(findings: Iterator[Finding], console: Console) -> CheckReport:
    """Print each finding as soon as its step ends."""
    known: list[Finding] = []
    with console.status("..."):
        for finding in findings:
            if not known or known[-1].subject != finding.subject:
                console.print(f"[bold]{escape(finding.subject)}[/]")
            known.append(finding)
            console.print(_line(finding))
    return CheckReport(tuple(known))


def _line(finding: Finding) -> Table:
    line = Table.grid(padding=(0, 1))
    line.add_column(width=11)
    line.add_column(width=18)
    line.add_column(width=7, justify="right")
    line.add_column(ratio=1, overflow="fold")
    seconds = f"{finding.seconds:.1f} s" if finding.outcome != "not tried" else ""
    setting = f"\n[bold]Check:[/] {escape(finding.setting)}." if finding.setting else ""
    line.add_row(
        f" [{_STYLES[finding.outcome]}]{finding.outcome}[/]", finding.step, seconds, escape(finding.found) + setting
    )
    return line


def _leave(code: int) -> None:
    """End the process. If a step still runs, skip the clean-up of Spark's client, which would wait for it."""
    if any(thread.name.startswith(THREAD_NAME) for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)

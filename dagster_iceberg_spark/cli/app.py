"""The command line, `dagster-iceberg-spark`."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from dagster_iceberg_spark.check.findings import THREAD_NAME, CheckReport, Finding, Outcome
from dagster_iceberg_spark.cli.locations import catalog_options, catalog_resource, definitions_of, location_options
from dagster_iceberg_spark.cli.terminal import open_console, shown
from dagster_iceberg_spark.distribution import PACKAGE_VERSION
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.registry import features
from dagster_iceberg_spark.timeouts import STEP_SECONDS

_STYLES: Final[dict[Outcome, str]] = {"ok": "green", "differs": "yellow", "failed": "bold red", "not tried": "dim"}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(PACKAGE_VERSION, package_name="dagster-iceberg-spark")
def app() -> None:
    """Iceberg tables of Dagster assets."""


for _feature in features():
    for _name in _feature.commands:
        app.add_command(_feature.load(f"commands.{_name}"))


@app.command()
@location_options
@catalog_options
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
    console = open_console(stderr=as_json)
    try:
        report = _shown(_findings(**options), console)
    except IcebergSparkError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(report.document(), indent=2))
    _leave(0 if report.is_fit and not (strict and report.has_differences) else 1)


def _findings(*, namespace: str | None, seconds: float, **options: Any) -> Iterator[Finding]:
    # Loading Dagster takes longer than showing the help.
    from dagster_iceberg_spark.assets.definition_checks import check_assets

    with catalog_resource(options, creates=True) as resource:
        if resource is not None:
            yield from resource.findings(namespace=namespace, seconds=seconds)
            return
    for definitions in definitions_of(**options, others=("--kind",)):
        yield from check_assets(definitions, namespace=namespace, seconds=seconds)
        for feature in features():
            if feature.findings is not None:
                yield from feature.load(feature.findings)(definitions)


def _shown(findings: Iterator[Finding], console: Console) -> CheckReport:
    """Print each finding as soon as its step ends."""
    known: list[Finding] = []
    with console.status("..."):
        for finding in findings:
            if not known or known[-1].subject != finding.subject:
                console.print(f"[bold]{shown(finding.subject)}[/]")
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
    setting = f"\n[bold]Check:[/] {shown(finding.setting)}." if finding.setting else ""
    line.add_row(
        f" [{_STYLES[finding.outcome]}]{finding.outcome}[/]", finding.step, seconds, shown(finding.found) + setting
    )
    return line


def _leave(code: int) -> None:
    """End the process. If a step still runs, skip the clean-up of Spark's client, which would wait for it."""
    if any(thread.name.startswith(THREAD_NAME) for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)

"""The command line, `dagster-iceberg-spark`."""

import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.table import Table

from dagster_iceberg_spark.check.findings import CheckReport, Finding, Outcome
from dagster_iceberg_spark.check.steps import THREAD_NAME
from dagster_iceberg_spark.cli.lineage import history, impact, replay, why
from dagster_iceberg_spark.cli.locations import (
    catalog_options,
    catalog_resource,
    definitions_of,
    in_locations,
    location_options,
    usage_errors,
)
from dagster_iceberg_spark.cli.maintenance import health, maintain
from dagster_iceberg_spark.cli.mirror import mirror
from dagster_iceberg_spark.cli.terminal import minute, open_console, print_table, say, shown
from dagster_iceberg_spark.distribution import PACKAGE_VERSION
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.timeouts import STEP_SECONDS

if TYPE_CHECKING:
    from dagster_iceberg_spark.staged_branches import StagedBranch

_STYLES: Final[dict[Outcome, str]] = {"ok": "green", "differs": "yellow", "failed": "bold red", "not tried": "dim"}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(PACKAGE_VERSION, package_name="dagster-iceberg-spark")
def app() -> None:
    """Iceberg tables of Dagster assets."""


app.add_command(health)
app.add_command(maintain)
app.add_command(mirror)
app.add_command(history)
app.add_command(impact)
app.add_command(why)
app.add_command(replay)


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
    from dagster_iceberg_spark.asset_tables import check_assets
    from dagster_iceberg_spark.release.check import check_releases

    with catalog_resource(options, creates=True) as resource:
        if resource is not None:
            yield from resource.findings(namespace=namespace, seconds=seconds)
            return
    for definitions in definitions_of(**options, others=("--kind",)):
        yield from check_assets(definitions, namespace=namespace, seconds=seconds)
        yield from check_releases(definitions)


@app.command()
@location_options
@click.option("--drop", multiple=True, metavar="BRANCH", help="Drop this staged branch.")
@click.option("--json", "as_json", is_flag=True, help="Print the branches as JSON.")
def branches(*, as_json: bool, drop: Sequence[str], **options: Any) -> None:
    """List the staged branches of the tables of code locations, such as those of rows that failed an audit.

    A staged branch is removed by the first expiry of snapshots after its retention. `--drop` removes it at once.

    \b
    Examples:
      dagster-iceberg-spark branches
      dagster-iceberg-spark branches -m my_project.definitions --drop dagster_9edb07b884331b83
    """  # noqa: D301 - click needs the character \b
    from dagster_iceberg_spark.staged_branches import staged_branches

    with usage_errors():
        found = [branch for each in definitions_of(**options) for branch in staged_branches(each, drop=drop)]
    missing = set(drop) - {branch.name for branch in found}
    if as_json:
        click.echo(json.dumps([branch.document() for branch in found], indent=2))
    else:
        columns = ("table", "branch", "staged at (UTC)", "partitions", "rows", "run", "")
        rows = [_row_of(branch, is_dropped=branch.name in drop) for branch in found]
        print_table(columns, rows, numbers=("rows",), empty="No table has a staged branch.")
    if missing:
        raise click.UsageError(f"No table has the staged branch {', '.join(map(repr, sorted(missing)))}.")


def _row_of(branch: "StagedBranch", *, is_dropped: bool) -> tuple[str, ...]:
    values = (str(branch.table), branch.name, minute(branch.staged_at), branch.partitions, str(branch.rows))
    return (*(value or "" for value in values), branch.run_id or "", "dropped" if is_dropped else "")


@app.group()
def env() -> None:
    """Environments: branches of the tables that hold what a deployment writes, apart from production."""


@env.command("list")
@location_options
@click.option("--json", "as_json", is_flag=True, help="Print the branches as JSON.")
def env_list(*, as_json: bool, **options: Any) -> None:
    """List the branches of environments in the tables of code locations."""
    from dagster_iceberg_spark.environments import environment_branches

    with usage_errors():
        found = [branch for each in definitions_of(**options) for branch in environment_branches(each)]
    if as_json:
        click.echo(json.dumps([branch.document() for branch in found], indent=2))
        return
    columns = ("branch", "table", "snapshots", "written at (UTC)")
    rows = [(item.branch, str(item.table), str(item.snapshots), minute(item.written_at)) for item in found]
    print_table(columns, rows, empty="No table has a branch of an environment.")


@env.command("diff")
@click.argument("name")
@location_options
@click.option("--keys", "by_key", is_flag=True, help="Read the changed files and compare their rows by key.")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print them as a table in Markdown.")
def env_diff(*, name: str, by_key: bool, as_json: bool, as_markdown: bool, **options: Any) -> None:
    """Show what an environment changes: rows in the files that it adds and removes, by table and partition."""
    from dagster_iceberg_spark.environments import environment_diff
    from dagster_iceberg_spark.plan.branch_diff import markdown

    with usage_errors():
        found = in_locations(options, partial(environment_diff, name=name, by_key=by_key))
    if as_json:
        click.echo(json.dumps([diff.document() for diff in found], indent=2))
        return
    if as_markdown:
        say(markdown(found))
        return
    columns = ("table", "partition", "added rows", "removed rows")
    rows = [
        (str(diff.table), partition or "whole table", str(added), str(removed))
        for diff in found
        for partition, (added, removed) in diff.partitions.items()
    ]
    print_table(columns, rows, empty="No table differs.")
    for diff in found:
        if diff.has_deletes:
            say(f"{diff.table}: delete files change more rows.")
        if diff.keys is not None:
            keys = diff.keys
            say(f"{diff.table}: {keys.added} new keys, {keys.removed} removed, {keys.changed} changed.")


@env.command("promote")
@click.argument("name")
@location_options
def env_promote(name: str, **options: Any) -> None:
    """Publish what an environment has written, at one instant where the catalog can, and drop its branches."""
    from dagster_iceberg_spark.environments import promote_environment

    with usage_errors():
        found = in_locations(options, partial(promote_environment, name=name, report=say))
    rows = [
        (item.member.asset, item.how, str(item.published.snapshot_id), "yes" if release.is_atomic else "no")
        for release in found
        for item in release.members
    ]
    print_table(("table", "publication", "snapshot", "at one instant"), rows, empty="Nothing to publish.")


@env.command("drop")
@click.argument("name")
@location_options
def env_drop(name: str, **options: Any) -> None:
    """Drop the branches of an environment. `main` stays as it is."""
    from dagster_iceberg_spark.environments import drop_environment

    with usage_errors():
        dropped = in_locations(options, partial(drop_environment, name=name))
    for branch in dropped:
        say(f"Dropped {branch.branch} of {branch.table}.")


@app.command()
@click.option("--run", "run_id", required=True, help="The run to undo, or the id of an undo.")
@location_options
@click.option("--dry-run", is_flag=True, help="Show what would be undone, and change nothing.")
@click.option("--cascade", is_flag=True, help="Also undo what was made from the run's rows, or has replaced them.")
@click.option("--partial", "is_partial", is_flag=True, help="Leave out what cannot be undone.")
@click.option("--json", "as_json", is_flag=True, help="Print the tables as JSON.")
def undo(*, run_id: str, dry_run: bool, cascade: bool, is_partial: bool, as_json: bool, **options: Any) -> None:
    """Take the tables of a run back to what they were before it, all of them or none where the catalog can.

    With DAGSTER_HOME set, Dagster records what is current again.

    \b
    Examples:
      dagster-iceberg-spark undo --run 5d0f3c1e-... --dry-run
      dagster-iceberg-spark undo --run 5d0f3c1e-... --cascade -m my_project.definitions
    """  # noqa: D301 - click needs the character \b
    from dagster_iceberg_spark.asset_tables import home_instance
    from dagster_iceberg_spark.undo import undo_run

    with usage_errors(), home_instance() as instance:
        report = partial(say, err=True)
        how = {"dry_run": dry_run, "cascade": cascade, "partial": is_partial}
        done = in_locations(options, lambda each: [undo_run(each, run_id, **how, instance=instance, report=report)])
    tables = [table for each in done for table in each.tables]
    if as_json:
        document = [
            {"by": each.by, "tables": [table.document() for table in each.tables], "left_out": list(each.left_out)}
            for each in done
        ]
        click.echo(json.dumps(document, indent=2))
        return
    rows = [
        (
            str(table.table),
            "\n".join(map(str, table.undone)),
            "\n".join(table.partitions),
            "\n".join(table.runs),
        )
        for table in tables
    ]
    print_table(("table", "undone snapshots", "partitions", "runs"), rows, empty="Nothing to undo.")
    for table in tables:
        if table.lost_columns:
            say(f"{table.table} does not get back the columns {', '.join(table.lost_columns)}.")
    for each in done:
        for left in each.left_out:
            say(f"Not undone: {left}.")
        say("Nothing was changed." if dry_run else f"Undo this with: undo --run {each.by}")


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

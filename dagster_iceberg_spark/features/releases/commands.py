"""The commands `branches`, `diff`, `env` and `undo`."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from dagster_iceberg_spark.cli.locations import definitions_of, in_locations, location_options, usage_errors
from dagster_iceberg_spark.cli.plans import instant_of, plan_id, plan_options, require_same, states_of
from dagster_iceberg_spark.cli.terminal import minute, print_table, say

if TYPE_CHECKING:
    from dagster_iceberg_spark.catalog.publication import Release
    from dagster_iceberg_spark.features.releases.environments import StagedBranch
    from dagster_iceberg_spark.features.releases.plan.branch_diff import TableDiff
    from dagster_iceberg_spark.features.releases.undo import Undo
    from dagster_iceberg_spark.table.snapshot import TableState


@click.command()
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
    from dagster_iceberg_spark.features.releases.environments import staged_branches

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


def _diff_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a comparison."""
    as_markdown = click.option("--markdown", "as_markdown", is_flag=True, help="Print them as a table in Markdown.")
    as_json = click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
    keys = click.option("--keys", "by_key", is_flag=True, help="Read the changed files and compare their rows by key.")
    return keys(as_json(as_markdown(command)))


@click.group()
def env() -> None:
    """Environments: branches of the tables that hold what a deployment writes, apart from production."""


@env.command("list")
@location_options
@click.option("--json", "as_json", is_flag=True, help="Print the branches as JSON.")
def env_list(*, as_json: bool, **options: Any) -> None:
    """List the branches of environments in the tables of code locations."""
    from dagster_iceberg_spark.features.releases.environments import environment_branches

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
@_diff_options
def env_diff(*, name: str, by_key: bool, as_json: bool, as_markdown: bool, **options: Any) -> None:
    """Show what an environment changes: rows in the files that it adds and removes, by table and partition."""
    from dagster_iceberg_spark.features.releases.environments import environment_diff

    with usage_errors():
        found = in_locations(options, partial(environment_diff, name=name, by_key=by_key))
    _show(found, as_json=as_json, as_markdown=as_markdown)


@click.command()
@click.argument("before")
@click.argument("after")
@location_options
@_diff_options
def diff(*, before: str, after: str, by_key: bool, as_json: bool, as_markdown: bool, **options: Any) -> None:
    """Show what differs between two points: rows in the files that are added and removed, by table and partition.

    A point is release/NAME, env/NAME, run/ID or at/INSTANT.

    \b
    Examples:
      dagster-iceberg-spark diff release/2026-10 release/2026-11
      dagster-iceberg-spark diff at/2026-11-01T00:00Z release/2026-11 --keys
    """  # noqa: D301 - click needs the character \b
    from dagster_iceberg_spark.features.releases.environments import points_diff

    with usage_errors():
        found = in_locations(options, partial(points_diff, before=before, after=after, by_key=by_key))
    _show(found, as_json=as_json, as_markdown=as_markdown)


def _show(found: "list[TableDiff]", *, as_json: bool, as_markdown: bool) -> None:
    """Print what differs in tables."""
    from dagster_iceberg_spark.features.releases.plan.branch_diff import markdown

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
@plan_options
@click.option("--report", "is_reported", is_flag=True, help="Record the materializations in the Dagster instance.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def env_promote(
    *, name: str, is_plan: bool, applied: str | None, is_reported: bool, as_json: bool, **options: Any
) -> None:
    """Publish what an environment has written, at one instant where the catalog can, and drop its branches.

    The instance of `--report` is that of DAGSTER_HOME.

    \b
    Examples:
      dagster-iceberg-spark env promote pr-7
      dagster-iceberg-spark env promote pr-7 --report
      dagster-iceberg-spark env promote pr-7 --plan
      dagster-iceberg-spark env promote pr-7 --apply 19acf1b3a40-0c5e2b1f9a7d
    """  # noqa: D301 - click needs the character \b
    from dagster_iceberg_spark.assets.stored_tables import home_instance
    from dagster_iceberg_spark.features.releases.environments import plan_promotion, promote_environment

    made_at = instant_of(applied, changes_nothing=is_plan)
    if is_plan or applied is not None:
        with usage_errors():
            planned = in_locations(options, partial(plan_promotion, name=name))
        documents = [item.document() for item in planned]
        plan = plan_id([name, documents], [item.state for item in planned], made_at)
        if is_plan:
            _print_promotion(plan, documents, as_json=as_json)
            return
        require_same(plan, str(applied))
    with usage_errors(), home_instance() as instance:
        if is_reported and instance is None:
            raise click.UsageError("--report needs a Dagster instance. Set DAGSTER_HOME to its directory.")
        recording = instance if is_reported else None
        found = in_locations(options, partial(promote_environment, name=name, instance=recording, report=say))
    _print_releases(found, empty="Nothing to publish.")


@env.command("update")
@click.argument("name")
@location_options
def env_update(name: str, **options: Any) -> None:
    """Add what an environment has written to the newest snapshot of `main`, which stays as it is."""
    from dagster_iceberg_spark.features.releases.environments import update_environment

    with usage_errors():
        found = in_locations(options, partial(update_environment, name=name, report=say))
    _print_releases(found, empty="Nothing to update.")


def _print_releases(found: Sequence["Release"], *, empty: str) -> None:
    rows = [
        (item.member.asset, item.how, str(item.published.snapshot_id), "yes" if release.is_atomic else "no")
        for release in found
        for item in release.members
    ]
    print_table(("table", "publication", "snapshot", "at one instant"), rows, empty=empty)


def _print_promotion(plan: str, documents: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"plan": plan, "tables": documents}, indent=2))
        return
    rows = [
        (item["table"], item["branch"], "\n".join(item["snapshots"]) or "none: it is dropped", item["main"] or "")
        for item in documents
    ]
    print_table(("table", "branch", "snapshots to publish", "main is at"), rows, empty="Nothing to publish.")
    say(f"Nothing was changed. Do this with: env promote --apply {plan}")


@env.command("drop")
@click.argument("name")
@location_options
def env_drop(name: str, **options: Any) -> None:
    """Drop the branches of an environment. `main` stays as it is."""
    from dagster_iceberg_spark.features.releases.environments import drop_environment

    with usage_errors():
        dropped = in_locations(options, partial(drop_environment, name=name))
    for branch in dropped:
        say(f"Dropped {branch.branch} of {branch.table}.")


@click.command()
@click.option("--run", "run_id", required=True, help="The run to undo, or the id of an undo.")
@location_options
@click.option("--dry-run", is_flag=True, help="Show what would be undone, and change nothing.")
@click.option("--cascade", is_flag=True, help="Also undo what was derived from the run's rows, or has replaced them.")
@click.option("--partial", "is_partial", is_flag=True, help="Leave out what cannot be undone.")
@plan_options
@click.option("--json", "as_json", is_flag=True, help="Print the tables as JSON.")
def undo(
    *,
    run_id: str,
    dry_run: bool,
    cascade: bool,
    is_partial: bool,
    is_plan: bool,
    applied: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Take the tables of a run back to what they were before it, all of them or none where the catalog can.

    With DAGSTER_HOME set, Dagster records what is current again.

    \b
    Examples:
      dagster-iceberg-spark undo --run 5d0f3c1e-... --dry-run
      dagster-iceberg-spark undo --run 5d0f3c1e-... --cascade -m my_project.definitions
      dagster-iceberg-spark undo --run 5d0f3c1e-... --plan
      dagster-iceberg-spark undo --run 5d0f3c1e-... --apply 19acf1b3a40-0c5e2b1f9a7d
    """  # noqa: D301 - click needs the character \b
    from dagster_iceberg_spark.assets.stored_tables import home_instance
    from dagster_iceberg_spark.features.releases.undo import undo_run

    made_at = instant_of(applied, changes_nothing=is_plan or dry_run)
    with usage_errors(), home_instance() as instance:
        report = partial(say, err=True)

        def undone(each: Any, *, dry_run: bool) -> "Undo":
            how = {"dry_run": dry_run, "cascade": cascade, "partial": is_partial}
            return undo_run(each, run_id, **how, instance=instance, report=report)

        def planned(each: Any) -> "list[tuple[Undo, list[TableState]]]":
            found = undone(each, dry_run=True)
            return [(found, states_of(each, [str(table.table) for table in found.tables]))]

        plan, found = None, list[Any]()
        if is_plan or applied is not None:
            found = in_locations(options, planned)
            documents = [{**_undo_document(each), "by": None} for each, _ in found]
            plan = plan_id([run_id, documents], [state for _, states in found for state in states], made_at)
        if applied is not None and plan is not None:
            require_same(plan, applied)
        is_dry = dry_run or is_plan
        if is_plan:
            done = [each for each, _ in found]
        else:
            done = in_locations(options, lambda each: [undone(each, dry_run=dry_run)])
    if as_json:
        document = [_undo_document(each) for each in done]
        click.echo(json.dumps({"plan": plan, "undo": document} if is_plan else document, indent=2))
        return
    _print_undo(done, is_dry=is_dry)
    if is_plan:
        say(f"Do this with: undo --run {run_id} --apply {plan}")


def _undo_document(undo: "Undo") -> dict[str, Any]:
    return {"by": undo.by, "tables": [table.document() for table in undo.tables], "left_out": list(undo.left_out)}


def _print_undo(done: "Sequence[Undo]", *, is_dry: bool) -> None:
    tables = [table for each in done for table in each.tables]
    rows = [
        (str(table.table), "\n".join(map(str, table.undone)), "\n".join(table.partitions), "\n".join(table.runs))
        for table in tables
    ]
    print_table(("table", "undone snapshots", "partitions", "runs"), rows, empty="Nothing to undo.")
    for table in tables:
        if table.lost_columns:
            say(f"{table.table} does not get back the columns {', '.join(table.lost_columns)}.")
    for each in done:
        for left in each.left_out:
            say(f"Not undone: {left}.")
        say("Nothing was changed." if is_dry else f"Undo this with: undo --run {each.by}")

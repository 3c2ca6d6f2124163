"""The commands `health` and `maintain`."""

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from dagster_iceberg_spark.cli.locations import (
    catalog_options,
    catalog_resource,
    definitions_of,
    location_options,
    usage_errors,
)
from dagster_iceberg_spark.cli.plans import instant_of, plan_id, plan_options, require_same, states_of
from dagster_iceberg_spark.cli.terminal import print_table, say

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator

    from dagster_iceberg_spark.features.maintenance.health_reports import CheckedTable
    from dagster_iceberg_spark.features.maintenance.table_maintenance import Maintained

_COLUMNS: Final = ("table", "files", "size", "median", "small", "deletes", "manifests", "snapshots", "metadata")
_HEALTHY, _NEEDS_WORK, _CANNOT_TELL = 0, 1, 2


@click.command()
@location_options
@catalog_options
@click.option("-t", "--table", "tables", multiple=True, metavar="NAMESPACE.TABLE", help="Only this table.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def health(*, tables: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Show the health of tables: files, deletes, manifests, snapshots, and the maintenance that they need.

    The tables are those of code locations, or all tables of a catalog that options describe. This reads metadata and
    manifests, and starts no Spark session. The exit code is 0 if all tables are healthy, 1 if one needs work, and 2 if
    a table could not be read.

    \b
    Examples:
      dagster-iceberg-spark health
      dagster-iceberg-spark health -m my_project.definitions --json
      dagster-iceberg-spark health --kind sql --uri sqlite:///lake/catalog.db --warehouse lake --table db.flights
    """  # noqa: D301 - click needs the character \b
    with usage_errors():
        found = sorted(_check(tables, options), key=lambda item: item.table)
    if as_json:
        click.echo(json.dumps([item.document() for item in found], indent=2))
    else:
        _print(found)
    if any(item.health is None for item in found):
        sys.exit(_CANNOT_TELL)
    sys.exit(_HEALTHY if all(item.is_healthy for item in found) else _NEEDS_WORK)


def _check(tables: tuple[str, ...], options: dict[str, Any]) -> "Iterator[CheckedTable]":
    # Loading Dagster takes longer than showing the help.
    from dagster_iceberg_spark.features.maintenance.health_reports import catalog_health, stored_health

    with catalog_resource(options) as resource:
        if resource is not None:
            yield from catalog_health(resource, tables)
            return
    for definitions in definitions_of(**options, others=("--kind",)):
        yield from stored_health(definitions, tables)


def _print(found: "list[CheckedTable]") -> None:
    from dagster_iceberg_spark.features.maintenance.plan.health import average, readable_bytes

    rows = []
    for item in found:
        if (table := item.health) is None:
            rows.append((item.table, *[""] * (len(_COLUMNS) - 1)))
            continue
        files = table.files
        rows.append(
            (
                item.table,
                f"{len(files.sizes):,}",
                readable_bytes(sum(files.sizes)),
                readable_bytes(files.median_bytes),
                f"{table.small_files:,}",
                f"{files.delete_files:,}",
                f"{len(files.manifests)} x {readable_bytes(average(files.manifests))}",
                f"{table.snapshots:,}",
                "" if files.metadata_bytes is None else readable_bytes(files.metadata_bytes),
            )
        )
    print_table(_COLUMNS, rows, numbers=_COLUMNS[1:], empty="There is no table.")
    for item in found:
        for line in item.lines():
            say(f"{item.table}: {line}")


@click.command()
@location_options
@click.option("-t", "--table", "tables", multiple=True, metavar="NAMESPACE.TABLE", help="Only this table.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@plan_options
@click.option("--json", "as_json", is_flag=True, help="Print the plans, and what was done, as JSON.")
def maintain(
    *,
    tables: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    is_plan: bool,
    applied: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Maintain the tables of code locations: compact, rewrite manifests, expire snapshots, remove orphan files.

    The command shows its plan first, and asks. Snapshots that a downstream asset, a run or a branch still needs stay.
    With DAGSTER_HOME set, the runs of that instance count. An error of a table does not stop the others: the exit code
    is 2 then.

    \b
    Examples:
      dagster-iceberg-spark maintain --dry-run
      dagster-iceberg-spark maintain -m my_project.definitions --table db.flights --yes
      dagster-iceberg-spark maintain --plan
      dagster-iceberg-spark maintain --apply 19acf1b3a40-0c5e2b1f9a7d
    """  # noqa: D301 - click needs the character \b
    made_at = instant_of(applied, changes_nothing=is_plan or dry_run)
    planned = _maintain(tables, options, dry_run=True, now=made_at)
    if not as_json:
        _print_plans(planned)
    plan = None
    if is_plan or applied is not None:
        documents = [{**item.document(), "before": None} for item in planned]
        with usage_errors():
            names = [str(item.table) for item in planned]
            states = [state for each in definitions_of(**options) for state in states_of(each, names)]
        plan = plan_id(documents, states, made_at)
    if applied is not None and plan is not None:
        require_same(plan, applied)
    is_dry = dry_run or is_plan
    if is_dry:
        done = planned
    else:
        if not yes and applied is None:
            click.confirm("Do this?", abort=True, err=True)
        done = _maintain(tables, options, dry_run=False, now=made_at)
    if as_json:
        document = [item.document() for item in done]
        click.echo(json.dumps({"plan": plan, "tables": document} if is_plan else document, indent=2))
    elif not is_dry:
        _print_done(done)
    elif is_plan:
        say(f"Nothing was changed. Do this with: maintain --apply {plan}")
    failed = [item for item in done if item.error is not None]
    for item in failed:
        say(f"{item.table}: {item.error}", err=True)
    sys.exit(_CANNOT_TELL if failed else 0)


def _maintain(
    tables: tuple[str, ...], options: dict[str, Any], *, dry_run: bool, now: "dt.datetime"
) -> "list[Maintained]":
    from dagster_iceberg_spark.assets.stored_tables import home_instance
    from dagster_iceberg_spark.features.maintenance.table_maintenance import maintain_location

    def report(line: str) -> None:
        say(line, err=True)

    with usage_errors(), home_instance() as instance:
        return [
            item
            for each in definitions_of(**options)
            for item in maintain_location(each, tables, dry_run=dry_run, instance=instance, report=report, now=now)
        ]


def _print_plans(planned: "list[Maintained]") -> None:
    for item in planned:
        say(f"{item.table}:")
        if item.waits_for is not None:
            say(f"  is left for the next time: {item.waits_for}")
        if item.error is not None:
            say(f"  cannot be maintained: {item.error}")
        if item.plan is None:
            continue
        for line in (*map(str, item.plan.actions), *item.plan.notes):
            say(f"  {line}")
        for kept in item.plan.kept:
            needed_by = "; ".join(kept.needed_by)
            say(f"  keep snapshot {kept.snapshot_id} of {kept.committed_at:%Y-%m-%d %H:%M}: {needed_by}")
    if not planned:
        say("There is no table.")


def _print_done(done: "list[Maintained]") -> None:
    from dagster_iceberg_spark.features.maintenance.plan.health import readable_bytes

    rows = []
    for item in done:
        if item.before is None or item.after is None:
            continue
        before, after = item.before, item.after
        rows.append(
            (
                str(item.table),
                f"{len(before.files.sizes):,} -> {len(after.files.sizes):,}",
                f"{readable_bytes(sum(before.files.sizes))} -> {readable_bytes(sum(after.files.sizes))}",
                f"{len(before.files.manifests):,} -> {len(after.files.manifests):,}",
                f"{before.snapshots:,} -> {after.snapshots:,}",
                f"{sum(action.seconds for action in item.done):.1f}",
            )
        )
    columns = ("table", "files", "size", "manifests", "snapshots", "seconds")
    print_table(columns, rows, numbers=columns[1:], empty="Nothing was done.")

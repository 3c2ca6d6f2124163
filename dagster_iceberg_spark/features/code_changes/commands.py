"""The commands `impact` and `replay`."""

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import click

from dagster_iceberg_spark.cli.locations import (
    catalog_options,
    catalog_resource,
    definitions_of,
    in_locations,
    location_options,
    usage_errors,
)
from dagster_iceberg_spark.cli.terminal import print_table, say

_SNAPSHOT: Final = "@"
"""Stands between a table and a snapshot."""


@click.command()
@click.argument("snapshot", metavar="[NAMESPACE.TABLE@SNAPSHOT]", required=False)
@location_options
@catalog_options
@click.option(
    "--change", metavar="BASE..HEAD", help="Show what a change of the code changes, between two Git revisions."
)
@click.option("--json", "as_json", is_flag=True, help="Print the snapshots or the assets as JSON.")
def impact(*, snapshot: str | None, change: str | None, as_json: bool, **options: Any) -> None:
    """Show which snapshots of which tables were derived from a snapshot, and of these, down to the last.

    SNAPSHOT is an id, or a branch or tag, such as main, which names its newest. A table is indented below the one that
    it was derived from. This reads the tables of the code locations, or all tables of a catalog that options describe,
    and starts no Spark session.

    With `--change`, show what another revision of the code changes in tables, as Markdown: columns, rows, what is
    derived from them, and what to rebuild. Without HEAD, this is what the files say now. Spark analyzes the queries of
    SQL models. Of other assets, the last run counts, which DAGSTER_HOME knows. The exit code is 1 if a change breaks an
    asset.

    \b
    Examples:
      dagster-iceberg-spark impact nyc.flights@6700450230530213017
      dagster-iceberg-spark impact nyc.flights@6700450230530213017 -w workspace.yaml --json
      dagster-iceberg-spark impact --change main...HEAD -m my_project.definitions
    """  # noqa: D301 - click needs the character \b
    # The commands are listed also where the feature `lineage` does not exist.
    from dagster_iceberg_spark.features.lineage.commands import lakes_of, short_id
    from dagster_iceberg_spark.features.lineage.lineage_catalogs import snapshot_of, table_named

    if (snapshot is None) == (change is None):
        raise click.UsageError("Name one of: NAMESPACE.TABLE@SNAPSHOT, --change.")
    if change is not None:
        _impact_of_change(change, options, as_json=as_json)
        return
    name, separator, named = str(snapshot).rpartition(_SNAPSHOT)
    if not separator:
        raise click.UsageError(f"Expected NAMESPACE.TABLE{_SNAPSHOT}SNAPSHOT, found {snapshot!r}.")
    with usage_errors(), lakes_of(options, action="show the impact of") as lakes:
        lake, state = table_named(lakes, name, action="show the impact of")
        source = snapshot_of(lake.history_of(state), named, action="show the impact of")
        made = lake.provenance(state).made_of(str(state.identifier), source.snapshot_id)
    if as_json:
        click.echo(json.dumps([item.document() for item in made], indent=2))
        return
    columns = ("table", "snapshot", "committed at (UTC)", "partitions", "run", "current")
    rows = [
        (
            f"{'  ' * (item.depth - 1)}{item.table}",
            str(item.entry.snapshot.snapshot_id),
            f"{item.entry.snapshot.committed_at:%Y-%m-%d %H:%M:%S}",
            item.entry.few_partitions or "whole table",
            short_id(item.entry.run_id),
            ("yes" if item.is_current else "no") + ("" if item.is_certain else ", but maybe not derived from it"),
        )
        for item in made
    ]
    print_table(columns, rows, empty="Nothing was derived from it.")


def _impact_of_change(change: str, options: dict[str, Any], *, as_json: bool) -> None:
    from dagster_iceberg_spark.assets.stored_tables import home_instance
    from dagster_iceberg_spark.features.code_changes.code_impact import code_impact, states_of
    from dagster_iceberg_spark.features.code_changes.plan.report import markdown_of
    from dagster_iceberg_spark.features.code_changes.revisions import parse_range

    with usage_errors(), catalog_resource(options) as resource, home_instance() as instance:
        if resource is not None:
            raise click.UsageError("--change needs a code location: leave out --kind.")
        locations = definitions_of(**options)
        states = states_of(parse_range(change, options["working_directory"]), options)
        impacts = code_impact(locations, states, instance)
    if as_json:
        click.echo(json.dumps([item.document() for item in impacts], indent=2))
    else:
        say(markdown_of(impacts, change))
    if any(item.effect.breaks for item in impacts):
        sys.exit(1)


@click.command()
@click.option("--run", "run_id", help="The run to replay.")
@click.option("--asset", "assets", multiple=True, help="Asset of the run. Default: all that it has stored.")
@click.option("--changed", metavar="BASE..HEAD", help="Replay the last runs of assets whose code differs in Git.")
@click.option("--last", type=click.IntRange(min=1), default=1, show_default=True, help="Runs of each changed asset.")
@location_options
@click.option("--compare", is_flag=True, help="Compare the rows with those of the run, and drop the branches.")
@click.option("--keep", is_flag=True, help="Keep the branches after a comparison.")
@click.option("--json", "as_json", is_flag=True, help="Print the tables as JSON.")
def replay(
    *,
    run_id: str | None,
    assets: tuple[str, ...],
    changed: str | None,
    last: int,
    compare: bool,
    keep: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Materialize the assets of a run again from the snapshots that it had read, on branches of their own.

    `--compare` shows whether the current code derives the same rows from the same inputs. The exit code is 1 if it does
    not. With DAGSTER_HOME set, the configuration of the run is used too.

    With `--changed`, replay the last runs of the assets whose code differs between two revisions: with the old code,
    which shows what is not deterministic, and with the new. Print what differs and which partitions to rebuild, as
    Markdown. Without HEAD, the new code is that of the files. The exit code is 1 unless all rows are the same.

    \b
    Examples:
      dagster-iceberg-spark replay --run 5d0f3c1e-... --compare
      dagster-iceberg-spark replay --run 5d0f3c1e-... -m my_project.definitions
      dagster-iceberg-spark replay --changed main...HEAD -m my_project.definitions
    """  # noqa: D301 - click needs the character \b
    from dagster_iceberg_spark.assets.stored_tables import home_instance
    from dagster_iceberg_spark.features.code_changes.replay import replay_run
    from dagster_iceberg_spark.plan.read.history import few_partitions

    if (run_id is None) == (changed is None):
        raise click.UsageError("Name one of: --run, --changed.")
    report = partial(say, err=True)
    if changed is not None and (assets or compare or keep):
        raise click.UsageError("--changed picks the assets and compares them: leave out --asset, --compare and --keep.")
    if changed is not None:
        _replay_changed(changed, options, last=last, as_json=as_json, report=report)
        return
    with usage_errors(), home_instance() as instance:
        replay_of_run = partial(replay_run, run_id=str(run_id), assets=assets, compare=compare, keep=keep)
        replayed = in_locations(options, partial(replay_of_run, instance=instance, report=report))
    if as_json:
        click.echo(json.dumps([table.document() for table in replayed], indent=2))
    else:
        columns = ("table", "partitions", *(("rows then", "rows now") if compare else ()), "")
        rows = [
            (
                table.table,
                few_partitions(table.partitions or "") or "whole table",
                *((str(table.comparison.before), str(table.comparison.after)) if table.comparison else ()),
                table.words(),
            )
            for table in replayed
        ]
        print_table(columns, rows, numbers=("rows then", "rows now"), empty="The run has stored nothing.")
        if keep or not compare:
            say(f"The rows are in the branch {replayed[0].branch} of each table.")
    if compare and not all(table.is_same for table in replayed):
        sys.exit(1)


def _replay_changed(
    changed: str, options: dict[str, Any], *, last: int, as_json: bool, report: Callable[[str], None]
) -> None:
    from dagster_iceberg_spark.assets.stored_tables import home_instance
    from dagster_iceberg_spark.features.code_changes.changed_runs import replay_changed
    from dagster_iceberg_spark.features.code_changes.code_impact import states_of
    from dagster_iceberg_spark.features.code_changes.revisions import parse_range

    with usage_errors(), home_instance() as instance:
        locations = definitions_of(**options)
        span = parse_range(changed, options["working_directory"])
        states = states_of(span, options)
        found = replay_changed(locations, states, span, options, instance, runs=last, report=report)
    if as_json:
        click.echo(json.dumps(found.document(), indent=2))
    else:
        say(found.markdown(changed))
    if not found.is_same:
        sys.exit(1)

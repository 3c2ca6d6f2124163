"""The commands `impact` and `replay`."""

import json
import sys
from functools import partial
from typing import Any, Final

import click

from dagster_iceberg_spark.cli.locations import catalog_options, in_locations, location_options, usage_errors
from dagster_iceberg_spark.cli.terminal import print_table, say
from dagster_iceberg_spark.features.lineage.commands import lakes_of, short_id

_SNAPSHOT: Final = "@"
"""Stands between a table and a snapshot."""


@click.command()
@click.argument("snapshot", metavar="NAMESPACE.TABLE@SNAPSHOT")
@location_options
@catalog_options
@click.option("--json", "as_json", is_flag=True, help="Print the snapshots as JSON.")
def impact(*, snapshot: str, as_json: bool, **options: Any) -> None:
    """Show which snapshots of which tables were derived from a snapshot, and of these, down to the last.

    SNAPSHOT is an id, or a branch or tag, such as main, which names its newest. A table is indented below the one that
    it was derived from. This reads the tables of the code locations, or all tables of a catalog that options describe,
    and starts no Spark session.

    \b
    Examples:
      dagster-iceberg-spark impact nyc.flights@6700450230530213017
      dagster-iceberg-spark impact nyc.flights@6700450230530213017 -w workspace.yaml --json
    """  # noqa: D301 - click needs the character \b
    from dagster_iceberg_spark.features.lineage.lineage_catalogs import snapshot_of, table_named

    name, separator, named = snapshot.rpartition(_SNAPSHOT)
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


@click.command()
@click.option("--run", "run_id", required=True, help="The run to replay.")
@location_options
@click.option("--compare", is_flag=True, help="Compare the rows with those of the run, and drop the branches.")
@click.option("--keep", is_flag=True, help="Keep the branches after a comparison.")
@click.option("--json", "as_json", is_flag=True, help="Print the tables as JSON.")
def replay(*, run_id: str, compare: bool, keep: bool, as_json: bool, **options: Any) -> None:
    """Materialize the assets of a run again from the snapshots that it had read, on branches of their own.

    `--compare` tells whether the code of today makes the same rows of the same inputs. The exit code is 1 if it does
    not. With DAGSTER_HOME set, the configuration of the run is used too.

    \b
    Examples:
      dagster-iceberg-spark replay --run 5d0f3c1e-... --compare
      dagster-iceberg-spark replay --run 5d0f3c1e-... -m my_project.definitions
    """  # noqa: D301 - click needs the character \b
    from dagster_iceberg_spark.assets.stored_tables import home_instance
    from dagster_iceberg_spark.features.code_changes.replay import replay_run
    from dagster_iceberg_spark.plan.read.history import few_partitions

    with usage_errors(), home_instance() as instance:
        report = partial(say, err=True)
        replayed = in_locations(
            options, partial(replay_run, run_id=run_id, compare=compare, keep=keep, instance=instance, report=report)
        )
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

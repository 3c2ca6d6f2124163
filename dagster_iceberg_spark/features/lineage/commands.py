"""The commands `history`, `impact`, `why` and `replay`."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

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

if TYPE_CHECKING:
    from dagster_iceberg_spark.features.lineage.lineage_catalogs import LakeTables
    from dagster_iceberg_spark.features.lineage.why import Origin
    from dagster_iceberg_spark.plan.read.history import HistoryEntry

_SNAPSHOT: Final = "@"
"""Stands between a table and a snapshot."""


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@location_options
@catalog_options
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Number of snapshots.")
@click.option("--json", "as_json", is_flag=True, help="Print the snapshots as JSON.")
def history(*, table: str, limit: int, as_json: bool, **options: Any) -> None:
    """Show the newest snapshots of a table: when, by which run, which partitions, and what changed.

    Snapshots that have expired are shown if maintenance has kept their summaries, and those that a rollback has taken
    off main are marked. This starts no Spark session.

    \b
    Examples:
      dagster-iceberg-spark history nyc.flights
      dagster-iceberg-spark history nyc.flights -m my_project.definitions --json
      dagster-iceberg-spark history nyc.flights --kind sql --uri sqlite:///lake/catalog.db --warehouse lake
    """  # noqa: D301 - click needs the character \b
    from dagster_iceberg_spark.features.lineage.lineage_catalogs import table_named
    from dagster_iceberg_spark.plan.read.history import COLUMNS

    with usage_errors(), _lakes(options, action="show the history of") as lakes:
        lake, state = table_named(lakes, table, action="show the history of")
        entries = lake.history_of(state).entries()[:limit]
    if as_json:
        click.echo(json.dumps([entry.document() for entry in entries], indent=2))
    else:
        rows = [(*entry.cells(), _short(entry.run_id)) for entry in entries]
        print_table(COLUMNS, rows, numbers=COLUMNS[4:6], empty="The table has no snapshot.")


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
    with usage_errors(), _lakes(options, action="show the impact of") as lakes:
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
            _short(item.entry.run_id),
            ("yes" if item.is_current else "no") + ("" if item.is_certain else ", but maybe not derived from it"),
        )
        for item in made
    ]
    print_table(columns, rows, empty="Nothing was derived from it.")


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option("--where", required=True, help="Condition in SQL, such as \"id = 5 AND day = DATE '2024-01-31'\".")
@location_options
@catalog_options
@click.option("--deep", "is_deep", is_flag=True, help="Go on to the inputs of the inputs.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=10, show_default=True, help="Number of rows.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows and snapshots as JSON.")
def why(*, table: str, where: str, is_deep: bool, limit: int, as_json: bool, **options: Any) -> None:
    """Show which run wrote rows last, in which snapshot, with which code version, and what it had read.

    In a table of format version 3, this is exact, and starts a Spark session. In one of version 1 or 2, it is the
    snapshot that added the row's file, which a compaction or a merge may have written again.

    \b
    Examples:
      dagster-iceberg-spark why nyc.flights --where "tailnum = 'N14228' AND flight = 1545"
      dagster-iceberg-spark why nyc.daily_delays --where "origin = 'JFK'" --limit 1 --deep
    """  # noqa: D301 - click needs the character \b
    from dagster_iceberg_spark.assets.stored_tables import home_instance
    from dagster_iceberg_spark.features.lineage.lineage_catalogs import table_named
    from dagster_iceberg_spark.features.lineage.why import Explanation, nothing_copied, recorded_copies

    with (
        usage_errors(),
        home_instance() if is_deep else nullcontext() as instance,
        _lakes(options, action="explain rows of") as lakes,
    ):
        lake, state = table_named(lakes, table, action="explain rows of")
        copied = nothing_copied if instance is None else recorded_copies(instance)
        origins = Explanation(lake, state, is_deep=is_deep, copied=copied).origins(where, limit=limit)
    if as_json:
        click.echo(json.dumps([origin.document() for origin in origins], indent=2))
        return
    if not origins:
        say(f"No row of {table} matches.")
    for origin in origins:
        say("\n".join(_lines(origin)))


@contextmanager
def _lakes(options: dict[str, Any], *, action: str) -> "Iterator[list[LakeTables]]":
    # Loading Dagster takes longer than showing the help.
    from dagster_iceberg_spark.features.lineage.lineage_catalogs import every_table, lake_tables

    with catalog_resource(options) as resource:
        if resource is not None:
            yield [every_table(resource)]
            return
    with lake_tables(definitions_of(**options, others=("--kind",)), action=action) as lakes:
        yield lakes


def _short(run_id: str | None) -> str:
    """Return the beginning of a run's id, as Dagster's UI shows it."""
    return (run_id or "")[:8]


def _by(entry: "HistoryEntry") -> str:
    run = "" if entry.run_id is None else f", run {entry.run_id}"
    return f"{entry.writer}{run}{' (expired)' if entry.is_expired else ''}"


def _lines(origin: "Origin", indent: str = "") -> Iterator[str]:
    """Yield the rows, what wrote them, and what that has read."""
    for row in origin.rows:
        yield indent + ", ".join(f"{name}={value}" for name, value in row.items())
    own = f"{indent}  " if origin.rows else indent
    entry = origin.entry
    if entry is not None:
        snapshot, version = entry.snapshot, origin.code_version
        yield (
            f"{own}{origin.table}: snapshot {snapshot.snapshot_id}, {snapshot.committed_at:%Y-%m-%d %H:%M:%S} UTC, "
            f"{entry.change} of {entry.few_partitions or 'the whole table'} by {_by(entry)}"
            f"{'' if version is None else f', code version {version}'}"
        )
    if origin.doubt is not None:
        yield f"{own}{origin.doubt}"
    for item in origin.inputs:
        read = item.read
        partitions = read.scope or "whole table"
        since = "" if read.since is None else f", changes since {read.since}"
        yield f"{own}  derived from {read.table}, snapshot {read.snapshot_id or 'none'}, {partitions}{since}"
        for source in item.sources:
            yield from _lines(source, f"{own}    ")


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
    from dagster_iceberg_spark.features.lineage.replay import replay_run
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

"""The commands `history` and `why`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from dagster_iceberg_spark.cli.locations import (
    catalog_options,
    catalog_resource,
    definitions_of,
    location_options,
    usage_errors,
)
from dagster_iceberg_spark.cli.terminal import print_table, say

if TYPE_CHECKING:
    from dagster_iceberg_spark.features.lineage.lineage_catalogs import CatalogTables
    from dagster_iceberg_spark.features.lineage.why import Origin
    from dagster_iceberg_spark.plan.read.history import HistoryEntry


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

    with usage_errors(), lakes_of(options, action="show the history of") as lakes:
        lake, state = table_named(lakes, table, action="show the history of")
        entries = lake.history_of(state).entries()[:limit]
    if as_json:
        click.echo(json.dumps([entry.document() for entry in entries], indent=2))
    else:
        columns = (*COLUMNS, *(["refs"] if any(entry.refs for entry in entries) else []))
        rows = [(*entry.cells(), short_id(entry.run_id), ", ".join(entry.refs))[: len(columns)] for entry in entries]
        print_table(columns, rows, numbers=COLUMNS[4:6], empty="The table has no snapshot.")


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
        lakes_of(options, action="explain rows of") as lakes,
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
def lakes_of(options: dict[str, Any], *, action: str) -> "Iterator[list[CatalogTables]]":
    """Yield the tables that options name, by catalog: those of code locations, or all of a catalog."""
    # Loading Dagster takes longer than showing the help.
    from dagster_iceberg_spark.features.lineage.lineage_catalogs import catalog_tables, every_table

    with catalog_resource(options) as resource:
        if resource is not None:
            yield [every_table(resource)]
            return
    with catalog_tables(definitions_of(**options, others=("--kind",)), action=action) as lakes:
        yield lakes


def short_id(run_id: str | None) -> str:
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

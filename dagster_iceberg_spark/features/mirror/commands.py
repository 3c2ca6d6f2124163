"""The commands `mirror`."""

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from dagster_iceberg_spark.cli.locations import definitions_of, location_options, usage_errors
from dagster_iceberg_spark.cli.terminal import print_table, say

if TYPE_CHECKING:
    from dagster_iceberg_spark.features.mirror.mirrors import SynchronizedMirror


@click.group()
def mirror() -> None:
    """Mirrors of the tables in a DuckLake, for people who work with DuckDB."""


@mirror.command("sync")
@location_options
@click.option("-t", "--table", "tables", multiple=True, metavar="NAMESPACE.TABLE", help="Only this table.")
@click.option("--json", "as_json", is_flag=True, help="Print the mirrors as JSON.")
def mirror_sync(*, tables: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Make the mirrors of the tables of code locations show their newest snapshots.

    This starts no Spark session. The exit code is 0 if all mirrors are current afterwards, and 1 if one has failed.

    \b
    Examples:
      dagster-iceberg-spark mirror sync
      dagster-iceberg-spark mirror sync -m my_project.definitions --table db.flights
    """  # noqa: D301 - click needs the character \b
    from dagster_iceberg_spark.features.mirror.mirrors import synchronize_mirrors

    with usage_errors():
        found = [item for each in definitions_of(**options) for item in synchronize_mirrors(each, tables)]
    if as_json:
        click.echo(json.dumps([item.document() for item in found], indent=2))
    else:
        rows = [
            (str(item.table), str(item.mirror.table), item.mirror.mode, str(item.snapshot_id or ""), _outcome(item))
            for item in found
        ]
        print_table(("table", "mirror", "mode", "snapshot", ""), rows, empty="No table is mirrored.")
        for item in found:
            if item.error is not None:
                say(f"{item.table}: {item.error}", err=True)
    sys.exit(1 if any(item.error is not None for item in found) else 0)


def _outcome(item: "SynchronizedMirror") -> str:
    if item.error is not None:
        return "failed"
    return "caught up" if item.has_changed else "was current"

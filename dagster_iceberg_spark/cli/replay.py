"""The command `replay`."""

import json
import sys
from functools import partial
from typing import Any

import click

from dagster_iceberg_spark.cli.locations import in_locations, location_options, usage_errors
from dagster_iceberg_spark.cli.terminal import print_table, say


@click.command()
@click.option("--run", "run_id", required=True, help="The run to replay.")
@location_options
@click.option("--compare", is_flag=True, help="Compare the rows with those of the run, and drop the branches.")
@click.option("--keep", is_flag=True, help="Keep the branches after a comparison.")
@click.option("--json", "as_json", is_flag=True, help="Print the tables as JSON.")
def replay(*, run_id: str, compare: bool, keep: bool, as_json: bool, **options: Any) -> None:
    """Materialize the assets of a run again from the snapshots that it had read, on branches that nobody reads.

    `--compare` tells whether the code of today makes the same rows of the same inputs. The exit code is 1 if it does
    not. With DAGSTER_HOME set, the configuration of the run is used too.

    \b
    Examples:
      dagster-iceberg-spark replay --run 5d0f3c1e-... --compare
      dagster-iceberg-spark replay --run 5d0f3c1e-... -m my_project.definitions
    """  # noqa: D301 - click needs the character \b
    from dagster_iceberg_spark.asset_tables import home_instance
    from dagster_iceberg_spark.lineage.replay import replay_run
    from dagster_iceberg_spark.plan.history import few_partitions

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

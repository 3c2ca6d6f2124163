"""The command `contract`."""

import json
import sys
from dataclasses import asdict
from typing import Any

import click

from dagster_iceberg_spark.cli.locations import definitions_of, in_locations, location_options, usage_errors
from dagster_iceberg_spark.cli.terminal import print_table, say

_KEPT, _BROKEN = 0, 1


@click.group()
def contract() -> None:
    """Contracts of tables, in the Open Data Contract Standard."""


@contract.command("export")
@click.argument("asset")
@location_options
def contract_export(*, asset: str, **options: Any) -> None:
    """Print a contract that the table of ASSET keeps, to begin one with. This starts no Spark session.

    \b
    Examples:
      dagster-iceberg-spark contract export orders > orders.odcs.yaml
    """  # noqa: D301 - click needs the character \b
    from dagster_iceberg_spark.features.contracts.export import export_contract

    with usage_errors():
        (text, *_) = in_locations(options, lambda definitions: export_contract(definitions, asset))
    say(text.rstrip())


@contract.command("check")
@location_options
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def contract_check(*, as_json: bool, **options: Any) -> None:
    """Compare contracts with the definitions, the tables and the readers of assets. This starts no Spark session.

    The exit code is 0 if all contracts are kept, 1 if one is not, and 2 if there is none.

    \b
    Examples:
      dagster-iceberg-spark contract check -m my_project.definitions
    """  # noqa: D301 - click needs the character \b
    from dagster_iceberg_spark.features.contracts.requirements import check_contracts

    with usage_errors():
        found = [finding for each in definitions_of(**options) for finding in check_contracts(each)]
        if not found:
            raise click.UsageError("No asset has a contract: set `iceberg/contract`.")
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        rows = [(item.outcome, item.subject, item.step, item.found) for item in found]
        print_table(("", "asset", "", ""), rows, empty="")
    sys.exit(_KEPT if all(finding.outcome == "ok" for finding in found) else _BROKEN)

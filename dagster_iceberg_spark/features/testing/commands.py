"""The command `test`."""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from dagster_iceberg_spark.cli.locations import definitions_of, location_options, usage_errors
from dagster_iceberg_spark.cli.terminal import open_console, say, shown

_PASSED, _FAILED = 0, 1


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path), default=Path())
@location_options
@click.option(
    "--remote", help='"local", or a Spark Connect server, sc://host:port. Default: a session in this process.'
)
def test(*, path: Path, remote: str | None, **options: Any) -> None:
    """Run the tests of SQL models below PATH: each `readings.test.yml` beside a `readings.sql`.

    All tests share one Spark session, and each has an empty lake. Nothing outside is read or written. The exit code is
    0 if all tests pass, 1 if one fails, and 2 if there is none or a file is wrong.

    \b
    Examples:
      dagster-iceberg-spark test
      dagster-iceberg-spark test src/my_project/defs/models -m my_project.definitions
    """  # noqa: D301 - click needs the character \b
    # Loading Dagster takes longer than showing the help.
    from dagster_iceberg_spark.features.testing.lake import Lake
    from dagster_iceberg_spark.features.testing.model_tests import run_model_test, test_files

    with usage_errors():
        tests = [(file, test) for file in test_files(path) for test in file.tests()]
        if not tests:
            raise click.UsageError(f"There is no file *.test.yml in {path}.")
        (definitions, *_) = definitions_of(**options)
    failed = 0
    console = open_console()
    with tempfile.TemporaryDirectory(prefix="lake-", ignore_cleanup_errors=True) as directory:
        lake = Lake(Path(directory), definitions=definitions, remote=remote)
        for file, test in tests:
            began, difference = time.monotonic(), None
            try:
                run_model_test(lake, definitions, file, test)
            except AssertionError as error:
                difference = str(error)
            except Exception as error:  # noqa: BLE001 - whatever the query raises, the other tests run
                difference = f"{type(error).__name__}: {error}"
            failed += difference is not None
            outcome = "[green]passed[/]" if difference is None else "[bold red]failed[/]"
            line = f"{outcome} {time.monotonic() - began:5.1f} s  {shown(file.path)}: {shown(test.name)}"
            console.print(line, soft_wrap=True)
            if difference is not None:
                say(f"\n{difference}\n")
        lake.close()
    console.print(f"{len(tests)} tests, {failed} failed" if failed else f"{len(tests)} tests passed")
    sys.exit(_FAILED if failed else _PASSED)

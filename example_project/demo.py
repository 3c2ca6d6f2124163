"""Materialize a part of the example, then show what each write committed: `python -m example_project.demo`."""

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any
from unittest import mock

import polars as pl
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from rich import box
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from example_project.resources import CHECKOUT, LAKE, NAMESPACE, mirror_in, resources_in

DAGSTER_HOME = CHECKOUT / ".dagster_home"
LOG = DAGSTER_HOME / "demo.log"
TABLES = [
    "planes",
    "airlines",
    "airports",
    "weather",
    "flights",
    "daily_delays",
    "monthly_carriers",
    "routes",
    "load_audit",
]
NEWEST_SNAPSHOTS = 4
WIDTH = 100
PLAIN: Any = {
    "box": box.SIMPLE_HEAD,
    "expand": True,
    "padding": (0, 1, 0, 0),
    "pad_edge": False,
    "show_edge": False,
    "title_style": "",
}


@dataclass(frozen=True)
class Step:
    """One command, as you would type it. In the demo, all commands share one process.

    Args:
        title: What it does.
        select: The assets to materialize. None: check the resources and materialize nothing.
        options: What follows `--select` on the command line.
        refusal: The error that ends the run, if it is to fail.
    """

    title: str
    select: str | None
    options: tuple[str, ...] = ()
    refusal: str | None = None

    @property
    def command(self) -> list[str]:
        """The command line."""
        location = ("-m", "example_project.definitions")
        if self.select is None:
            return ["dagster-iceberg-spark", "check", *location]
        return ["dagster", "asset", "materialize", *location, "--select", self.select, *self.options]


STEPS = [
    Step("The catalog and Spark, tried out: a table is written, read and dropped", None),
    Step("Planes, merged by tail number; airlines and airports, replaced whole", "planes,airlines,airports"),
    Step(
        "January's weather at three airports: 93 partitions in one run",
        "weather",
        ("--partition-range", "EWR|2013-01-01...LGA|2013-01-31"),
    ),
    Step(
        "Flights and delays of three days, published at one instant",
        "flights,daily_delays,delays_release",
        ("--partition-range", "2013-01-01...2013-01-03"),
    ),
    Step(
        "A day whose source has changed its unit: its rows fail an audit, and no reader sees them",
        "flights,daily_delays,delays_release",
        ("--partition", "2013-01-15", "--config-json", '{"ops": {"flights": {"config": {"delays_in_seconds": true}}}}'),
        refusal="AuditFailedError",
    ),
    Step(
        "Flights and delays of all January, those days and the failed one again among them",
        "flights,daily_delays,delays_release",
        ("--partition-range", "2013-01-01...2013-01-31"),
    ),
    Step(
        "January by airline: a monthly partition reads its 31 days", "monthly_carriers", ("--partition", "2013-01-01")
    ),
    Step("An audit of the source tables, appended by pandas: no JVM", "load_audit"),
    Step("The flights by route, from a job in a process of its own", "routes"),
    Step("A report with a plot, in polars: no JVM", "delay_report"),
]


def main() -> int:
    """Run the steps and show the tables; return the exit code."""
    DAGSTER_HOME.mkdir(exist_ok=True)
    settings = DAGSTER_HOME / "dagster.yaml"
    if not settings.exists():
        settings.write_text("telemetry:\n  enabled: false\nnux:\n  enabled: false\n")
    os.environ["DAGSTER_HOME"] = str(DAGSTER_HOME)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with terminal() as console:
        console.rule("Flights out of New York, 2013")
        if not all(materialized(step, console) for step in STEPS):
            return 1
        # The same tables through pyiceberg, which needs no JVM.
        catalog = resources_in(LAKE)["spark"].pyiceberg_catalog
        console.print()
        console.rule("What each run committed")
        for name in TABLES:
            console.print(history(catalog.load_table((NAMESPACE, name))))
            console.print()
        console.rule("What the tables say: January's worst departures, by airport and day")
        console.print(worst_days(catalog))
        console.print()
        console.rule("What DuckDB reads in the DuckLake: no row is copied")
        console.print(mirrored_delays())
        console.print()
        console.print(
            "`make ui` opens this in Dagster: the runs, the tables' columns, the report's plot.", style="bold"
        )
    return 0


@contextmanager
def terminal() -> Iterator[Console]:
    """Yield a console on the terminal; what the steps and their JVM print goes to the log."""
    is_terminal = sys.stdout.isatty()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as screen, LOG.open("w", encoding="utf-8") as log:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
        yield Console(file=screen, width=None if is_terminal else WIDTH)


def materialized(step: Step, console: Console) -> bool:
    """Run a step, its output in the log; on failure show the log's end.

    Args:
        step: What to run.
        console: Where to say so.
    """
    command = shlex.join(step.command)
    started = time.monotonic()
    print(f"\n$ {command}", flush=True)
    logged = LOG.stat().st_size
    # A `status` of the console would show what Dagster logs meanwhile.
    spinner = Spinner("dots", Text(step.title))
    with Live(spinner, console=console, transient=True, redirect_stdout=False, redirect_stderr=False):
        code = run(step.command)
    seconds = f"{time.monotonic() - started:5.1f} s"
    refusal = message_of(step.refusal, LOG.read_text(encoding="utf-8")[logged:]) if step.refusal else None
    if code == 0 if step.refusal is None else refusal is not None:
        console.print(f"[green]done[/] {seconds}  {escape(step.title)}")
        console.print(f"[dim]              $ {escape(command)}[/]", soft_wrap=True, highlight=False)
        if refusal is not None:
            console.print(f"[yellow]              {escape(refusal)}[/]", soft_wrap=True, highlight=False)
        return True
    console.print(f"[red]FAILED[/] {seconds}  {escape(step.title)}. The end of {LOG.relative_to(CHECKOUT)}:\n")
    console.print("\n".join(LOG.read_text().splitlines()[-30:]), markup=False, highlight=False)
    return False


def message_of(error: str, log: str) -> str | None:
    """Return the message of an error in the log without its hint, or None if there is none."""
    lines = (line.partition(f"{error}: ")[2].partition(" Hint:")[0] for line in log.splitlines())
    return next((line for line in lines if line), None)


def run(command: list[str]) -> int:
    """Run an installed command in this process and return its exit code."""
    (script,) = entry_points(group="console_scripts", name=command[0])
    with mock.patch.object(sys, "argv", command):
        try:
            script.load()()
        except SystemExit as left:
            return left.code if isinstance(left.code, int) else int(left.code is not None)
    return 0


def history(table: IcebergTable) -> Table:
    """Return the newest snapshots of a table, and what each says of the run that made it."""
    snapshots = list(ancestors_of(table.current_snapshot(), table.metadata))[::-1]  # without those of branches
    shown = Table(title=headline(table, snapshots), title_justify="left", **PLAIN)
    for column in ("snapshot", "run"):
        shown.add_column(column, no_wrap=True, style="cyan", width=8)
    shown.add_column("partitions", no_wrap=True, ratio=1)
    shown.add_column("write", no_wrap=True, width=7)
    for column in ("added", "deleted"):
        shown.add_column(column, no_wrap=True, justify="right", min_width=6)
    shown.add_column("read", no_wrap=True, style="cyan", width=16)
    for snapshot in snapshots[-NEWEST_SNAPSHOTS:]:
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        shown.add_row(
            short(snapshot.snapshot_id),
            summary.get("dagster.run_id", "")[:8],
            partitions(summary.get("dagster.partition_keys")),
            summary.get("dagster.write_disposition"),
            f"{int(summary.get('added-records', 0)):,}",
            f"{int(summary.get('deleted-records', 0)):,}",
            upstream(summary.get("dagster.upstream", "[]")),
        )
    return shown


def headline(table: IcebergTable, snapshots: list[Snapshot]) -> Text:
    """Return a table's name, its size, its partition fields, and how many snapshots are not shown."""
    summary = snapshots[-1].summary.additional_properties if snapshots and snapshots[-1].summary else {}
    facts = [f"{int(summary.get('total-records', 0)):,} rows"]
    if table.spec().fields:
        facts.append(f"partitioned by {', '.join(field.name for field in table.spec().fields)}")
    if len(snapshots) > NEWEST_SNAPSHOTS:
        facts.append(f"{len(snapshots) - NEWEST_SNAPSHOTS} older snapshots")
    return Text.assemble((".".join(table.name()), "bold"), "  ", " · ".join(facts))


def partitions(keys: str | None) -> str:
    """Return the keys as the summary has them: one, a list as its ends and count, or those already."""
    if keys is None:
        return "whole table"
    if not keys.startswith("["):
        return keys
    listed = json.loads(keys)
    return f"{listed[0]}..{listed[-1]} ({len(listed)})"


def upstream(document: str) -> str:
    """Return each table that was read, and its snapshot."""
    reads = json.loads(document)
    if isinstance(reads, dict):  # too many to be listed
        return f"{reads['count']} tables"
    return "\n".join(f"{read['asset']}@{short(read['snapshot_id'])}" for read in reads)


def short(snapshot_id: int | None) -> str:
    """Return the start of a snapshot's id, as one abbreviates commits."""
    return str(snapshot_id)[:7]


def worst_days(catalog: Catalog) -> Table:
    """Return the airports' days with the longest mean delay, and their weather."""
    delays = catalog.load_table((NAMESPACE, "daily_delays")).scan().to_polars()
    airports = catalog.load_table((NAMESPACE, "airports")).scan(selected_fields=("faa", "name")).to_polars()
    worst = (
        delays.filter(pl.col("day").dt.month() == 1)
        .join(airports, left_on="origin", right_on="faa")
        .sort("mean_delay", descending=True)
        .head(8)
    )
    shown = Table(**PLAIN)
    shown.add_column("day", no_wrap=True)
    shown.add_column("airport", no_wrap=True, ratio=1)
    for column in ("flights", "late", "cancelled", "mean delay", "wind", "visibility"):
        shown.add_column(column, justify="right", no_wrap=True)
    for row in worst.iter_rows(named=True):
        shown.add_row(
            str(row["day"]),
            row["name"],
            str(row["flights"]),
            f"{row['late'] / row['flights']:.0%}",
            str(row["cancelled"]),
            f"{row['mean_delay']:.0f} min",
            f"{row['max_wind']:.0f} mph",
            f"{row['min_visib']:.1f} mi",
        )
    return shown


def mirrored_delays() -> Table:
    """Return the delays of January by airport, as DuckDB reads them in the mirror."""
    shown = Table(**PLAIN)
    with mirror_in(LAKE).connect() as duckdb:
        rows = duckdb.sql(
            "SELECT origin, count(*), sum(flights), round(avg(mean_delay), 1) FROM mirror.nyc.daily_delays "
            "GROUP BY origin ORDER BY origin"
        ).fetchall()
    shown.add_column("airport", ratio=1)
    for column in ("days", "flights", "mean delay"):
        shown.add_column(column, justify="right", no_wrap=True)
    for origin, days, flights, delay in rows:
        shown.add_row(origin, str(days), f"{flights:,}", f"{delay} min")
    return shown


if __name__ == "__main__":
    sys.exit(main())

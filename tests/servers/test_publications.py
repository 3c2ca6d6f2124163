"""Runs that publish to five tables at the same time, on SQLite and on PostgreSQL."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pytest
from pyiceberg.table import StaticTable
from sqlalchemy import text

from dagster_iceberg_spark import SqlCatalog, build_release
from tests.lakes import Lake, error_of, hours_asset, open_lake
from tests.servers.conftest import emptied

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(600)]

DAYS = dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-04-01")
TABLES: Final = [f"t{number}" for number in range(5)]
FEW_OR_MANY: Final = pytest.mark.parametrize("runs", [4, pytest.param(10, marks=pytest.mark.slow)])


@pytest.fixture(params=["postgresql", "sqlite"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    if request.param == "sqlite":
        catalog: Any = SqlCatalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh"))
    else:
        catalog = request.getfixturevalue("postgresql_catalog")
    yield from open_lake(emptied(catalog), tmp_path, None)


def run_together(lake: Lake, days: list[str], *, is_released: bool = False) -> list[str]:
    """Materialize a day of all tables in each run, all at once. Return the error of each run, or an empty text."""
    barrier = threading.Barrier(len(days))

    def run(number: int) -> str:
        metadata: dict[str, Any] = {"partition_expr": "ts", "iceberg/audits": {"all": "count(*) = 24"}}
        metadata |= {"iceberg/publish": "release"} if is_released else {}
        assets = [hours_asset(name, str(number), partitions_def=DAYS, metadata=metadata) for name in TABLES]
        assets += [build_release("release", assets)] if is_released else []
        barrier.wait()
        with dg.DagsterInstance.ephemeral() as instance:
            own = Lake(lake.spark, lake.io_manager, instance, lake.directory)
            result = own.materialize(*assets, partition_key=days[number], raise_on_error=False)
        return "" if result.success else f"{(error := error_of(result)).class_name}: {error}"

    with ThreadPoolExecutor(len(days)) as pool:
        return list(pool.map(run, range(len(days))))


@FEW_OR_MANY
def test_runs_of_different_days_all_publish_and_nothing_is_lost(lake: Lake, runs: int) -> None:
    assert run_together(lake, [f"2024-03-{day:02}" for day in range(1, runs + 1)]) == [""] * runs
    for name in TABLES:
        assert lake.rows(name, "v") == [number for number in range(runs) for _ in range(24)]
        keys = [summary.get("dagster.partition_keys") for summary in history(lake, name)]
        assert sorted(map(str, keys)) == sorted(f"2024-03-{day:02}" for day in range(1, runs + 1))
        assert list(lake.table(name).metadata.refs) == ["main"]


@pytest.mark.sample(1)
def test_of_runs_of_the_same_day_each_table_shows_one(lake: Lake) -> None:
    assert "" in run_together(lake, ["2024-03-01"] * 4)
    for name in TABLES:
        values = lake.rows(name, "v")
        assert (len(values), len(set(values))) == (24, 1)
        assert len(history(lake, name)) == len({str(summary["dagster.run_id"]) for summary in history(lake, name)})


@FEW_OR_MANY
@pytest.mark.sample(3)
@pytest.mark.parametrize("is_same_day", [False, True], ids=["different days", "the same day"])
def test_each_release_is_seen_in_all_tables_or_in_none(lake: Lake, *, is_same_day: bool, runs: int) -> None:
    """Of runs of the same day that overlap, one is released, and the others are conflicts."""
    days = [f"2024-03-{1 if is_same_day else day:02}" for day in range(1, runs + 1)]
    seen, is_over = list[int](), threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            runs = runs_at_one_instant(lake)
            assert all(found == runs[0] for found in runs)
            seen.append(len(runs[0]) if runs else 0)

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        errors = run_together(lake, days, is_released=True)
        is_over.set()
        watching.result()
    done = errors.count("")
    assert 1 <= done <= len(days) if is_same_day else done == runs
    assert all("CommitConflictError" in error for error in errors if error)
    assert (min(seen), [len(found) for found in runs_at_one_instant(lake)]) == (0, [done] * len(TABLES))
    for name in TABLES:
        assert len(lake.rows(name, "v")) == 24 * len(set(days))


def runs_at_one_instant(lake: Lake) -> list[set[str]]:
    """Return the runs whose rows are published in each table, from one query for the pointers of all tables."""
    catalog: Any = lake.spark.pyiceberg_catalog
    query = text("select metadata_location from iceberg_tables where table_namespace = 'db'")
    with catalog.engine.connect() as connection:
        locations = [row[0] for row in connection.execute(query)]
    tables = [StaticTable.from_metadata(location) for location in locations]
    found = [[table.snapshot_by_id(entry.snapshot_id) for entry in table.history()] for table in tables]
    if len(tables) < len(TABLES):
        assert not any(found)
        return []
    return [{str(item.summary["dagster.run_id"]) for item in items if item and item.summary} for items in found]


def history(lake: Lake, name: str) -> list[Any]:
    """Return the summaries of the snapshots of `main`."""
    table = lake.table(name)
    found = [table.snapshot_by_id(entry.snapshot_id) for entry in table.history()]
    return [item.summary.additional_properties for item in found if item is not None and item.summary is not None]

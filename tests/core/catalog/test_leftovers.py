"""Files that a failed write has left behind, in tables written by pyiceberg, with empty files as Spark's."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from dagster_iceberg_spark.catalog.damage import leftovers
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import open_catalog
from dagster_iceberg_spark.config.sql_catalog import SqlCatalog
from tests.core.table.samples import TABLE

WRITE = "bae233e1-59c5-4b21-8f97-b0434eddb38f"
OTHER = "c09543df-1013-47c4-8ed8-27ba1e4da99d"
LONG_AGO = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)


@pytest.fixture
def lake(tmp_path: Path) -> CatalogDescription:
    return SqlCatalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh")).describe()


@pytest.fixture
def table(lake: CatalogDescription) -> Table:
    catalog, rows = open_catalog(lake), pa.table({"id": [1]})
    catalog.create_namespace(TABLE.namespace)
    table = catalog.create_table(TABLE.parts, rows.schema)
    table.append(rows)
    return table


def data_directory(table: Table) -> Path:
    return Path(table.location().removeprefix("file://"), "data")


def leave_file(table: Table, write: str, task: int, partition: str = "") -> str:
    path = data_directory(table) / partition / f"{task:05d}-{task}-{write}-0-00001.parquet"
    path.parent.mkdir(exist_ok=True)
    path.touch()
    return str(path)


def test_new_files_without_a_snapshot_are_found(lake: CatalogDescription, table: Table) -> None:
    mine = [leave_file(table, WRITE, 0), leave_file(table, WRITE, 1, "day=2013-01-01")]
    other = leave_file(table, OTHER, 7)
    assert leftovers(lake, TABLE, LONG_AGO) == sorted([*mine, other])


def test_older_files_are_not_leftovers_of_the_write(lake: CatalogDescription, table: Table) -> None:
    leave_file(table, WRITE, 0)
    assert leftovers(lake, TABLE, dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=1)) == []


def test_files_of_snapshots_and_other_files_are_not_leftovers(lake: CatalogDescription, table: Table) -> None:
    (data_directory(table) / "notes.txt").touch()
    assert leftovers(lake, TABLE, LONG_AGO) == []


def test_a_large_directory_is_not_listed_completely(lake: CatalogDescription, table: Table) -> None:
    leave_file(table, WRITE, 0, "day=2013-01-01")
    assert leftovers(lake, TABLE, LONG_AGO, maximum_entries=1) == []
    assert leftovers(lake, TABLE, LONG_AGO, maximum_seconds=0) == []


def test_a_missing_table_has_no_leftovers(lake: CatalogDescription) -> None:
    assert leftovers(lake, TABLE, LONG_AGO) == []

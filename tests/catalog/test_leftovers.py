"""What a failed write has left, against tables that pyiceberg wrote and files that stand for Spark's."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.leftovers import leftovers
from dagster_iceberg_spark.catalog.look import open_catalog
from dagster_iceberg_spark.config.sql_catalog import SqlCatalog
from tests.table.samples import TABLE

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


def left(table: Table, write: str, task: int, partition: str = "") -> str:
    path = data_directory(table) / partition / f"{task:05d}-{task}-{write}-0-00001.parquet"
    path.parent.mkdir(exist_ok=True)
    path.touch()
    return str(path)


def test_new_files_of_no_snapshot_are_found(lake: CatalogDescription, table: Table) -> None:
    mine = [left(table, WRITE, 0), left(table, WRITE, 1, "day=2013-01-01")]
    other = left(table, OTHER, 7)
    assert leftovers(lake, TABLE, LONG_AGO) == sorted([*mine, other])


def test_files_that_were_there_before_are_not_the_write_s(lake: CatalogDescription, table: Table) -> None:
    left(table, WRITE, 0)
    assert leftovers(lake, TABLE, dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=1)) == []


def test_files_of_a_snapshot_and_files_of_others_are_none(lake: CatalogDescription, table: Table) -> None:
    (data_directory(table) / "notes.txt").touch()
    assert leftovers(lake, TABLE, LONG_AGO) == []


def test_a_directory_that_is_too_big_is_not_listed_to_its_end(lake: CatalogDescription, table: Table) -> None:
    left(table, WRITE, 0, "day=2013-01-01")
    assert leftovers(lake, TABLE, LONG_AGO, maximum_entries=1) == []
    assert leftovers(lake, TABLE, LONG_AGO, maximum_seconds=0) == []


def test_a_table_that_is_not_there_has_none(lake: CatalogDescription) -> None:
    assert leftovers(lake, TABLE, LONG_AGO) == []

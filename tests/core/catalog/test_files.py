"""What manifests tell of data files, from tables that pyiceberg writes."""

import datetime as dt
import gc
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog as PyIcebergSqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import DateType, LongType, NestedField

from dagster_iceberg_spark import SqlCatalog
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.expressions import expression_of
from dagster_iceberg_spark.catalog.files import added_files, data_files, removed_files
from dagster_iceberg_spark.catalog.look import open_catalog
from dagster_iceberg_spark.errors import CommitConflictError
from dagster_iceberg_spark.plan.write.overwrite_filter import DataFile
from dagster_iceberg_spark.table.predicate import Comparison
from tests.core.table.samples import TABLE

JANUARY, MAY = dt.date(2013, 1, 1), dt.date(2013, 5, 1)


@pytest.fixture
def catalog(tmp_path: Path) -> CatalogDescription:
    (tmp_path / "wh").mkdir()
    description = SqlCatalog(uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh")).describe()
    open_catalog(description).create_namespace(TABLE.namespace)
    return description


def rows(*days: dt.date | None) -> pa.Table:
    return pa.table({"day": pa.array(days, pa.date32()), "id": pa.array(range(len(days)), pa.int64())})


def written(catalog: CatalogDescription, *commits: pa.Table) -> list[int]:
    """Append each table in a commit of its own and return the snapshots."""
    opened = open_catalog(catalog)
    assert isinstance(opened, PyIcebergSqlCatalog)
    table = opened.create_table((*TABLE.namespace, TABLE.name), commits[0].schema)
    snapshots = []
    for commit in commits:
        table.append(commit)
        newest = table.current_snapshot()
        assert newest is not None
        snapshots.append(newest.snapshot_id)
    return snapshots


def days_of(file: DataFile) -> tuple[object, object, bool]:
    bounds = file.bounds["day"]
    return bounds.lower, bounds.upper, bounds.may_hold_null


def test_all_files_of_a_snapshot_have_their_bounds(catalog: CatalogDescription) -> None:
    first, second = written(catalog, rows(JANUARY, MAY), rows(None, MAY))
    files = data_files(catalog, TABLE, second, ["day"])
    assert {days_of(file) for file in files} == {(JANUARY, MAY, False), (MAY, MAY, True)}
    assert [file.rows for file in files] == [2, 2]
    assert [days_of(file) for file in data_files(catalog, TABLE, first, ["day"])] == [(JANUARY, MAY, False)]


def test_files_without_matching_rows_are_left_out(catalog: CatalogDescription) -> None:
    _, second = written(catalog, rows(JANUARY), rows(MAY))
    later = expression_of(Comparison("day", ">", dt.date(2013, 3, 1)))
    [file] = data_files(catalog, TABLE, second, ["day"], rows=later)
    assert days_of(file) == (MAY, MAY, False)


def test_a_partition_value_is_one_of_the_bounds(catalog: CatalogDescription) -> None:
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=BucketTransform(4), name="id_bucket"))
    schema = Schema(NestedField(1, "day", DateType()), NestedField(2, "id", LongType()))
    table = open_catalog(catalog).create_table((*TABLE.namespace, TABLE.name), schema, partition_spec=spec)
    table.append(rows(JANUARY))
    newest = table.current_snapshot()
    assert newest is not None
    [file] = data_files(catalog, TABLE, newest.snapshot_id, ["id", "day"])
    assert {str(transform) for transform in file.bounds["id"].partitions} == {"bucket[4]"}
    assert not file.bounds["day"].partitions


def test_a_commit_is_told_by_what_it_adds_and_removes(catalog: CatalogDescription) -> None:
    _, second = written(catalog, rows(JANUARY), rows(MAY))
    assert [days_of(file)[0] for file in added_files(catalog, TABLE, second, ["day"])] == [MAY]
    table = open_catalog(catalog).load_table((*TABLE.namespace, TABLE.name))
    table.delete(f"day = '{JANUARY}'")
    newest = table.current_snapshot()
    assert newest is not None
    assert [days_of(file)[0] for file in removed_files(catalog, TABLE, newest.snapshot_id, ["day"])] == [JANUARY]
    assert [days_of(file)[0] for file in data_files(catalog, TABLE, newest.snapshot_id, ["day"])] == [MAY]


def test_python_collects_garbage_again_after_a_failure(catalog: CatalogDescription) -> None:
    written(catalog, rows(JANUARY))
    with pytest.raises(CommitConflictError, match="none of that id: it has expired"):
        data_files(catalog, TABLE, 7, ["day"])
    assert gc.isenabled()

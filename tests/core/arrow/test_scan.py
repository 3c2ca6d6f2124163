"""The files of one scan and of many."""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestFile
from pyiceberg.transforms import IdentityTransform

from dagster_iceberg_spark.arrow.reader import INPUT_TYPES, read
from dagster_iceberg_spark.arrow.scan import MAXIMUM_TERMS
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import data_files
from dagster_iceberg_spark.catalog.look import look, open_catalog
from dagster_iceberg_spark.config.sql_catalog import SqlCatalog
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.read.read_options import ReadOptions
from dagster_iceberg_spark.plan.read.read_plan import by_partition, plan_read
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.scope import Dimension, PartitionScope, PartitionSlice, TimeCalendar, TimeWindow
from tests.equality_deletes import delete_by_equality

T = TableIdentifier(("db",), "t")
SCHEMA = pa.schema([("day", pa.date32()), ("n", pa.int64())])
FIRST = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
DAYS = 40
DAY = dt.timedelta(days=1)


@pytest.fixture
def lake(tmp_path: Path) -> CatalogDescription:
    """A table with a file for each day, in four manifests, and one for NULL."""
    description = SqlCatalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh")).describe()
    catalog = open_catalog(description)
    catalog.create_namespace("db")
    table = catalog.create_table(T.parts, SCHEMA)
    with table.update_spec() as update:
        update.add_field("day", IdentityTransform(), "day")
    for start in range(0, DAYS, 10):
        days = [(FIRST + number * DAY).date() for number in range(start, start + 10)]
        table.append(pa.table({"day": days, "n": list(range(start, start + 10))}, schema=SCHEMA))
    table.append(pa.table({"day": [None], "n": [-1]}, schema=SCHEMA))
    return description


def scope_of(*days: int) -> PartitionScope:
    dimension = Dimension(None, "day", TimeCalendar("UTC", "%Y-%m-%d", "day"))
    starts = [FIRST + day * DAY for day in days]
    slices = tuple((PartitionSlice(f"{start:%Y-%m-%d}", TimeWindow(start, start + DAY)),) for start in starts)
    return PartitionScope((dimension,), slices, tuple(slice_.key for (slice_,) in slices))


def plan_of(description: CatalogDescription, scope: PartitionScope, **options: Any) -> Any:
    state = look(description, T)
    assert state is not None
    return plan_read(state, scope, ReadOptions(**options))


def no_spark(_: Any) -> Any:
    pytest.fail("only a changelog is read by Spark")


@pytest.mark.parametrize("condition", [None, "n < 30", "day < '2024-01-31' or n = 7"])
def test_a_null_partition_is_in_none_of_many_windows(lake: CatalogDescription, condition: str | None) -> None:
    odd = range(1, DAYS, 2)
    assert len(odd) > MAXIMUM_TERMS
    loaded = read(lake, {"": plan_of(lake, scope_of(*odd), row_filter=condition)}, INPUT_TYPES[0], no_spark)[""]
    assert sorted(loaded.column("n").to_pylist()) == [day for day in odd if condition is None or day < 30]


def test_manifests_are_read_once_for_all_partitions(lake: CatalogDescription, monkeypatch: pytest.MonkeyPatch) -> None:
    scope, opened = scope_of(*range(-1, DAYS)), []
    genuine = ManifestFile.fetch_manifest_entry

    def fetch(self: ManifestFile, *args: Any, **kwargs: Any) -> Any:
        opened.append(self.manifest_path)
        return genuine(self, *args, **kwargs)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", fetch)
    state = look(lake, T)
    assert state is not None
    loaded = read(lake, by_partition(state, plan_read(state, scope, ReadOptions()), scope), INPUT_TYPES[0], no_spark)
    assert list(loaded) == list(scope.keys)
    assert [rows.column("n").to_pylist() for rows in loaded.values()] == [[], *([day] for day in range(DAYS))]
    assert len(opened) == len(set(opened)) == 4


def test_equality_deletes_are_refused_by_name(lake: CatalogDescription) -> None:
    catalog = open_catalog(lake)
    table = catalog.create_table(("db", "plain"), pa.schema([("n", pa.int64())]))
    table.append(pa.table({"n": [1, 2]}))
    delete_by_equality(table, pa.table({"n": [1]}))
    state = look(lake, TableIdentifier(("db",), "plain"))
    assert state is not None
    plan = plan_read(state, PartitionScope(), ReadOptions())
    with pytest.raises(ConfigurationError, match="found that its rows are deleted by equality") as caught:
        read(lake, {"": plan}, INPUT_TYPES[0], no_spark)
    assert "load it as a pyspark.sql.DataFrame" in str(caught.value)
    files = data_files(lake, state.identifier, plan.snapshot_id or 0, ["n"])
    assert [(file.rows, file.bounds["n"].lower, file.bounds["n"].upper) for file in files] == [(2, 1, 2)]

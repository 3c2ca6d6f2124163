"""The sizes of files by partition, from manifests.

docs/maintenance.md: Health
"""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import DateType, NestedField, StringType

from dagster_iceberg_spark import SqlCatalog
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import open_catalog
from dagster_iceberg_spark.catalog.tables import manages_files, tables_of
from dagster_iceberg_spark.features.maintenance.health_reports import table_files
from tests.core.table.samples import TABLE, wall

SCHEMA = Schema(NestedField(1, "day", DateType()), NestedField(2, "carrier", StringType()))
SPEC = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "carrier"), PartitionField(1, 1001, DayTransform(), "day_day")
)


@pytest.fixture
def catalog(tmp_path: Path) -> CatalogDescription:
    description = SqlCatalog(uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh")).describe()
    open_catalog(description).create_namespace(TABLE.namespace)
    return description


def rows(*pairs: tuple[int | None, str | None]) -> pa.Table:
    days = [None if day is None else dt.date(2026, 11, day) for day, _ in pairs]
    return pa.table({"day": pa.array(days, pa.date32()), "carrier": pa.array([name for _, name in pairs], pa.string())})


def test_files_are_counted_by_partition(catalog: CatalogDescription) -> None:
    table = open_catalog(catalog).create_table(TABLE.parts, SCHEMA, partition_spec=SPEC)
    for part in (rows((1, "AA"), (1, "AA")), rows((1, "AA"), (2, "DL")), rows((None, "AA"), (3, None))):
        table.append(part)
    found = {item.partition: item for item in table_files(catalog, TABLE).partitions}
    assert {name: (len(item.sizes), item.rows, item.start, item.end) for name, item in found.items()} == {
        "carrier=AA/day_day=2026-11-01": (2, 3, wall(2026, 11, 1), wall(2026, 11, 2)),
        "carrier=DL/day_day=2026-11-02": (1, 1, wall(2026, 11, 2), wall(2026, 11, 3)),
        "carrier=AA/day_day=null": (1, 1, None, None),
        "carrier=null/day_day=2026-11-03": (1, 1, wall(2026, 11, 3), wall(2026, 11, 4)),
    }
    snapshots = [item.snapshot_id for item in table.snapshots()]
    assert found["carrier=AA/day_day=2026-11-01"].newest_snapshot == snapshots[1]
    assert all(size > 0 for item in found.values() for size in item.sizes)


def test_a_table_without_partitions_or_rows_has_no_files(catalog: CatalogDescription) -> None:
    table = open_catalog(catalog).create_table(TABLE.parts, SCHEMA)
    assert table_files(catalog, TABLE).partitions == ()
    table.append(rows((1, "AA")))
    [whole] = table_files(catalog, TABLE).partitions
    assert (whole.partition, whole.rows, whole.start) == ("", 1, None)


def test_all_tables_of_a_catalog_are_listed(catalog: CatalogDescription) -> None:
    opened = open_catalog(catalog)
    opened.create_namespace(("nyc", "deep"))
    for name in (TABLE.parts, ("nyc", "deep", "weather"), ("nyc", "airports")):
        opened.create_table(name, SCHEMA)
    assert [str(table) for table in tables_of(catalog)] == ["nyc.airports", "nyc.deep.weather", "nyc.flights"]
    assert not manages_files(catalog)


def test_the_last_day_of_the_calendar_has_no_window(catalog: CatalogDescription) -> None:
    """Many tables store it for an end that is not known."""
    table = open_catalog(catalog).create_table(TABLE.parts, SCHEMA, partition_spec=SPEC)
    days = pa.array([dt.date.max, dt.date(2026, 11, 1)], pa.date32())
    table.append(pa.table({"day": days, "carrier": ["AA", "AA"]}))
    windows = {item.partition: item.start for item in table_files(catalog, TABLE).partitions}
    assert windows == {"carrier=AA/day_day=9999-12-31": None, "carrier=AA/day_day=2026-11-01": wall(2026, 11, 1)}

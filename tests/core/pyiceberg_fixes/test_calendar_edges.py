"""Filters at the last date of Python's calendar."""

import datetime as dt

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import MonthTransform, YearTransform

from dagster_iceberg_spark.pyiceberg_fixes.calendar_edges import plan_files

EDGE = "d <= '9999-12-31'"
INSIDE = "d < '2000-01-01'"


@pytest.fixture(params=[YearTransform(), MonthTransform()], ids=str)
def table(catalog: SqlCatalog, request: pytest.FixtureRequest) -> Table:
    """A table with a file for each of two years."""
    table = catalog.create_table("db.t", schema=pa.schema([("d", pa.date32())]))
    with table.update_spec() as update:
        update.add_field("d", request.param, "p")
    table.append(pa.table({"d": [dt.date(1999, 1, 1), dt.date(2001, 1, 1)]}))
    return table


@pytest.mark.parametrize(("rows", "files"), [(EDGE, 2), (INSIDE, 1)], ids=["edge", "inside"])
def test_files_are_planned_with_the_filter_or_a_wider_one(table: Table, rows: str, files: int) -> None:
    assert len(plan_files(table.scan(row_filter=rows), table.scan)) == files


def test_pyiceberg_still_overflows(table: Table) -> None:
    with pytest.raises(OverflowError, match="date value out of range"):
        list(table.scan(row_filter=EDGE).plan_files())

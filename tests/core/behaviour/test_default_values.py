"""Default values of columns, which the package sets because Spark cannot.

docs/columns.md: Default values
"""

from typing import Any

import dagster as dg
import pytest

from tests.lakes import Lake, frame_asset, metadata_of

pytestmark = pytest.mark.spark

OPTIONS = {"iceberg/format_version": 3, "iceberg/write_disposition": "append"}


def asset(columns: str, defaults: dict[str, Any], **options: Any) -> dg.AssetsDefinition:
    given = {f"iceberg/{key}": value for key, value in options.items()}
    return frame_asset("t", f"select {columns}", metadata={**OPTIONS, "iceberg/defaults": defaults, **given})


def stored(lake: Lake) -> list[tuple[Any, ...]]:
    """Return the rows as Spark reads them, after a look whether pyiceberg reads the same."""
    rows = [tuple(row) for row in lake.session.sql("select * from lake.db.t order by id").collect()]
    assert sorted(lake.rows("t", *lake.table("t").schema().column_names), key=lambda row: row[0]) == rows
    return rows


@pytest.mark.by_spark
@pytest.mark.each_engine
def test_rows_that_lack_a_column_have_its_default(lake: Lake) -> None:
    lake.materialize(frame_asset("t", "select 1 as id", metadata=OPTIONS))
    defaults: dict[str, Any] = {"region": "EU", "rate": 2, "day": "2024-01-31"}
    row = "2 as id, 'US' as region, 1.5D as rate, date '2024-02-01' as day"
    result = lake.materialize(asset(row, defaults))
    assert "add column region string with the default 'EU'" in str(metadata_of(result, "t")["iceberg/table_changes"])
    older, newer = stored(lake)
    assert (older[1:3], newer[1:3]) == (("EU", 2.0), ("US", 1.5))
    assert str(older[3]) == "2024-01-31"
    lake.materialize(asset("3 as id, 'US' as region", defaults))
    lake.materialize(asset("4 as id", {**defaults, "region": "APAC"}))
    assert [row[1:3] for row in stored(lake)] == [("EU", 2.0), ("US", 1.5), ("US", 2.0), ("APAC", 2.0)]
    schemas = len(lake.table("t").metadata.schemas)
    lake.materialize(asset("5 as id", {**defaults, "region": "APAC"}))
    assert len(lake.table("t").metadata.schemas) == schemas, "defaults that are set are set once"


@pytest.mark.by_spark
@pytest.mark.full
@pytest.mark.parametrize("version", [2, 3])
def test_a_new_table_and_one_that_is_upgraded_get_defaults(lake: Lake, version: int) -> None:
    lake.materialize(
        asset("1 as id, 'US' as region", {"region": "EU"})
        if version == 3
        else frame_asset("t", "select 1 as id, 'US' as region")
    )
    lake.materialize(asset("2 as id", {"region": "EU"}))
    assert stored(lake) == [(1, "US"), (2, "EU")]


@pytest.mark.by_spark
@pytest.mark.full
@pytest.mark.parametrize(
    ("defaults", "options", "found"),
    [
        ({"gone": 1}, {}, "expected the column 'gone' of `iceberg/defaults`, found none in the rows or the table"),
        ({"id": "x"}, {}, "expected a default value of type int for the column 'id', found 'x'"),
        ({"id": 2**31}, {}, "found 2147483648"),
        ({"id": True}, {}, "found True"),
        ({"at": "2024-01-31T12:00:00"}, {}, "type timestamptz for the column 'at'"),
        ({"d": 1.234}, {}, r"type decimal(9, 2) for the column 'd', found 1.234"),
        ({"id": 1}, {"format_version": 2}, "expected a table of format version 3, which has default values"),
    ],
)
def test_what_no_column_can_have_is_refused(
    lake: Lake, defaults: dict[str, Any], options: dict[str, Any], found: str
) -> None:
    error = lake.failure(asset("1 as id, current_timestamp() as at, 1.5BD as d", defaults, **options))
    assert error.class_name == "SchemaMismatchError"
    assert found in str(error) or found.replace("9, 2", "2, 1") in str(error)
    assert not lake.exists("t")

"""Tables that the user has cached in the session, and that another writer has changed since."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from tests.lakes import Lake, frame_asset

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-10")
DAY = "2024-01-01"

pytestmark = [pytest.mark.spark, pytest.mark.each_engine, pytest.mark.full]


@pytest.fixture
def cached(lake: Lake) -> Iterator[Any]:
    """Return a function that caches a table or branch."""

    def cache(name: str, branch: str = "main") -> None:
        table = f"{lake.spark.catalog_description.name}.db.{name}"
        lake.session.table(table if branch == "main" else f"{table}.branch_{branch}").cache().count()

    yield cache
    lake.session.catalog.clearCache()


@pytest.mark.parametrize("branch", ["main", "audit"])
def test_rows_of_others_are_carried_over(lake: Lake, cached: Any, branch: str) -> None:
    metadata = {"partition_expr": "d", "iceberg/partition_by": [], "iceberg/branch": branch}
    asset = frame_asset("t", f"select date'{DAY}' as d, 1 as v", partitions_def=DAYS, metadata=metadata)
    lake.materialize(asset, partition_key=DAY)
    cached("t", branch)
    days = pa.array([dt.date(2024, 1, 1), dt.date(2024, 1, 3)], pa.date32())
    lake.table("t").append(pa.table({"d": days, "v": pa.array([7, 8], pa.int32())}), branch=branch)
    lake.materialize(asset, partition_key=DAY)
    found = lake.table("t").scan().use_ref(branch).to_arrow().column("v").to_pylist()
    assert sorted(found) == [1, 8]


@pytest.mark.since("4.0", "connect")
@pytest.mark.parametrize(
    "rules",
    [{}, {"strategy": "insert_only"}, {"strategy": "delete_insert"}, {"sync": True}, {"strategy": "scd2"}],
    ids=str,
)
def test_a_row_that_another_writer_has_deleted_is_inserted_again(
    lake: Lake, cached: Any, rules: dict[str, Any]
) -> None:
    metadata = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"], "iceberg/merge": rules}
    asset = frame_asset("t", "select * from values (1, 'a'), (2, 'b') as t(id, v)", metadata=metadata)
    lake.materialize(asset)
    cached("t")
    lake.table("t").delete("id = 1")
    lake.materialize(asset)
    assert lake.rows("t", "id") == [1, 2]


def test_rows_that_another_writer_has_added_are_read(lake: Lake, cached: Any) -> None:
    append = {"iceberg/write_disposition": "append"}
    source = frame_asset("source", "select 1 as id", metadata=append)

    @dg.asset(
        io_manager_key="iceberg", metadata=append, ins={"source": dg.AssetIn(metadata={"iceberg/read": "changes"})}
    )
    def log(source: Any) -> Any:
        return source

    @dg.asset(io_manager_key="iceberg")
    def copy(source: Any) -> Any:
        return source

    lake.materialize(source, log, copy)
    cached("source")
    lake.table("source").append(pa.table({"id": pa.array([7], pa.int32())}))
    lake.materialize(source, log, copy, selection=[log, copy])
    assert (lake.rows("log", "id"), lake.rows("copy", "id")) == ([1, 7], [1, 7])

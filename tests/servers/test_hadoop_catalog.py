"""A catalog that is a directory: Spark writes it, pyiceberg reads it."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from dagster_iceberg_spark import HadoopCatalog
from tests.lakes import Lake, frame_asset, metadata_of, open_lake

pytestmark = [pytest.mark.server, pytest.mark.spark]

DAYS = dg.DailyPartitionsDefinition("2024-03-01", timezone="Europe/Berlin")


@pytest.fixture
def hadoop_lake(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    yield from open_lake(HadoopCatalog(warehouse=str(tmp_path / "wh")), tmp_path, remote)


@pytest.mark.sample(4)
@pytest.mark.parametrize("disposition", ["replace", "append", "merge"])
def test_every_disposition_commits_once(hadoop_lake: Lake, disposition: str) -> None:
    read: list[list[int]] = []

    @dg.asset
    def by_spark(t: DataFrame) -> None:
        read.append(sorted(row.id for row in t.collect()))

    @dg.asset
    def by_pyiceberg(t: pa.Table) -> None:
        read.append(sorted(t.column("id").to_pylist()))

    metadata = {"iceberg/write_disposition": disposition, "iceberg/merge_keys": ["id"]}
    table = frame_asset("t", "select id from range(3)", metadata=metadata)
    first, second = (hadoop_lake.materialize(table, by_spark, by_pyiceberg) for _ in range(2))
    twice = sorted([0, 1, 2] * (2 if disposition == "append" else 1))
    assert read == [[0, 1, 2]] * 2 + [twice] * 2
    assert len(hadoop_lake.summaries("t")) == 2
    parent = metadata_of(second, "t")["iceberg/parent_snapshot_id"]
    assert parent == metadata_of(first, "t")["iceberg/snapshot_id"]


def test_columns_and_properties_change_under_it(hadoop_lake: Lake) -> None:
    hadoop_lake.materialize(frame_asset("t", "select 1 as id"))
    metadata = {"iceberg/table_properties": {"a": "b"}, "iceberg/partition_by": ["bucket(4, id)"]}
    hadoop_lake.materialize(frame_asset("t", "select 2L as id, 'x' as name", metadata=metadata))
    table = hadoop_lake.table("t")
    assert [str(field.field_type) for field in table.schema().fields] == ["long", "string"]
    assert table.properties["a"] == "b"
    assert [str(field.transform) for field in table.spec().fields] == ["bucket[4]"]
    assert hadoop_lake.rows("t", "id") == [2]

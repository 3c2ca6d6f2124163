"""Tables on HDFS: Spark by Hadoop's client, reads without a JVM by hdfs-native, with no Hadoop on the machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pyarrow as pa
import pytest

from dagster_iceberg_spark import HadoopCatalog, HadoopStore, SqlCatalog
from tests.lakes import Lake, frame_asset, open_lake
from tests.servers.hdfs import HdfsServer
from tests.servers.reading import readers_into

pytestmark = [pytest.mark.server, pytest.mark.spark]

HADOOP_HA = "org.apache.hadoop.hdfs.server.namenode.ha"


def catalogs(hdfs: HdfsServer, directory: Path) -> dict[str, Any]:
    """Each with a directory of its own there; the last names a service, of which its configuration says where it is."""
    own, sqlite = f"{hdfs.uri}{directory}", f"sqlite:///{directory}/catalog.db"
    service = {
        "dfs.nameservices": "lake",
        "dfs.ha.namenodes.lake": "one",
        "dfs.namenode.rpc-address.lake.one": hdfs.uri.removeprefix("hdfs://"),
        "dfs.client.failover.proxy.provider.lake": f"{HADOOP_HA}.ConfiguredFailoverProxyProvider",
    }
    return {
        "hadoop": HadoopCatalog(warehouse=f"{own}/h"),
        "sql": SqlCatalog(uri=sqlite, warehouse=f"{own}/s"),
        "service": SqlCatalog(
            uri=sqlite, warehouse=f"hdfs://lake{directory}/d", store=HadoopStore(configuration=service)
        ),
    }


@pytest.fixture(params=["hadoop", "sql", "service"])
def hdfs_lake(engine: str, request: pytest.FixtureRequest, tmp_path: Path, hdfs: HdfsServer) -> Iterator[Lake]:
    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    yield from open_lake(catalogs(hdfs, tmp_path)[request.param], tmp_path, remote)


@pytest.mark.sample(2)
def test_every_disposition_is_written_and_read_by_both_engines(hdfs_lake: Lake) -> None:
    read: dict[str, list[int]] = {}

    @dg.asset
    def lazy_frame(t: pl.LazyFrame) -> None:
        read["lazy polars"] = sorted(t.filter(pl.col("id") < 10).collect()["id"].to_list())

    readers = (*readers_into(read), lazy_frame)

    for disposition, expected in {"replace": [0, 1, 2], "append": [0, 0, 1, 1, 2, 2]}.items():
        metadata = {"iceberg/write_disposition": disposition, "iceberg/partition_by": ["id"]}
        table = frame_asset("t", "select id from range(3)", metadata=metadata)
        hdfs_lake.materialize(table, *readers)
        assert read == dict.fromkeys(("spark", "pyarrow", "pandas", "polars", "lazy polars"), expected)
        read.clear()
    merge = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"], "iceberg/merge": {"sync": True}}
    hdfs_lake.materialize(frame_asset("m", "select id from range(3)", metadata=merge))
    hdfs_lake.materialize(frame_asset("m", "select id from range(1, 5)", metadata=merge))
    assert sorted(hdfs_lake.rows("m", "id")) == [1, 2, 3, 4]
    assert len(hdfs_lake.summaries("t")) == 2
    assert len(hdfs_lake.summaries("m")) == 2


@pytest.mark.parametrize("hdfs_lake", ["hadoop"], indirect=True)
def test_a_file_system_that_is_away_loses_nothing(hdfs_lake: Lake, hdfs: HdfsServer) -> None:
    hdfs_lake = hdfs_lake.with_options(commit_attempts=1)
    hdfs_lake.materialize(frame_asset("t", "select 1 as id"))

    @dg.asset
    def reader(t: pa.Table) -> None: ...

    hdfs.kill()
    try:
        for error in (
            hdfs_lake.failure(frame_asset("t", "select 2 as id")),
            hdfs_lake.failure(reader, frame_asset("t", "select 2 as id").to_source_asset(), selection=[reader]),
        ):
            assert error.class_name == "CatalogUnavailableError"
    finally:
        hdfs.start()
    assert hdfs_lake.rows("t", "id") == [1]
    hdfs_lake.materialize(frame_asset("t", "select 2 as id"))
    assert hdfs_lake.rows("t", "id") == [2]

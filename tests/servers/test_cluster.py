"""A standalone cluster, classic in client mode and over Spark Connect, which may lose an executor while it writes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog
from dagster_iceberg_spark.resource import SESSIONS
from dagster_iceberg_spark.spark.read import frames
from dagster_iceberg_spark.spark.versions.spark_4_1 import Spark41
from tests.lakes import CONNECT_CONF, JARS, SPARK_CONF, ConnectServer, Lake, frame_asset, while_it_writes
from tests.servers.cluster import SparkCluster

pytestmark = [pytest.mark.cluster, pytest.mark.server, pytest.mark.spark]

EXECUTORS = {
    "spark.executor.memory": "700m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.storage.cachedPeersTtl": "0",  # executors that have just replaced others take copies
    "spark.driver.memory": "1g",
    "spark.jars.packages": ",".join(JARS),
}
ROWS = "select id, id + {plus} as v from range(0, {rows}, 1, 4)"
SLOW = "select id, java_method('java.lang.Thread', 'sleep', 100L) is null as v from range(0, 60, 1, 6)"
WRITES: dict[str, dict[str, Any]] = {
    "replace": {"iceberg/write_disposition": "replace"},
    "append": {"iceberg/write_disposition": "append"},
    "merge": {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]},
    "scd2": {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"], "iceberg/merge": {"strategy": "scd2"}},
    "overwrite_partitions": {
        "iceberg/write_disposition": "overwrite_partitions",
        "iceberg/partition_by": ["bucket(4, id)"],
    },
    "replace_where": {
        "iceberg/write_disposition": "merge",
        "iceberg/merge": {"strategy": "replace_where", "where": "id >= 0"},
    },
}
TWICE = {"append": 200, "scd2": 200}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    SESSIONS.close_all()
    cluster.close()


@pytest.fixture(scope="module")
def server_of_cluster(cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = ConnectServer(tmp_path_factory.mktemp("connect"), {**EXECUTORS, "spark.master": cluster.address})
    try:
        server.start()
        yield server.address
    finally:
        server.kill()


@pytest.fixture
def lake(engine: str, cluster: SparkCluster, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """An empty lake, whose warehouse stands for a store that driver and executors share.

    The classic session has the jars that `jars="maven"` chooses. Those of the server are provided.
    """
    remote = request.getfixturevalue("server_of_cluster") if engine == "connect" else None
    chosen = {key: value for key, value in {**SPARK_CONF, **EXECUTORS}.items() if key != "spark.jars.packages"}
    conf = CONNECT_CONF if remote else {**chosen, "spark.master": cluster.address}
    catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh"))
    jars: Any = "provided" if remote else "maven"
    spark = IcebergSparkResource(catalog=catalog, spark_config=conf, remote=remote, jars=jars)
    with dg.DagsterInstance.ephemeral() as instance:
        lake = Lake(spark, IcebergPySparkIOManager(spark=spark, namespace="db"), instance, tmp_path)
        cluster.wait_for_executors(lake.session)
        yield lake
    SESSIONS.release(id(spark), stops_when_unused="yes" if remote else "no")


def write(lake: Lake, disposition: str, *, plus: int) -> None:
    query = ROWS.format(plus=plus, rows=100)
    lake.materialize(frame_asset("t", query, metadata=WRITES[disposition]))


def assert_one_snapshot(lake: Lake, disposition: str) -> None:
    [summary] = lake.summaries("t")
    assert summary["dagster.asset_key"] == "t"
    assert summary["dagster.write_disposition"] == disposition


def after_first(method: str, fault: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Trigger the fault once the engine has stored rows for the first time. Return what was triggered."""
    original = getattr(Spark41, method)
    done: list[str] = []

    def stored(*args: Any) -> Any:
        frame = original(*args)
        if not done:
            done.append(method)
            fault()
        return frame

    monkeypatch.setattr(Spark41, method, stored)
    return done


@pytest.mark.parametrize("disposition", WRITES)
def test_each_disposition_writes_on_a_cluster(lake: Lake, disposition: str) -> None:
    write(lake, disposition, plus=0)
    write(lake, disposition, plus=1)
    assert len(lake.rows("t", "id")) == TWICE.get(disposition, 100)
    recorded = WRITES[disposition]["iceberg/write_disposition"]
    assert [summary["dagster.write_disposition"] for summary in lake.summaries("t")] == [recorded] * 2


@pytest.mark.parametrize("disposition", ["replace", "merge"])
def test_an_executor_killed_while_it_writes_costs_no_rows(
    lake: Lake, cluster: SparkCluster, disposition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_it_writes(lambda: cluster.kill_an_executor(lake.session), monkeypatch, seconds=1.0)
    lake.materialize(frame_asset("t", SLOW, metadata=WRITES[disposition]))
    assert lake.rows("t", "id") == list(range(60))
    assert_one_snapshot(lake, disposition)


def test_an_executor_killed_after_a_checkpoint_costs_no_rows(
    lake: Lake, cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(lake, "merge", plus=0)
    killed = after_first("checkpoint", lambda: cluster.kill_an_executor(lake.session), monkeypatch)
    write(lake, "merge", plus=1)
    assert killed
    assert lake.rows("t", "id", "v") == [(number, number + 1) for number in range(100)]
    assert [summary["dagster.write_disposition"] for summary in lake.summaries("t")] == ["merge"] * 2


@pytest.mark.parametrize("way", ["staged", "sent"])
def test_an_executor_killed_while_a_stream_arrives_costs_no_rows(
    lake: Lake, cluster: SparkCluster, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dg.asset(io_manager_key="iceberg", metadata={"iceberg/engine": "spark"})
    def t() -> pa.RecordBatchReader:
        batches = [
            pa.record_batch({"id": pa.array(range(n * 10, n * 10 + 10)), "v": ["x" * 400_000] * 10}) for n in range(10)
        ]
        return pa.RecordBatchReader.from_batches(batches[0].schema, batches)

    def kill() -> None:
        cluster.kill_an_executor(lake.session)

    if way == "sent":
        monkeypatch.setattr(frames, "warehouse_of", lambda _: None)
        killed = after_first("on_disk", kill, monkeypatch)
    else:
        killed = after_first("overwrite_filter", kill, monkeypatch)
    lake.materialize(t)
    assert killed
    assert lake.rows("t", "id") == list(range(100))
    assert_one_snapshot(lake, "replace")

"""A Spark Connect server that dies, or cannot be reached, while it writes: every row is there once in the end."""

import _thread
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql.connect.client import core
from pyspark.sql.connect.client.retries import DefaultPolicy

from dagster_iceberg_spark import SqlCatalog
from dagster_iceberg_spark.commit import outcome
from dagster_iceberg_spark.spark.write import engine, execution, writer
from tests.lakes import ConnectServer, Lake, error_of, frame_asset, metadata_of, open_lake, resuming, while_it_writes
from tests.servers.relay import Relay

pytestmark = [
    pytest.mark.server,
    pytest.mark.spark,
    pytest.mark.connect,
    pytest.mark.filterwarnings(r"ignore:\[RETRIES_EXCEEDED\]"),
]

ROWS = 40
SLOW = "select id, java_method('java.lang.Thread', 'sleep', {milliseconds}L) is null as v from range(0, {rows}, 1, 2)"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    server = ConnectServer(tmp_path_factory.mktemp("lost"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def relay(server: ConnectServer) -> Iterator[Relay]:
    relay = Relay(server.port)
    yield relay
    relay.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that gives a silent server up in a second instead of ten minutes."""
    monkeypatch.setattr(core, "DefaultPolicy", partial(DefaultPolicy, max_retries=3, max_backoff=200))


@pytest.fixture
def lake(relay: Relay, impatient: None, kept_instance: dg.DagsterInstance, tmp_path: Path) -> Iterator[Lake]:
    catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh"))
    for lake in open_lake(catalog, tmp_path, f"sc://127.0.0.1:{relay.port}"):
        lake.instance = kept_instance
        yield lake
        relay.mend()


def slow_asset(disposition: str, *, seconds: float) -> dg.AssetsDefinition:
    """An asset whose write takes so long, on two cores."""
    metadata = {"iceberg/write_disposition": disposition, "iceberg/merge_keys": ["id"]}
    query = SLOW.format(milliseconds=int(seconds * 2000 / ROWS), rows=ROWS)
    return frame_asset("t", query, metadata=metadata)


def assert_written_once(lake: Lake) -> None:
    assert lake.rows("t", "id") == list(range(ROWS))
    assert len(lake.summaries("t")) == 1


@pytest.mark.parametrize("disposition", ["replace", "append"])
def test_a_write_that_the_server_goes_on_with_is_found_again(
    lake: Lake, relay: Relay, disposition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "SETTLING_SECONDS", [1.0] * 60)
    while_it_writes(relay.cut, monkeypatch, seconds=1.0)
    result = lake.materialize(slow_asset(disposition, seconds=3))
    relay.mend()
    assert_written_once(lake)
    assert metadata_of(result, "t")["iceberg/retries"] == 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("disposition", ["merge", "append", "replace"])
def test_a_write_is_stopped_where_the_server_comes_back_and_made_again(
    lake: Lake, relay: Relay, disposition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = outcome.resolve_lost_answer

    def resolve(*args: Any, **kwargs: Any) -> Any:
        relay.mend()
        monkeypatch.setattr(engine, "write", writer.write)
        return original(*args, **kwargs)

    monkeypatch.setattr(outcome, "resolve_lost_answer", resolve)
    while_it_writes(relay.cut, monkeypatch, seconds=1.0)
    result = lake.materialize(slow_asset(disposition, seconds=15))
    assert_written_once(lake)
    assert metadata_of(result, "t")["iceberg/retries"] == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("disposition", ["replace", "append", "merge"])
def test_a_server_that_is_killed_leaves_an_unknown_outcome_and_a_resumed_run_writes_once(
    lake: Lake, server: ConnectServer, disposition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_it_writes(server.kill, monkeypatch, seconds=1.0)
    asset = slow_asset(disposition, seconds=3)
    failed = lake.materialize(asset, raise_on_error=False)
    assert error_of(failed).class_name == "CommitOutcomeUnknownError"
    assert lake.rows("t", "id") == []
    server.start()
    monkeypatch.setattr(core, "DefaultPolicy", DefaultPolicy)  # grpc waits a while before it tries an address again
    lake.materialize(asset, tags=resuming(failed.run_id))
    assert_written_once(lake)


def test_a_write_that_is_interrupted_while_its_server_is_gone_does_not_wait_for_it(
    lake: Lake, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the client is as patient as pyspark makes it."""
    monkeypatch.setattr(core, "DefaultPolicy", DefaultPolicy)
    monkeypatch.setattr(execution, "STOP_SECONDS", 3.0)
    lines: list[str] = []
    monkeypatch.setattr(dg.DagsterLogManager, "info", lambda _, line: lines.append(line))

    def lose() -> None:
        relay.cut()
        _thread.interrupt_main()

    while_it_writes(lose, monkeypatch, seconds=1.0)
    asset = slow_asset("append", seconds=15)
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        lake.materialize(asset)
    [line] = [line for line in lines if line.startswith("Interrupted")]
    assert "could not be stopped within 3 s; it may commit" in line
    relay.mend()
    [interrupted] = lake.instance.get_runs(limit=1)
    lake.materialize(asset, tags=resuming(interrupted.run_id))
    assert_written_once(lake)


@pytest.mark.parametrize("last", ["pass", "SESSIONS.close_all()"])
def test_a_process_whose_server_is_gone_ends(last: str, relay: Relay, tmp_path: Path) -> None:
    """Once nothing of its requests is under way any more: what waits for an answer then is pyspark's to end."""
    program = """
import sys
from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator
from dagster_iceberg_spark import IcebergSparkResource, SqlCatalog
from dagster_iceberg_spark.resource import SESSIONS
catalog = SqlCatalog(uri=f"sqlite:///{sys.argv[2]}/c.db", warehouse=sys.argv[2])
resource = IcebergSparkResource(catalog=catalog, remote=sys.argv[1])
with resource.iceberg_session.sibling({}) as beside:
    count = beside.range(1).count()
ExecutePlanResponseReattachableIterator.shutdown()
print(count, flush=True)
input()
exec(sys.argv[3])
"""
    command = [sys.executable, "-W", "ignore", "-c", program, f"sc://127.0.0.1:{relay.port}", str(tmp_path), last]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        relay.cut()
        process.communicate("\n", timeout=120)
        assert process.returncode == 0
    finally:
        process.kill()

"""A write that is interrupted stops its work on the engine, commits nothing, and leaves the session usable."""

import _thread
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark import IcebergPySparkIOManager
from tests.lakes import Lake, frame_asset, while_it_writes

pytestmark = pytest.mark.spark

SLOW = "select id, java_method('java.lang.Thread', 'sleep', 20L) is null as v from range(0, 200, 1, 2)"
DISPOSITIONS = ["replace", "append", "merge"]


def slow_asset(disposition: str, **kwargs: Any) -> dg.AssetsDefinition:
    """An asset whose write takes some two seconds."""
    metadata = {"iceberg/write_disposition": disposition, "iceberg/merge_keys": ["id"]}
    return frame_asset("t", SLOW, metadata=metadata, **kwargs)


def wait_until_idle(directory: Path) -> None:
    """Wait until no file of data comes or goes any more: tasks that are cancelled clean up behind themselves."""
    known: set[Path] | None = None
    while (found := set(directory.glob("**/*.parquet"))) != known:
        known = found
        time.sleep(1.0)


@pytest.mark.by_spark
@pytest.mark.each_engine("all")
@pytest.mark.feature("a cancelled run commits nothing")
@pytest.mark.parametrize("disposition", DISPOSITIONS)
def test_a_cancelled_run_commits_nothing_and_leaves_the_session_usable(
    lake: Lake, disposition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.materialize(frame_asset("t", "select -1L as id, true as v"))
    before = lake.summaries("t")
    while_it_writes(_thread.interrupt_main, monkeypatch, seconds=0.5)
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        lake.materialize(slow_asset(disposition))
    wait_until_idle(lake.directory)
    assert lake.summaries("t") == before
    assert lake.session.range(3).count() == 3
    assert lake.materialize(frame_asset("t", "select 1L as id, true as v")).success
    assert lake.rows("t", "id") == [1]


class TimeIsUpError(Exception):
    """What a step's own timeout raises."""


@pytest.mark.by_spark
@pytest.mark.full
@pytest.mark.parametrize("disposition", DISPOSITIONS)
def test_a_step_that_times_out_is_retried_and_commits_once(
    lake: Lake, disposition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def time_out(*_: Any) -> None:
        raise TimeIsUpError

    before = signal.signal(signal.SIGALRM, time_out)
    try:
        while_it_writes(lambda: signal.raise_signal(signal.SIGALRM), monkeypatch, seconds=0.5)
        result = lake.materialize(slow_asset(disposition, retry_policy=dg.RetryPolicy(max_retries=1)))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert result.success
    assert lake.rows("t", "id") == list(range(200))
    assert len(lake.summaries("t")) == 1


@pytest.mark.by_spark
@pytest.mark.full
def test_the_log_says_what_became_of_an_interrupted_write(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(dg.DagsterLogManager, "info", lambda _, line: lines.append(line))
    while_it_writes(_thread.interrupt_main, monkeypatch, seconds=0.5)
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        lake.materialize(slow_asset("replace"))
    assert "Interrupted: the write of db.t is stopped, nothing is committed." in lines


@pytest.mark.full
def test_threads_and_io_managers_on_one_session_do_not_mix_their_snapshot_properties(lake: Lake) -> None:
    """Two IO managers, four threads each, every disposition."""
    managers = [lake.io_manager, IcebergPySparkIOManager(spark=lake.spark, namespace="other")]

    def write(number: int) -> tuple[str, str]:
        name, manager = f"t{number}", managers[number % 2]
        metadata = {"iceberg/write_disposition": DISPOSITIONS[number % 3], "iceberg/merge_keys": ["id"]}
        runs = []
        with dg.DagsterInstance.ephemeral() as instance:
            for _ in range(2):
                asset = frame_asset(name, f"select {number}L as id", metadata=metadata)
                mine = Lake(lake.spark, manager, instance, lake.directory)
                runs.append(mine.materialize(asset).run_id)
        return name, runs[-1]

    lake.session.range(1).count()
    with ThreadPoolExecutor(4) as pool:
        written = dict(pool.map(write, range(8)))
    for number, (name, run_id) in enumerate(sorted(written.items())):
        table = lake.table(name, namespace=("db", "other")[number % 2])
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        assert snapshot.summary["dagster.run_id"] == run_id
        assert snapshot.summary["dagster.asset_key"] == name
        assert snapshot.summary["dagster.write_disposition"] == DISPOSITIONS[number % 3]

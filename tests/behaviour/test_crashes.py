"""A step's process is killed at each boundary of a write, and the work is started again: the rows are there once."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark.resource import SESSIONS
from tests.behaviour import crashing
from tests.behaviour.crashing import POINTS, ROWS, Crash
from tests.conftest import CONNECT_CONF, SPARK_CONF

pytestmark = pytest.mark.spark

BOUNDARIES = [point for point in POINTS if point != "at some time"]
CHILD_SECONDS = 120


@pytest.fixture
def crash(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Crash]:
    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    crash = Crash(str(tmp_path), remote=remote, spark_config=tuple((CONNECT_CONF if remote else SPARK_CONF).items()))
    yield crash
    # The sessions that runs in this process have opened on the server.
    if remote is not None:
        SESSIONS.close_all()


def run_in_child(crash: Crash) -> int:
    command = [sys.executable, "-W", "ignore", "-m", "tests.behaviour.crashing"]
    top = Path(__file__).parents[2]
    child = subprocess.run(
        command, env=crash.environment, cwd=top, capture_output=True, text=True, check=False, timeout=CHILD_SECONDS
    )
    assert child.returncode in (-signal.SIGKILL, 0), child.stdout[-2000:] + child.stderr[-4000:]
    return child.returncode


def report_dead_run(crash: Crash) -> str:
    """Mark the run as failed, as Dagster's run monitoring does when a run's process is gone."""
    with dg.DagsterInstance.local_temp(crash.instance) as instance:
        [run] = instance.get_runs()
        instance.report_run_failed(run)
        return run.run_id


def summaries(crash: Crash) -> list[Any]:
    table = crash.resources()["spark"].pyiceberg_catalog.load_table(("db", crashing.ASSET))
    return [
        snapshot for snapshot in table.snapshots() if "dagster.commit_token" in snapshot.summary.additional_properties
    ]


def rows(crash: Crash) -> list[int]:
    table = crash.resources()["spark"].pyiceberg_catalog.load_table(("db", crashing.ASSET))
    return sorted(table.scan().to_arrow().column("id").to_pylist())


def recorded(crash: Crash) -> list[str]:
    """The snapshots that Dagster has materializations of."""
    with dg.DagsterInstance.local_temp(crash.instance) as instance:
        records = instance.fetch_materializations(dg.AssetKey(crashing.ASSET), limit=100).records
        found = [record.asset_materialization for record in records]
        return [str(item.metadata["iceberg/snapshot_id"].value) for item in found if item is not None]


def assert_once(crash: Crash) -> None:
    assert rows(crash) == list(range(ROWS))
    [snapshot] = summaries(crash)
    assert set(recorded(crash)) == {str(snapshot.snapshot_id)}


@pytest.mark.parametrize("point", BOUNDARIES)
def test_a_killed_step_that_its_policy_retries_commits_once(crash: Crash, point: str) -> None:
    crash = replace(crash, point=point, retries=1)
    assert run_in_child(crash) == 0
    assert crash.mark.exists()
    assert_once(crash)


@pytest.mark.parametrize("point", BOUNDARIES)
def test_a_killed_run_that_is_executed_again_from_its_failure_commits_once(crash: Crash, point: str) -> None:
    run_in_child(replace(crash, point=point))
    assert crash.mark.exists()
    assert crashing.run(crash, resumes=report_dead_run(crash)).success
    assert_once(crash)

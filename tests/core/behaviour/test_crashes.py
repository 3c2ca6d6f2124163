"""A step's process is killed at each boundary of a write, and the work is started again: the rows are there once."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark.resource import SESSIONS
from tests.core.behaviour import crashing
from tests.core.behaviour.crashing import POINTS, ROWS, Crash
from tests.lakes import CONNECT_CONF, SPARK_CONF

pytestmark = pytest.mark.spark

BOUNDARIES = [point for point in POINTS if point not in ("at some time", "while the commit waits")]
CHILD_SECONDS = 280
SECOND_ATTEMPT_SECONDS = 8
CRASHES = int(os.environ.get("CRASHES", "60"))
"""How many random crash points the long run draws."""


@pytest.fixture
def crash(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Crash]:
    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    crash = Crash(str(tmp_path), remote=remote, spark_config=tuple((CONNECT_CONF if remote else SPARK_CONF).items()))
    yield crash
    SESSIONS.close_all()


only_connect = pytest.mark.parametrize(
    "engine", [pytest.param("connect", marks=pytest.mark.connect)], indirect=True, scope="session"
)


def run_in_child(crash: Crash, program: str = "tests.core.behaviour.crashing") -> int:
    command = [sys.executable, "-W", "ignore", "-m", program]
    output = Path(crash.directory, "child.log")
    with output.open("w") as log:  # not a pipe, which what a killed process has started may hold open
        child = subprocess.run(
            command,
            env=crash.environment,
            cwd=Path(__file__).parents[3],
            stdout=log,
            stderr=log,
            check=False,
            timeout=CHILD_SECONDS,
        )
    assert child.returncode in (-signal.SIGKILL, 0), output.read_text()[-6000:]
    return child.returncode


def report_dead_run(crash: Crash) -> str:
    """Mark the run as failed, as Dagster's run monitoring does when a run's process is gone."""
    with dg.DagsterInstance.local_temp(crash.instance) as instance:
        [run] = instance.get_runs(limit=1)
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


def assert_once_or_repeated(crash: Crash) -> None:
    """Rows that Dagster has recorded may be replaced or merged again by the next run, but not appended."""
    assert rows(crash) == list(range(ROWS))
    assert recorded(crash)
    tokens = [item.summary.additional_properties["dagster.commit_token"] for item in summaries(crash)]
    assert len(tokens) == len(set(tokens)) <= (1 if crash.disposition == "append" else 2)
    assert {str(item.snapshot_id) for item in summaries(crash)} >= set(recorded(crash))


def of_engines(quick: Mapping[str, Sequence[str]]) -> list[Any]:
    """Each boundary under each engine; those that are not quick are left to the long run."""
    return [
        pytest.param(engine, point, marks=[*marks, *([] if point in quick[engine] else [pytest.mark.slow])])
        for engine, marks in (("classic", []), ("connect", [pytest.mark.connect]))
        for point in BOUNDARIES
    ]


@pytest.mark.parametrize(
    ("engine", "point"),
    of_engines({"classic": (), "connect": ("while files are written", "before the record")}),
    indirect=["engine"],
)
def test_a_killed_step_that_its_policy_retries_commits_once(crash: Crash, point: str) -> None:
    crash = replace(crash, point=point, retries=1)
    assert run_in_child(crash) == 0
    assert crash.mark.exists()
    assert_once(crash)


@pytest.mark.each_engine
@pytest.mark.sample(5)
@pytest.mark.feature("a killed run is executed again")
@pytest.mark.parametrize(
    ("engine", "point"),
    of_engines({"classic": ("before the commit", "after the commit"), "connect": BOUNDARIES}),
    indirect=["engine"],
)
def test_a_killed_run_that_is_executed_again_from_its_failure_commits_once(crash: Crash, point: str) -> None:
    run_in_child(replace(crash, point=point))
    assert crash.mark.exists()
    assert crashing.resume(crash, report_dead_run(crash))
    assert_once(crash)


@only_connect
def test_the_next_attempt_waits_for_a_commit_that_a_killed_step_left_on_the_server(crash: Crash) -> None:
    """The catalog makes the first attempt's commit wait until the second one has begun."""
    assert crashing.run_here(crash)
    lock = crashing.locked(crash)

    def let_go() -> None:
        while not crash.mark.exists():
            time.sleep(0.1)
        time.sleep(SECOND_ATTEMPT_SECONDS)
        lock.rollback()

    thread = threading.Thread(target=let_go)
    thread.start()
    assert run_in_child(replace(crash, point="while the commit waits", retries=1)) == 0
    thread.join()
    lock.close()
    assert rows(crash) == sorted([*range(ROWS)] * 2)
    assert len(summaries(crash)) == len(set(recorded(crash))) == 2


@only_connect
def test_a_new_run_after_a_killed_one_is_a_new_append(crash: Crash) -> None:
    run_in_child(replace(crash, point="after the commit"))
    report_dead_run(crash)
    assert crashing.run_here(crash)
    assert rows(crash) == sorted([*range(ROWS)] * 2)
    assert len(summaries(crash)) == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(CRASHES))
def test_a_run_that_is_killed_at_some_time_and_resumed_leaves_its_rows_once(
    number: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Three of four over Spark Connect, where the server goes on; the resumed run races it."""
    drawn = random.Random(number)
    is_classic = number % 4 == 0
    crash = Crash(
        str(tmp_path),
        point="at some time",
        remote=None if is_classic else request.getfixturevalue("connect_server"),
        spark_config=tuple((SPARK_CONF if is_classic else CONNECT_CONF).items()),
        disposition=drawn.choice(["append", "append", "replace", "merge"]),
        seconds=drawn.uniform(0.0, 2.0),
        sleep=drawn.choice([0, 10, 30]),
    )
    if run_in_child(crash) != 0:
        assert crashing.resume(replace(crash, point="never"), report_dead_run(crash))
    SESSIONS.close_all()
    assert_once_or_repeated(crash)

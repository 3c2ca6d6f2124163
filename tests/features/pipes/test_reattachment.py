"""Jobs that outlive their run, and jobs that hang after their commit.

docs/pipes.md: After a crash
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark import IcebergPipes, ReattachableSubprocessClient
from dagster_iceberg_spark.features.pipes.watch import CommitWatch
from tests.core.arrow.writing import ArrowLake
from tests.features.pipes.test_pipes import command, commits, job_asset, lake, resources  # noqa: F401
from tests.test_docs import CHECKOUT

pytestmark = pytest.mark.full
SECONDS = 60


def wait_until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("nothing has happened")


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2]
    except FileNotFoundError:
        return False
    return not state.startswith("Z")


@contextmanager
def location(directory: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Materialize the asset in a process of its own."""
    arguments = [sys.executable, "-m", "tests.features.pipes.location", str(directory), *command("wait_and_write")]
    env = {**os.environ, "LAKE_AT": str(directory), "DISPOSITION": "append", **environment}
    process = subprocess.Popen(arguments, cwd=CHECKOUT, env=env)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def started(directory: Path, number: int = 1) -> list[list[int]]:
    """Wait for jobs, and return the processes of each."""
    paths = wait_until(lambda: found if len(found := [*directory.glob("started-*")]) >= number else None)
    return [[int(part) for part in path.name.split("-")[1:]] for path in paths]


def run_of(lake: ArrowLake) -> str:  # noqa: F811
    [record] = lake.instance.get_runs()
    return record.run_id


@pytest.mark.parametrize(("without_handles", "jobs"), [("", 1), ("yes", 2)])
def test_a_job_outlives_its_run_and_commits_once(lake: ArrowLake, without_handles: str, jobs: int) -> None:  # noqa: F811
    """A second run waits for the job. If it cannot, it launches another, and one of the two adopts."""
    with location(lake.directory, WITHOUT_HANDLES=without_handles) as first:
        started(lake.directory)
        first.kill()
        first.wait()
    with location(lake.directory, WITHOUT_HANDLES=without_handles, PARENT=run_of(lake)) as second:
        if jobs == 1:
            wait_until(lambda: any("Waiting for the job" in line for line in log_of(lake)))
        launched = started(lake.directory, jobs)
        (lake.directory / "go").touch()
        assert second.wait(SECONDS) == 0
    assert len(launched) == len([*lake.directory.glob("started-*")]) == jobs
    wait_until(lambda: not any(runs(pid) for pids in launched for pid in pids))
    assert (lake.rows("v"), commits(lake)) == ([1, 2, 3], 1)


def log_of(lake: ArrowLake) -> list[str]:  # noqa: F811
    logs = [lake.instance.all_logs(record.run_id) for record in lake.instance.get_runs()]
    return [entry.user_message for entries in logs for entry in entries]


def test_a_run_that_is_terminated_ends_its_job_with_all_processes(lake: ArrowLake) -> None:  # noqa: F811
    with location(lake.directory) as process:
        [pids] = started(lake.directory)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) != 0
    wait_until(lambda: not any(runs(pid) for pid in pids))
    assert not lake.spark.pyiceberg_catalog.table_exists(("db", "t"))


@pytest.mark.parametrize("client_type", [dg.PipesSubprocessClient, ReattachableSubprocessClient])
def test_a_job_that_hangs_after_its_commit_is_ended(lake: ArrowLake, client_type: Any) -> None:  # noqa: F811
    given = {
        **resources(lake),
        "client": client_type(cwd=str(CHECKOUT)),
        "lake": IcebergPipes(watch_seconds=0.2, ends_after_seconds=0.5),
    }
    result = dg.materialize([job_asset("write_and_hang")], resources=given, instance=lake.instance)
    assert result.success
    assert (lake.rows("v"), commits(lake)) == ([1, 2, 3], 1)
    assert any("is ended" in line for line in log_of(lake))


def test_a_watch_interrupts_nothing_after_the_job_has_ended() -> None:
    lines = list[str]()

    def short() -> str:
        time.sleep(0.001)
        return "by itself"

    ended = set[str | None]()
    for _ in range(300):
        watch = CommitWatch(lambda: True, lines.append, interval_seconds=0.001, ends_after_seconds=0.0)
        ended.add(watch.run(short))
        time.sleep(0)
    assert ended == {None, "by itself"}
    assert "committed" in "".join(lines)

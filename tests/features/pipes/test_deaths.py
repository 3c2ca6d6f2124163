"""Either side is killed, at each point and at random: nothing is lost, nothing is doubled.

docs/pipes.md: After a crash
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from tests.core.arrow.writing import ArrowLake
from tests.features.pipes.deaths import JOB_POINTS, LOCATION_POINTS
from tests.features.pipes.test_pipes import command, commits
from tests.features.pipes.test_reattachment import SECONDS, runs, wait_until
from tests.test_docs import CHECKOUT

pytestmark = [pytest.mark.full, pytest.mark.processes]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[ArrowLake]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield ArrowLake(tmp_path, instance)


@dataclass
class Story:
    """The attempts to materialize the asset. Each run resumes the one before."""

    lake: ArrowLake
    disposition: str

    def start(self, **environment: str) -> subprocess.Popen[bytes]:
        directory, found = self.lake.directory, self.lake.instance.get_runs()
        arguments = [sys.executable, "-m", "tests.features.pipes.location", str(directory), *command("write_noted")]
        last = {"PARENT": found[0].run_id, "ROOT": found[-1].run_id} if found else {}
        given = {"LAKE_AT": str(directory), "DISPOSITION": self.disposition, **last, **environment}
        output = subprocess.DEVNULL
        return subprocess.Popen(arguments, cwd=CHECKOUT, env={**os.environ, **given}, stdout=output, stderr=output)

    def run(self, **environment: str) -> bool:
        """Run to the end, and return whether the run has succeeded."""
        process = self.start(**environment)
        try:
            return process.wait(SECONDS) == 0
        finally:
            process.kill()

    @property
    def jobs(self) -> list[int]:
        return [int(path.name.rpartition("-")[2]) for path in self.lake.directory.glob("noted-*")]

    def require_once(self) -> None:
        """Wait until no job runs that an attempt has left. The rows are there once."""
        wait_until(lambda: not any(map(runs, self.jobs)))
        assert (self.lake.rows("v"), commits(self.lake)) == ([1, 2, 3], 1)


@pytest.mark.parametrize("point", JOB_POINTS)
def test_a_job_that_dies_at_a_point_has_appended_once_or_not_at_all(lake: ArrowLake, point: str) -> None:
    story = Story(lake, "append")
    assert story.run(JOB_DIES=point) == JOB_POINTS[point]
    assert story.run()
    story.require_once()


@pytest.mark.parametrize("disposition", ["append", pytest.param("replace", marks=pytest.mark.slow)])
@pytest.mark.parametrize("point", LOCATION_POINTS)
def test_a_run_that_dies_at_a_point_is_resumed(lake: ArrowLake, point: str, disposition: str) -> None:
    story = Story(lake, disposition)
    assert not story.run(DIES=point)
    assert story.run()
    story.require_once()


def endure(lake: ArrowLake, seed: int) -> int:
    """Kill the job, the run or both at random, several times. Then let an attempt succeed. Return how many died."""
    choose, story, killed = random.Random(seed), Story(lake, "append"), 0
    for _ in range(choose.randint(1, 3)):
        handles = choose.choice([{}, {"WITHOUT_HANDLES": "yes"}])
        process = story.start(**handles)
        time.sleep(choose.uniform(1.5, 5.5))
        victims = choose.choice([["run"], ["job"], ["run", "job"]])
        if "job" in victims:
            for pid in filter(runs, story.jobs):
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
                    killed += 1
        if "run" in victims and process.poll() is None:
            process.kill()
            killed += 1
        if process.wait(SECONDS) == 0:
            break
    else:
        wait_until(story.run)
    story.require_once()
    return killed


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.slow if seed else ()) for seed in range(180)])
def test_random_deaths_lose_and_double_nothing(lake: ArrowLake, seed: int) -> None:
    sys.stdout.write(f"killed {endure(lake, seed)}\n")

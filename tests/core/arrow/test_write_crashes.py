"""A process that writes by Arrow is killed at each boundary, and its run is executed again: the rows are there once."""

import os
import random
from pathlib import Path

import pytest

from tests.core.behaviour import crashing
from tests.core.behaviour.crashing import ARROW_POINTS, Crash
from tests.core.behaviour.test_crashes import assert_once, assert_once_or_repeated, report_dead_run, run_in_child

CRASHES = int(os.environ.get("CRASHES", "60"))
"""How many random crash points the long run draws."""


@pytest.mark.full
@pytest.mark.processes
@pytest.mark.sample(20)
@pytest.mark.parametrize(
    ("disposition", "point"),
    [
        *(("append", point) for point in ARROW_POINTS),
        # What is recorded may be replaced again.
        *(
            (disposition, point)
            for disposition in ("replace", "merge")
            for point in ARROW_POINTS
            if point != "after the materialization"
        ),
    ],
)
def test_a_killed_run_that_is_executed_again_commits_once(tmp_path: Path, point: str, disposition: str) -> None:
    crash = Crash(str(tmp_path), point=point, disposition=disposition, by_arrow=True)
    run_in_child(crash)
    assert crash.mark.exists()
    assert crashing.resume(crash, report_dead_run(crash))
    assert_once(crash)


@pytest.mark.slow
def test_a_run_that_is_killed_at_any_time_commits_once(tmp_path: Path) -> None:
    random.seed(CRASHES)
    for number in range(CRASHES):
        directory = tmp_path / str(number)
        directory.mkdir()
        disposition = random.choice(["append", "replace", "overwrite_partitions", "merge"])
        crash = Crash(
            str(directory), point="at some time", seconds=random.uniform(0, 0.4), disposition=disposition, by_arrow=True
        )
        if run_in_child(crash):
            assert crashing.resume(crash, report_dead_run(crash))
        assert_once_or_repeated(crash)

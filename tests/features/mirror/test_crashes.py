"""A process that mirrors a table is killed: no row is lost, and none is doubled.

docs/mirror.md: What the mirror promises
"""

import itertools
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.features.mirror.conftest import NUMBERS, commits, lake_in, numbers
from tests.features.mirror.killed import POINTS

MODES = ("register", "copy", "view")
DAILY = set(zip(POINTS, itertools.cycle(MODES)))
"""Each point, with one of the modes."""


@pytest.mark.full
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("duckdb", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("point", "mode"),
    [pytest.param(*case, marks=() if case in DAILY else pytest.mark.slow) for case in itertools.product(POINTS, MODES)],
)
def test_a_killed_mirror_is_finished_by_the_next_one(tmp_path: Path, kind: str, mode: Any, point: str) -> None:
    mirrors = lake_in(tmp_path, kind=kind)
    table = mirrors.create("t", NUMBERS, by="word")
    table.append(numbers(1))
    if point != POINTS[0]:
        mirrors.synchronize("t", mode)
        table.overwrite(numbers(2))
        table.append(numbers(3, word="b"))
    command = [sys.executable, "-m", "tests.features.mirror.killed", str(tmp_path), kind, mode, point]
    killed = subprocess.run(command, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    mirrors.synchronize("t", mode)
    assert mirrors.shown("t") == mirrors.written("t")
    assert len(commits(mirrors)) == (1 if point == POINTS[0] else 2)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("duckdb", marks=pytest.mark.full)])
def test_writers_that_mirror_at_once_leave_a_current_mirror(tmp_path: Path, kind: Any) -> None:
    mirrors = lake_in(tmp_path, kind=kind)
    for mode in MODES:
        mirrors.create(mode, NUMBERS).append(numbers(0))
    errors: list[BaseException] = []

    def write(mode: Any, number: int) -> None:
        try:
            mirrors.table(mode).append(numbers(number))
            mirrors.synchronize(mode, mode)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=write, args=(mode, number)) for number in (1, 2, 3) for mode in MODES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for mode in MODES:
        assert mirrors.shown(mode) == mirrors.written(mode)
        assert len(mirrors.shown(mode)) == 4

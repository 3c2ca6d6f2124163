"""Each situation of docs/comparison.md, run with each way of writing that the page compares."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.comparison.situations import NO_APPEND, SITUATIONS, SUBJECTS
from tests.servers.faults import Fault, FaultyProxy
from tests.servers.rest import RestServer
from tests.test_distribution import empty_environment, pip_install
from tests.test_docs import CHECKOUT, DOCS

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(900)]
SCRIPT = Path(__file__).with_name("situations.py")
RIGHT = {"right", "rejected", "added"}
PAGE = DOCS / "comparison.md"


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The interpreter of each subject. dagster-iceberg needs older versions of pyiceberg and Spark."""
    python = empty_environment(tmp_path_factory.mktemp("comparison") / "venv")
    locked = ["--require-hashes", "-r", str(CHECKOUT / "requirements-comparison.txt")]
    subprocess.run([*pip_install(python), *locked], check=True)
    return {**dict.fromkeys(SUBJECTS, Path(sys.executable)), "dagster-iceberg": python}


def outcomes(python: Path, subject: str, directory: Path, *catalog: str) -> dict[str, str]:
    """Run the situations of a subject in its environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL", "DAGSTER"))}
    path = [str(CHECKOUT), *filter(None, [kept.pop("PYTHONPATH", "")])] if python == Path(sys.executable) else []
    environment = {**kept, "PATH": f"{python.parent}:{os.environ['PATH']}", "PYTHONPATH": ":".join(path)}
    done = subprocess.run(
        [python, SCRIPT, subject, directory, *catalog],
        cwd=directory,
        env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def described(subject: str) -> dict[str, str]:
    """Return the cells of a subject in the page, by situation."""
    head, *lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    place = [cell.strip(" `") for cell in head.strip("|").split("|")].index(subject)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[-1].strip("`"): row[place] for row in cells}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_page_says_what_happens(subject: str, pythons: dict[str, Path], tmp_path: Path, rest: RestServer) -> None:
    found = outcomes(pythons[subject], subject, tmp_path)
    proxy = FaultyProxy(rest.uri)
    try:
        proxy.inject(Fault(answer=None))
        found |= outcomes(pythons[subject], subject, tmp_path, proxy.uri)
    finally:
        proxy.close()
    assert found.keys() == {situation.__name__ for situation in SITUATIONS}
    assert proxy.injected or found["answer_of_the_catalog_lost"] == NO_APPEND
    written = {name: outcome if outcome in RIGHT else f"**{outcome}**" for name, outcome in found.items()}
    assert described(subject) == written
    if subject == "dagster-iceberg-spark":
        assert set(found.values()) <= RIGHT

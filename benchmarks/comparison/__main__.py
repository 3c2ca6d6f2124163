"""What happens in twelve situations, with each way of writing that docs/comparison.md compares.

Run it with `make bench-comparison`. It exits with 1 unless the table of the page says what happens.
"""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from benchmarks.comparison.situations import NO_APPEND, SITUATIONS, SUBJECTS
from tests.servers.faults import Fault, FaultyProxy
from tests.servers.rest import RestServer
from tests.test_distribution import empty_environment, pip_install
from tests.test_docs import CHECKOUT, DOCS

SCRIPT = Path(__file__).with_name("situations.py")
OURS = "dagster-iceberg-spark"
RIGHT = {"right", "rejected", "added"}
PAGE = DOCS / "comparison.md"


def main() -> int:
    """Run all situations, print the outcomes, and return the exit code."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        older = environment_of_dagster_iceberg(directory / "venv")
        with closing(RestServer(directory)) as rest:
            found = {
                subject: outcomes(
                    older if subject == "dagster-iceberg" else Path(sys.executable), subject, directory / subject, rest
                )
                for subject in SUBJECTS
            }
    differs = False
    for subject, seen in found.items():
        page = described(subject)
        for situation in SITUATIONS:
            outcome = seen[situation.__name__]
            is_as_described = page.get(situation.__name__) == (outcome if outcome in RIGHT else f"**{outcome}**")
            differs = differs or not is_as_described or (subject == OURS and outcome not in RIGHT)
            print(f"{subject:22} {situation.__name__:30} {outcome}{'' if is_as_described else '  (not as the page)'}")
    return int(differs)


def environment_of_dagster_iceberg(directory: Path) -> Path:
    """Make an environment with the older versions that dagster-iceberg needs, and return its Python."""
    python = empty_environment(directory)
    locked = ["--require-hashes", "-r", str(CHECKOUT / "requirements-comparison.txt")]
    subprocess.run([*pip_install(python), *locked], check=True)
    return python


def outcomes(python: Path, subject: str, directory: Path, rest: RestServer) -> dict[str, str]:
    """Return the outcome of each situation, by its name; in one of them, the catalog's answer is lost."""
    directory.mkdir()
    found = run_situations(python, subject, directory)
    with closing(FaultyProxy(rest.uri)) as proxy:
        proxy.inject(Fault(answer=None))
        found |= run_situations(python, subject, directory, proxy.uri)
        if not proxy.injected and found["answer_of_the_catalog_lost"] != NO_APPEND:
            sys.exit(f"{subject}: no answer was lost")
    return found


def run_situations(python: Path, subject: str, directory: Path, *catalog: str) -> dict[str, str]:
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
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    outcome: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def described(subject: str) -> dict[str, str]:
    """Return the cells of a subject in the page, by situation."""
    head, *lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    place = [cell.strip(" `") for cell in head.strip("|").split("|")].index(subject)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[-1].strip("`"): row[place] for row in cells}


if __name__ == "__main__":
    sys.exit(main())

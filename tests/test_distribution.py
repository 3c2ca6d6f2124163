"""The distribution that users install: the wheel alone, in an empty environment, runs the quick start."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.test_docs import CHECKOUT, DOCS

pytestmark = pytest.mark.timeout(900)
SDIST_FILES = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "dagster_iceberg_spark"}


def empty_environment(directory: Path) -> Path:
    """Make a virtual environment, and return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    return directory / "bin" / "python"


def pip_install(python: Path) -> tuple[str, ...]:
    """Return the command that installs packages for a Python, by the pip of this environment and its configuration."""
    return (sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-input")


def constraints(directory: Path) -> Path:
    """Write the versions of the lock without its hashes, which pip would want of the wheel too."""
    lines = (CHECKOUT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    path = directory / "constraints.txt"
    path.write_text("\n".join(line.removesuffix("\\") for line in lines if "==" in line and "--hash" not in line))
    return path


def run(*command: object, cwd: Path, **environment: str) -> str:
    """Run a command, and return what it prints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER", "PYTHON", "VIRTUAL"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def build(directory: Path) -> tuple[Path, Path]:
    """Build the wheel and the source distribution, and return their paths."""
    run(sys.executable, "-m", "hatchling", "build", "-d", directory, cwd=CHECKOUT)
    (wheel,), (sdist,) = directory.glob("*.whl"), directory.glob("*.tar.gz")
    return wheel, sdist


@pytest.mark.full
def test_the_distributions_hold_the_package_and_nothing_else(tmp_path: Path) -> None:
    wheel, sdist = build(tmp_path / "dist")
    shutil.unpack_archive(sdist, tmp_path / "sdist")
    (unpacked,) = (tmp_path / "sdist").iterdir()
    assert {path.name for path in unpacked.iterdir()} - {".gitignore"} == SDIST_FILES
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    tracked = run("git", "ls-files", "dagster_iceberg_spark", cwd=CHECKOUT)
    assert packed == set(tracked.splitlines())


@pytest.mark.slow
def test_the_wheel_alone_runs_the_quick_start(tmp_path: Path) -> None:
    home, venv = tmp_path / "home", tmp_path / "venv"
    wheel, _ = build(tmp_path / "dist")
    python = empty_environment(venv)
    wanted = f"dagster-iceberg-spark[classic,pandas] @ {wheel.as_uri()}"
    run(*pip_install(python), "-c", constraints(tmp_path), wanted, cwd=tmp_path)
    home.mkdir()
    for example in ("quickstart.py", "tutorial.py"):
        shutil.copy(DOCS / "examples" / example, tmp_path)
        printed = run(
            *(venv / "bin" / "dagster", "asset", "materialize", "-f", example),
            *("--select", "readings,warmest", "--partition", "2024-03-31"),
            cwd=tmp_path,
            DAGSTER_HOME=str(home),
            SPARK_LOCAL_IP="127.0.0.1",
        )
        assert re.search(r"Committed snapshot \d+ of weather\.readings: 23 rows added", printed)
        assert "RUN_SUCCESS" in printed
    shutil.rmtree(home)  # the tutorial's Spark server stops when its directory has gone
    assert "dagster-iceberg-spark, version" in run(venv / "bin" / "dagster-iceberg-spark", "--version", cwd=tmp_path)


@pytest.mark.slow
def test_the_wheel_with_pandas_alone_writes_and_reads_without_pyspark(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    wheel, _ = build(tmp_path / "dist")
    python = empty_environment(venv)
    wanted = f"dagster-iceberg-spark[pandas] @ {wheel.as_uri()}"
    run(*pip_install(python), "-c", constraints(tmp_path), wanted, cwd=tmp_path)
    assert "pyspark" not in run(sys.executable, "-m", "pip", "--python", python, "list", cwd=tmp_path)
    shutil.copy(DOCS / "examples" / "without_spark.py", tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    printed = run(
        *(venv / "bin" / "dagster", "asset", "materialize", "-f", "without_spark.py"),
        *("--select", "temperatures", "--partition", "2024-03-31"),
        cwd=tmp_path,
        DAGSTER_HOME=str(home),
    )
    assert re.search(r"Committed snapshot \d+ of weather\.temperatures: 24 rows added", printed)

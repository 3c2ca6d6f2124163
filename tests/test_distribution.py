"""The distribution that users install: the wheel alone, in an empty environment, runs the quick start."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyspark
import pytest

from dagster_iceberg_spark import IcebergPipes, ReadPlan
from dagster_iceberg_spark.versions import ICEBERG_EXTENSIONS
from tests.core.arrow.writing import ArrowLake
from tests.lakes import JARS
from tests.test_docs import CHECKOUT, DOCS

pytestmark = pytest.mark.timeout(900)
JOB = """
import os
from dagster_iceberg_spark.pipes import open_iceberg_pipes

with open_iceberg_pipes() as lake:
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        lake.write(lake.read("source").distinct())
    else:
        lake.write(lake.read("source", "pyarrow.Table"))
"""
SDIST_FILES = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "dagster_iceberg_spark"}


@dg.asset(name="t", io_manager_key="iceberg", metadata={"iceberg/engine": "auto"})
def copy_of_source(
    context: dg.AssetExecutionContext, client: dg.PipesSubprocessClient, lake: IcebergPipes, source: ReadPlan
) -> Any:
    return lake.run(context, client, inputs={"source": source}, command=lake.extras["command"])


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


@pytest.mark.slow
def test_the_wheel_with_pipes_alone_runs_jobs(tmp_path: Path) -> None:
    """The environment of a job has no Dagster, and the pyspark of the Spark installation, which is no distribution."""
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        lake = ArrowLake(tmp_path, instance)
        lake.write(pa.table({"v": [7, 7, 8]}), name="source")
        wheel, _ = build(tmp_path / "dist")
        python = empty_environment(tmp_path / "venv")
        run(
            *pip_install(python),
            "-c",
            constraints(tmp_path),
            f"dagster-iceberg-spark[pipes] @ {wheel.as_uri()}",
            cwd=tmp_path,
        )
        installed = run(sys.executable, "-m", "pip", "--python", python, "list", cwd=tmp_path)
        assert not re.search(r"^(dagster|pyspark|pandas) ", installed, re.MULTILINE)
        (tmp_path / "job.py").write_text(JOB)
        by_spark = [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            *("--packages", ",".join(JARS), "--conf", f"spark.sql.extensions={ICEBERG_EXTENSIONS}"),
        ]
        for command, found in (([str(python)], [7, 7, 8]), (by_spark, [7, 8])):
            program = [*command, str(tmp_path / "job.py")]
            client = dg.PipesSubprocessClient(env={"PYSPARK_PYTHON": str(python), "PYTHONPATH": ""})
            resources = {
                "iceberg": lake.io_manager,
                "client": client,
                "lake": IcebergPipes(extras={"command": program}),
            }
            source = dg.AssetSpec("source").with_io_manager_key("iceberg")
            dg.materialize([copy_of_source, source], selection="t", resources=resources, instance=instance)
            assert lake.rows("v") == found

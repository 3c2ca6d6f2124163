"""Jobs with a Spark session of their own.

docs/pipes.md: The job; After a crash
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from dagster_iceberg_spark.versions import SPARK_VERSION, SPARK_VERSIONS
from tests.core.arrow.writing import ArrowLake
from tests.features.pipes.test_pipes import command, commits
from tests.test_docs import CHECKOUT

pytestmark = [pytest.mark.spark, pytest.mark.full]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[ArrowLake]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield ArrowLake(tmp_path, instance)


def newest(directory: Path, job: str, **environment: str) -> str:
    """Materialize the asset in a process with the newest Spark. The job has the Spark of this process."""
    python = CHECKOUT / ".venv" / "bin" / "python"
    arguments = [str(python), "-m", "tests.features.pipes.location", str(directory), *command(job)]
    done = subprocess.run(
        arguments, cwd=CHECKOUT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.versions
def test_a_job_has_another_spark_than_the_code_location(lake: ArrowLake) -> None:
    assert f"Spark {SPARK_VERSIONS[-1]}: success" in newest(lake.directory, "spark_version")
    assert lake.rows("v") == [SPARK_VERSION]


@pytest.mark.versions
def test_of_two_spark_jobs_that_append_at_once_one_adopts(lake: ArrowLake) -> None:
    newest(lake.directory, "append_together", DISPOSITION="append")
    assert (lake.rows("v"), commits(lake)) == ([1, 2, 3], 1)

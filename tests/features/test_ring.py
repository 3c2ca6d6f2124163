"""The core works without each of the features."""

import subprocess
import sys
from pathlib import Path

import pytest

import dagster_iceberg_spark

FEATURES = Path(dagster_iceberg_spark.__file__).parent / "features"


@pytest.mark.full
@pytest.mark.processes
@pytest.mark.spark
def test_the_main_job_runs_without_each_feature() -> None:
    script = Path(__file__).with_name("without_features.py")
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=280)
    expected = sorted(path.parent.name for path in FEATURES.glob("*/__init__.py"))
    assert (run.returncode, run.stdout.split()) == (0, expected), run.stderr[-3000:]

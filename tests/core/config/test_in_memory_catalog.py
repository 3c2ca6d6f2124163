"""The in-memory catalog for tests."""

import subprocess
import sys
from pathlib import Path

import pytest

LEAVES_NOTHING = """
from pathlib import Path
from dagster_iceberg_spark import InMemoryCatalog
description = InMemoryCatalog().describe()
directory = Path(description.endpoint).parent
assert directory.is_dir()
print(directory)
"""


@pytest.mark.full
def test_an_in_memory_catalog_ends_with_its_process() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", LEAVES_NOTHING], capture_output=True, text=True, check=True, timeout=60
    )
    assert not Path(answer.stdout.strip()).exists()

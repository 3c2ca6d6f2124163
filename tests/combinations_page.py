"""docs/combinations.md, which tests compare with what they see, or write."""

import os
from pathlib import Path
from typing import Final

import pytest

PAGE: Final = Path(__file__).parents[1] / "docs" / "combinations.md"
UPDATE: Final = bool(os.environ.get("UPDATE_COMBINATIONS"))
"""Whether the page is written anew. Run the tests in one process then: `ARGS="-n 0"`."""


def compare(report: pytest.TestReport, *, described: str, seen: str) -> None:
    """Let a test that has passed fail if its cell of the page says something else."""
    if report.passed and described != seen and not UPDATE:
        report.outcome = "failed"
        report.longrepr = f"{PAGE.name} says {described!r}, found {seen!r}: run it again with UPDATE_COMBINATIONS=1"

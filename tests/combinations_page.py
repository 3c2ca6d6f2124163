"""docs/combinations.md, whose two parts different runs of the tests compare, or write."""

import os
import sys
from pathlib import Path
from typing import Final

import pytest

PAGE: Final = Path(__file__).parents[1] / "docs" / "combinations.md"
UPDATE: Final = "UPDATE_COMBINATIONS"
"""The variable of the environment that has the page written anew."""


def compare(session: pytest.Session, page: str) -> None:
    """Write the page if the variable is set. Otherwise, fail the run unless the page is this text."""
    if os.environ.get(UPDATE):
        PAGE.write_text(page, encoding="utf-8")
    elif page != PAGE.read_text(encoding="utf-8"):
        sys.stderr.write(f"\n{PAGE.name} is not what was seen: run it again with {UPDATE}=1\n")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED

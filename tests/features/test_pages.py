"""The pages of the features are held by tests: the docstring of a test file names the sections of a page."""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NAMED = re.compile(r"^docs/(?P<page>\w+)\.md: (?P<sections>.+)$", re.MULTILINE)
PAGES = (
    "agents",
    "components",
    "contracts",
    "environments",
    "lineage",
    "maintenance",
    "metrics",
    "mirror",
    "pipes",
    "releases",
    "reviewing",
    "serving",
    "testing",
    "undo",
    "watching",
)


@cache
def named_sections() -> dict[str, set[str]]:
    found = defaultdict[str, set[str]](set)
    for path in Path(__file__).parents[1].rglob("test_*.py"):
        for match in NAMED.finditer(path.read_text()):
            found[match["page"]].update(match["sections"].split("; "))
    return found


def sections_of(page: str) -> set[str]:
    return set(re.findall(r"^## (.+)$", (DOCS / f"{page}.md").read_text(), re.MULTILINE))


def test_the_named_sections_exist() -> None:
    assert [(page, left) for page, named in named_sections().items() if (left := named - sections_of(page))] == []


@pytest.mark.parametrize("page", PAGES)
def test_each_section_is_held_by_a_test(page: str) -> None:
    assert sections_of(page) - named_sections()[page] <= {"Limits"}

"""The documentation: examples load, links resolve, the reference matches the code."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from dagster_iceberg_spark import errors

CHECKOUT = Path(__file__).parents[1]
DOCS = CHECKOUT / "docs"
PAGES = [
    *(CHECKOUT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(DOCS.rglob("*.md")),
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
_PARSERS = {"json": json.loads, "yaml": yaml.safe_load}
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def python_blocks(page: Path) -> list[str]:
    return [text for language, text in BLOCK.findall(page.read_text(encoding="utf-8")) if language == "python"]


def links(page: Path) -> list[str]:
    found = LINK.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))
    return [link for link in found if not link.startswith(("http://", "https://"))]


def anchors(page: Path) -> set[str]:
    """Return the headings as GitHub links to them."""
    headings = HEADING.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, CHECKOUT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("page", "examples"),
    [
        ("README.md", ["without_spark.py", "quickstart.py"]),
        ("docs/tutorial.md", ["without_spark.py", "tutorial.py"]),
        ("docs/without-spark.md", ["without_spark.py"]),
        ("docs/testing.md", ["test_temperatures.py"]),
    ],
)
def test_the_first_examples_are_the_files_that_run(page: str, examples: list[str]) -> None:
    files = [(DOCS / "examples" / example).read_text(encoding="utf-8") for example in examples]
    shown = python_blocks(CHECKOUT / page)
    assert shown[0] == files[0]
    assert [text for text in shown if text in files] == files


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_the_documentation_loads(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(DOCS / "examples")
    for number, block in enumerate(python_blocks(page)):
        exec(compile(block, f"{page.name}, block {number}", "exec"), {"__name__": "documentation"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_configuration_in_the_documentation_parses(page: Path) -> None:
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language in _PARSERS:
            assert _PARSERS[language](text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_resolve(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    navigation = (CHECKOUT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    named = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    assert sorted(named) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_the_reference_matches_the_code() -> None:
    module = script("generate_reference")
    assert module.main(["--check"]) == 0, "run: python scripts/generate_reference.py"


def test_language_models_find_each_page_with_its_first_sentence() -> None:
    text = script("build_site").llms_text()
    assert text.startswith("# dagster-iceberg-spark\n\n> ")
    assert "\n## How-to guides\n\n- [Backfill a year](how-to/backfill.md): You have a partitioned asset" in text
    listed = re.findall(r"^- \[[^\]]+\]\((\S+\.md)\): \S.*[.?!]$", text, re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_the_errors_for_programs_name_all_classes() -> None:
    document = json.loads((DOCS / "errors.json").read_text(encoding="utf-8"))
    known = {item["error"]: item for item in document["errors"]}
    assert set(known) == {name for name in vars(errors) if name.endswith("Error")} - {"IcebergSparkError"}
    assert known["CommitConflictError"]["may_be_retried"]
    assert known["MergeKeyError"]["group"] == "DataError"
    assert {item["error"] for item in document["failures_while_writing"]} <= set(known)
    assert all(item["meaning"] for item in document["errors"])


def test_the_generator_detects_an_outdated_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("generate_reference")
    for name in ("PAGE", "ERRORS"):
        monkeypatch.setattr(module, name, tmp_path / name)
        getattr(module, name).write_text("something else", encoding="utf-8")
    assert module.main(["--check"]) == 1
    assert module.main([]) == 0
    assert module.main(["--check"]) == 0


def test_the_page_about_writes_names_modules_that_exist() -> None:
    page = (CHECKOUT / "docs" / "how-a-write-happens.md").read_text(encoding="utf-8")
    named = set(re.findall(r"[a-z_]+/[a-z_/]+\.py", page))
    package = CHECKOUT / "dagster_iceberg_spark"
    assert named
    assert sorted(path for path in named if not (package / path).exists()) == []


def test_the_package_and_the_page_about_writes_name_files_that_exist() -> None:
    package = CHECKOUT / "dagster_iceberg_spark"
    files = [path.as_posix() for path in package.rglob("*.py")]
    texts = (CHECKOUT / "CONTRIBUTING.md", CHECKOUT / "docs" / "how-a-write-happens.md", *package.rglob("*.py"))
    named = {name for path in texts for name in re.findall(r"`([a-z_0-9/]+\.py)`", path.read_text(encoding="utf-8"))}
    assert named
    assert sorted(name for name in named if not any(file.endswith(f"/{name}") for file in files)) == []

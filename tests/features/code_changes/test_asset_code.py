"""What the code of a revision says of assets: which changes of a function count, and which do not.

docs/reviewing.md: What counts as a change?
"""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagster_iceberg_spark.cli.app import app
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.code_changes.asset_code import assets_in
from dagster_iceberg_spark.features.code_changes.plan.code_state import AssetCode, compare_states, in_order
from dagster_iceberg_spark.features.code_changes.revisions import checked_out, parse_range

FILES = {
    "rates.py": """
import sys

VAT = 0.19

def with_tax(cents):
    '''Add the tax.'''
    assert sys.argv
    return cents * (1 + VAT)
""",
    "orders.py": """
import dagster as dg
import rates
from rates import with_tax

COLUMNS = {"cents", "id"}
OBJECTS = [object(), {"a": object}, dg.AssetKey("a")]
FILE = __file__
days = dg.DailyPartitionsDefinition("2024-01-01")

def unused():
    return 1

class Report:
    title = "taxes"
    def rows(self, orders):
        return rates.with_tax(orders)

@dg.asset
def orders():
    return COLUMNS, FILE, OBJECTS

@dg.asset(partitions_def=days, metadata={"partition_expr": "day", "owner": "me"}, code_version="1")
def taxes(orders):
    return with_tax(orders)

@dg.asset
def report(taxes):
    def inner():
        return Report().rows(taxes)
    return inner()

@dg.op
def source():
    return with_tax(1)

@dg.graph_asset
def total():
    return source()

defs = dg.Definitions([orders, taxes, report, total])
""",
}


@pytest.fixture(autouse=True)
def _modules() -> Iterator[None]:
    before = {*sys.modules}
    yield
    for name in {*sys.modules} - before:
        if name in ("rates", "orders"):
            del sys.modules[name]


def state(directory: Path, **changes: tuple[str, str]) -> dict[str, AssetCode]:
    """Return the assets of the files, each with a text in place of another."""
    directory.mkdir()
    for name, text in FILES.items():
        old, new = changes.get(name.removesuffix(".py"), ("", ""))
        assert old in text
        (directory / name).write_text(text.replace(old, new) if old else text)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(directory)
        for name in ("rates", "orders"):
            sys.modules.pop(name, None)
        module = importlib.import_module("orders")
        return {asset.key: asset for asset in assets_in(module.defs, directory)}


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("rates", "0.19", "0.2", {"taxes": ["code"], "report": ["code"], "total": ["code"]}),
        ("rates", "(1 + VAT)", "(2 + VAT)", {"taxes": ["code"], "report": ["code"], "total": ["code"]}),
        ("rates", "Add the tax", "Add it", {}),
        ("rates", "cents * (1 + VAT)", "cents*(1 + VAT)  # with tax", {}),
        ("orders", "return 1", "return 2", {}),
        ("orders", 'title = "taxes"', 'title = "tax"', {"report": ["code"]}),
        ("orders", '"cents", "id"', '"id", "cents"', {}),
        ("orders", '"cents", "id"', '"id"', {"orders": ["code"]}),
        ("orders", "source():\n    return", "source():\n    return 1 +", {"total": ["code"]}),
        ("orders", '"partition_expr": "day"', '"partition_expr": "at"', {"taxes": ["partition_expr"]}),
        ("orders", '"2024-01-01"', '"2024-02-01"', {"taxes": ["partitions_def"]}),
        ("orders", 'code_version="1"', 'code_version="2"', {"taxes": ["code_version"]}),
        ("orders", "def report(taxes):", "def report(taxes, orders):", {"report": ["code", "inputs"]}),
        ("orders", "report, total]", "total]", {"report": ["removed"]}),
    ],
)
def test_a_change_is_found_where_it_matters(
    tmp_path: Path, file: str, old: str, new: str, expected: dict[str, list[str]]
) -> None:
    changes = compare_states(state(tmp_path / "before"), state(tmp_path / "after", **{file: (old, new)}))
    assert {key: change.words() for key, change in changes.items()} == expected


def test_assets_come_after_their_inputs() -> None:
    inputs = {"c": ("b", "x"), "b": ("a",), "a": (), "d": ("d", "c")}
    assert list(in_order(inputs)) == ["a", "b", "c", "d"]


def git(directory: Path, *arguments: str) -> str:
    own = ("-c", "user.name=me", "-c", "user.email=me@example.com")
    return subprocess.run(
        ["git", "-C", str(directory), *own, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository: `main` and `work` have a commit each after their common one."""
    git(tmp_path, "init", "-q", "-b", "main")
    for number, branch in enumerate(("main", "work", "main")):
        if number == 1:
            git(tmp_path, "checkout", "-q", "-b", branch)
        elif number:
            git(tmp_path, "checkout", "-q", branch)
        (tmp_path / "file").write_text(str(number))
        git(tmp_path, "add", "file")
        git(tmp_path, "commit", "-q", "-m", str(number))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("main..work", "2", "1"),
        ("main...work", "0", "1"),
        ("work..main", "1", "files"),
        ("work...HEAD", "0", "files"),
        ("work", "1", "files"),
        ("work..", "1", "files"),
    ],
)
def test_a_range_names_the_files_of_two_revisions(repository: Path, text: str, before: str, after: str) -> None:
    (repository / "file").write_text("files")
    status = git(repository, "status", "--short")
    span = parse_range(text, repository)
    with checked_out(span.root, span.before) as old, checked_out(span.root, span.after) as new:
        assert [(side.directory / "file").read_text() for side in (old, new)] == [before, after]
    assert git(repository, "status", "--short") == status
    assert git(repository, "worktree", "list").count("\n") == 0


def test_what_git_ignores_is_there_and_what_is_new_is_not(repository: Path) -> None:
    (repository / ".gitignore").write_text("/lake/\n.env\n__pycache__/\n")
    (repository / "lake").mkdir()
    (repository / "__pycache__").mkdir()
    for name in ("lake/catalog.db", ".env", "new", "__pycache__/old.pyc"):
        (repository / name).write_text(name)
    span = parse_range("work", repository)
    with checked_out(span.root, span.before) as old:
        assert {path.name for path in old.directory.iterdir()} == {"file", "lake", ".env"}
        assert (old.directory / "lake" / "catalog.db").read_text() == "lake/catalog.db"
    assert (repository / "lake" / "catalog.db").exists(), "links are removed, not what they point to"


@pytest.mark.parametrize("text", ["nothing..work", "main..nothing", "--help", ""])
def test_an_unknown_revision_is_refused(repository: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="a revision of the Git repository"):
        parse_range(text, repository)


def test_a_directory_without_a_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a git repository"):
        parse_range("main", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay"], "Name one of: --run, --changed"),
        (["replay", "--changed", "main", "--keep"], "leave out --asset, --compare and --keep"),
        (["impact"], "Name one of: NAMESPACE.TABLE@SNAPSHOT, --change"),
        (["impact", "--change", "main", "--kind", "sql", "--uri", "sqlite:///x.db"], "There is no SQLite file"),
    ],
)
def test_commands_refuse_what_does_not_fit_together(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, message in result.output) == (2, True), result.output

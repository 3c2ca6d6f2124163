"""Which code locations the command line loads."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagster_iceberg_spark.cli.code_location import CodeLocation, load_definitions, locations_in
from dagster_iceberg_spark.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _import_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    known = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


def location(directory: Path, *, module: str, attribute: str | None = None) -> CodeLocation:
    return CodeLocation(module=module, python_file=None, attribute=attribute, directory=directory)


def test_the_workspace_of_the_directory_comes_first(tmp_path: Path) -> None:
    (tmp_path / "workspace.yaml").write_text("load_from: [{python_module: shop.definitions}, {python_file: lake.py}]")
    (tmp_path / "pyproject.toml").write_text('[tool.dagster]\nmodule_name = "other"\n')
    first, second = locations_in([], tmp_path)
    assert (first.module, first.python_file) == ("shop.definitions", None)
    assert (second.module, second.python_file) == (None, tmp_path / "lake.py")


def test_a_pyproject_is_read_without_a_workspace(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.dagster]\nmodule_name = "shop"\n')
    assert locations_in([], tmp_path) == (location(tmp_path, module="shop"),)


def test_an_empty_directory_has_no_code_locations(tmp_path: Path) -> None:
    assert locations_in([], tmp_path) == ()


@pytest.mark.parametrize(
    ("workspace", "found"), [("load_from: [{grpc_server: {port: 4266}}]", "found a server"), ("load_from: 7", "found ")]
)
def test_a_workspace_that_names_no_code_is_refused(tmp_path: Path, workspace: str, found: str) -> None:
    (tmp_path / "workspace.yaml").write_text(workspace)
    with pytest.raises(ConfigurationError, match=found):
        locations_in([], tmp_path)


def test_the_only_definitions_of_a_module_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "one_of_shop.py").write_text("import dagster as dg\nanything = dg.Definitions()\n")
    found = load_definitions(location(tmp_path, module="one_of_shop"))
    assert found is sys.modules["one_of_shop"].anything


def test_several_definitions_need_an_attribute(tmp_path: Path) -> None:
    (tmp_path / "two_of_shop.py").write_text("import dagster as dg\na, b = dg.Definitions(), dg.Definitions()\n")
    with pytest.raises(ConfigurationError, match=r"found 'a', 'b'. Hint: name one of them by `--attribute`"):
        load_definitions(location(tmp_path, module="two_of_shop"))
    assert load_definitions(location(tmp_path, module="two_of_shop", attribute="b")) is sys.modules["two_of_shop"].b
    with pytest.raises(ConfigurationError, match=r"expected a dagster\.Definitions named 'c'"):
        load_definitions(location(tmp_path, module="two_of_shop", attribute="c"))


def test_a_module_that_cannot_be_imported_is_refused_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "broken_shop.py").write_text("import no_such_thing\n")
    with pytest.raises(ConfigurationError, match="No module named 'no_such_thing'"):
        load_definitions(location(tmp_path, module="broken_shop"))


def test_a_file_is_imported_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "file_of_shop.py"
    path.write_text("import dagster as dg\ndefs = dg.Definitions()\n")
    found = load_definitions(CodeLocation(module=None, python_file=path, attribute=None, directory=tmp_path))
    assert found is sys.modules["file_of_shop"].defs

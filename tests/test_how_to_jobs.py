"""The guides that run a job elsewhere: their files load, fit together, and pass only arguments that exist."""

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any
from unittest import mock

import dagster as dg
import pytest
from dagster_pipes import PipesContextLoader, PipesMessageWriter, PipesParamsLoader, open_dagster_pipes

from dagster_iceberg_spark import IcebergPipes, ReadPlan
from dagster_iceberg_spark import pipes as job_side
from dagster_iceberg_spark.distribution import PACKAGE_VERSION
from dagster_iceberg_spark.pipes import IcebergJob, open_iceberg_pipes
from dagster_iceberg_spark.versions import ICEBERG_VERSIONS
from tests.test_docs import BLOCK, DOCS

PAGES = sorted((DOCS / "how-to").glob("run-on-*.md"))
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
OPTIONS = {
    "params_loader": PipesParamsLoader,
    "context_loader": PipesContextLoader,
    "message_writer": PipesMessageWriter,
}
RUNTIME = re.compile(r"iceberg-spark-runtime-(\d\.\d)_(\d\.\d+)-([\d.]+)\.jar")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the clients of the services what they look for when they are made."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "DATABRICKS_TOKEN", "LAKE_TOKEN"):
        monkeypatch.setenv(name, "none")


def file_of(page: Path, name: str) -> str:
    """Return a Python file of a page. They are not marked as `python`, because they import what is not installed."""
    blocks = [text for language, text in BLOCK.findall(page.read_text(encoding="utf-8")) if language == "py"]
    return next(str(text) for text in blocks if text.startswith(f"# {name}\n"))


def imported_by(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            yield str(node.module)
        elif isinstance(node, ast.Import):
            yield from (item.name for item in node.names)


def run(page: Path, name: str, monkeypatch: pytest.MonkeyPatch, **names: Any) -> dict[str, Any]:
    """Run a file of a page. Packages that are not installed are stubs."""
    text = file_of(page, name)
    for module in imported_by(text):
        for length in range(1, module.count(".") + 2):
            part = ".".join(module.split(".")[:length])
            try:
                importlib.import_module(part)
            except ImportError:
                monkeypatch.setitem(sys.modules, part, mock.MagicMock(__path__=[], __spec__=None))
    exec(compile(text, f"{page.name}, {name}", "exec"), names)
    return names


@each_page
def test_the_asset_launches_the_job_with_arguments_that_exist(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run(page, "definitions.py", monkeypatch, __name__="definitions")
    dg.Definitions.validate_loadable(names["defs"])
    lake, orders = mock.create_autospec(IcebergPipes.run), mock.create_autospec(ReadPlan, instance=True)
    context = mock.Mock()
    names["daily"].op.compute_fn.decorated_fn(
        context, mock.Mock(run=lambda *args, **kw: lake(None, *args, **kw)), orders
    )
    (_, _, client), options = lake.call_args
    assert options.pop("inputs") == {"orders": orders}
    if not isinstance(client, mock.Mock):
        signature(client.run).bind(context=context, extras={}, **options)


@each_page
def test_the_job_reads_its_input_and_writes_once(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, given = mock.create_autospec(IcebergJob, instance=True), dict[str, Any]()

    @contextmanager
    def opened(**options: Any) -> Iterator[IcebergJob]:
        known = signature(open_iceberg_pipes).bind(**options).arguments
        given.update(known.pop("options", {}))
        yield job

    monkeypatch.setattr(job_side, "open_iceberg_pipes", opened)
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", mock.Mock())
    monkeypatch.setattr("pyspark.sql.functions.date_trunc", mock.Mock())
    run(page, "job.py", monkeypatch, __name__="__main__")
    signature(open_dagster_pipes).bind(**given)
    for name, option in given.items():
        assert isinstance(option, OPTIONS[name])
    assert [call.args[0] for call in job.read.call_args_list] == ["orders"]
    signature(IcebergJob.read).bind(job, *job.read.call_args.args, **job.read.call_args.kwargs)
    job.write.assert_called_once()


@each_page
def test_both_sides_use_the_same_place_for_context_and_messages(page: Path) -> None:
    definitions, job = file_of(page, "definitions.py"), file_of(page, "job.py")
    for side, other in (("ContextInjector", "ContextLoader"), ("MessageReader", "MessageWriter")):
        assert re.findall(rf"Pipes(\w+){side}\(", definitions) == re.findall(rf"Pipes(\w+){other}\(", job)


@each_page
def test_the_job_gets_versions_that_are_tested(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"dagster-iceberg-spark(?:\[[\w,]+\])?==([\d.]+)", text)) == {PACKAGE_VERSION}
    versions = {version for spark, scala, version in RUNTIME.findall(text)}
    assert {ICEBERG_VERSIONS[spark, scala] for spark, scala, _ in RUNTIME.findall(text)} == versions
    assert set(re.findall(r"-bundle-([\d.]+)\.jar", text)) <= versions

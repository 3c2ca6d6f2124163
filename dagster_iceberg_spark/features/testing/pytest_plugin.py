"""The plugin of pytest: the fixture `lake`, and the tests of SQL models. It imports nothing before a test needs it."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from dagster_iceberg_spark.features.testing import SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator

    import dagster as dg

    from dagster_iceberg_spark.features.testing.lake import Lake

_LOCATION: Final = "iceberg_code_location"
_REMOTE: Final = "iceberg_remote"
_SPARK_CONFIG: Final = "iceberg_spark_config"
_LAKE: Final = pytest.StashKey["Lake"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings of the plugin."""
    parser.addini(_LOCATION, "Module or file of the code location that `lake` runs, such as my_project.definitions.")
    parser.addini(_REMOTE, 'As `remote` of IcebergSparkResource: "local", or the address of a Spark Connect server.')
    parser.addini(_SPARK_CONFIG, "More settings of Spark, each as key=value.", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Leave out a warning about a call of Dagster's own."""
    config.addinivalue_line("filterwarnings", "ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")


@pytest.fixture
def lake(request: pytest.FixtureRequest) -> "Iterator[Lake]":
    """An empty lake, whose session stays open from one test to the next."""
    found = _lake_of(request.config)
    found.empty()
    yield found
    found.empty()


def _lake_of(config: pytest.Config) -> "Lake":
    """Return the lake of the process."""
    if _LAKE not in config.stash:
        import tempfile

        from dagster_iceberg_spark.features.testing.lake import Lake

        directory = tempfile.TemporaryDirectory(prefix="lake-", ignore_cleanup_errors=True)
        config.add_cleanup(directory.cleanup)
        settings = dict(line.partition("=")[::2] for line in config.getini(_SPARK_CONFIG))
        location = config.getini(_LOCATION)
        lake = Lake(
            Path(directory.name),
            definitions=_definitions(location, config.rootpath) if location else None,
            remote=config.getini(_REMOTE) or None,
            spark_config=settings,
        )
        config.add_cleanup(lake.close)
        config.stash[_LAKE] = lake
    return config.stash[_LAKE]


@cache
def _definitions(location: str, directory: Path) -> "dg.Definitions":
    from dagster_iceberg_spark.cli.code_location import CodeLocation, load_definitions

    name, _, attribute = location.partition(":")
    file = directory / name if name.endswith(".py") else None
    return load_definitions(CodeLocation(None if file else name, file, attribute or None, directory))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the tests of SQL models."""
    if file_path.name.endswith(SUFFIXES) and parent.config.getini(_LOCATION):
        return _ModelTests.from_parent(parent, path=file_path)
    return None


class _ModelTests(pytest.File):
    def collect(self) -> "Iterator[_ModelTest]":
        from dagster_iceberg_spark.features.testing.model_tests import TestFile

        file = TestFile(self.path)
        for test in file.tests():
            yield _ModelTest.from_parent(self, name=test.name, file=file, test=test)


class _ModelTest(pytest.Item):
    def __init__(self, *, file: Any, test: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._file, self._test = file, test

    def runtest(self) -> None:
        from dagster_iceberg_spark.features.testing.model_tests import run_model_test

        definitions = _definitions(self.config.getini(_LOCATION), self.config.rootpath)
        run_model_test(_lake_of(self.config), definitions, self._file, self._test)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, AssertionError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name

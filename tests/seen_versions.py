"""What was seen of each feature with the installed version of Spark."""

import os
from collections.abc import Generator, Iterator, Mapping
from functools import cache
from typing import Any, Final

import pytest

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.versions import SPARK_VERSION
from tests import combinations_page
from tests.combinations_page import PAGE
from tests.core.behaviour import spark_versions
from tests.core.behaviour.spark_versions import ENGINES, REFUSALS

_SEEN: Final = pytest.StashKey[dict[tuple[str, str], bool]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of what the installed version of Spark does not have."""
    newer = [item for item in items if _is_of_a_newer_spark(item)]
    if newer:
        config.hook.pytest_deselected(items=newer)
        items[:] = [item for item in items if item not in newer]


def _is_of_a_newer_spark(item: pytest.Item) -> bool:
    since = item.get_closest_marker("since")
    if since is None:
        return False
    version, *engines = since.args
    return version > SPARK_VERSION and (not engines or _engine_of(item) in engines)


def _engine_of(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    return str(callspec.params.get("engine", "")) if callspec is not None else ""


def _place_of(item: pytest.Item) -> tuple[str, str] | None:
    """Return the column and the feature in docs/combinations.md."""
    feature, engine = item.get_closest_marker("feature"), _engine_of(item)
    return (f"{SPARK_VERSION} {engine}", feature.args[0]) if feature is not None and engine in ENGINES else None


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Where the package refuses a feature, its test passes with the refusal."""
    if _place_of(pyfuncitem) not in REFUSALS:
        return (yield)
    try:
        yield
    except Exception as error:
        causes = [error]
        while causes[-1].__cause__ is not None:
            causes.append(causes[-1].__cause__)  # type: ignore[arg-type]
        if any(isinstance(cause, ConfigurationError) and "Spark Connect 3.5" in str(cause) for cause in causes):
            return True
        raise
    pytest.fail("expected the refusal that docs/combinations.md tells of")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Compare what was seen with the page, and keep it."""
    report: Any = yield
    place = _place_of(item)
    if place is not None and report.when == "call":
        combinations_page.compare(report, described=_described().get(place, ""), seen=spark_versions.cell_of(place))
        seen = item.config.stash.setdefault(_SEEN, {})
        seen[place] = seen.get(place, True) and report.passed
    return report  # type: ignore[no-any-return]


@cache
def _described() -> Mapping[tuple[str, str], str]:
    return spark_versions.written_cells(PAGE.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def _mirrors_agree(request: pytest.FixtureRequest) -> Iterator[None]:
    """With MIRROR_MODE, DuckDB reads each table that a test leaves, through its mirror, as pyiceberg reads it."""
    is_mirrored = "MIRROR_MODE" in os.environ and "lake" in request.fixturenames
    lake = request.getfixturevalue("lake") if is_mirrored else None
    yield
    if lake is not None:
        from tests.features.mirror import mirroring

        mirroring.compare(lake)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what was seen into the page, if that is asked for."""
    if combinations_page.UPDATE:
        seen = session.config.stash.setdefault(_SEEN, {})
        PAGE.write_text(spark_versions.page_with(seen), encoding="utf-8")

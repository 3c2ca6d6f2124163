"""Real catalog servers, one of each for the whole run, and lakes on them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagster_iceberg_spark import RestCatalog, SqlCatalog
from dagster_iceberg_spark.catalog.look import open_catalog
from tests.conftest import Lake, open_lake
from tests.servers.postgresql import PASSWORD, PostgreSqlServer
from tests.servers.rest import RestServer


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSqlServer]:
    server = PostgreSqlServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    server = RestServer(tmp_path_factory.mktemp("rest"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgresql_catalog(postgresql: PostgreSqlServer, tmp_path_factory: pytest.TempPathFactory) -> SqlCatalog:
    return SqlCatalog(uri=postgresql.uri(), warehouse=str(tmp_path_factory.mktemp("postgresql")))


@pytest.fixture(params=["sqlite", "postgresql", "rest"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The configuration of each catalog, without the namespace `db`."""
    if request.param == "sqlite":
        return SqlCatalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh"))
    if request.param == "rest":
        return emptied(RestCatalog(uri=request.getfixturevalue("rest").uri))
    return emptied(request.getfixturevalue("postgresql_catalog"))


@pytest.fixture
def lake(engine: str, catalog: Any, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """An empty lake on each catalog, under each engine."""
    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    yield from open_lake(catalog, tmp_path, remote)


@pytest.fixture
def classic_lake(catalog: Any, tmp_path: Path) -> Iterator[Lake]:
    """An empty lake on each catalog under a classic session, for what the engine makes no difference to."""
    yield from open_lake(catalog, tmp_path, None)


def emptied(catalog: Any) -> Any:
    """Drop what earlier tests left, the namespace too: the first write of a lake makes it."""
    opened = open_catalog(catalog.describe(""))
    if opened.namespace_exists("db"):
        for table in opened.list_tables("db"):
            opened.drop_table(table)
        opened.drop_namespace("db")
    return catalog


@pytest.fixture(scope="session", autouse=True)
def _secrets_are_nowhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whatever the tests have written to files, in tables, logs or Dagster's storage, does not hold the password."""
    yield
    secret = PASSWORD[-8:].encode()
    files = [path for path in tmp_path_factory.getbasetemp().rglob("*") if path.is_file() and not path.is_symlink()]
    assert files
    assert [str(path) for path in files if secret in path.read_bytes()] == []

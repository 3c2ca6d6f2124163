"""Real catalog servers, one of each for the whole run, and lakes on them."""

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from dagster_iceberg_spark import SqlCatalog
from dagster_iceberg_spark.catalog.look import open_catalog
from tests import combinations_page
from tests.combinations_page import PAGE
from tests.core.behaviour import spark_versions
from tests.lakes import Lake, open_lake
from tests.servers import combinations
from tests.servers.azurite import Azurite
from tests.servers.gcs import GcsServer
from tests.servers.hdfs import HdfsServer
from tests.servers.hive import HiveServer
from tests.servers.mysql import MySqlServer
from tests.servers.nessie import Nessie
from tests.servers.postgresql import PASSWORD, PostgreSqlServer
from tests.servers.rest import RestServer
from tests.servers.s3 import S3Server
from tests.servers.trino import Trino
from tests.servers.versity import VersityGateway

_PASSED: Final = pytest.StashKey[set[tuple[str, str]]]()
_TRIED: Final = pytest.StashKey[set[tuple[str, str]]]()


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
def s3() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.close()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    server = HdfsServer(tmp_path_factory.mktemp("hdfs"))
    yield server
    server.kill()


@pytest.fixture(scope="session")
def hive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveServer]:
    server = HiveServer(tmp_path_factory.mktemp("hive"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    server = Azurite(tmp_path_factory.mktemp("azurite"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    server = GcsServer(tmp_path_factory.mktemp("gcs"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySqlServer]:
    server = MySqlServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def versity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGateway]:
    server = VersityGateway(tmp_path_factory.mktemp("versity"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def nessie(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nessie]:
    server = Nessie(tmp_path_factory.mktemp("nessie"), s3)
    yield server
    server.close()


@pytest.fixture(scope="session")
def trino(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    server = Trino(tmp_path_factory.mktemp("trino"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgresql_catalog(postgresql: PostgreSqlServer, tmp_path_factory: pytest.TempPathFactory) -> SqlCatalog:
    return SqlCatalog(uri=postgresql.uri(), warehouse=str(tmp_path_factory.mktemp("postgresql")))


@pytest.fixture(params=["postgresql", "rest", "sqlite", pytest.param("hive", marks=pytest.mark.slow)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The configuration of each catalog, without the namespace `db`.

    A Hive Metastore takes its time for each commit's lock: what differs there is seen by tests of its own too.
    """
    builders = {
        "sqlite": combinations.sqlite,
        "postgresql": combinations.postgresql,
        "rest": combinations.rest,
        "hive": combinations.hive,
        "glue": combinations.glue,
    }
    configured = builders[request.param](combinations.Asked(request, tmp_path, ExitStack()))
    return configured if request.param == "sqlite" else emptied(configured)


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
    opened = open_catalog(catalog.describe())
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Compare what was seen of each combination with the page, and keep it."""
    report: Any = yield
    feature = item.get_closest_marker("feature")
    if feature is not None and report.when == "call":
        place = (item.callspec.params["combination"], feature.args[0])  # type: ignore[attr-defined]
        combinations_page.compare(report, described=_described().get(place, ""), seen="yes")
        item.config.stash.setdefault(_TRIED, set()).add(place)
        if report.passed:
            item.config.stash.setdefault(_PASSED, set()).add(place)
    return report  # type: ignore[no-any-return]


@cache
def _described() -> Mapping[tuple[str, str], str]:
    return combinations.written_cells(PAGE.read_text(encoding="utf-8"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """After a run of the whole grid, write the page, if that is asked for."""
    stash = session.config.stash
    if combinations_page.UPDATE and stash.get(_TRIED, set()) == combinations.expected():
        _, heading, versions = PAGE.read_text(encoding="utf-8").partition(spark_versions.HEADING)
        page = combinations.page(stash.get(_PASSED, set()), dt.date.today())  # noqa: DTZ011 - of the one who runs it
        PAGE.write_text(f"{page}\n{heading}{versions}", encoding="utf-8")

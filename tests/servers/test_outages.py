"""A catalog that goes away, and comes back."""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from sqlalchemy import text

from dagster_iceberg_spark import ConfigurationError, HiveCatalog, RestCatalog, SqlCatalog
from tests.lakes import Lake, frame_asset, open_lake, while_it_writes
from tests.servers.conftest import emptied
from tests.servers.hive import HiveServer
from tests.servers.postgresql import PostgreSqlServer
from tests.servers.rest import RestServer

SECONDS = 15
MANY = 100
APPEND = {"iceberg/write_disposition": "append"}

pytestmark = [pytest.mark.server, pytest.mark.spark]


@pytest.fixture(autouse=True)
def _running(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test stops runs again afterwards."""
    yield
    servers = (name for name in ("rest", "hive") if f"{name}_lake" in request.fixturenames)
    server = request.getfixturevalue(next(servers, "postgresql"))
    if not server.is_running:
        server.start()


@pytest.fixture
def postgresql_lake(postgresql_catalog: SqlCatalog, tmp_path: Path) -> Iterator[Lake]:
    yield from open_lake(emptied(postgresql_catalog), tmp_path, None)


@pytest.fixture
def rest_lake(rest: RestServer, tmp_path: Path) -> Iterator[Lake]:
    yield from open_lake(emptied(RestCatalog(uri=rest.uri)), tmp_path, None)


@pytest.fixture
def hive_lake(hive: HiveServer, tmp_path: Path) -> Iterator[Lake]:
    yield from open_lake(emptied(HiveCatalog(uri=hive.uri, warehouse=str(tmp_path / "wh"))), tmp_path, None)


def reader_of(upstream: dg.AssetsDefinition) -> Any:
    """An asset that reads another without Spark."""

    @dg.asset(ins={"up": dg.AssetIn(upstream.key)})
    def reader(up: pa.Table) -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(metadata={"rows": up.num_rows})

    return reader


def assert_unavailable(lake: Lake, *assets: Any, **kwargs: Any) -> None:
    """The run fails within seconds, and a RetryPolicy would try it again."""
    started = time.monotonic()
    result = lake.materialize(*assets, raise_on_error=False, **kwargs)
    assert time.monotonic() - started < SECONDS
    failure = next(event for event in result.all_events if event.is_step_failure).step_failure_data
    assert failure.error is not None
    assert failure.user_failure_data is None  # a Failure would forbid retries
    assert failure.error.cause is not None
    assert failure.error.cause.cls_name == "CatalogUnavailableError", failure.error.to_string()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
def test_runs_fail_while_postgresql_is_down_and_work_when_it_is_back(
    postgresql_lake: Lake, postgresql: PostgreSqlServer, how: signal.Signals
) -> None:
    lake, asset = postgresql_lake, frame_asset("t", "select 1 as id", metadata=APPEND)
    reader = reader_of(asset)
    lake.materialize(asset)
    postgresql.stop(how)
    assert_unavailable(lake, asset)
    assert_unavailable(lake, reader, asset.to_source_asset(), selection=[reader])
    postgresql.start()
    assert lake.materialize(asset).success
    assert lake.rows("t", "id") == [1, 1]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
def test_a_restart_of_postgresql_between_two_runs_goes_unnoticed(
    postgresql_lake: Lake, postgresql: PostgreSqlServer, how: signal.Signals
) -> None:
    """Connections that both engines kept are dead, and nobody has tried them meanwhile."""
    lake, asset = postgresql_lake, frame_asset("t", "select 1 as id", metadata=APPEND)
    reader = reader_of(asset)
    lake.materialize(asset)
    postgresql.stop(how)
    postgresql.start()
    assert lake.materialize(reader, asset.to_source_asset(), selection=[reader]).success
    assert lake.materialize(asset).success
    assert lake.rows("t", "id") == [1, 1]


def test_runs_fail_while_a_rest_catalog_is_down_and_work_when_it_is_back(rest_lake: Lake, rest: RestServer) -> None:
    lake, asset = rest_lake, frame_asset("t", "select 1 as id", metadata=APPEND)
    lake.materialize(asset)
    rest.stop()
    assert_unavailable(lake, asset)
    rest.start()
    assert lake.materialize(asset).success
    assert lake.rows("t", "id") == [1, 1]


def test_the_first_run_of_a_process_finds_a_dead_catalog(postgresql_lake: Lake, postgresql: PostgreSqlServer) -> None:
    """A catalog of another name is one that nothing has opened yet."""
    unopened = postgresql_lake.spark.catalog.model_copy(update={"name": "unopened"})
    postgresql.stop()
    lakes = open_lake(unopened, postgresql_lake.directory, None)
    assert_unavailable(next(lakes), frame_asset("t", "select 1 as id"))
    next(lakes, None)


@pytest.fixture(scope="module")
def guest(postgresql: PostgreSqlServer) -> str:
    """The URI of a database in which its user may do nothing."""
    postgresql.create_database("closed")
    with postgresql.engine("closed").begin() as connection:
        connection.execute(text("CREATE ROLE guest LOGIN PASSWORD 'guest'"))
        connection.execute(text("REVOKE CREATE ON SCHEMA public FROM PUBLIC"))
    return f"postgresql://guest:guest@127.0.0.1:{postgresql.port}/closed"


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("database", 'database "nowhere" does not exist'),
        ("encryption", "does not support SSL"),
        ("rights", "permission denied for schema public"),
    ],
)
def test_a_fault_of_the_configuration_is_not_said_to_be_an_outage(
    postgresql: PostgreSqlServer, guest: str, tmp_path: Path, fault: str, found: str
) -> None:
    uris = {
        "database": postgresql.uri(database="nowhere"),
        "encryption": f"{postgresql.uri()}?sslmode=require",
        "rights": guest,
    }
    catalog = SqlCatalog(name="amiss", uri=uris[fault], warehouse=str(tmp_path / "wh"))
    for lake in open_lake(catalog, tmp_path, None):
        for name in ("spark_session", "pyiceberg_catalog"):
            with pytest.raises(ConfigurationError, match=found):
                getattr(lake.spark, name)


def test_runs_fail_while_a_hive_metastore_is_down_and_work_when_it_is_back(hive_lake: Lake, hive: HiveServer) -> None:
    lake, asset = hive_lake, frame_asset("t", "select 1 as id", metadata=APPEND)
    reader = reader_of(asset)
    lake.materialize(asset)
    hive.stop()
    assert_unavailable(lake, asset)
    assert_unavailable(lake, reader, asset.to_source_asset(), selection=[reader])
    hive.start()
    assert lake.materialize(asset).success
    assert lake.rows("t", "id") == [1, 1]


def test_the_first_run_of_a_process_finds_a_dead_metastore(hive_lake: Lake, hive: HiveServer) -> None:
    unopened = hive_lake.spark.catalog.model_copy(update={"name": "unopened"})
    hive.stop()
    lakes = open_lake(unopened, hive_lake.directory, None)
    assert_unavailable(next(lakes), frame_asset("t", "select 1 as id"))
    next(lakes, None)


def test_a_restart_of_a_hive_metastore_between_two_runs_goes_unnoticed(hive_lake: Lake, hive: HiveServer) -> None:
    lake, asset = hive_lake, frame_asset("t", "select 1 as id", metadata=APPEND)
    lake.materialize(asset)
    hive.stop()
    hive.start()
    assert lake.materialize(asset).success
    assert lake.rows("t", "id") == [1, 1]


@pytest.mark.parametrize("disposition", ["append", "replace", "merge"])
def test_a_hive_metastore_that_is_killed_and_comes_back_while_spark_writes_loses_nothing(
    hive_lake: Lake, hive: HiveServer, disposition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = {"iceberg/write_disposition": disposition, "iceberg/merge_keys": ["id"]}
    hive_lake.materialize(frame_asset("t", "select 0 as id", metadata=metadata))

    restarted = threading.Event()

    def restart() -> None:
        try:
            hive.stop()
            hive.start()
        finally:
            restarted.set()

    while_it_writes(restart, monkeypatch, seconds=0.1)
    sleeps = "java_method('java.lang.Thread', 'sleep', 2000L) is null"
    query = f"select int(id) + if({sleeps}, 1, 1) as id from range(0, 2, 1, 2)"
    try:
        hive_lake.with_options(commit_attempts=MANY).materialize(frame_asset("t", query, metadata=metadata))
    finally:
        restarted.wait()
    assert hive_lake.rows("t", "id") == ([1, 2] if disposition == "replace" else [0, 1, 2])
    assert len(hive_lake.summaries("t")) == 2

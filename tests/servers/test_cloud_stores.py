"""Tables in the stores of other clouds: what is described once reaches Spark, pyiceberg and the store."""

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from dagster_iceberg_spark import AdlsStore, GcsStore, HadoopStore, SqlCatalog
from dagster_iceberg_spark.config.catalog import StoreConfig
from tests.lakes import Lake, StepError, frame_asset, free_port, open_lake
from tests.servers.azurite import ACCOUNT, KEY, WRONG_KEY, Azurite
from tests.servers.gcs import TOKEN, GcsServer, GuardedGcs
from tests.servers.reading import readers_into

# The first run builds a server.
pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(900)]

DAYS = dg.DailyPartitionsDefinition("2024-03-01", timezone="Europe/Berlin")


@pytest.fixture(params=["azurite", "gcs"])
def server(request: pytest.FixtureRequest) -> Azurite | GcsServer:
    found: Azurite | GcsServer = request.getfixturevalue(request.param)
    return found


def catalog_of(directory: Path, warehouse: str, store: StoreConfig) -> SqlCatalog:
    return SqlCatalog(uri=f"sqlite:///{directory}/catalog.db", warehouse=warehouse, store=store)


@pytest.fixture
def lake(engine: str, server: Azurite | GcsServer, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    yield from open_lake(catalog_of(tmp_path, server.warehouse(tmp_path.name), server.store()), tmp_path, remote)


@pytest.mark.sample(3)
def test_all_that_reads_reads_what_either_engine_wrote(lake: Lake) -> None:
    read: dict[str, list[int]] = {}

    readers = readers_into(read)
    table = frame_asset("t", "select id from range(3)")
    lake.materialize(table)
    lake.table("t").append(pa.table({"id": pa.array([7], pa.int64())}))
    lake.materialize(table, *readers, selection=list(readers))
    assert read == {name: [0, 1, 2, 7] for name in ("spark", "pyarrow", "pandas", "polars")}


@pytest.mark.sample(3)
def test_what_does_not_exist_is_named_and_nothing_is_made(
    engine: str, server: Azurite | GcsServer, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    catalog = catalog_of(tmp_path, server.warehouse("wh", container="no-such-place"), server.store())
    for lake in open_lake(catalog, tmp_path, remote):
        error = lake.failure(frame_asset("t", "select 1 as id"))
        assert error.class_name == "ConfigurationError"
        assert not error.allow_retries
        assert "expected a bucket or container that exists" in str(error)
        assert not lake.exists("t")


@pytest.mark.slow
def test_a_store_that_is_gone_is_an_outage(azurite: Azurite, tmp_path: Path) -> None:
    """Azure's client tries for more than a minute."""
    store = AdlsStore(endpoint=f"http://127.0.0.1:{free_port()}/{ACCOUNT}", account_key=KEY)
    for lake in open_lake(catalog_of(tmp_path, azurite.warehouse("wh"), store), tmp_path, None):
        error = lake.with_options(commit_attempts=1).failure(frame_asset("t", "select 1 as id"))
        assert (error.class_name, error.allow_retries) == ("CatalogUnavailableError", True)


LOGINS = ["signature", "connection string"]


@pytest.mark.parametrize("login", LOGINS)
def test_every_login_of_azure_s_reaches_both_engines(azurite: Azurite, login: str, tmp_path: Path) -> None:
    store = (
        azurite.store(sas_token=azurite.signature())
        if login == "signature"
        else AdlsStore(connection_string=f"BlobEndpoint={azurite.endpoint};AccountName={ACCOUNT};AccountKey={KEY}")
    )
    for lake in open_lake(catalog_of(tmp_path, azurite.warehouse(tmp_path.name), store), tmp_path, None):
        lake.materialize(frame_asset("t", "select id from range(3)"))
        lake.table("t").append(pa.table({"id": pa.array([7], pa.int64())}))
        assert lake.session.table("lake.db.t").count() == 4


@pytest.mark.sample(3)
@pytest.mark.parametrize("login", ["account_key", "sas_token"])
def test_a_wrong_login_is_the_configuration_s_fault_and_is_not_shown(
    engine: str,
    azurite: Azurite,
    login: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    wrong = WRONG_KEY if login == "account_key" else azurite.signature().partition("&sig=")[0] + "&sig=hushhush%3D"
    catalog = catalog_of(tmp_path, azurite.warehouse(tmp_path.name), azurite.store(**{login: wrong}))
    secret = WRONG_KEY if login == "account_key" else "hushhush"
    with caplog.at_level(logging.INFO):
        for lake in open_lake(catalog, tmp_path, remote):
            error = lake.failure(frame_asset("t", "select 1 as id"))
            assert (error.class_name, error.allow_retries) == ("ConfigurationError", False)
            assert f"`{login}`" in str(error)
            shown = [lake.spark, lake.spark.catalog_description, catalog, catalog.store, error, caplog.text]
            assert secret not in "\n".join(f"{item!r}\n{item!s}" for item in shown)


def test_a_reader_with_a_wrong_key_is_told_so(azurite: Azurite, tmp_path: Path) -> None:
    right = catalog_of(tmp_path, azurite.warehouse(tmp_path.name), azurite.store())
    wrong = right.model_copy(update={"store": azurite.store(account_key=WRONG_KEY)})
    table = frame_asset("t", "select 1 as id")
    for lake in open_lake(right, tmp_path, None):
        lake.materialize(table)

    @dg.asset
    def arrow_table(t: pa.Table) -> None: ...

    for lake in open_lake(wrong, tmp_path, None):
        error = lake.failure(table, arrow_table, selection=[arrow_table])
        assert error.class_name == "ConfigurationError"
        assert "`account_key`" in str(error)
        assert WRONG_KEY not in str(error)


@pytest.fixture
def guarded(gcs: GcsServer) -> Iterator[GuardedGcs]:
    """The store behind one that lets no other token pass."""
    with closing(GuardedGcs(gcs.endpoint)) as guarded:
        yield guarded


def test_a_token_reaches_google_s_store_from_both_engines(gcs: GcsServer, tmp_path: Path) -> None:
    guarded = GuardedGcs(gcs.endpoint)
    store = GcsStore(endpoint=guarded.uri, token=TOKEN)
    for lake in open_lake(catalog_of(tmp_path, gcs.warehouse(tmp_path.name), store), tmp_path, None):
        lake.materialize(frame_asset("t", "select id from range(3)"))
        assert lake.rows("t") == [0, 1, 2]
    passed, refused = guarded.close()
    assert passed > 10
    assert refused == 0


def test_a_wrong_token_is_the_configuration_s_fault_for_who_writes_and_who_reads(
    gcs: GcsServer, guarded: GuardedGcs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = frame_asset("t", "select 1 as id")
    right = catalog_of(tmp_path, gcs.warehouse(tmp_path.name), gcs.store())
    wrong = right.model_copy(update={"store": GcsStore(endpoint=guarded.uri, token="ya29.wrong-hush")})
    failures: list[StepError] = []
    for lake in open_lake(wrong, tmp_path, None):
        failures += [lake.failure(table)]
    for lake in open_lake(right, tmp_path, None):
        lake.materialize(table)

    @dg.asset
    def arrow_table(t: pa.Table) -> None: ...

    for lake in open_lake(wrong, tmp_path, None):
        failures += [lake.failure(table, arrow_table, selection=[arrow_table])]
    assert [(item.class_name, item.allow_retries) for item in failures] == [("ConfigurationError", False)] * 2
    assert all("`token`" in str(item) for item in failures)
    assert "wrong-hush" not in f"{failures!r}{wrong!r}{caplog.text}"


@pytest.mark.parametrize("warehouse", ["gs://lake/wh", "abfss://lake@account.dfs.core.windows.net/wh", "s3a://lake/wh"])
def test_a_scheme_whose_client_is_not_there_asks_for_the_store(warehouse: str, tmp_path: Path) -> None:
    catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=warehouse)
    for lake in open_lake(catalog, tmp_path, None):
        error = lake.failure(frame_asset("t", "select 1 as id"))
        assert (error.class_name, error.allow_retries) == ("SparkEnvironmentError", False)
        assert "`store`" in str(error)


def test_hadoop_s_configuration_is_the_catalog_s_alone(tmp_path: Path) -> None:
    """Hadoop's own client of the local disk takes the mask from it."""
    modes = {}
    for mask in ("077", "027"):
        directory = tmp_path / mask
        directory.mkdir()
        configuration = {"fs.permissions.umask-mode": mask, "fs.file.impl.disable.cache": "true"}
        store = HadoopStore(configuration=configuration)
        for lake in open_lake(catalog_of(directory, str(directory / "wh"), store), directory, None):
            lake.materialize(frame_asset("t", "select id from range(3)"))
            assert lake.rows("t") == [0, 1, 2]
        modes[mask] = {oct(path.stat().st_mode)[-3:] for path in (directory / "wh").rglob("*.parquet")}
    assert modes == {"077": {"600"}, "027": {"640"}}

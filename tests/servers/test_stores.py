"""Tables in an object store: what is described once reaches Spark, pyiceberg and the store."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pyarrow as pa
import pytest

from dagster_iceberg_spark import AwsCredentials, GlueCatalog, RestCatalog, S3Store, SigV4, SqlCatalog
from dagster_iceberg_spark.config.rest_catalog import NoAuthentication
from tests.lakes import Lake, frame_asset, open_lake
from tests.servers.combinations import VENDED
from tests.servers.guards import GuardedProxy, LateStore, SigningProxy, VendingProxy, takes_keys, takes_sigv4
from tests.servers.reading import readers_into
from tests.servers.rest import RestServer
from tests.servers.s3 import KEYS, REGION, S3Server
from tests.servers.versity import VersityGateway

pytestmark = [pytest.mark.server, pytest.mark.spark]

DAYS = dg.DailyPartitionsDefinition("2024-03-01", timezone="Europe/Berlin")


def catalog_of(s3: S3Server, directory: Path, credentials: AwsCredentials | None = None) -> SqlCatalog:
    return SqlCatalog(
        uri=f"sqlite:///{directory}/catalog.db",
        warehouse=f"s3://{s3.bucket}/{directory.name}",
        store=s3.store() if credentials is None else s3.store(credentials),
    )


@pytest.fixture
def s3_lake(engine: str, s3: S3Server, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    yield from open_lake(catalog_of(s3, tmp_path), tmp_path, remote)


def test_all_that_reads_without_a_jvm_reads_the_store(s3_lake: Lake) -> None:
    read: dict[str, list[int]] = {}

    table = frame_asset("t", "select id from range(4)")
    s3_lake.materialize(table, *readers_into(read))
    assert read == {name: [0, 1, 2, 3] for name in ("spark", "pyarrow", "pandas", "polars")}


def test_a_bucket_that_does_not_exist_is_named_and_nothing_is_made(s3: S3Server, tmp_path: Path) -> None:
    catalog = catalog_of(s3, tmp_path).model_copy(update={"warehouse": "s3://no-such-bucket/wh"})
    for lake in open_lake(catalog, tmp_path, None):
        error = lake.failure(frame_asset("t", "select 1 as id"))
        assert error.class_name == "ConfigurationError"
        assert not error.allow_retries
        assert "expected a bucket or container that exists" in str(error)
        assert not lake.exists("t")


PROGRAM = """
import sys, time
import dagster as dg
from pathlib import Path
from dagster_iceberg_spark import AwsCredentials, IcebergPySparkIOManager, IcebergSparkResource, S3Store, SqlCatalog
from dagster_iceberg_spark.config.rest_catalog import NoAuthentication
from dagster_iceberg_spark.catalog import aws_credentials as found
from dagster_iceberg_spark.catalog.description import AwsKeys
from dagster_iceberg_spark.spark.session import jvm_credentials as credentials

endpoint, directory, role = sys.argv[1:]
given = AwsCredentials(role_arn=role, external_id="lake-7") if role else AwsCredentials()
catalog = SqlCatalog(
    uri=f"sqlite:///{directory}/catalog.db",
    warehouse=f"s3://lake/{Path(directory).name}",
    store=S3Store(endpoint=endpoint, path_style_access=True, credentials=given),
)
spark = IcebergSparkResource(catalog=catalog, spark_config={"spark.master": "local[2]", "spark.ui.enabled": "false"})

@dg.asset(io_manager_key="iceberg", metadata={"iceberg/write_disposition": "append"})
def t(spark: IcebergSparkResource):
    return spark.spark_session.range(2)

def run():
    io_manager = IcebergPySparkIOManager(spark=spark, namespace="db")
    dg.materialize([t], resources={"spark": spark, "iceberg": io_manager})

credentials.REFRESH_SECONDS = 0.2
run()
identity = spark.catalog_description.aws
system = spark.spark_session._jvm.java.lang.System
keys = found.current_keys(identity)
assert system.getProperty("aws.accessKeyId") == keys.access_key_id
print("keys", keys.access_key_id[:4], bool(keys.session_token))
first = spark.pyiceberg_catalog
if role:
    signing = found.session_of(identity).get_credentials()  # boto3 is to take them for expired
    signing._expiry_time = signing._time_fetcher()
    signing._refresh_using.__self__._cache.clear()
    deadline = time.monotonic() + 60
    while system.getProperty("aws.accessKeyId") == keys.access_key_id and time.monotonic() < deadline:
        time.sleep(0.1)
    assert system.getProperty("aws.accessKeyId") == found.current_keys(identity).access_key_id != keys.access_key_id
    assert spark.pyiceberg_catalog is not first
run()
print("rows", spark.pyiceberg_catalog.load_table(("db", "t")).scan().to_arrow().num_rows)
"""


@pytest.mark.parametrize("role", ["", "arn:aws:iam::123456789012:role/lake"], ids=["environment", "role"])
def test_what_boto3_finds_signs_in_both_engines_and_is_renewed(
    s3: S3Server, role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process, and so a JVM, of its own: it starts with that environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hushhush")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", s3.endpoint)
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)  # set once this process has used Spark Connect
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, s3.endpoint, str(tmp_path), role]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr[-6000:]
    found = "keys ASIA True" if role else "keys AKIA False"
    assert done.stdout.splitlines()[-2:] == [found, "rows 4"]
    assert "hushhush" not in done.stdout + done.stderr


@pytest.fixture
def glue_lake(s3: S3Server, tmp_path: Path) -> Iterator[Lake]:
    catalog = GlueCatalog(
        warehouse=f"s3://{s3.bucket}/{tmp_path.name}",
        region=REGION,
        endpoint=s3.endpoint,
        credentials=KEYS,
        store=s3.store(),
    )
    yield from open_lake(catalog, tmp_path, None)


def test_a_clock_that_is_wrong_is_named_by_who_writes_and_who_reads(s3: S3Server, tmp_path: Path) -> None:
    upstream = frame_asset("t", "select 1 as id")

    @dg.asset
    def arrow_table(t: pa.Table) -> None: ...

    with closing(LateStore(s3.endpoint)) as late:
        store = S3Store(endpoint=late.uri, path_style_access=True, region=REGION, credentials=KEYS)
        catalog = SqlCatalog(
            uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"s3://{s3.bucket}/{tmp_path.name}", store=store
        )
        for lake in open_lake(catalog, tmp_path, None):
            lake.materialize(upstream)
            before = lake.head("t").snapshot_id
            for asset in (upstream, arrow_table):
                late.is_late = True
                error = lake.failure(
                    asset, *([upstream.to_source_asset()] if asset is arrow_table else []), selection=[asset]
                )
                late.is_late = False
                assert (error.class_name, error.allow_retries) == ("ConfigurationError", False), str(error)
                assert "the clock of this machine" in str(error)  # of what it asks first, the store gives no reason
            assert lake.head("t").snapshot_id == before


@pytest.mark.sample(2)
@pytest.mark.parametrize("path", ["/v1/aws/s3/sign", "/v1/tables/sign"], ids=["default", "told"])
def test_a_rest_catalog_signs_each_request(
    versity: VersityGateway, path: str, engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """To a store that checks signatures, of which this process has no key."""
    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    read: list[int] = []

    @dg.asset
    def arrow_table(t: pa.RecordBatchReader) -> None:
        read.extend(sorted(t.read_all().column("id").to_pylist()))

    own = versity.store().describe()
    served = {"warehouse": f"s3://{versity.bucket}/{tmp_path.name}", **own.spark, **own.spark_secrets}
    keys = versity.keys
    with (
        closing(RestServer(tmp_path, served)) as server,
        closing(
            SigningProxy(
                server.uri, str(keys.access_key_id), str(keys.secret_access_key), path=path, is_told="tables" in path
            )
        ) as signing,
    ):
        store = S3Store(endpoint=versity.endpoint, path_style_access=True, region=REGION)
        catalog = RestCatalog(uri=signing.uri, access_delegation="remote-signing", store=store)
        for lake in open_lake(catalog, tmp_path, remote):
            for _ in range(2):
                lake.materialize(frame_asset("t", "select id from range(4)"), arrow_table)
            assert len(lake.summaries("t")) == 2
    assert read == [0, 1, 2, 3] * 2
    assert {"GET", "PUT"} <= {method for method, _ in signing.signed}


SIGNED: Final = SigV4(region=REGION, service="s3tables", credentials=KEYS)
SIGNATURE: Final = takes_sigv4(str(KEYS.access_key_id), str(KEYS.secret_access_key), REGION, "s3tables")


@pytest.mark.sample(2)
@pytest.mark.parametrize("login", [NoAuthentication(), SIGNED], ids=["taken by everyone", "signed for with others"])
def test_a_rest_catalog_hands_out_the_keys(
    s3: S3Server, login: Any, engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The store takes no other keys than those; the catalog takes none, or, as AWS's own, none but its own."""
    remote = request.getfixturevalue("connect_server") if engine == "connect" else None
    read: list[int] = []

    @dg.asset
    def arrow_table(t: pa.Table) -> None:
        read.extend(sorted(t.column("id").to_pylist()))

    own = s3.store().describe()
    served = {"warehouse": f"s3://{s3.bucket}/{tmp_path.name}", **own.spark, **own.spark_secrets}
    with (
        closing(RestServer(tmp_path, served)) as server,
        closing(VendingProxy(server.uri, {f"s3.{name}": value for name, value in VENDED.items()})) as vending,
        closing(GuardedProxy(s3.endpoint, takes_keys(VENDED["access-key-id"], VENDED["session-token"]))) as guarded,
        closing(GuardedProxy(vending.uri, SIGNATURE if login is SIGNED else lambda _: True)) as door,
    ):
        store = S3Store(endpoint=guarded.uri, path_style_access=True, region=REGION)
        catalog = RestCatalog(uri=door.uri, access_delegation="vended-credentials", store=store, authentication=login)
        for lake in open_lake(catalog, tmp_path, remote):
            for _ in range(2):
                lake.materialize(frame_asset("t", "select id from range(4)"), arrow_table)
            assert len(lake.summaries("t")) == 2
    assert read == [0, 1, 2, 3] * 2
    assert guarded.passed
    assert (guarded.refused, door.refused) == (0, 0)

"""One behaviour, every combination of catalog and store; docs/combinations.md is written from what passes."""

import datetime as dt
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyspark.sql import DataFrame

from dagster_iceberg_spark import (
    AwsCredentials,
    IcebergPySparkIOManager,
    IcebergSparkResource,
    OAuth2,
    RestCatalog,
    build_release,
)
from dagster_iceberg_spark.catalog import transaction
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.catalog.transaction import recognizes_repetitions
from dagster_iceberg_spark.features.maintenance import spark as maintenance
from dagster_iceberg_spark.features.releases import release_step as step
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.table.identifier import TableIdentifier
from tests.features.maintenance.maintaining import AT_ONCE, figures, maintain
from tests.lakes import SPARK_CONF, Before, Lake, frame_asset, free_port, hours_asset, metadata_of, open_lake
from tests.servers import nessie
from tests.servers.azurite import WRONG_KEY
from tests.servers.combinations import COMBINATIONS, IMPOSSIBLE, Asked, is_asked_for_keys, sampled
from tests.servers.conftest import emptied

# The first run builds a server.
pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(900)]

DAYS = dg.DailyPartitionsDefinition("2024-03-01", timezone="Europe/Berlin")
MERGE = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}
APPEND = {"iceberg/write_disposition": "append"}
SOME_OF_REST = ("REST (Iceberg's reference server), local files", "Nessie, S3 (moto)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    feature = metafunc.definition.get_closest_marker("feature")
    if feature is not None:
        names = [name for name in COMBINATIONS if (name, feature.args[0]) not in IMPOSSIBLE]
        cases = [
            pytest.param(name, marks=() if (name, feature.args[0]) in sampled() else pytest.mark.slow) for name in names
        ]
        metafunc.parametrize("combination", cases)


@pytest.fixture
def configured(combination: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:
        catalog = COMBINATIONS[combination](Asked(request, tmp_path, stack))
        yield catalog if catalog.kind == "hadoop" else emptied(catalog)


@pytest.fixture
def lake(configured: Any, tmp_path: Path) -> Iterator[Lake]:
    yield from open_lake(configured, tmp_path, None)


def another(lake: Lake, **changes: Any) -> Lake:
    """A lake on the same catalog with a session of its own, or on another one."""
    catalog = changes.pop("catalog", lake.spark.catalog)
    spark = IcebergSparkResource(catalog=catalog, spark_config={**SPARK_CONF, **changes}, jars="provided")
    return Lake(spark, IcebergPySparkIOManager(spark=spark, namespace="db"), lake.instance, lake.directory)


def summaries(lake: Lake, name: str) -> Sequence[Mapping[str, str]]:
    """The summaries of all snapshots; Nessie's catalog shows the newest alone, and Nessie itself knows the others."""
    server = nessie.RUNNING.get(getattr(lake.spark.catalog, "uri", ""))
    return server.summaries(f"db.{name}") if server else lake.summaries(name)


def write_and_read(lake: Lake) -> None:
    read: list[list[int]] = []

    @dg.asset
    def by_spark(t: DataFrame) -> None:
        read.append(sorted(row.id for row in t.collect()))

    @dg.asset
    def by_pyiceberg(t: pa.Table) -> None:
        read.append(sorted(t.column("id").to_pylist()))

    for rows in (2, 3):
        lake.materialize(frame_asset("t", f"select id from range({rows})"), by_spark, by_pyiceberg)
    assert read == [[0, 1], [0, 1], [0, 1, 2], [0, 1, 2]]
    assert len(summaries(lake, "t")) == 2


@pytest.mark.feature("classic Spark")
def test_spark_writes_and_both_engines_read(lake: Lake) -> None:
    write_and_read(lake)


@pytest.mark.connect
@pytest.mark.feature("Spark Connect")
def test_spark_connect_writes_and_both_engines_read(configured: Any, connect_server: str, tmp_path: Path) -> None:
    for lake in open_lake(configured, tmp_path, connect_server):
        write_and_read(lake)


@pytest.mark.feature("written by pyiceberg")
def test_what_pyiceberg_made_is_read_and_written_on(lake: Lake) -> None:
    catalog = lake.spark.pyiceberg_catalog
    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table(("db", "t"), Schema(NestedField(1, "id", LongType())))
    table.append(pa.table({"id": pa.array([7], pa.int64())}))
    read: list[int] = []

    @dg.asset
    def reader(t: DataFrame) -> None:
        read.extend(row.id for row in t.collect())

    asset = frame_asset("t", "select 8L as id", metadata=APPEND)
    lake.materialize(reader, asset.to_source_asset(), selection=[reader])
    lake.materialize(asset)
    lake.table("t").append(pa.table({"id": pa.array([9], pa.int64())}))
    assert read == [7]
    assert lake.rows("t", "id") == [7, 8, 9]


@pytest.mark.feature("Arrow")
def test_arrow_and_spark_write_in_turn(lake: Lake) -> None:
    """With a catalog in a directory, Arrow refuses the table before anything is written."""

    @dg.asset(name="t", io_manager_key="iceberg", partitions_def=DAYS, metadata={"partition_expr": "ts"})
    def by_arrow(context: dg.AssetExecutionContext) -> pa.Table:
        start, end = (int(edge.timestamp()) for edge in context.partition_time_window)
        hours = pa.array(range(start, end, 3600), pa.timestamp("s", "UTC"))
        return pa.table({"ts": hours, "v": pa.array([len(hours)] * len(hours))})

    arrow = lake.with_options(engine="arrow")
    if lake.spark.catalog.kind == "hadoop":
        error = arrow.failure(by_arrow, partition_key="2024-03-30")
        assert error.class_name == "EngineUnfitError"
        lake.materialize(by_arrow, partition_key="2024-03-30")
        return
    by_spark = hours_asset("t", "1L", partitions_def=DAYS)
    arrow.materialize(by_arrow, partition_key="2024-03-31")
    lake.materialize(by_spark, partition_key="2024-03-30")
    lake.materialize(by_spark, partition_key="2024-03-31")
    arrow.materialize(by_arrow, partition_key="2024-03-30")
    read: list[int] = []

    @dg.asset(ins={"t": dg.AssetIn(partition_mapping=dg.AllPartitionMapping())})
    def reader(t: DataFrame) -> None:
        read.extend(row.v for row in t.collect())

    lake.materialize(reader, by_spark.to_source_asset(), selection=[reader])
    assert sorted(read) == [1] * 23 + [24] * 24
    assert lake.rows("t", "v") == sorted(read)
    assert [int(item["added-records"]) for item in summaries(lake, "t")] == [23, 24, 23, 24]


@pytest.mark.feature("replace")
def test_a_partition_is_replaced_exactly(lake: Lake) -> None:
    for value, day in (("1", "2024-03-30"), ("1", "2024-03-31"), ("2", "2024-03-31")):
        lake.materialize(hours_asset(value=value, partitions_def=DAYS), partition_key=day)
    starts = [row["ts"] for row in lake.arrow("hours").to_pylist() if row["v"] == 2]
    assert len(starts) == 23, "the day on which the clocks go forward"
    assert min(starts) == dt.datetime(2024, 3, 30, 23, tzinfo=dt.timezone.utc)
    assert len(lake.rows("hours", "v")) == 24 + 23
    assert len(summaries(lake, "hours")) == 3


@pytest.mark.feature("append")
def test_rows_are_added_once_for_each_run(lake: Lake) -> None:
    for _ in range(2):
        lake.materialize(frame_asset("t", "select 1 as id", metadata=APPEND))
    assert lake.rows("t", "id") == [1, 1]
    assert [summary["operation"] for summary in summaries(lake, "t")] == ["append", "append"]


@pytest.mark.feature("merge")
def test_rows_are_updated_by_their_keys(lake: Lake) -> None:
    lake.materialize(frame_asset("t", "select * from values (1, 'a'), (2, 'b') as t(id, n)", metadata=MERGE))
    lake.materialize(frame_asset("t", "select * from values (3, 'c'), (2, 'B') as t(id, n)", metadata=MERGE))
    assert lake.rows("t", "id", "n") == [(1, "a"), (2, "B"), (3, "c")]
    assert len(summaries(lake, "t")) == 2


@pytest.mark.feature("lineage")
def test_the_snapshot_says_who_made_it(lake: Lake) -> None:
    asset = frame_asset("t", "select {start} as ts", partitions_def=DAYS, metadata={"partition_expr": "ts"})
    result = lake.materialize(asset, partition_key="2024-03-02")
    [summary] = summaries(lake, "t")
    assert (summary["dagster.run_id"], summary["dagster.asset_key"]) == (result.run_id, "t")
    assert summary["dagster.partition_keys"] == "2024-03-02"
    assert "dagster.commit_token" in summary


@pytest.mark.feature("audits")
def test_rows_that_pass_their_audits_are_published_and_others_are_not(lake: Lake, before_publication: Before) -> None:
    metadata = {"partition_expr": "ts", "iceberg/audits": {"plausible": "min(v) > 0", "some": "count(*) > 0"}}

    def run(value: int, day: str, **audits: Any) -> None:
        asset = hours_asset(value=str(value), partitions_def=DAYS, metadata={**metadata, **audits})
        lake.materialize(asset, partition_key=day)

    run(1, "2024-03-01")
    failing = hours_asset(value="-1", partitions_def=DAYS, metadata=metadata)
    assert lake.failure(failing, partition_key="2024-03-01").class_name == "AuditFailedError"
    assert lake.rows("hours", "v") == [1] * 24
    before_publication(lambda: run(3, "2024-03-02", **{"iceberg/audits": {}}))
    run(2, "2024-03-01")
    assert lake.rows("hours", "v") == [2] * 24 + [3] * 24


def release_of(value: int) -> list[Any]:
    """Return two assets and their release."""
    metadata = {"partition_expr": "ts", "iceberg/publish": "release"}
    members = [hours_asset(name, str(value), partitions_def=DAYS, metadata=metadata) for name in ("t1", "t2")]
    return [*members, build_release("release", members)]


@pytest.mark.feature("release one by one")
def test_a_release_publishes_what_the_run_has_staged(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []
    publish = getattr(step, "publish")  # noqa: B009 - not exported

    def published(*args: Any, **kwargs: Any) -> Any:
        seen.append(lake.rows("t1", "v"))
        other = hours_asset("t1", "3", partitions_def=DAYS, metadata={"partition_expr": "ts"})
        lake.materialize(other, partition_key="2024-03-02")
        return publish(*args, **kwargs)

    lake.materialize(*release_of(1), partition_key="2024-03-01")
    before = lake.rows("t1", "v")
    if lake.spark.catalog.kind != "hadoop":  # there, only an engine commits, and no file is committed again
        monkeypatch.setattr(step, "publish", published)
    lake.materialize(*release_of(2), partition_key="2024-03-01")
    is_beside = bool(seen)
    assert (before, seen) == ([1] * 24, [[1] * 24] if is_beside else [])
    assert lake.rows("t1", "v") == [2] * 24 + ([3] * 24 if is_beside else [])
    assert (lake.rows("t2", "v"), list(lake.table("t2").metadata.refs)) == ([2] * 24, ["main"])


@pytest.mark.feature("release at one instant")
def test_a_release_publishes_all_tables_or_none(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.materialize(*release_of(1), partition_key="2024-03-01")
    commit, seen = getattr(transaction, "commit_tables"), list[list[int]]()  # noqa: B009 - not exported

    def committed(*args: Any) -> bool:
        if not seen:
            other = hours_asset("t2", "3", partitions_def=DAYS, metadata={"partition_expr": "ts"})
            lake.materialize(other, partition_key="2024-03-02")
            is_made: bool = commit(*args)
            seen.append([len(lake.rows(name, "v")) for name in ("t1", "t2")])
            return is_made
        return bool(commit(*args))

    monkeypatch.setattr(transaction, "commit_tables", committed)
    result = lake.materialize(*release_of(2), partition_key="2024-03-01")
    assert seen == [[24, 48]]
    assert (lake.rows("t1", "v"), lake.rows("t2", "v")) == ([2] * 24, [2] * 24 + [3] * 24)
    assert metadata_of(result, "release")["iceberg/atomic"] is True


@dg.asset(
    io_manager_key="iceberg",
    metadata=APPEND,
    ins={"t": dg.AssetIn(metadata={"iceberg/read": "changes"}, partition_mapping=dg.AllPartitionMapping())},
)
def changes(t: pa.Table) -> pa.Table:
    return t.select(["v"])


@pytest.mark.feature("maintenance")
def test_a_table_is_maintained_and_a_reader_of_changes_goes_on(lake: Lake, combination: str) -> None:
    asset = hours_asset("t", partitions_def=DAYS, metadata={"partition_expr": "ts", **APPEND})
    for _ in range(3):
        lake.materialize(asset, partition_key="2024-03-01")
    lake.materialize(asset, changes, selection=[changes])
    read = lake.head("t").snapshot_id
    for _ in range(2):
        lake.materialize(asset, partition_key="2024-03-02")
    # Azurite has no Data Lake endpoint, by which Iceberg lists files.
    policy = AT_ONCE.model_copy(update={"remove_orphans": "Azurite" not in combination})
    found = maintain(lake, asset, changes, policy=policy)["t"]
    before, after = figures(found)["files"]
    assert before >= 5 > after
    left = {snapshot.snapshot_id for snapshot in lake.table("t").snapshots()}
    assert (read in left, len(left) < 7) == (True, True)
    lake.materialize(asset, changes, selection=[changes])
    assert (len(lake.rows("t")), len(lake.rows("changes"))) == (5 * 24, 5 * 24)
    removes_an_orphan(lake)


def removes_an_orphan(lake: Lake) -> None:
    """Remove a file as the second run does, which has found it in the list of the first."""
    table, state = lake.table("t"), look(lake.spark.catalog_description, TableIdentifier(("db",), "t"))
    assert state is not None
    path = f"{table.location()}/data/orphan.parquet"
    with table.io.new_output(path).create() as stream:
        stream.write(b"nothing")
    two_days_ago = sql.instant(int((time.time() - 2 * 86_400) * 1000))
    listed = path.replace("file:///", "file:/")
    assert maintenance._remove(lake.spark.iceberg_session, state, [listed], two_days_ago) == [listed]
    assert not table.io.new_input(path).exists()
    assert len(lake.rows("t")) == 5 * 24


def test_a_rest_server_commits_all_tables_in_one_request(rest: Any, tmp_path: Path) -> None:
    """Iceberg's reference server takes the request. That it commits one table after the other, nobody sees here."""
    catalog = emptied(RestCatalog(uri=rest.uri, atomic_transactions=True))
    for lake in open_lake(catalog, tmp_path, None):
        for value in (1, 2):
            result = lake.materialize(*release_of(value), partition_key="2024-03-01")
        assert (lake.rows("t1", "v"), lake.rows("t2", "v")) == ([2] * 24, [2] * 24)
        assert metadata_of(result, "release")["iceberg/atomic"] is True


def race(lake: Lake, days: list[str], **options: Any) -> None:
    """Let as many sessions as there are days write at once, as runs of their own would."""
    lakes = [another(lake, **{"spark.sql.shuffle.partitions": str(3 + number)}) for number in range(len(days))]
    metadata = {"partition_expr": "ts", **options}

    def write(writer: Lake, day: str) -> bool:
        asset = frame_asset("t", "select {start} as ts, id from range(2)", partitions_def=DAYS, metadata=metadata)
        with dg.DagsterInstance.ephemeral() as instance:
            writer.instance = instance
            return writer.materialize(asset, partition_key=day).success

    with ThreadPoolExecutor(len(lakes)) as pool:
        assert all(pool.map(write, lakes, days))


@pytest.mark.feature("first writes race")
def test_the_first_partitions_race_and_none_is_lost(lake: Lake) -> None:
    days = ["2024-03-01", "2024-03-02", "2024-03-03"]
    race(lake, days)
    assert len(lake.rows("t", "id")) == 6
    assert sorted(summary["dagster.partition_keys"] for summary in summaries(lake, "t")) == days


@pytest.mark.feature("commit conflicts")
def test_writers_of_one_file_s_rows_come_one_after_the_other(lake: Lake) -> None:
    """Unpartitioned, so that each has to rewrite the file that the others rewrite too."""
    lake.materialize(
        frame_asset(
            "t",
            "select timestamp_seconds(1709247600 + 86400 * id) as ts, 7L as id from range(3)",
            metadata={"iceberg/table": "db.t"},
        )
    )
    race(lake, ["2024-03-01", "2024-03-02", "2024-03-03"], **{"iceberg/table": "db.t"})
    assert lake.rows("t", "id") == [0, 0, 0, 1, 1, 1]
    assert len(summaries(lake, "t")) == 4


def of_session(lake: Lake) -> dg.AssetsDefinition:
    """An asset that does not ask the resource for its session."""

    @dg.asset(io_manager_key="iceberg")
    def t() -> Any:
        return lake.session.range(1)

    return t


@pytest.mark.feature("refused login")
def test_a_refused_login_is_the_configuration_s_fault(
    lake: Lake, combination: str, request: pytest.FixtureRequest
) -> None:
    catalog = lake.spark.catalog
    if catalog.kind == "rest":
        wrong: dict[str, Any] = {"authentication": OAuth2(client_id="dagster", client_secret="amiss")}
    elif catalog.store.kind == "adls":
        wrong = {"store": catalog.store.model_copy(update={"account_key": WRONG_KEY})}
    elif catalog.store.kind == "s3":
        amiss = AwsCredentials(access_key_id="LAKEKEEPER", secret_access_key="amiss")
        wrong = {"store": catalog.store.model_copy(update={"credentials": amiss})}
    else:
        database = urlsplit(getattr(catalog, "uri", "")).scheme
        wrong = {"uri": request.getfixturevalue(database).uri(password="amiss")}
    bad = another(lake, catalog=catalog.model_copy(update=wrong))
    error = bad.failure(of_session(lake))
    assert error.class_name == "ConfigurationError", error
    assert not error.allow_retries
    assert "amiss" not in str(error)
    assert not lake.exists("t")


@pytest.mark.feature("server down")
def test_a_server_that_is_down_is_told_apart(lake: Lake, request: pytest.FixtureRequest) -> None:
    catalog, port = lake.spark.catalog, free_port()
    field = {"glue": "endpoint", "hadoop": "warehouse"}.get(catalog.kind, "uri")
    if catalog.kind == "sql":
        nowhere = request.getfixturevalue(urlsplit(catalog.uri).scheme).uri(port=port)
    else:
        there = urlsplit(getattr(catalog, field))
        nowhere = f"{there.scheme}://127.0.0.1:{port}{there.path if field == 'warehouse' else ''}"
    bad = another(lake, catalog=catalog.model_copy(update={field: nowhere}))
    error = bad.failure(of_session(lake))
    assert error.class_name == "CatalogUnavailableError", error
    assert error.allow_retries
    assert not lake.exists("t")


@pytest.mark.parametrize(
    "combination",
    [
        pytest.param(name, marks=() if name in SOME_OF_REST else pytest.mark.slow)
        for name in filter(is_asked_for_keys, COMBINATIONS)
    ],
)
def test_the_server_announces_no_keys_for_commits(configured: Any) -> None:
    """Once this fails, the page has a column to fill (`IMPOSSIBLE`)."""
    assert not recognizes_repetitions(configured.describe())

"""What is particular to a Hive Metastore: names, column types, locks, and answers that get lost."""

import getpass
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import pytest
from hive_metastore.ttypes import (
    FieldSchema,
    LockComponent,
    LockLevel,
    LockRequest,
    LockType,
    SerDeInfo,
    ShowLocksRequest,
    StorageDescriptor,
    Table,
)

from dagster_iceberg_spark import HiveCatalog
from dagster_iceberg_spark.catalog.damage import forget_unmade
from dagster_iceberg_spark.table.identifier import TableIdentifier
from tests.lakes import Lake, error_of, frame_asset, free_port, open_lake
from tests.servers.conftest import emptied
from tests.servers.hive import HiveServer
from tests.servers.metastore import COMMIT, FaultyMetastore, Lost

FULL = {"iceberg/schema_evolution": "full"}
APPEND = {"iceberg/write_disposition": "append"}
MANY = 50

pytestmark = [pytest.mark.server, pytest.mark.spark]


@pytest.fixture
def hive_lake(hive: HiveServer, tmp_path: Path) -> Iterator[Lake]:
    yield from open_lake(emptied(HiveCatalog(uri=hive.uri, warehouse=str(tmp_path / "wh"))), tmp_path, None)


@pytest.fixture
def faulty(hive: HiveServer) -> Iterator[FaultyMetastore]:
    server = FaultyMetastore(hive.port)
    yield server
    server.close()


@pytest.fixture
def faulty_lake(faulty: FaultyMetastore, hive: HiveServer, tmp_path: Path) -> Iterator[Lake]:
    """A lake behind a metastore that loses what a test asks it to; its table is there."""
    catalog = emptied(HiveCatalog(uri=faulty.uri, warehouse=str(tmp_path / "wh")))
    for lake in open_lake(catalog, tmp_path, None):
        lake.materialize(frame_asset("t", "select 0 as id", metadata=APPEND))
        yield lake
        faulty.heal()


def client_of(lake: Lake) -> Any:
    """A Thrift client of the metastore, which each `with` opens."""
    catalog: Any = lake.spark.pyiceberg_catalog
    return catalog._client


def write_at_once(lake: Lake, names: list[str]) -> None:
    """Materialize an asset of each name, each in a run of its own."""

    def write(name: str) -> bool:
        with dg.DagsterInstance.ephemeral() as instance:
            return replace(lake, instance=instance).materialize(frame_asset(name, "select 1 as id")).success

    with ThreadPoolExecutor(len(names)) as pool:
        assert all(pool.map(write, names))


@contextmanager
def hive_table(lake: Lake, name: str) -> Iterator[None]:
    """A table of text files, which Iceberg has nothing to do with."""
    text = "org.apache.hadoop.mapred.TextInputFormat"
    output = "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"
    lines = SerDeInfo(serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe")
    columns = [FieldSchema("id", "int", None)]
    storage = StorageDescriptor(columns, f"{lake.directory}/plain", text, output, serdeInfo=lines)
    lake.spark.pyiceberg_catalog.create_namespace_if_not_exists("db")
    with client_of(lake) as client:
        client.create_table(Table(name, "db", "me", sd=storage, parameters={}, tableType="MANAGED_TABLE"))
    try:
        yield
    finally:
        with client_of(lake) as client:
            client.drop_table("db", name, deleteData=False)


def locks(lake: Lake, table: str) -> int:
    with client_of(lake) as client:
        return len(client.show_locks(ShowLocksRequest(dbname="db", tablename=table)).locks)


def lock(lake: Lake, table: str) -> None:
    """Take the lock that a writer takes, and forget it."""
    component = LockComponent(
        level=LockLevel.TABLE, type=LockType.EXCLUSIVE, dbname="db", tablename=table, isTransactional=True
    )
    with client_of(lake) as client:
        client.lock(LockRequest(component=[component], user=getpass.getuser(), hostname="gone"))


def test_a_table_of_plain_hive_is_left_alone(hive_lake: Lake) -> None:
    with hive_table(hive_lake, "t"):
        error = hive_lake.failure(frame_asset("t", "select 1 as id"))
    assert (error.class_name, error.allow_retries) == ("NotAnIcebergTableError", False)
    assert not (hive_lake.directory / "wh").exists()


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        ({"iceberg/table": "db.`a-b`"}, "a-b is not a valid object name"),
        ({"schema": "a-b"}, "a-b is not a valid database name"),
        ({"schema": "a.b"}, "found 2 levels"),
    ],
)
def test_a_name_that_hive_does_not_take_is_refused(hive_lake: Lake, metadata: dict[str, str], found: str) -> None:
    error = hive_lake.failure(frame_asset("t", "select 1 as id", metadata=metadata))
    assert (error.class_name, error.allow_retries) == ("ConfigurationError", False)
    assert found in str(error)


def test_names_that_differ_in_case_alone_are_one_table(hive_lake: Lake) -> None:
    for _ in range(2):
        hive_lake.materialize(frame_asset("Upper", "select 1 as id"))
    error = hive_lake.failure(frame_asset("upper", "select 1 as id"))
    assert error.class_name == "TableOwnershipError"
    assert len(hive_lake.summaries("upper")) == 2


def test_columns_that_hive_keeps_stay_and_the_rows_are_there(
    hive_lake: Lake, capfd: pytest.CaptureFixture[str]
) -> None:
    hive_lake.materialize(frame_asset("t", "select 1 as id, 'a' as name, 2L as big"))
    hive_lake.materialize(frame_asset("t", "select 2 as id, 3L as big", metadata=FULL))
    assert hive_lake.rows("t", "id", "name", "big") == [(2, None, 3)]
    assert "set `hive.metastore.disallow.incompatible.col.type.changes` to `false`" in capfd.readouterr().err
    assert len(hive_lake.summaries("t")) == 2


def test_a_column_that_hive_lets_go_is_dropped(hive_lake: Lake) -> None:
    hive_lake.materialize(frame_asset("t", "select 1 as id, 'a' as name"))
    hive_lake.materialize(frame_asset("t", "select 2 as id", metadata=FULL))
    assert hive_lake.arrow("t").to_pylist() == [{"id": 2}]


def test_the_next_address_is_asked_where_one_is_dead(hive: HiveServer, hive_lake: Lake, tmp_path: Path) -> None:
    uri = f"thrift://127.0.0.1:{free_port()},{hive.uri}"
    for lake in open_lake(HiveCatalog(uri=uri, warehouse=str(tmp_path / "wh")), tmp_path, None):
        lake.materialize(frame_asset("t", "select 1 as id"))
        assert lake.rows("t", "id") == [1]


def test_a_lock_that_a_dead_writer_has_left_is_waited_for(hive: HiveServer, hive_lake: Lake) -> None:
    """Iceberg waits for minutes, and the metastore's housekeeping ends locks that nobody keeps alive."""
    asset = frame_asset("t", "select 1 as id", metadata=APPEND)
    hive_lake.materialize(asset)
    lock(hive_lake, "t")
    done = threading.Event()

    def housekeeping() -> None:
        while not done.wait(0.5):
            if locks(hive_lake, "t") > 1:
                hive.expire_locks()

    keeper = threading.Thread(target=housekeeping)
    keeper.start()
    try:
        hive_lake.materialize(asset)
    finally:
        done.set()
        keeper.join()
    assert hive_lake.rows("t", "id") == [1, 1]
    assert locks(hive_lake, "t") == 0


@pytest.mark.sample(6)
@pytest.mark.parametrize("disposition", ["append", "replace", "merge"])
@pytest.mark.parametrize("what", ["request", "answer"])
@pytest.mark.parametrize("method", [COMMIT, "lock", "unlock"])
def test_a_commit_that_gets_lost_once_is_there_once(
    faulty_lake: Lake, faulty: FaultyMetastore, method: str, what: Lost, disposition: str
) -> None:
    metadata = {"iceberg/write_disposition": disposition, "iceberg/merge_keys": ["id"]}
    faulty.lose(what, method)
    faulty_lake.materialize(frame_asset("t", "select 1 as id", metadata=metadata))
    assert faulty.lost[method] == 1
    assert faulty_lake.rows("t", "id") == ([1] if disposition == "replace" else [0, 1])
    assert len(faulty_lake.summaries("t")) == 2


@pytest.mark.parametrize("what", ["request", "answer"])
@pytest.mark.parametrize("method", ["create_table_with_environment_context", "create_database"])
def test_a_first_write_whose_creation_gets_lost_is_there_once(
    faulty_lake: Lake, faulty: FaultyMetastore, method: str, what: Lost
) -> None:
    emptied(faulty_lake.spark.catalog)
    faulty.lose(what, method)
    faulty_lake.materialize(frame_asset("t", "select 1 as id", metadata=APPEND))
    assert faulty.lost[method] == 1
    assert faulty_lake.rows("t", "id") == [1]


def test_first_tables_of_a_namespace_race_and_none_is_lost(
    faulty: FaultyMetastore, hive: HiveServer, tmp_path: Path
) -> None:
    """A metastore that is asked for a database twice at once deletes its directory at some moment, silently."""
    catalog = emptied(HiveCatalog(uri=faulty.uri, warehouse=str(tmp_path / "wh")))
    meeting = faulty.gather("create_database", 2, seconds=5.0)
    for lake in open_lake(catalog, tmp_path, None):
        lake.session.sql("show namespaces in lake")  # so that neither waits for Spark
        write_at_once(lake, ["a", "b"])
        assert meeting.broken, "two asked at once"
        assert lake.rows("a", "id") == lake.rows("b", "id") == [1]


@pytest.mark.parametrize("query", ["create table lake.db.made (id int)", "create table lake.db.made as select 1 as id"])
def test_only_a_table_without_its_first_metadata_is_forgotten(hive_lake: Lake, query: str) -> None:
    description, made = hive_lake.spark.catalog_description, TableIdentifier(("db",), "made")
    hive_lake.session.sql("create namespace lake.db")
    hive_lake.session.sql(query)
    assert not forget_unmade(description, made)
    Path(urlsplit(hive_lake.table("made").metadata_location).path).unlink()
    assert forget_unmade(description, made)
    assert not hive_lake.exists("made")


def test_a_table_that_has_been_written_is_not_forgotten(hive_lake: Lake) -> None:
    hive_lake.materialize(frame_asset("t", "select 1 as id"))
    location = Path(urlsplit(hive_lake.table("t").metadata_location).path)
    content = location.read_bytes()
    location.unlink()
    assert not forget_unmade(hive_lake.spark.catalog_description, TableIdentifier(("db",), "t"))
    location.write_bytes(content)
    assert hive_lake.rows("t", "id") == [1]


@pytest.mark.parametrize("what", ["request", "answer"])
def test_what_became_of_a_commit_without_any_answer_is_found_out(
    faulty_lake: Lake, faulty: FaultyMetastore, what: Lost
) -> None:
    """Iceberg gives up and says that it does not know; the token tells, or there is an error and no row."""
    asset = frame_asset("t", "select 1 as id", metadata=APPEND)
    faulty.lose(what, COMMIT, times=MANY)
    result = faulty_lake.materialize(asset, raise_on_error=False)
    assert faulty.lost[COMMIT] > 1
    faulty.heal()
    if what == "answer":
        assert result.success
    else:
        assert not result.success
        assert error_of(result).class_name == "CommitOutcomeUnknownError"
        assert faulty_lake.materialize(asset).success
    assert faulty_lake.rows("t", "id") == [0, 1]
    assert len(faulty_lake.summaries("t")) == 2

"""Loading a table's current state, from pyiceberg's own catalog on SQLite and from small servers that misbehave."""

import datetime as dt
import http.server
import json
import shutil
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.catalog.rest  # noqa: F401 - before a thread does it under a deadline
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import DateType, LongType, NestedField, StringType, TimestampType, TimestamptzType

from dagster_iceberg_spark.catalog import look as look_module
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import data_files
from dagster_iceberg_spark.catalog.look import look, open_catalog
from dagster_iceberg_spark.config.rest_catalog import RestCatalog
from dagster_iceberg_spark.config.sql_catalog import SqlCatalog
from dagster_iceberg_spark.errors import (
    CatalogUnavailableError,
    ConfigurationError,
    InvestigationError,
    NotAnIcebergTableError,
)
from dagster_iceberg_spark.plan.write.overwrite_filter import ColumnBounds
from dagster_iceberg_spark.table import partitioning
from dagster_iceberg_spark.table.identifier import TableIdentifier
from tests.core.table.samples import TABLE, utc, wall

FLIGHTS = TableIdentifier(("nyc",), "flights")
COLUMNS = Schema(
    NestedField(1, "ts", TimestamptzType(), required=True),
    NestedField(2, "carrier", StringType(), doc="two letters"),
    NestedField(3, "day", DateType()),
    NestedField(4, "wall", TimestampType()),
    NestedField(5, "id", LongType()),
)
ARROW_SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", "UTC"), nullable=False),
        ("carrier", pa.string()),
        ("day", pa.date32()),
        ("wall", pa.timestamp("us")),
        ("id", pa.int64()),
    ]
)
NOON, EVENING = utc(2024, 1, 2, 12), utc(2024, 1, 2, 20)


@pytest.fixture(autouse=True)
def _no_shared_catalogs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_module, "_catalogs", {})
    monkeypatch.setattr(look_module, "_lock", threading.Lock())


@pytest.fixture
def lake(tmp_path: Path) -> CatalogDescription:
    return SqlCatalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh")).describe()


@pytest.fixture
def catalog(lake: CatalogDescription) -> Catalog:
    catalog = open_catalog(lake)
    catalog.create_namespace("nyc")
    return catalog


def rows(*values: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(ARROW_SCHEMA.names, value, strict=True)) for value in values], schema=ARROW_SCHEMA
    )


def row(ts: dt.datetime, carrier: str | None, number: int | None = None) -> tuple[Any, ...]:
    return ts, carrier, ts.date(), ts.replace(tzinfo=None), number


def rest(port: int) -> CatalogDescription:
    return RestCatalog(uri=f"http://127.0.0.1:{port}", properties={"token": "hunter2"}).describe()


def test_a_missing_table_is_none(lake: CatalogDescription, catalog: Catalog) -> None:
    assert look(lake, FLIGHTS) is None
    assert look(lake, TableIdentifier(("no", "where"), "flights")) is None


def test_the_table_s_definition_is_loaded(lake: CatalogDescription, catalog: Catalog) -> None:
    spec = PartitionSpec(
        PartitionField(1, 1000, DayTransform(), "d"), PartitionField(2, 1001, BucketTransform(4), "shard")
    )
    order = SortOrder(SortField(5), SortField(2, transform=BucketTransform(4), direction=SortDirection.DESC))
    table = catalog.create_table(
        ("nyc", "flights"), COLUMNS, partition_spec=spec, sort_order=order, properties={"a": "b"}
    )
    state = look(lake, FLIGHTS)
    assert state is not None
    assert (state.identifier, state.location, state.format_version) == (FLIGHTS, table.location(), 2)
    assert str(state.spec) == "day(ts) as d, bucket(4, carrier) as shard"
    assert [(f.name, str(f.type), f.is_required, f.doc, f.field_id) for f in state.schema][:2] == [
        ("ts", "timestamptz", True, None, 1), ("carrier", "string", False, "two letters", 2),
    ]  # fmt: skip
    assert state.properties["a"] == "b"
    assert state.sort_order == (
        partitioning.SortField("id", "asc", "first"),
        partitioning.SortField("carrier", "desc", "last", "bucket[4]"),
    )
    assert (state.snapshots, state.refs, state.head()) == ({}, {}, None)


def test_every_snapshot_is_loaded_with_its_summary(lake: CatalogDescription, catalog: Catalog) -> None:
    table = catalog.create_table(("nyc", "flights"), COLUMNS)
    table.append(rows(row(NOON, "AA")), snapshot_properties={"dagster.run_id": "first"})
    table.append(rows(row(NOON, "UA"), row(NOON, "DL")), snapshot_properties={"dagster.run_id": "second"})
    table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "v1").commit()
    state = look(lake, FLIGHTS)
    assert state is not None
    head, first = state.ancestors()
    assert [item.summary["dagster.run_id"] for item in (head, first)] == ["second", "first"]
    assert (head.count("added-records"), head.count("total-records"), head.operation) == (2, 3, "append")
    assert (head.parent_snapshot_id, first.parent_snapshot_id) == (first.snapshot_id, None)
    assert state.refs == {"main": head.snapshot_id, "v1": first.snapshot_id}
    assert head.committed_at_ms == table.snapshots()[1].timestamp_ms


@pytest.mark.parametrize("is_pointed_at", [True, False])
def test_the_snapshot_log_of_main_is_loaded(
    lake: CatalogDescription, catalog: Catalog, is_pointed_at: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table(("nyc", "flights"), COLUMNS)
    for carrier in ("AA", "UA"):
        table.append(rows(row(NOON, carrier)))
    first = table.snapshots()[0]
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    if not is_pointed_at:
        monkeypatch.setattr(look_module, "is_in_current_form", lambda _: False)
    state = look(lake, FLIGHTS)
    assert state is not None
    assert state.snapshot_log == tuple((item.timestamp_ms, item.snapshot_id) for item in table.history())
    assert [number for _, number in state.snapshot_log][::2] == [first.snapshot_id] * 2


def test_each_load_sees_the_current_state(lake: CatalogDescription, catalog: Catalog) -> None:
    table = catalog.create_table(("nyc", "flights"), COLUMNS)
    before = look(lake, FLIGHTS)
    elsewhere = load_catalog(lake.name, **lake.pyiceberg_properties)
    elsewhere.load_table(("nyc", "flights")).append(rows(row(NOON, "AA")))
    after = look(lake, FLIGHTS)
    assert before is not None
    assert after is not None
    assert (len(before.snapshots), len(after.snapshots), table.current_snapshot()) == (0, 1, None)


def test_old_schemas_and_specs_are_loaded(lake: CatalogDescription, catalog: Catalog) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "carrier"))
    table = catalog.create_table(("nyc", "flights"), COLUMNS, partition_spec=spec)
    with table.update_spec() as update:
        update.add_field("ts", DayTransform(), "d")
    with table.update_schema() as changes:
        changes.rename_column("carrier", "airline")
    state = look(lake, FLIGHTS)
    assert state is not None
    assert {number: str(item) for number, item in state.specs.items()} == {
        0: "airline as carrier", 1: "airline as carrier, day(ts) as d",
    }  # fmt: skip
    assert state.default_spec_id == 1
    assert [item.names[1] for item in state.schemas.values()] == ["carrier", "airline"]


def test_the_bounds_of_files_are_read_from_the_manifests(lake: CatalogDescription, catalog: Catalog) -> None:
    table = catalog.create_table(("nyc", "flights"), COLUMNS)
    table.append(rows(row(NOON, "AA", 1), row(EVENING, None, 9)))
    (file,) = data_files(lake, FLIGHTS, table.snapshots()[0].snapshot_id, ["ts", "carrier", "day", "wall", "id"])
    assert file.path.startswith("file://")
    day = dt.date(2024, 1, 2)
    assert file.bounds == {
        "ts": ColumnBounds(NOON, EVENING, may_hold_null=False),
        "carrier": ColumnBounds("AA", "AA", may_hold_null=True),
        "day": ColumnBounds(day, day, may_hold_null=False),
        "wall": ColumnBounds(wall(2024, 1, 2, 12), wall(2024, 1, 2, 20), may_hold_null=False),
        "id": ColumnBounds(1, 9, may_hold_null=False),
    }


def test_partition_values_bound_a_file_without_metrics(lake: CatalogDescription, catalog: Catalog) -> None:
    spec = PartitionSpec(
        PartitionField(1, 1000, DayTransform(), "d"), PartitionField(2, 1001, IdentityTransform(), "c")
    )
    off = {"write.metadata.metrics.default": "none"}
    table = catalog.create_table(("nyc", "flights"), COLUMNS, partition_spec=spec, properties=off)
    table.append(rows(row(NOON, "AA"), row(utc(2024, 1, 3), None)))
    files = data_files(lake, FLIGHTS, table.snapshots()[0].snapshot_id, ["ts", "carrier", "id"])
    first, second = sorted(files, key=lambda file: str(file.bounds["ts"].lower))
    assert first.bounds["ts"] == ColumnBounds(utc(2024, 1, 2), utc(2024, 1, 2, 23, 59, 59, 999999), may_hold_null=False)
    assert first.bounds["carrier"] == ColumnBounds("AA", "AA", may_hold_null=False)
    assert second.bounds["carrier"] == ColumnBounds(None, None, may_hold_null=True)
    assert second.bounds["id"] == ColumnBounds(None, None, may_hold_null=True)


def test_only_files_of_the_requested_snapshot_are_returned(lake: CatalogDescription, catalog: Catalog) -> None:
    table = catalog.create_table(("nyc", "flights"), COLUMNS)
    table.append(rows(row(NOON, "AA")))
    table.append(rows(row(EVENING, "AA")))
    first, second = (item.snapshot_id for item in table.snapshots())
    assert [len(data_files(lake, FLIGHTS, item, ["ts"])) for item in (first, second)] == [1, 2]


def test_equal_descriptions_share_a_catalog(lake: CatalogDescription) -> None:
    assert open_catalog(lake) is open_catalog(lake)


def test_a_file_that_is_not_a_database_needs_investigation(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_text("not a database, whatever else it is")
    description = SqlCatalog(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path)).describe()
    with pytest.raises(
        InvestigationError, match=r"Cannot look at nyc\.flights in SQLite catalog 'lake' at .*not a database"
    ):
        look(description, FLIGHTS)


def metadata_file(table: Table) -> Path:
    return Path(table.metadata_location.removeprefix("file://"))


def test_a_missing_metadata_file_needs_investigation(lake: CatalogDescription, catalog: Catalog) -> None:
    metadata_file(catalog.create_table(("nyc", "flights"), COLUMNS)).unlink()
    with pytest.raises(InvestigationError, match=r"Cannot look at nyc\.flights .*found \[Errno 2\].* Hint: "):
        look(lake, FLIGHTS)


def test_a_metadata_file_deleted_by_a_concurrent_commit_is_no_error(
    lake: CatalogDescription, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer commits between the catalog's response and the read of the file."""
    table = catalog.create_table(("nyc", "flights"), COLUMNS)
    stale = table.metadata_location
    table.append(rows(row(NOON, "AA")))
    pointed = iter([stale, table.metadata_location])
    monkeypatch.setattr(look_module, "_pointer", lambda *_: next(pointed))
    Path(stale.removeprefix("file://")).unlink()
    state = look(lake, FLIGHTS)
    assert state is not None
    assert len(state.snapshots) == 1


@pytest.mark.parametrize(
    ("content", "found"), [(b"", "EOF"), (b'{"format-', "EOF"), (b"\x1f\x8b\x08", "Compressed file ended")]
)
def test_a_truncated_metadata_file_needs_investigation(
    lake: CatalogDescription, catalog: Catalog, content: bytes, found: str
) -> None:
    path = metadata_file(catalog.create_table(("nyc", "flights"), COLUMNS))
    path.write_bytes(content)
    with pytest.raises(InvestigationError, match=rf"Cannot read nyc\.flights: expected metadata files .*{found}.* in "):
        look(lake, FLIGHTS)


@pytest.mark.parametrize("content", ["[]", "null", "3"])
def test_a_metadata_file_that_is_not_a_json_object_needs_investigation(
    lake: CatalogDescription, catalog: Catalog, content: str
) -> None:
    metadata_file(catalog.create_table(("nyc", "flights"), COLUMNS)).write_text(content)
    with pytest.raises(
        InvestigationError,
        match=r"Cannot read nyc\.flights: expected metadata files .* in place of a JSON object in .* Hint: ",
    ):
        look(lake, FLIGHTS)


def test_other_json_is_not_an_iceberg_table(lake: CatalogDescription, catalog: Catalog) -> None:
    metadata_file(catalog.create_table(("nyc", "flights"), COLUMNS)).write_text("{}")
    with pytest.raises(NotAnIcebergTableError, match=r"Cannot use nyc\.flights"):
        look(lake, FLIGHTS)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server that accepts connections and never responds. It closes them at the end of the test."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted: list[socket.socket] = []
        server.settimeout(0.1)
        done = threading.Event()

        def accept() -> None:
            while not done.is_set():
                try:
                    accepted.append(server.accept()[0])
                except TimeoutError:
                    continue

        thread = threading.Thread(target=accept)
        thread.start()
        yield server
        done.set()
        thread.join()
        for connection in accepted:
            connection.close()


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize(
    "describe",
    [rest, lambda port: SqlCatalog(uri=f"postgresql://me:hunter2@127.0.0.1:{port}/x", warehouse="/w").describe()],
    ids=["rest", "postgresql"],
)
def test_a_dead_host_fails_within_seconds(describe: Callable[[int], CatalogDescription]) -> None:
    started = time.monotonic()
    with pytest.raises(CatalogUnavailableError, match="Hint: check host and port in the catalog's `uri`") as caught:
        look(describe(closed_port()), FLIGHTS)
    assert time.monotonic() - started < 5
    assert "hunter2" not in str(caught.value)


def test_a_silent_server_fails_at_the_timeout(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_module, "ANSWER_TIMEOUT_SECONDS", 0.3)
    started = time.monotonic()
    with pytest.raises(CatalogUnavailableError, match="found a connection that stays silent"):
        look(rest(listener.getsockname()[1]), FLIGHTS)
    assert time.monotonic() - started < 2


@pytest.fixture
def answering() -> Iterator[Callable[..., CatalogDescription]]:
    """A REST catalog that answers every request for a table with the same status and document."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def serve(status: int, document: Any, silences: Iterable[threading.Event] = ()) -> CatalogDescription:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                for silence in silences:
                    silence.wait()
                    return
                code, answer = (200, {"defaults": {}, "overrides": {}}) if "config" in self.path else (status, document)
                body = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                """Stay silent."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        servers.append(server)
        return rest(server.server_address[1])

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def refusal(code: int, kind: str, message: str = "no") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code}}


@pytest.mark.parametrize(
    ("status", "document", "error", "message"),
    [
        (
            401,
            refusal(401, "NotAuthorizedException"),
            ConfigurationError,
            "expected credentials that the catalog and the store accept",
        ),
        (
            403,
            refusal(403, "ForbiddenException"),
            ConfigurationError,
            "expected credentials that the catalog and the store accept",
        ),
        (
            500,
            refusal(500, "ServerError", "token hunter2"),
            CatalogUnavailableError,
            "expected an answer from the catalog and the store, found",
        ),
        (
            503,
            refusal(503, "ServiceUnavailable"),
            CatalogUnavailableError,
            "expected an answer from the catalog and the store, found",
        ),
        (
            502,
            "<html>Bad gateway</html>",
            CatalogUnavailableError,
            "expected an answer from the catalog and the store, found",
        ),
        (400, refusal(400, "BadRequestException"), ConfigurationError, "correct `uri`, `warehouse` and `prefix`"),
        (200, "<html>Welcome hunter2</html>", ConfigurationError, "found TableResponse: Invalid JSON"),
        (
            200,
            {"metadata": {}, "config": {"s3.secret-access-key": "hunter2"}},
            NotAnIcebergTableError,
            r"expected an Iceberg table in the REST catalog 'lake' .* TableResponse: metadata",
        ),
    ],
)
def test_errors_of_a_server_are_translated_without_secrets(
    answering: Callable[..., CatalogDescription], status: int, document: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        look(answering(status, document), FLIGHTS)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_a_table_unknown_to_the_server_is_none(answering: Callable[..., CatalogDescription]) -> None:
    assert look(answering(404, refusal(404, "NoSuchTableException")), FLIGHTS) is None
    assert look(answering(404, refusal(404, "NoSuchNamespaceException")), FLIGHTS) is None


def test_a_silent_catalog_does_not_block_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_module, "ANSWER_TIMEOUT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = RestCatalog(uri=f"http://127.0.0.1:{server.getsockname()[1]}").describe()
        with pytest.raises(CatalogUnavailableError):
            look_module.look(silent, TABLE)
        other = SqlCatalog(uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)).describe()
        thread = threading.Thread(target=look_module.look, args=(other, TABLE), daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()


def test_a_catalog_that_was_silent_once_is_reached_by_the_next_request(
    answering: Callable[..., CatalogDescription], monkeypatch: pytest.MonkeyPatch
) -> None:
    silence = threading.Event()
    lake = answering(404, refusal(404, "NoSuchTableException"), iter([silence]))
    with monkeypatch.context() as patched:
        patched.setattr(look_module, "ANSWER_TIMEOUT_SECONDS", 0.3)
        with pytest.raises(CatalogUnavailableError, match="found a connection that stays silent"):
            look(lake, FLIGHTS)
    try:
        assert look(lake, FLIGHTS) is None
    finally:
        silence.set()


def test_threads_that_open_a_catalog_at_once_share_it(lake: CatalogDescription) -> None:
    with ThreadPoolExecutor(8) as threads:
        opened = set(threads.map(lambda _: id(open_catalog(lake)), range(8)))
    assert opened == {id(open_catalog(lake))}


def test_a_deleted_catalog_is_released_when_another_is_opened(tmp_path: Path) -> None:
    def opened(name: str) -> CatalogDescription:
        catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/{name}/catalog.db", warehouse=str(tmp_path / name))
        description = catalog.describe()
        open_catalog(description)
        return description

    kept, deleted = opened("kept"), opened("deleted")
    shutil.rmtree(tmp_path / "deleted")
    last = opened("last")
    assert set(look_module._catalogs) == {kept.identity, last.identity}
    assert deleted.is_gone

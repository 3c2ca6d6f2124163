"""Tables as of one point, by the Iceberg REST protocol, read by clients that others wrote.

docs/serving.md: Points; What a client sees; The server
"""

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
import requests
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError, RESTError, UnauthorizedError

from dagster_iceberg_spark import BearerToken, IcebergPySparkIOManager, IcebergSparkResource, RestCatalog, build_release
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.cli.app import app
from dagster_iceberg_spark.errors import UpstreamMissingError
from dagster_iceberg_spark.features.serving.plan import Point, document_at
from dagster_iceberg_spark.features.serving.served_tables import ServedTables
from dagster_iceberg_spark.table.identifier import NotationError
from dagster_iceberg_spark.table.snapshot import DAY_MS
from tests.served_lake import TOKEN, ServedLake, by_duckdb, open_in_spark, serving

_RELEASES = 6


def now() -> str:
    return dt.datetime.now(dt.timezone.utc).isoformat()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLake]:
    """Two runs, a release of the first, an environment, and the server of a process of its own."""
    with dg.DagsterInstance.ephemeral() as instance:
        lake = ServedLake(tmp_path_factory.mktemp("lake"), instance)
        lake.write(1)
        lake.tag("2026-11")
        lake.write(2, environment="pr-7")
        lake.write(4, environment="feature/x")
        lake.write(3, columns=2)
        with serving(lake):
            yield lake


def test_each_point_shows_tables_that_agree(lake: ServedLake) -> None:
    assert lake.values("release/2026-11") == {"shop.daily": [1], "shop.orders": [1]}
    assert lake.values("env/pr-7") == {"shop.daily": [2], "shop.orders": [2]}
    assert lake.values(f"run/{lake.runs[0]}") == {"shop.daily": [1], "shop.orders": [1]}
    assert lake.values(f"at/{now()}") == {"shop.daily": [3], "shop.orders": [3]}


def test_what_is_served_is_kept_on_demand(tmp_path: Path, made_instance: dg.DagsterInstance) -> None:
    own = ServedLake(tmp_path, made_instance)
    own.write(1)
    own.write(2)
    tables = ServedTables(own.catalog.describe(), keep_days=3)
    found = tables.resolve(Point.parse(f"run/{own.runs[0]}"))
    name = f"dagster_served_{found.id}"
    for identifier, snapshot_id in found.snapshots.items():
        state = look(own.catalog.describe(), identifier)
        assert state is not None
        assert (state.refs[name], state.retention[name].max_ref_age_ms) == (snapshot_id, 4 * DAY_MS)
    before = {identifier: tables.metadata(identifier, at) for identifier, at in found.snapshots.items()}
    assert tables.resolve(Point.parse(f"run/{own.runs[0]}")).id == found.id
    assert {identifier: tables.metadata(identifier, at) for identifier, at in found.snapshots.items()} == before
    with pytest.raises(UpstreamMissingError, match="release: none"):
        tables.resolve(Point.parse("release/2026-11"))


def test_the_name_of_an_environment_may_have_a_slash(lake: ServedLake) -> None:
    assert lake.values("env/feature/x") == {"shop.daily": [4], "shop.orders": [4]}
    catalog = load_catalog("served", type="rest", uri=f"{lake.address}/env/feature/x", token=TOKEN)
    assert catalog.load_table("shop.orders").scan().to_arrow()["v"].to_pylist() == [4]


def test_the_schema_is_that_of_the_snapshot(lake: ServedLake) -> None:
    assert lake.at("release/2026-11").load_table("shop.orders").schema().column_names == ["v"]
    assert lake.at(f"at/{now()}").load_table("shop.orders").schema().column_names == ["v", "w1"]


def test_a_client_keeps_to_its_point_while_others_write(tmp_path: Path, lake: ServedLake) -> None:
    catalog = lake.at("env/pr-7")
    lake.write(5, environment="pr-7")
    assert catalog.load_table("shop.orders").scan().to_arrow()["v"].to_pylist() == [2]
    assert lake.values("env/pr-7") == {"shop.daily": [5], "shop.orders": [5]}
    lake.write(2, environment="pr-7")


def test_the_point_may_stand_in_the_address(lake: ServedLake) -> None:
    catalog = load_catalog("served", type="rest", uri=f"{lake.address}/release/2026-11", token=TOKEN)
    assert catalog.list_namespaces() == [("shop",)]
    assert catalog.load_table("shop.orders").scan().to_arrow()["v"].to_pylist() == [1]


def test_duckdb_reads_it(lake: ServedLake) -> None:
    both = "SELECT o.v, d.v FROM served.shop.orders o, served.shop.daily d"
    assert by_duckdb(lake, "release/2026-11", both) == [(1, 1)]


@pytest.mark.spark
@pytest.mark.full
def test_spark_reads_it_and_cannot_write(lake: ServedLake, classic_lake: Any) -> None:
    session = classic_lake.session
    open_in_spark(session, lake, "release/2026-11", name="served")
    assert session.sql("SELECT v FROM served.shop.orders").first()[0] == 1
    with pytest.raises(Exception, match="does not support endpoint"):
        session.sql("INSERT INTO served.shop.orders VALUES (9)")


def test_a_rest_catalog_is_served_too(lake: ServedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVED_TOKEN", TOKEN)
    login = BearerToken(token=dg.EnvVar("SERVED_TOKEN"))
    catalog = RestCatalog(name="lake", uri=lake.address, warehouse="release/2026-11", authentication=login)
    with dg.build_resources({"spark": IcebergSparkResource(catalog=catalog)}) as resources:
        tables = ServedTables(resources.spark.catalog_description)
        found = tables.resolve(Point.parse("release/2026-11"))
        assert sorted(map(str, found.snapshots)) == ["shop.daily", "shop.orders"]
        for identifier, snapshot_id in found.snapshots.items():
            metadata = tables.metadata(identifier, snapshot_id)
            assert metadata is not None
            assert metadata[0].endswith(".metadata.json")
            assert metadata[1]["refs"]["main"]["snapshot-id"] == snapshot_id
        with pytest.raises(UpstreamMissingError, match=r"release: 2026-11"):
            tables.resolve(Point.parse("release/2027"))
        assert tables.vended(identifier) == {"config": {}}
        tables.vends = True
        assert tables.vended(identifier) == {"config": {}}, "this server hands out none"
        asked, credentials = list[Any](), [{"prefix": "s3://lake", "config": {"s3.access-key-id": "k"}}]

        class Answer(requests.Response):
            def json(self, **_: Any) -> Any:
                return {"config": {"token": "t", "s3.region": "r"}, "storage-credentials": credentials}

        def get(url: str, **options: Any) -> Answer:
            asked.append((url.rpartition("/")[2], options["headers"]))
            answer = Answer()
            answer.status_code = 200
            return answer

        opened: Any = resources.spark.pyiceberg_catalog
        monkeypatch.setattr(opened._session, "get", get)
        assert tables.vended(identifier) == {"config": {"s3.region": "r"}, "storage-credentials": credentials}
        assert asked == [(identifier.name, {"X-Iceberg-Access-Delegation": "vended-credentials"})]


def test_only_a_rest_catalog_hands_out_credentials(lake: ServedLake) -> None:
    catalog = ("--kind", "sql", "--uri", f"sqlite:///{lake.directory}/catalog.db", "--warehouse", "wh")
    result = CliRunner().invoke(app, ["serve", *catalog, "--vend"])
    assert result.exit_code == 2
    assert "--vend needs a REST catalog" in result.output


def test_what_there_is_not_is_not_found(lake: ServedLake) -> None:
    catalog = lake.at("release/2026-11")
    assert (catalog.table_exists("shop.nothing"), catalog.namespace_exists("nothing")) == (False, False)
    assert catalog.list_views("shop") == []
    with pytest.raises(NoSuchTableError):
        catalog.load_table("shop.nothing")


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ("release/2027", "Cannot serve release/2027: .* found none; release: 2026-11"),
        ("env/other", "env: .*pr-7"),
        ("run/none", "run: "),
        ("at/2001-01-01T00:00Z", "Cannot serve at/2001"),
        ("at/2999-01-01T00:00Z", "an instant with a time zone that has passed"),
        ("at/noon", "Expected an instant such as"),
        ("main", "Expected a point, such as release/2026-11"),
    ],
)
def test_an_unknown_point_is_refused_with_the_known_ones(lake: ServedLake, point: str, message: str) -> None:
    with pytest.raises(RESTError, match=message):
        lake.at(point)


def test_who_has_no_token_gets_nothing(lake: ServedLake) -> None:
    with pytest.raises(UnauthorizedError):
        lake.at("release/2026-11", token="other")
    assert requests.get(f"{lake.address}/v1/config?warehouse=release/2026-11", timeout=10).status_code == 401


@pytest.mark.parametrize(
    ("method", "path"), [("DELETE", "tables/orders"), ("POST", "tables/orders"), ("POST", "tables")]
)
def test_a_write_is_refused(lake: ServedLake, method: str, path: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = requests.get(f"{lake.address}/v1/config?warehouse=release/2026-11", headers=headers, timeout=10)
    prefix = answer.json()["overrides"]["prefix"]
    own = f"{lake.address}/v1/{prefix}/namespaces/shop"
    refused = requests.request(method, f"{own}/{path}", headers=headers, json={}, timeout=10)
    assert (refused.status_code, refused.json()["error"]["code"]) == (405, 405)
    assert "read-only" in refused.json()["error"]["message"]
    unknown = requests.get(f"{lake.address}/v1/0000/namespaces", headers=headers, timeout=10)
    assert (unknown.status_code, "Open the catalog again" in unknown.text) == (404, True)


@pytest.mark.full
def test_no_client_sees_half_of_a_release(tmp_path: Path, made_instance: dg.DagsterInstance) -> None:
    lake, values = ServedLake(tmp_path, made_instance), [0]

    def member(number: int) -> dg.AssetsDefinition:
        @dg.asset(name=f"t{number}", io_manager_key="iceberg", metadata={"iceberg/publish": "release"})
        def rows() -> pa.Table:
            return pa.table({"v": [values[0]]})

        return rows

    members = [member(number) for number in range(4)]
    release = build_release("release", members, name="rolling")
    io_manager = IcebergPySparkIOManager(spark=IcebergSparkResource(catalog=lake.catalog), namespace="shop")

    def publish() -> None:
        values[0] += 1
        dg.materialize([*members, release], resources={"iceberg": io_manager}, instance=lake.instance)

    found, seen = dict[str, set[frozenset[int]]](), dict[str, int]()

    def read(point: Callable[[], str]) -> None:
        kind = point().partition("/")[0]
        while values[0] < _RELEASES:
            rows = lake.values(point())
            found.setdefault(kind, set()).add(frozenset(value for own in rows.values() for value in own))
            seen[kind] = len(rows)

    publish()
    points: tuple[Callable[[], str], ...] = (lambda: "release/rolling", lambda: f"at/{now()}")
    with serving(lake):
        readers = [threading.Thread(target=read, args=[point]) for point in points]
        for reader in readers:
            reader.start()
        while values[0] < _RELEASES:
            publish()
        for reader in readers:
            reader.join()
    assert seen == {"release": 4, "at": 4}
    assert all(len(rows) == 1 for each in found.values() for rows in each), found


@pytest.mark.parametrize("text", ["", "release", "release/", "other/x", "at/2026-11-01"])
def test_what_is_no_point_is_refused(text: str) -> None:
    with pytest.raises(NotationError):
        Point.parse(text)


def test_a_document_of_version_1_has_the_schema_of_the_snapshot_twice() -> None:
    document = {
        "format-version": 1,
        "current-snapshot-id": 2,
        "current-schema-id": 1,
        "schema": {"schema-id": 1},
        "schemas": [{"schema-id": 0}, {"schema-id": 1}],
        "snapshots": [{"snapshot-id": 1, "timestamp-ms": 10, "schema-id": 0}, {"snapshot-id": 2, "timestamp-ms": 20}],
        "snapshot-log": [{"snapshot-id": 1, "timestamp-ms": 10}, {"snapshot-id": 2, "timestamp-ms": 20}],
    }
    found = document_at(document, 1)
    assert (found["schema"], found["current-schema-id"], found["current-snapshot-id"]) == ({"schema-id": 0}, 0, 1)
    assert found["refs"] == {"main": {"type": "branch", "snapshot-id": 1}}
    assert found["snapshot-log"] == [{"snapshot-id": 1, "timestamp-ms": 10}]
    assert document_at({**document, "snapshot-log": []}, 2)["snapshot-log"] == [{"snapshot-id": 2, "timestamp-ms": 20}]
    with pytest.raises(KeyError):
        document_at(document, 3)

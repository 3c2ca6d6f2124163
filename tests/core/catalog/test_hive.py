"""A Hive Metastore without a JVM: what is refused before any request, and which address is used."""

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hive_metastore.ttypes import NoSuchObjectException, Table

from dagster_iceberg_spark.catalog import look as look_module
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.config.catalogs import HiveCatalog
from dagster_iceberg_spark.errors import CatalogUnavailableError, ConfigurationError, NotAnIcebergTableError
from dagster_iceberg_spark.table.identifier import TableIdentifier
from tests.lakes import free_port
from tests.servers.metastore import MetastoreProtocol

T = TableIdentifier(("db",), "t")
PROBE = """
import sys
import dagster_iceberg_spark as package
spark = package.IcebergSparkResource(catalog=package.HiveCatalog(uri="thrift://h:9083", warehouse="/w"))
spark.catalog_description
print(sorted({name.split(".")[0] for name in sys.modules} & {"thrift", "hive_metastore"}))
"""


class Metastore:
    """A metastore with one plain Hive table and no other."""

    def __init__(self) -> None:
        self.users: list[str] = []
        self.together: threading.Barrier | None = None

    def set_ugi(self, user: str, groups: list[str]) -> list[str]:
        self.users.append(user)
        return groups

    def get_table(self, database: str, name: str) -> Table:
        if self.together is not None:
            self.together.wait(30)
        if name == "plain":
            return Table(name, database, parameters={"EXTERNAL": "TRUE"})
        raise NoSuchObjectException(name)


@pytest.fixture
def metastore() -> Metastore:
    return Metastore()


@pytest.fixture
def address(metastore: Metastore) -> Iterator[str]:
    """The metastore's address, until the test ends."""
    server = MetastoreProtocol(lambda: metastore)
    yield server.uri
    server.close()


@pytest.fixture(autouse=True)
def _no_shared_catalogs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_module, "_catalogs", {})


def hive(uri: str, **fields: Any) -> Any:
    return HiveCatalog(uri=uri, warehouse="/w", **fields).describe()


def test_a_missing_table_is_none(address: str) -> None:
    assert look(hive(address), T) is None


def test_the_first_address_that_responds_is_used(address: str) -> None:
    assert look(hive(f"thrift://127.0.0.1:{free_port()},{address}"), T) is None


def test_a_metastore_without_a_responding_address_is_unavailable() -> None:
    nowhere = f"thrift://127.0.0.1:{free_port()},thrift://127.0.0.1:{free_port()}"
    with pytest.raises(CatalogUnavailableError, match="a server that accepts connections within 5 s"):
        look(hive(nowhere), T)


def test_a_plain_hive_table_is_refused(address: str) -> None:
    with pytest.raises(NotAnIcebergTableError, match=r"Property table_type missing.*choose another name"):
        look(hive(address), TableIdentifier(("db",), "plain"))


def test_several_threads_can_load_tables_at_once(address: str, metastore: Metastore) -> None:
    description, threads = hive(address), 4
    assert look(description, T) is None
    metastore.together = threading.Barrier(threads)
    found: list[Any] = []
    loads = [threading.Thread(target=lambda: found.append(look(description, T))) for _ in range(threads)]
    for thread in loads:
        thread.start()
    for thread in loads:
        thread.join()
    assert found == [None] * threads


def test_the_user_is_sent_to_the_metastore(address: str, metastore: Metastore) -> None:
    look(hive(address, properties={"ugi": "me:us"}), T)
    assert metastore.users == ["me"]


def test_a_namespace_of_several_levels_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="expected a namespace of one level in the Hive Metastore"):
        look(hive("thrift://127.0.0.1:1"), TableIdentifier(("a", "b"), "t"))


@pytest.mark.parametrize(
    ("missing", "fields", "extra"),
    [
        ("thrift", {}, r"install `dagster-iceberg-spark\[hive\]`"),
        ("puresasl", {"kerberos_principal": "hive/_HOST@A"}, r"install `pyiceberg\[hive-kerberos\]`"),
    ],
)
def test_a_missing_client_package_is_named(
    address: str, missing: str, fields: dict[str, Any], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(look_module, "find_spec", lambda name: None if name == missing else found(name))
    with pytest.raises(ConfigurationError, match=rf"brings `{missing}`.*{extra}"):
        look(hive(address, **fields), T)


@pytest.mark.full
def test_describing_a_hive_catalog_needs_no_client() -> None:
    probe = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60, check=False)
    assert (probe.returncode, probe.stdout.strip()) == (0, "[]"), probe.stderr

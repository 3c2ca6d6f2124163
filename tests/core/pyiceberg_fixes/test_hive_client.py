"""Clients of a Hive Metastore."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyiceberg.catalog.hive import HiveCatalog
from thrift.transport.TTransport import TTransportException

from dagster_iceberg_spark.catalog.description import METASTORE_PORT
from dagster_iceberg_spark.pyiceberg_fixes.hive_client import HiveClient
from tests.lakes import free_port
from tests.servers.metastore import MetastoreProtocol

DATABASES = ["db"]


class Metastore:
    """A metastore that lists its databases."""

    def get_all_databases(self) -> list[str]:
        return DATABASES


@pytest.fixture
def address() -> Iterator[str]:
    server = MetastoreProtocol(Metastore)
    yield server.uri
    server.close()


def plain(uri: str) -> Any:
    return HiveCatalog._create_hive_client({"uri": uri})


def ask(client: Any) -> list[str]:
    with client as connection:
        databases: list[str] = connection.get_all_databases()
    return databases


def test_each_thread_has_its_own_connection(address: str) -> None:
    client = HiveClient({"uri": address}, default_port=METASTORE_PORT)
    with client as connection, ThreadPoolExecutor(1) as other_thread:
        assert other_thread.submit(ask, client).result(30) == DATABASES
        assert connection.get_all_databases() == DATABASES


def test_the_first_address_that_accepts_is_used(address: str) -> None:
    assert (
        ask(HiveClient({"uri": f"thrift://127.0.0.1:{free_port()},{address}"}, default_port=METASTORE_PORT))
        == DATABASES
    )


def test_pyiceberg_still_shares_a_connection(address: str) -> None:
    client = plain(address)
    assert ask(client) == DATABASES
    first = client.__enter__()
    with ThreadPoolExecutor(1) as other_thread:
        other_thread.submit(client.__enter__).result(30)
    shared = client._transport
    client.__exit__(None, None, None)
    assert not shared.isOpen()  # the other thread's connection
    first._iprot.trans.close()


def test_pyiceberg_still_uses_one_address(address: str) -> None:
    with pytest.raises(TTransportException, match="Could not connect"):
        ask(plain(f"thrift://127.0.0.1:{free_port()},{address}"))

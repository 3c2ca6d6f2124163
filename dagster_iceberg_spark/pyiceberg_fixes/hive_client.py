"""Threads share one connection to a Hive Metastore, and only the first of several addresses is asked.

Two defects of `pyiceberg.catalog.hive`, measured with pyiceberg 0.12.0; neither is reported upstream as of 0.12.0:

- A catalog has one `_HiveClient` with one transport. A thread that leaves `with client` closes the connection that
  another thread still uses. Each `with` should have a connection of its own.
- `uri` may list several addresses (https://github.com/apache/iceberg-python/pull/752), but a client is made without
  connecting, so the next address is never tried. The client should connect to the first address that accepts.

The client of this file also limits how long it waits: pyiceberg's has no timeouts.
"""

import threading
from contextlib import suppress
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from hive_metastore.ThriftHiveMetastore import Client
from pyiceberg.catalog.hive import HIVE_KERBEROS_AUTH, HIVE_KERBEROS_SERVICE_NAME
from pyiceberg.utils.properties import property_as_bool
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TSaslClientTransport, TTransportException

from dagster_iceberg_spark.timeouts import ANSWER_TIMEOUT_SECONDS, CONNECT_TIMEOUT_SECONDS


class _Transports(threading.local):
    """The open transports of a thread, of which the last belongs to the innermost `with`."""

    def __init__(self) -> None:
        self.opened: list[Any] = []


class HiveClient:
    """Opens a connection for each `with`, in whichever thread, to the first address that accepts one."""

    def __init__(self, properties: dict[str, str], *, default_port: int) -> None:
        self._addresses = properties["uri"].split(",")
        self._user = properties["ugi"].split(":") if "ugi" in properties else None
        has_kerberos = property_as_bool(properties, HIVE_KERBEROS_AUTH, False)  # noqa: FBT003 - pyiceberg's signature
        self._service = properties[HIVE_KERBEROS_SERVICE_NAME] if has_kerberos else None
        self._default_port = default_port
        self._transports = _Transports()

    def __enter__(self) -> Client:
        transport = self._open()
        self._transports.opened.append(transport)
        client = Client(TBinaryProtocol(transport))
        if self._user is not None:
            client.set_ugi(*self._user)
        return client

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._transports.opened.pop().close()

    def _open(self) -> Any:
        *others, last = self._addresses
        for address in others:
            with suppress(TTransportException):
                return self._open_at(address)
        return self._open_at(last)

    def _open_at(self, address: str) -> Any:
        parts = urlsplit(address)
        socket = TSocket(parts.hostname, parts.port or self._default_port)
        socket.setTimeout(CONNECT_TIMEOUT_SECONDS * 1000)
        if self._service is None:
            transport = TBufferedTransport(socket)
        else:
            transport = TSaslClientTransport(socket, host=parts.hostname, service=self._service)
        transport.open()
        socket.setTimeout(ANSWER_TIMEOUT_SECONDS * 1000)
        return transport

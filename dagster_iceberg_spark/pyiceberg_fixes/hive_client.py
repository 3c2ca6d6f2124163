"""Threads share one connection to a Hive Metastore, and only the first of several addresses is asked.

Two defects of `pyiceberg.catalog.hive`, measured with pyiceberg 0.12.0; neither is reported upstream as of 0.12.0:

- A catalog has one `_HiveClient` with one transport. A thread that leaves `with client` closes the connection that
  another thread still uses. Each `with` should have a connection of its own.
- `uri` may list several addresses (https://github.com/apache/iceberg-python/pull/752), but a client is made without
  connecting, so the next address is never tried. The client should connect to the first address that accepts.

The client of this file also limits how long it waits: pyiceberg's has no timeouts.
"""

import threading
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

from hive_metastore.ThriftHiveMetastore import Client
from pyiceberg.catalog.hive import HIVE_KERBEROS_AUTH, HIVE_KERBEROS_SERVICE_NAME
from pyiceberg.utils.properties import property_as_bool
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TSaslClientTransport, TTransportException

from dagster_iceberg_spark.timeouts import ANSWER_TIMEOUT_SECONDS, CONNECT_TIMEOUT_SECONDS

PORT: Final = 9083


class HiveClient:
    """Opens a connection for each `with`, in whichever thread, to the first address that accepts one."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._addresses = properties["uri"].split(",")
        self._user = properties["ugi"].split(":") if "ugi" in properties else None
        has_kerberos = property_as_bool(properties, HIVE_KERBEROS_AUTH, False)  # noqa: FBT003 - pyiceberg's signature
        self._service = properties[HIVE_KERBEROS_SERVICE_NAME] if has_kerberos else None
        self._of_thread = threading.local()

    def __enter__(self) -> Client:
        transport = self._open()
        self._stack.append(transport)
        client = Client(TBinaryProtocol(transport))
        if self._user is not None:
            client.set_ugi(*self._user)
        return client

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.pop().close()

    @property
    def _stack(self) -> list[Any]:
        if not hasattr(self._of_thread, "stack"):
            self._of_thread.stack = []
        stack: list[Any] = self._of_thread.stack
        return stack

    def _open(self) -> Any:
        *others, last = self._addresses
        for address in others:
            try:
                return self._open_at(address)
            except TTransportException:
                continue
        return self._open_at(last)

    def _open_at(self, address: str) -> Any:
        parts = urlsplit(address)
        socket = TSocket(parts.hostname, parts.port or PORT)
        socket.setTimeout(CONNECT_TIMEOUT_SECONDS * 1000)
        if self._service is None:
            transport = TBufferedTransport(socket)
        else:
            transport = TSaslClientTransport(socket, host=parts.hostname, service=self._service)
        transport.open()
        socket.setTimeout(ANSWER_TIMEOUT_SECONDS * 1000)
        return transport

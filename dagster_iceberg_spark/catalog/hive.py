"""A Hive Metastore without a JVM: pyiceberg's catalog, on connections that threads do not share.

pyiceberg's own has one connection, which each of its calls opens and closes, and knows one address.
"""

import re
import threading
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import LockState, UnlockRequest
from pyiceberg.catalog import METADATA_LOCATION
from pyiceberg.catalog.hive import HIVE_KERBEROS_AUTH, HIVE_KERBEROS_SERVICE_NAME
from pyiceberg.catalog.hive import HiveCatalog as PyIcebergHiveCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.typedef import Identifier
from pyiceberg.utils.properties import property_as_bool
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TSaslClientTransport, TTransportException

PORT: Final = 9083
CONNECT_TIMEOUT_SECONDS: Final = 5.0
ANSWER_TIMEOUT_SECONDS: Final = 60.0
_NO_TABLE: Final = "*"
"""What no table is called: a lock on the whole database, left behind by a killed writer, would hold up its tables."""

_FIRST_METADATA: Final = re.compile(r"/0+-[^/]*$")
"""Iceberg's BaseMetastoreTableOperations counts the files that tables have pointed at, from zero."""


class HiveCatalog(PyIcebergHiveCatalog):
    """The metastore's tables."""

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> Any:
        return _Connections(properties)

    def drop_unmade_table(self, identifier: Identifier) -> bool:
        """Drop the entry of a table whose first metadata file is not there; say whether it was so, or there was none.

        Nothing can have been committed to it. Writers of both engines hold the lock, to make a table too.

        Raises:
            CommitFailedException: Another writer has the lock.
        """
        database, name = self.identifier_to_database_and_table(identifier, NoSuchTableError)
        with self._client as client:
            lock_id = self._lock(client, database, name)
            try:
                location = self._get_hive_table(client, database, name).parameters.get(METADATA_LOCATION, "")
                if not _FIRST_METADATA.search(location) or self._is_there(location):
                    return False
                client.drop_table(database, name, deleteData=False)
            except NoSuchTableError:
                pass
            finally:
                client.unlock(UnlockRequest(lockid=lock_id))
        return True

    def lock_creation(self, database: str) -> int:
        """Take a lock that others who want to create the database respect; return its id.

        Raises:
            CommitFailedException: Another writer has the lock.
        """
        with self._client as client:
            return self._lock(client, database, _NO_TABLE)

    def unlock(self, lock_id: int) -> None:
        """Give a lock back."""
        with self._client as client:
            client.unlock(UnlockRequest(lockid=lock_id))

    def _lock(self, client: Client, database: str, table: str) -> int:
        lock = client.lock(self._create_lock_request(database, table))
        if lock.state != LockState.ACQUIRED:
            try:
                self._wait_for_lock(database, table, lock.lockid, client)
            except BaseException:
                client.unlock(UnlockRequest(lockid=lock.lockid))
                raise
        lock_id: int = lock.lockid
        return lock_id

    def _is_there(self, location: str) -> bool:
        return self._load_file_io(location=location).new_input(location).exists()


class _Connections:
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

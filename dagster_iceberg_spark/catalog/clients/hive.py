"""A Hive Metastore without a JVM: pyiceberg's catalog, and the metastore's locks."""

import re
from typing import Any, Final

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import LockState, UnlockRequest
from pyiceberg.catalog import METADATA_LOCATION
from pyiceberg.catalog.hive import HiveCatalog as PyIcebergHiveCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.typedef import Identifier

from dagster_iceberg_spark.catalog.description import METASTORE_PORT
from dagster_iceberg_spark.pyiceberg_fixes.hive_client import HiveClient

_NO_TABLE: Final = "*"
"""A name that no table has. A killed writer's lock on the whole database would block its tables."""

_FIRST_METADATA: Final = re.compile(r"/0+-[^/]*$")
"""Iceberg's BaseMetastoreTableOperations numbers the metadata files of a table from zero."""


class HiveCatalog(PyIcebergHiveCatalog):
    """The tables of the metastore."""

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> Any:
        return HiveClient(properties, default_port=METASTORE_PORT)

    def drop_unmade_table(self, identifier: Identifier) -> bool:
        """Drop the entry of a table whose first metadata file does not exist, and return whether there is no table now.

        Nothing can have been committed to such a table. Writers of both engines hold the lock, also to create a table.
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
        """Take a lock that other creators of the database respect, and return its id."""
        with self._client as client:
            return self._lock(client, database, _NO_TABLE)

    def unlock(self, lock_id: int) -> None:
        """Release a lock."""
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

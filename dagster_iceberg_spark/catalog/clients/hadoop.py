"""Iceberg's Hadoop catalog without a JVM: a directory, in which file names contain the versions of tables.

HDFS is read through hdfs-native, which implements the protocol. pyiceberg itself uses pyarrow's client, which needs
`libhdfs`, a JVM in the process, and Hadoop's CLASSPATH.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, FSSpecHandler, PyFileSystem
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import StaticTable, Table
from pyiceberg.typedef import Identifier, Properties

from dagster_iceberg_spark.catalog.description import HDFS_FILE_IO
from dagster_iceberg_spark.errors import ConfigurationError

_SPELLINGS: Final = ("v{}.metadata.json", "v{}.gz.metadata.json")
"""File extensions by codec, from Iceberg's TableMetadataParser."""
_METADATA_FILE: Final = re.compile(r"v(\d+)(?:\.gz)?\.metadata\.json")


class HadoopCatalog(NoopCatalog):
    """A read-only catalog of the tables below a directory, which pyiceberg does not have.

    It finds the newest metadata as Iceberg's HadoopTableOperations does. It starts from the version in
    `version-hint.text`, which may be outdated, and continues to the last version. Without a hint, it lists the files.
    """

    def load_table(self, identifier: str | Identifier) -> Table:
        """Return the current version of the table."""
        parts = self.identifier_to_tuple(identifier)
        metadata = _MetadataDirectory(
            "/".join((self.properties["warehouse"].rstrip("/"), *parts, "metadata")), self.properties
        )
        version = metadata.hinted_version()
        if version is None:
            version = metadata.listed_version()
        if version is None:
            message = f"Table does not exist: {'.'.join(parts)}"
            raise NoSuchTableError(message)
        location = metadata.file(version) or metadata.path(_SPELLINGS[0].format(version))
        while (newer := metadata.file(version + 1)) is not None:
            location, version = newer, version + 1
        return StaticTable.from_metadata(location, self.properties)

    def table_exists(self, identifier: str | Identifier) -> bool:
        """Return whether the table has metadata."""
        try:
            self.load_table(identifier)
        except NoSuchTableError:
            return False
        return True

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """Return the directories directly below a namespace that are no tables."""
        parts = self.identifier_to_tuple(namespace)
        return [(*parts, name) for name, is_table in self._directories(parts) if not is_table]

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """Return the tables directly below a namespace."""
        parts = self.identifier_to_tuple(namespace)
        return [(*parts, name) for name, is_table in self._directories(parts) if is_table]

    def _directories(self, parts: Identifier) -> Iterator[tuple[str, bool]]:
        """Yield the directories below a namespace, and whether each is a table: it then has metadata."""
        location = "/".join((self.properties["warehouse"].rstrip("/"), *parts))
        for info in _entries(location, self.properties):
            if info.type == FileType.Directory:
                below = _entries(f"{location}/{info.base_name}", self.properties)
                yield info.base_name, any(item.base_name == "metadata" for item in below)


def _io_of(properties: Properties) -> PyArrowFileIO:
    is_hdfs = properties.get(PY_IO_IMPL) == HDFS_FILE_IO
    return HdfsFileIO(properties) if is_hdfs else PyArrowFileIO(properties)


def _entries(location: str, properties: Properties) -> list[FileInfo]:
    """Return the files and directories in a directory, or none if it does not exist."""
    scheme, netloc, path = PyArrowFileIO.parse_location(location)
    files: Any = _io_of(properties).fs_by_scheme(scheme, netloc)
    found: list[FileInfo] = files.get_file_info(FileSelector(path, allow_not_found=True))
    return found


class _MetadataDirectory:
    def __init__(self, location: str, properties: Properties) -> None:
        self._location, self._properties = location, properties
        self._io = _io_of(properties)

    def path(self, name: str) -> str:
        return f"{self._location}/{name}"

    def file(self, version: int) -> str | None:
        paths = (self.path(spelling.format(version)) for spelling in _SPELLINGS)
        return next((path for path in paths if self._io.new_input(path).exists()), None)

    def hinted_version(self) -> int | None:
        try:
            with self._io.new_input(self.path("version-hint.text")).open() as stream:
                return int(stream.read().decode())
        except (FileNotFoundError, ValueError):
            return None

    def listed_version(self) -> int | None:
        names = [info.base_name for info in _entries(self._location, self._properties)]
        return max((int(match[1]) for name in names if (match := _METADATA_FILE.fullmatch(name))), default=None)


_HADOOP: Final = "hadoop."
"""The prefix of Hadoop's configuration among a catalog's properties, as in Iceberg."""
_DEFAULTS: Final = {"dfs.client.failover.max.attempts": "3", "dfs.client.failover.sleep.max.millis": "1000"}
"""Defaults for hdfs-native. With Hadoop's (15 attempts, up to 15 s apart), it waits minutes for a missing name node."""


class HdfsFileIO(PyArrowFileIO):
    """File IO for any store that opens HDFS through hdfs-native.

    Hadoop's configuration comes from the catalog's properties and from `HADOOP_CONF_DIR`. The user comes from
    `HADOOP_USER_NAME` or from the ticket cache of Kerberos.
    """

    def _initialize_hdfs_fs(self, scheme: str, netloc: str | None) -> FileSystem:
        """Return the file system."""
        try:
            from hdfs_native.fsspec import HdfsFileSystem, ViewfsFileSystem
        except ImportError as error:
            raise ConfigurationError.missing_package(
                "read",
                f"{scheme}://{netloc or ''}",
                package="hdfs-native",
                install="dagster-iceberg-spark[hdfs]",
                found=str(error),
            ) from error
        configuration = {
            key.removeprefix(_HADOOP): str(value) for key, value in self.properties.items() if key.startswith(_HADOOP)
        }
        host, _, port = (netloc or "").partition(":")
        kind = HdfsFileSystem if scheme == "hdfs" else ViewfsFileSystem
        opened = kind(host or None, int(port) if port else None, **{**_DEFAULTS, **configuration})
        return PyFileSystem(FSSpecHandler(opened))

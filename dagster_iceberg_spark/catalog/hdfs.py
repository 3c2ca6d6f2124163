"""pyiceberg's way to HDFS without Hadoop on the machine: the protocol is spoken by hdfs-native.

pyiceberg itself takes pyarrow's client, which wants `libhdfs`, a JVM in the process, and a CLASSPATH of Hadoop's.
"""

from typing import Final

from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from dagster_iceberg_spark.errors import ConfigurationError

_HADOOP: Final = "hadoop."
"""Prefix of Hadoop's configuration among a catalog's properties, as Iceberg has it."""
_DEFAULTS: Final = {"dfs.client.failover.max.attempts": "3", "dfs.client.failover.sleep.max.millis": "1000"}
"""Of hdfs-native: fifteen times, up to 15 s apart, as is Hadoop's default, are minutes where no name node is there."""


class HdfsFileIO(PyArrowFileIO):
    """Files of any store, of which HDFS is opened by hdfs-native.

    It takes Hadoop's configuration from the catalog's properties, and from `HADOOP_CONF_DIR`; the user from
    `HADOOP_USER_NAME`, or from the ticket cache of Kerberos.
    """

    def _initialize_hdfs_fs(self, scheme: str, netloc: str | None) -> FileSystem:
        """Return the file system.

        Raises:
            ConfigurationError: hdfs-native is not installed.
        """
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

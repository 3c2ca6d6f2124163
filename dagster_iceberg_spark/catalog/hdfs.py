"""Opens HDFS for pyiceberg without Hadoop on the machine, through hdfs-native, which implements the protocol.

pyiceberg itself uses pyarrow's client, which needs `libhdfs`, a JVM in the process, and Hadoop's CLASSPATH.
"""

from typing import Final

from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from dagster_iceberg_spark.errors import ConfigurationError

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

"""HDFS, and what else Hadoop's clients open."""

from typing import Final, Literal

from pydantic import Field

from dagster_iceberg_spark.catalog.description import HDFS_FILE_IO, HDFS_SCHEMES, EngineProperties, holds_secret
from dagster_iceberg_spark.config.configuration import Configuration

HADOOP_SCHEMES: Final = (*HDFS_SCHEMES, "file", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss")


class HadoopStore(Configuration):
    """HDFS, or another file system of Hadoop's: in Spark, Hadoop's client of the warehouse's scheme opens it.

    Without a JVM, hdfs-native opens HDFS, under the same configuration (the extra `hdfs`).

    Example:
        >>> HadoopStore(configuration={"dfs.client.use.datanode.hostname": "true"}).kind
        'hadoop'
    """

    kind: Literal["hadoop"] = Field(default="hadoop", description="HDFS or another file system of Hadoop's.")
    configuration: dict[str, str] = Field(
        default={},
        description="Hadoop's configuration for this catalog alone, such as `dfs.nameservices`. Use EnvVar for "
        "secrets.",
    )

    def describe(self) -> EngineProperties:
        """Return what both engines need."""
        configured = {f"hadoop.{key}": value for key, value in self.configuration.items()}
        secret = {key: value for key, value in configured.items() if holds_secret(key)}
        return EngineProperties(
            spark={
                "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
                **{key: value for key, value in configured.items() if key not in secret},
            },
            spark_secrets=secret,
            pyiceberg={
                "py-io-impl": HDFS_FILE_IO,
                **{key: value for key, value in configured.items() if key not in secret},
            },
            pyiceberg_secrets=secret,
        )

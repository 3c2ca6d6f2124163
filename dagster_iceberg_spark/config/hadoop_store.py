"""HDFS, and the other file systems that Hadoop's clients open."""

from typing import ClassVar, Literal

from pydantic import Field

from dagster_iceberg_spark.catalog.description import HDFS_FILE_IO, HDFS_SCHEMES, EngineProperties, split_secrets
from dagster_iceberg_spark.config.configuration import Configuration


class HadoopStore(Configuration):
    """HDFS, or another Hadoop file system, which Spark opens with Hadoop's client for the warehouse's scheme.

    Without a JVM, hdfs-native opens HDFS with the same configuration (the extra `hdfs`).

    Example:
        >>> HadoopStore(configuration={"dfs.client.use.datanode.hostname": "true"}).kind
        'hadoop'
    """

    schemes: ClassVar = (*HDFS_SCHEMES, "file", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss")

    kind: Literal["hadoop"] = Field(default="hadoop", description="HDFS, or another Hadoop file system.")
    configuration: dict[str, str] = Field(
        default={},
        description="Hadoop's configuration for this catalog alone, such as `dfs.nameservices`. Use EnvVar for "
        "secrets.",
    )

    def describe(self) -> EngineProperties:
        """Return what both engines need."""
        shown, secret = split_secrets({f"hadoop.{key}": value for key, value in self.configuration.items()})
        return EngineProperties(
            spark={"io-impl": "org.apache.iceberg.hadoop.HadoopFileIO", **shown},
            spark_secrets=secret,
            pyiceberg={"py-io-impl": HDFS_FILE_IO, **shown},
            pyiceberg_secrets=secret,
        )

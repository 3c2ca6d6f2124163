"""HDFS, and what else Hadoop's clients open."""

from typing import Final, Literal

from pydantic import Field

from dagster_iceberg_spark.catalog.description import EngineProperties, holds_secret
from dagster_iceberg_spark.config.base import Configuration

HADOOP_SCHEMES: Final = ("hdfs", "viewfs", "file", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss")


class HadoopStore(Configuration):
    """HDFS, or another file system of Hadoop's: in Spark, Hadoop's client of the warehouse's scheme opens it.

    Example:
        >>> HadoopStore(configuration={"dfs.client.use.datanode.hostname": "true"}).kind
        'hadoop'
    """

    kind: Literal["hadoop"] = Field(default="hadoop", description="HDFS or another file system of Hadoop's.")
    configuration: dict[str, str] = Field(
        default={},
        description="Hadoop's configuration for this catalog alone, in Spark, such as `dfs.nameservices`. Use EnvVar "
        "for secrets.",
    )
    host: str | None = Field(
        default=None, description="Name node for pyiceberg, where the warehouse's URI does not name one."
    )
    port: int | None = Field(default=None, description="Port of `host`.")
    user: str | None = Field(
        default=None, description="User for pyiceberg, where the warehouse's URI names no name node."
    )
    kerberos_ticket: str | None = Field(
        default=None,
        description="Path of the Kerberos ticket cache for pyiceberg, where the warehouse's URI names no name node.",
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
                **({"hdfs.host": self.host} if self.host else {}),
                **({"hdfs.port": str(self.port)} if self.port else {}),
                **({"hdfs.user": self.user} if self.user else {}),
                **({"hdfs.kerberos_ticket": self.kerberos_ticket} if self.kerberos_ticket else {}),
            },
        )

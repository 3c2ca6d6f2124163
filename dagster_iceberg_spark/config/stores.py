"""The choice of a store, and the stores that need few settings: Google's, and those that Hadoop's clients open."""

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import Field

from dagster_iceberg_spark.catalog.description import HDFS_FILE_IO, HDFS_SCHEMES, EngineProperties, split_secrets
from dagster_iceberg_spark.config.adls_store import AdlsStore
from dagster_iceberg_spark.config.configuration import Configuration, given
from dagster_iceberg_spark.config.s3_store import S3Store
from dagster_iceberg_spark.versions import ICEBERG_GCP_BUNDLE

_NEVER: Final = "4102444800000"
"""The year 2100: pyarrow takes a token only with its time of expiry, in milliseconds."""


class GcsStore(Configuration):
    """Google Cloud Storage. Without a token, it uses Google's default credential chain.

    Example:
        >>> GcsStore(project_id="lake").kind
        'gcs'
    """

    schemes: ClassVar = ("gs",)

    kind: Literal["gcs"] = Field(default="gcs", description="Google Cloud Storage.")
    project_id: str | None = Field(default=None, description="Project. Default: the project of the credentials.")
    token: str | None = Field(
        default=None,
        description="OAuth2 access token, which is not renewed. Use EnvVar. Default: the credential chain "
        "(GOOGLE_APPLICATION_CREDENTIALS, gcloud's login, the metadata server).",
    )
    endpoint: str | None = Field(default=None, description="Endpoint, such as an emulator's. Default: Google's.")

    def describe(self) -> EngineProperties:
        """Return what both engines need."""
        endpoint = self.endpoint and self.endpoint.rstrip("/")
        common = given({"gcs.project-id": self.project_id, "gcs.service.host": endpoint})
        secrets = given({"gcs.oauth2.token": self.token})
        return EngineProperties(
            spark={"io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO", **common},
            spark_secrets=secrets,
            pyiceberg={**common, **({"gcs.oauth2.token-expires-at": _NEVER} if secrets else {})},
            pyiceberg_secrets=secrets,
            packages=(ICEBERG_GCP_BUNDLE,),
        )


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


class AutomaticStore(Configuration):
    """The store that the warehouse's scheme names, with the credentials of the environment. A path is local."""

    schemes: ClassVar = ("s3", *HadoopStore.schemes)
    """Only `s3` needs more than `properties`, Hadoop's configuration and the environment."""

    kind: Literal["automatic"] = Field(default="automatic", description="The store that the warehouse's scheme names.")


StoreConfig: TypeAlias = Annotated[
    AutomaticStore | S3Store | AdlsStore | GcsStore | HadoopStore, Field(discriminator="kind")
]

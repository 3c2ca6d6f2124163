"""Google Cloud Storage, for Iceberg's own client and for pyarrow's."""

from typing import ClassVar, Final, Literal

from pydantic import Field

from dagster_iceberg_spark.catalog.description import EngineProperties
from dagster_iceberg_spark.config.configuration import Configuration, given
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

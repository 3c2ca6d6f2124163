"""Google Cloud Storage, for Iceberg's own client and for pyarrow's."""

from typing import Final, Literal

from pydantic import Field

from dagster_iceberg_spark.catalog.description import EngineProperties
from dagster_iceberg_spark.config.configuration import Configuration
from dagster_iceberg_spark.versions import ICEBERG_GCP_BUNDLE

GCS_SCHEMES: Final = ("gs",)
_NEVER: Final = "4102444800000"
"""In the year 2100: pyarrow takes no token without the time, in milliseconds, at which it expires."""


class GcsStore(Configuration):
    """Google Cloud Storage. Without a token: what Google's default chain finds.

    Example:
        >>> GcsStore(project_id="lake").kind
        'gcs'
    """

    kind: Literal["gcs"] = Field(default="gcs", description="Google Cloud Storage.")
    project_id: str | None = Field(default=None, description="Project. Default: the one of the credentials.")
    token: str | None = Field(
        default=None,
        description="OAuth2 access token, in place of what the default chain finds (GOOGLE_APPLICATION_CREDENTIALS, "
        "gcloud's login, the metadata server). It is not renewed. Use EnvVar.",
    )
    endpoint: str | None = Field(
        default=None, description="Endpoint of the service, such as an emulator's. Default: Google's."
    )

    def describe(self) -> EngineProperties:
        """Return what both engines need."""
        common = {
            **({"gcs.project-id": self.project_id} if self.project_id else {}),
            **({"gcs.service.host": self.endpoint.rstrip("/")} if self.endpoint else {}),
        }
        secrets = {"gcs.oauth2.token": self.token} if self.token else {}
        return EngineProperties(
            spark={"io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO", **common},
            spark_secrets=secrets,
            pyiceberg={**common, **({"gcs.oauth2.token-expires-at": _NEVER} if self.token else {})},
            pyiceberg_secrets=secrets,
            packages=(ICEBERG_GCP_BUNDLE,),
        )

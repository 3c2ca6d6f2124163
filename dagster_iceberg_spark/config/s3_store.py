"""Amazon S3, and services with its API."""

from typing import Literal

from pydantic import Field

from dagster_iceberg_spark.catalog.aws import DEFAULT_REGION
from dagster_iceberg_spark.catalog.description import EngineProperties
from dagster_iceberg_spark.config.aws_credentials import AwsCredentials, named_keys
from dagster_iceberg_spark.config.configuration import Configuration
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.versions import ICEBERG_AWS_BUNDLE


class S3Store(Configuration):
    """Amazon S3, or a service that speaks its protocol.

    Example:
        >>> S3Store(endpoint="http://127.0.0.1:9000", path_style_access=True, region="us-east-1").kind
        's3'
    """

    kind: Literal["s3"] = Field(default="s3", description="Amazon S3 or a service that speaks its protocol.")
    endpoint: str | None = Field(
        default=None, description="Endpoint of the service, such as `http://127.0.0.1:9000`. Default: Amazon's."
    )
    path_style_access: bool = Field(
        default=False,
        description="Whether the bucket is part of the path; most services other than Amazon's ask for it.",
    )
    region: str | None = Field(default=None, description="Region. Default: what boto3 finds.")
    credentials: AwsCredentials = Field(default=AwsCredentials(), description="Who signs requests.")
    encryption: Literal["default", "s3", "kms", "dsse-kms"] = Field(
        default="default", description="Server-side encryption of what Spark writes. `default`: as the bucket says."
    )
    kms_key_id: str | None = Field(
        default=None, description="Key of `kms` and `dsse-kms`: its id or ARN. Default: S3's own key of the account."
    )

    def describe(self, *, is_vended: bool = False) -> EngineProperties:
        """Return what both engines need.

        Args:
            is_vended: Whether the catalog hands out the keys, so that none is looked for here.

        Raises:
            ConfigurationError: A key for an encryption that has none.
        """
        if self.kms_key_id is not None and self.encryption not in ("kms", "dsse-kms"):
            raise ConfigurationError.refusing(
                "use",
                "the S3 store",
                expected="`encryption` to be `kms` or `dsse-kms` where `kms_key_id` is set",
                found=repr(self.encryption),
            )
        is_signed_here = self.credentials.is_given or not is_vended
        identity = self.credentials.identity() if is_signed_here else None
        secrets = {} if identity is None else named_keys("s3", identity.fixed_keys)
        known = self.region or (DEFAULT_REGION if identity is None and self.endpoint else None)
        region = {"client.region": known} if known else {}
        return EngineProperties(
            spark={
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                **({"s3.endpoint": self.endpoint} if self.endpoint else {}),
                **({"s3.path-style-access": "true"} if self.path_style_access else {}),
                **({"s3.sse.type": self.encryption} if self.encryption != "default" else {}),
                **({"s3.sse.key": self.kms_key_id} if self.kms_key_id else {}),
                **region,
            },
            spark_secrets=secrets,
            pyiceberg={
                **({"s3.endpoint": self.endpoint} if self.endpoint else {}),
                **({} if self.path_style_access or not self.endpoint else {"s3.force-virtual-addressing": "true"}),
                **region,
            },
            pyiceberg_secrets=secrets,
            packages=(ICEBERG_AWS_BUNDLE,),
            aws=identity,
        )

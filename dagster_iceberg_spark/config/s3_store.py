"""Amazon S3, and services with the same API."""

from typing import ClassVar, Literal

from pydantic import Field

from dagster_iceberg_spark.catalog.description import DEFAULT_REGION, EngineProperties
from dagster_iceberg_spark.config.aws_credentials import AwsCredentials, named_keys
from dagster_iceberg_spark.config.configuration import Configuration, given
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.versions import ICEBERG_AWS_BUNDLE


class S3Store(Configuration):
    """Amazon S3, or a service with the same API.

    Example:
        >>> S3Store(endpoint="http://127.0.0.1:9000", path_style_access=True, region="us-east-1").kind
        's3'
    """

    schemes: ClassVar = ("s3", "s3a", "s3n")

    kind: Literal["s3"] = Field(default="s3", description="Amazon S3, or a service with the same API.")
    endpoint: str | None = Field(
        default=None, description="Endpoint of the service, such as `http://127.0.0.1:9000`. Default: Amazon's."
    )
    path_style_access: bool = Field(
        default=False,
        description="Whether requests name the bucket in the path. Most services other than Amazon's require it.",
    )
    region: str | None = Field(default=None, description="Region. Default: the catalog's, or the one that boto3 finds.")
    credentials: AwsCredentials = Field(
        default=AwsCredentials(), description="Credentials that sign requests. Default: the catalog's, or boto3's."
    )
    encryption: Literal["default", "s3", "kms", "dsse-kms"] = Field(
        default="default", description="Server-side encryption of Spark's files. `default`: the bucket's setting."
    )
    kms_key_id: str | None = Field(
        default=None, description="Key for `kms` and `dsse-kms`, by id or ARN. Default: AWS's own key for S3."
    )

    def describe(self, *, is_vended: bool = False) -> EngineProperties:
        """Return what both engines need. If the catalog vends the credentials, none are looked for here."""
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
        common = given(
            {
                "s3.endpoint": self.endpoint,
                "client.region": self.region or (DEFAULT_REGION if identity is None and self.endpoint else None),
            }
        )
        is_virtual = self.endpoint and not self.path_style_access
        return EngineProperties(
            spark={
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                **common,
                **({"s3.path-style-access": "true"} if self.path_style_access else {}),
                **({"s3.sse.type": self.encryption} if self.encryption != "default" else {}),
                **given({"s3.sse.key": self.kms_key_id}),
            },
            spark_secrets=secrets,
            pyiceberg={**common, **({"s3.force-virtual-addressing": "true"} if is_virtual else {})},
            pyiceberg_secrets=secrets,
            packages=(ICEBERG_AWS_BUNDLE,),
            aws=identity,
        )

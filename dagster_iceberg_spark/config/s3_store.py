"""Amazon S3, services with the same API, and credentials for AWS."""

from typing import ClassVar, Literal

from pydantic import Field

from dagster_iceberg_spark.catalog.description import DEFAULT_REGION, AwsIdentity, AwsKeys, EngineProperties
from dagster_iceberg_spark.config.configuration import Configuration, given
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.versions import ICEBERG_AWS_BUNDLE


class AwsCredentials(Configuration):
    """Credentials for AWS. Default: those that boto3 finds (environment, profile, SSO, container, instance).

    Example:
        >>> AwsCredentials(profile="lake").profile
        'lake'
    """

    access_key_id: str | None = Field(default=None, description="Access key id. Use EnvVar.")
    secret_access_key: str | None = Field(default=None, description="Secret access key. Use EnvVar.")
    session_token: str | None = Field(
        default=None, description="Session token of temporary keys, which are not renewed. Use EnvVar."
    )
    profile: str | None = Field(
        default=None, description="Profile in the AWS configuration files. Default: AWS_PROFILE, or `default`."
    )
    role_arn: str | None = Field(
        default=None, description="ARN of a role to assume with these credentials. It is renewed before it expires."
    )
    external_id: str | None = Field(default=None, description="External id that the role's trust policy requires.")
    role_session_name: str | None = Field(default=None, description="Name of the role's session in CloudTrail.")

    @property
    def is_given(self) -> bool:
        """Whether any field is set."""
        return any(value is not None for _, value in self)

    def identity(self) -> AwsIdentity:
        """Return the identity that signs."""
        self._require((self.access_key_id is None) == (self.secret_access_key is None), "both keys or neither")
        self._require(self.session_token is None or self.access_key_id is not None, "`session_token` with its keys")
        self._require(self.profile is None or self.access_key_id is None, "either keys or a `profile`")
        detailed = self.external_id is not None or self.role_session_name is not None
        self._require(self.role_arn is not None or not detailed, "the role's `role_arn`")
        keys = (
            AwsKeys(self.access_key_id, self.secret_access_key, self.session_token)
            if self.access_key_id is not None and self.secret_access_key is not None
            else None
        )
        return AwsIdentity(
            keys=keys,
            profile=self.profile,
            role_arn=self.role_arn,
            external_id=self.external_id,
            role_session_name=self.role_session_name,
        )

    def _require(self, is_right: bool, expected: str) -> None:  # noqa: FBT001 - the condition is what is asked
        if not is_right:
            found = ", ".join(f"`{name}`" for name, value in self if value is not None)
            raise ConfigurationError.refusing("use", "the AWS credentials", expected=expected, found=found)


def named_keys(prefix: str, keys: AwsKeys | None) -> dict[str, str]:
    """Return keys as Iceberg's properties with a prefix: `s3` or `rest`."""
    if keys is None:
        return {}
    return {
        f"{prefix}.access-key-id": keys.access_key_id,
        f"{prefix}.secret-access-key": keys.secret_access_key,
        **given({f"{prefix}.session-token": keys.session_token}),
    }


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

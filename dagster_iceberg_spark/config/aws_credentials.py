"""Credentials for AWS."""

from pydantic import Field

from dagster_iceberg_spark.catalog.description import AwsIdentity, AwsKeys
from dagster_iceberg_spark.config.configuration import Configuration, given
from dagster_iceberg_spark.errors import ConfigurationError


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

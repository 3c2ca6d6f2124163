"""The configured identity that signs requests to AWS."""

from dataclasses import dataclass, field
from typing import Final

DEFAULT_REGION: Final = "us-east-1"
"""The region for a service other than Amazon's if none is configured. Such a service needs some region."""


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """The keys that sign requests. Those that expire have a session token."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class AwsIdentity:
    """The configured identity. boto3 finds what is None."""

    keys: AwsKeys | None = field(repr=False, default=None)
    profile: str | None = None
    role_arn: str | None = None
    external_id: str | None = None
    role_session_name: str | None = None

    @property
    def fixed_keys(self) -> AwsKeys | None:
        """The configured keys, if they sign directly, without a role."""
        return None if self.role_arn else self.keys

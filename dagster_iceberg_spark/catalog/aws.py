"""Who signs requests to AWS, as it was configured."""

from dataclasses import dataclass, field
from typing import Final

DEFAULT_REGION: Final = "us-east-1"
"""What a service that is not Amazon's is told where nothing else is configured: it has to be told something."""


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """What requests are signed with.

    Args:
        access_key_id: The key's name.
        secret_access_key: The key.
        session_token: Comes with keys that expire.
    """

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class AwsIdentity:
    """Who signs, as it was configured; what is None is found as boto3 does.

    Args:
        keys: Given keys.
        profile: A profile of the AWS configuration files.
        role_arn: A role that is assumed.
        external_id: What the role's trust policy asks for.
        role_session_name: The name of the session under the role.
    """

    keys: AwsKeys | None = field(repr=False, default=None)
    profile: str | None = None
    role_arn: str | None = None
    external_id: str | None = None
    role_session_name: str | None = None

    @property
    def fixed_keys(self) -> AwsKeys | None:
        """The given keys, where they are used as they are."""
        return None if self.role_arn else self.keys

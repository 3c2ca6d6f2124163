"""AWS credentials. boto3 finds them once for Spark and pyiceberg, and refreshes them before they expire."""

import threading
from typing import Any, Final

import boto3
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError, SSOError, TokenRetrievalError

from dagster_iceberg_spark.catalog.description import DEFAULT_REGION, AwsIdentity, AwsKeys, CatalogDescription
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.failure_kinds import FailureKind

_SESSION_NAME = "dagster-iceberg-spark"

RECOGNISERS: Final[tuple[tuple[FailureKind, tuple[type[Exception], ...]], ...]] = (
    (FailureKind.AWS_ROLE_REFUSED, (ClientError,)),
    (FailureKind.AWS_ROLE_MALFORMED, (ParamValidationError,)),
    (FailureKind.AWS_LOGIN_EXPIRED, (SSOError, TokenRetrievalError)),
    (FailureKind.AWS_KEYS_EXPIRED, (RuntimeError,)),  # botocore's error for credentials that could not be refreshed
    (FailureKind.AWS_KEYS_UNAVAILABLE, (BotoCoreError, OSError, ValueError)),
)
"""The errors of boto3 while it fetches keys. The first match applies."""

_sessions: dict[AwsIdentity, boto3.Session] = {}
_lock = threading.Lock()


def session_of(identity: AwsIdentity) -> boto3.Session:
    """Return the process's boto3 session of the identity, which refreshes its credentials."""
    with _lock:
        known = _sessions.get(identity)
        if known is None:
            try:
                known = _session(identity)
            except BotoCoreError as error:
                raise FailureKind.AWS_PROFILE_MISSING.refusal("use", "the AWS credentials", str(error)) from None
            if identity.role_arn is None or known.get_credentials() is not None:
                _sessions[identity] = known
        return known


def current_keys(identity: AwsIdentity) -> AwsKeys | None:
    """Return the current keys, or None if boto3 finds none yet. Keys that expire within minutes are refreshed."""
    if identity.fixed_keys is not None:
        return identity.fixed_keys
    session = session_of(identity)
    try:
        credentials = session.get_credentials()  # looked up again if there was none
        frozen = None if credentials is None else credentials.get_frozen_credentials()
    except (ClientError, BotoCoreError, RuntimeError, OSError, ValueError) as error:
        raise _refusal(error, identity) from None
    return None if frozen is None else AwsKeys(frozen.access_key, frozen.secret_key, frozen.token or None)


def _refusal(error: Exception, identity: AwsIdentity) -> IcebergSparkError:
    kind = next(kind for kind, classes in RECOGNISERS if isinstance(error, classes))
    told = error.response.get("Error", {}) if isinstance(error, ClientError) else None
    found = " ".join(str(error).split()) if told is None else f"{told.get('Code')}: {told.get('Message')}"
    if kind in (FailureKind.AWS_ROLE_REFUSED, FailureKind.AWS_ROLE_MALFORMED):
        role = f"the AWS role {identity.role_arn}" if identity.role_arn else "the AWS role of the profile"
        return kind.refusal("assume", role, found)
    return kind.refusal("use", "the AWS credentials", found)


def region_of(description: CatalogDescription) -> str | None:
    """Return the configured region, or the one that boto3 finds."""
    properties = description.pyiceberg_properties
    for name in ("client.region", "rest.signing-region"):
        if name in properties:
            return str(properties[name])
    found = session_of(description.aws or AwsIdentity()).region_name
    return found or (DEFAULT_REGION if "s3.endpoint" in properties else None)


def _session(identity: AwsIdentity) -> boto3.Session:
    keys = identity.keys
    session = boto3.Session(
        aws_access_key_id=keys and keys.access_key_id,
        aws_secret_access_key=keys and keys.secret_access_key,
        aws_session_token=keys and keys.session_token,
        profile_name=identity.profile,
    )
    return session if identity.role_arn is None else _under_role(session, identity)


def _under_role(session: boto3.Session, identity: AwsIdentity) -> boto3.Session:
    """Return a session of the role. boto3 itself reads roles from configuration files only."""
    arguments = {"RoleSessionName": identity.role_session_name or _SESSION_NAME}
    if identity.external_id is not None:
        arguments["ExternalId"] = identity.external_id

    def client(service: str, **signing: Any) -> Any:
        return session.client(service, region_name=session.region_name or DEFAULT_REGION, **signing)

    source = session.get_credentials()
    if source is None:
        return session  # not cached, because its later credentials would not be those of the role
    fetcher = AssumeRoleCredentialFetcher(
        client_creator=client, source_credentials=source, role_arn=identity.role_arn, extra_args=arguments
    )
    under_role: Any = boto3.Session(profile_name=identity.profile)
    under_role._session._credentials = DeferredRefreshableCredentials(  # noqa: SLF001 - there is no public way
        refresh_using=fetcher.fetch_credentials, method="assume-role"
    )
    return under_role

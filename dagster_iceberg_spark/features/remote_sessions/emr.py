"""Spark Connect sessions of EMR Serverless and of EMR on EC2."""

import atexit
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Final
from urllib.parse import quote, urlsplit

from dagster_iceberg_spark.catalog.description import first_line
from dagster_iceberg_spark.errors import ConfigurationError, IcebergSparkError, SparkEnvironmentError
from dagster_iceberg_spark.failure_kinds import FailureKind
from dagster_iceberg_spark.features.remote_sessions.readiness import START_SECONDS, Status, wait_until_ready
from dagster_iceberg_spark.timeouts import ANSWER_TIMEOUT_SECONDS, CONNECT_TIMEOUT_SECONDS

_STAGES: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("STARTED", "IDLE", "BUSY"), "ready"),
    **dict.fromkeys(("FAILED", "TERMINATING", "TERMINATED"), "over"),
}
_RENEWAL_SECONDS: Final = 600.0
"""Before a token expires, another one is asked for."""
_RETRY_SECONDS: Final = 60.0
_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    """What a process holds for a provider and its copies. AWS starts one session for a start token."""

    session_id: str | None = None
    start_token: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    renews_at: float = float("inf")
    client: Any = None
    lock: Any = field(default_factory=threading.Lock)


_held: Final[dict[tuple[int, "AwsSession"], _Held]] = {}


@dataclass(frozen=True, kw_only=True)
class AwsSession:
    """A session of AWS. A process starts one for equal values, replaces it if it has ended, and terminates it at exit.

    Args:
        session_id: A session that exists, which the package does not terminate. Default: the package starts one.
        execution_role_arn: The role of the session. EMR Serverless requires it to start one.
        idle_timeout_minutes: After which AWS ends a session that nothing uses, in minutes.
        configuration: Spark configuration of the session.
        region: The AWS region. Default: that of the environment, which has the credentials too.
        wait_seconds: Until the session is ready, in seconds.
    """

    session_id: str | None = None
    execution_role_arn: str | None = None
    idle_timeout_minutes: int | None = None
    configuration: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    region: str | None = None
    wait_seconds: float = START_SECONDS
    _names: ClassVar[Mapping[str, str]]
    """The names of the service's API. `missing` is the error code for a session that does not exist."""

    def __str__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._scope.values())})"

    def connect_url(self) -> str:
        """Return the address of the session, with a token. This starts a session if there is none, and waits for it."""
        with self._hold() as held:
            parts = urlsplit(self._renew(held, self._ready_session(held)))
            parameters = held.metadata if parts.scheme == "http" else {"use_ssl": "true", **held.metadata}
            texts = (f"{name}={quote(value, safe='')}" for name, value in parameters.items())
            return f"sc://{parts.hostname}:{parts.port or 443}/;{';'.join(texts)}"

    def connect_metadata(self) -> Mapping[str, str]:
        """Return what each request to the session carries: a token that has not expired. This starts no session."""
        held = self._held
        if time.time() > held.renews_at:
            try:
                with self._hold():
                    session_id = self.session_id or held.session_id
                    if session_id is not None and time.time() > held.renews_at:
                        held.renews_at = time.time() + _RETRY_SECONDS
                        self._renew(held, session_id)
            except IcebergSparkError as error:  # the server decides what the old token is worth
                _logger.warning("%s", error)
        return held.metadata

    def close(self) -> None:
        """Terminate the session, if this process has started it."""
        with self._hold() as held:
            if held.session_id is not None and self._status(held, held.session_id).stage != "over":
                self._ask(held, "terminate_session", held.session_id)
            held.session_id, held.renews_at = None, float("inf")

    @property
    def _held(self) -> _Held:
        return _held.setdefault((os.getpid(), self), _Held())

    @contextmanager
    def _hold(self) -> Iterator[_Held]:
        """Lock what the process holds, and translate the errors of AWS's client."""
        from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

        from dagster_iceberg_spark.catalog.failures import kind_of

        try:
            with (held := self._held).lock:
                yield held
        except (BotoCoreError, ClientError) as error:
            kind = kind_of(error)
            status = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode")
            is_refused = isinstance(error, ParamValidationError) or str(status).startswith("4")
            known: type[IcebergSparkError] = SparkEnvironmentError if kind is None else kind.error
            if kind is FailureKind.CATALOG_UNREACHABLE and is_refused:
                known = SparkEnvironmentError
            found = " ".join(str(error).splitlines())
            raise known.refusing("use", str(self), expected="an answer of AWS", found=found) from None

    def _ready_session(self, held: _Held) -> str:
        if held.session_id is not None and (status := self._status(held, held.session_id)).stage == "over":
            _logger.warning("The session %s is %s: starting another one", held.session_id, status)
            held.session_id = None
        session_id = self.session_id or held.session_id
        if session_id is None:
            session_id = held.session_id = self._start(held)
        hint = "leave `session_id` out, so that the package starts a session." if self.session_id else None
        subject, look = f"the session {session_id} of {self}", partial(self._status, held, session_id)
        wait_until_ready(subject, look, seconds=self.wait_seconds, hint=hint)
        return session_id

    def _start(self, held: _Held) -> str:
        held.start_token = held.start_token or uuid.uuid4().hex
        request = {name: value for name, value in self._request(held.start_token).items() if value is not None}
        answer = self._client(held).start_session(**self._scope, **request)
        held.start_token = None
        return str(answer[self._names["started"]])

    def _status(self, held: _Held, session_id: str) -> Status:
        client, names = self._client(held), self._names
        try:
            session = self._ask(held, "get_session", session_id)[names["session"]]
        except client.exceptions.ClientError as error:
            if error.response["Error"]["Code"] != names["missing"]:
                raise
            return Status("unknown to AWS", "over", first_line(error))
        state = session[names["state"]]
        return Status(state, _STAGES.get(state, "starting"), session.get(names["details"], ""))

    def _renew(self, held: _Held, session_id: str) -> str:
        """Ask for a new token of the session. Return the session's endpoint."""
        answer = self._ask(held, "get_session_endpoint", session_id)
        held.metadata = self._metadata(session_id, answer[self._names["token"]])
        held.renews_at = answer[self._names["expires"]].timestamp() - _RENEWAL_SECONDS
        return str(answer[self._names["endpoint"]])

    def _ask(self, held: _Held, operation: str, session_id: str) -> Any:
        return getattr(self._client(held), operation)(**self._scope, **{self._names["id"]: session_id})

    def _client(self, held: _Held) -> Any:
        if held.client is None:
            from boto3.session import Session
            from botocore.config import Config

            limits = Config(connect_timeout=CONNECT_TIMEOUT_SECONDS, read_timeout=ANSWER_TIMEOUT_SECONDS)
            client = Session(region_name=self.region).client(self._names["service"], config=limits)
            if not hasattr(client, "start_session"):
                needed = "boto3>=1.43.72"
                raise ConfigurationError.missing_package(
                    "use", str(self), package=needed, install=needed, found="older"
                )
            held.client = client
        return held.client

    def _metadata(self, session_id: str, token: str) -> Mapping[str, str]:  # noqa: ARG002 - EMR on EC2 needs it
        return {"x-aws-proxy-auth": token}

    @property
    def _scope(self) -> Mapping[str, str]:
        raise NotImplementedError

    def _request(self, start_token: str) -> Mapping[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class EmrServerlessSession(AwsSession):
    """A session of EMR Serverless, for `remote` of `IcebergSparkResource`.

    Args:
        application_id: The application, which has sessions enabled.

    Example:
        >>> session = EmrServerlessSession(application_id="00f1abc", execution_role_arn="arn:aws:iam::1:role/spark")
    """

    application_id: str
    _names = MappingProxyType(
        {
            "service": "emr-serverless",
            "id": "sessionId",
            "started": "sessionId",
            "session": "session",
            "state": "state",
            "details": "stateDetails",
            "missing": "ResourceNotFoundException",
            "endpoint": "endpoint",
            "token": "authToken",
            "expires": "authTokenExpiresAt",
        }
    )

    def __post_init__(self) -> None:
        """Require a role for a session that the package starts."""
        if self.session_id is None and self.execution_role_arn is None:
            expected = "`execution_role_arn` or `session_id`"
            raise ConfigurationError.refusing("configure", str(self), expected=expected, found="neither")

    @property
    def _scope(self) -> Mapping[str, str]:
        return {"applicationId": self.application_id}

    def _request(self, start_token: str) -> Mapping[str, Any]:
        settings = {"classification": "spark-defaults", "properties": dict(self.configuration)}
        return {
            "clientToken": start_token,
            "executionRoleArn": self.execution_role_arn,
            "idleTimeoutMinutes": self.idle_timeout_minutes,
            "configurationOverrides": {"runtimeConfiguration": [settings]} if self.configuration else None,
        }


@dataclass(frozen=True, kw_only=True)
class EmrSession(AwsSession):
    """A session on a cluster of EMR on EC2, for `remote` of `IcebergSparkResource`.

    Args:
        cluster_id: The cluster, which has sessions enabled.

    Example:
        >>> session = EmrSession(cluster_id="j-1ABC", configuration={"spark.executor.memory": "4g"})
    """

    cluster_id: str
    _names = MappingProxyType(
        {
            "service": "emr",
            "id": "SessionId",
            "started": "Id",
            "session": "Session",
            "state": "State",
            "details": "StateChangeReason",
            "missing": "InvalidRequestException",
            "endpoint": "Endpoint",
            "token": "AuthToken",
            "expires": "AuthTokenExpirationTime",
        }
    )

    @property
    def _scope(self) -> Mapping[str, str]:
        return {"ClusterId": self.cluster_id}

    def _request(self, start_token: str) -> Mapping[str, Any]:
        settings = {"Classification": "spark-defaults", "Properties": dict(self.configuration)}
        return {
            "ClientRequestToken": start_token,
            "Name": "dagster",  # AWS's guide requires one
            "ExecutionRoleArn": self.execution_role_arn,
            "SessionIdleTimeoutInMinutes": self.idle_timeout_minutes,
            "EngineConfigurations": [settings] if self.configuration else None,
        }

    def _metadata(self, session_id: str, token: str) -> Mapping[str, str]:
        return {**super()._metadata(session_id, token), "authorization": session_id}


@atexit.register
def close_all() -> None:
    """Terminate the sessions that this process has started."""
    for process_id, session in list(_held):
        if process_id == os.getpid():
            with suppress(IcebergSparkError):
                session.close()

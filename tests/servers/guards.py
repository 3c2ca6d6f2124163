"""Proxies that let nobody through to a REST catalog who has not logged in: the reference server takes everyone."""

import base64
import hashlib
import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.servers.proxy import Answer, HttpProxy, Request, error_answer

TOKEN_PATH = "/v1/oauth/tokens"


class GuardedProxy(HttpProxy):
    """Passes on what the guard lets through, and answers the rest with 401.

    Args:
        uri: The catalog's.
        lets_through: Says whether the request may pass.

    Attributes:
        refused: How many requests did not pass.
        passed: The headers of those that did.
    """

    def __init__(self, uri: str, lets_through: Callable[[Request], bool]) -> None:
        self._lets_through = lets_through
        self.refused = 0
        self.passed: list[Mapping[str, str]] = []
        super().__init__(uri)

    def answer_to(self, request: Request) -> Answer | None:
        if self._lets_through(request):
            self.passed.append(request.headers)
            return self.forward(request)
        self.refused += 1
        return error_answer(401, "who are you?")


class OAuth2Proxy(GuardedProxy):
    """An OAuth2 server for one client, and a catalog that takes its tokens (RFC 6749, section 4.4).

    Args:
        uri: The catalog's.
        client_id: The client's id.
        client_secret: The client's secret.
        token_seconds: How long a token is valid.

    Attributes:
        asked: What was asked for with each token.
    """

    def __init__(self, uri: str, client_id: str, client_secret: str, *, token_seconds: float = 3600) -> None:
        self._client = (client_id, client_secret)
        self.token_seconds = token_seconds
        self.asked: list[dict[str, str]] = []
        self._expiry: dict[str, float] = {}
        self._lock = threading.Lock()
        super().__init__(uri, self._has_token)

    def expire(self) -> None:
        """Let every token that was handed out expire now."""
        with self._lock:
            self._expiry.clear()

    def answer_to(self, request: Request) -> Answer | None:
        if request.method == "POST" and urlsplit(request.path).path == TOKEN_PATH:
            return self._token_for(request)
        return super().answer_to(request)

    def _token_for(self, request: Request) -> Answer:
        form = dict(parse_qsl(request.body.decode()))
        client = (form.pop("client_id", ""), form.pop("client_secret", ""))
        if not any(client):
            client = _basic(request) or client
        if client != self._client or form.get("grant_type") != "client_credentials":
            refusal = {"error": "invalid_client", "error_description": "unknown client"}
            return Answer(401, (("Content-Type", "application/json"),), json.dumps(refusal).encode())
        token = uuid.uuid4().hex
        with self._lock:
            self.asked.append(form)
            self._expiry[token] = time.monotonic() + self.token_seconds
        answer = {"access_token": token, "token_type": "bearer", "expires_in": int(self.token_seconds)}
        return Answer(200, (("Content-Type", "application/json"),), json.dumps(answer).encode())

    def _has_token(self, request: Request) -> bool:
        with self._lock:
            token = _header(request, "Authorization").removeprefix("Bearer ")
            return self._expiry.get(token, 0.0) > time.monotonic()


class VendingProxy(HttpProxy):
    """A catalog that hands out keys with a table, to those who ask for them (parameter `data-access` of the API).

    Args:
        uri: The catalog's.
        keys: The properties that are handed out.
    """

    def __init__(self, uri: str, keys: Mapping[str, str]) -> None:
        self._keys = keys
        super().__init__(uri)

    def answer_to(self, request: Request) -> Answer | None:
        answer = self.forward(request)
        return _with_config(answer, self._keys) if _asks_for(request, "vended-credentials") else answer


def _asks_for(request: Request, delegation: str) -> bool:
    return _header(request, "X-Iceberg-Access-Delegation") == delegation


def _with_config(answer: Answer, says: Mapping[str, str]) -> Answer:
    """Return the answer with more in the configuration of the table, if it is one of a table."""
    document = json.loads(answer.body) if answer.status == HTTPStatus.OK and answer.body else {}
    if "metadata" not in document:
        return answer
    document["config"] = {**document.get("config", {}), **says}
    headers = tuple((name, value) for name, value in answer.headers if name.lower() != "content-encoding")
    return Answer(answer.status, headers, json.dumps(document).encode())


class LateStore(HttpProxy):
    """A store by whose clock every request comes an hour late (S3, "Error responses", `RequestTimeTooSkewed`).

    Attributes:
        is_late: Whether it does so now.
    """

    is_late = False

    def answer_to(self, request: Request) -> Answer | None:
        if not self.is_late:
            return self.forward(request)
        body = (
            '<?xml version="1.0" encoding="UTF-8"?><Error><Code>RequestTimeTooSkewed</Code><Message>The difference '
            "between the request time and the current time is too large.</Message></Error>"
        )
        return Answer(403, (("Content-Type", "application/xml"),), body.encode())


class SigningProxy(HttpProxy):
    """A catalog that signs requests to a store for those who have none of its keys.

    As `S3V4RestSignerClient` of Iceberg and pyiceberg's `S3V4RestSigner` ask it (`s3-signer-open-api.yaml`).

    Args:
        uri: The catalog's.
        access_key_id: A key of the store.
        secret_access_key: Its secret.
        path: Where it signs.
        is_told: Whether each table says where.

    Attributes:
        signed: Method and path of what was signed.
    """

    def __init__(self, uri: str, access_key_id: str, secret_access_key: str, *, path: str, is_told: bool) -> None:
        self._credentials = Credentials(access_key_id, secret_access_key)
        self._path, self._is_told = path, is_told
        self.signed: list[tuple[str, str]] = []
        super().__init__(uri)

    def answer_to(self, request: Request) -> Answer | None:
        if urlsplit(request.path).path != self._path:
            answer = self.forward(request)
            says = {"signer.endpoint": self._path, "s3.signer.endpoint": self._path.lstrip("/")}
            return _with_config(answer, says) if self._is_told and _asks_for(request, "remote-signing") else answer
        asked = json.loads(request.body)
        given = {name: ",".join(values) for name, values in asked["headers"].items()}
        body_hash = next((given[name] for name in given if name.lower() == "x-amz-content-sha256"), "UNSIGNED-PAYLOAD")
        # What a client says of an attempt, such as its number, may change before it is sent.
        named = {name: value for name, value in given.items() if name.lower().startswith("x-amz-")}
        unsigned = AWSRequest(method=asked["method"], url=asked["uri"], headers=named)
        _GivenBody(self._credentials, "s3", asked["region"], body_hash).add_auth(unsigned)
        self.signed.append((asked["method"], urlsplit(asked["uri"]).path))
        signed = {"uri": asked["uri"], "headers": {name: [value] for name, value in unsigned.headers.items()}}
        return Answer(200, (("Content-Type", "application/json"),), json.dumps(signed).encode())


class _GivenBody(S3SigV4Auth):  # type: ignore[misc]
    """A signature over a body that the signer does not see."""

    def __init__(self, credentials: Credentials, service: str, region: str, body_hash: str) -> None:
        super().__init__(credentials, service, region)
        self._body_hash = body_hash

    def payload(self, request: AWSRequest) -> str:
        return self._body_hash


def takes_keys(access_key_id: str, session_token: str) -> Callable[[Request], bool]:
    """Return a guard of a store that knows one pair of keys, by what the signature names."""

    def lets_through(request: Request) -> bool:
        is_named = f"Credential={access_key_id}/" in _header(request, "Authorization")
        return is_named and _header(request, "X-Amz-Security-Token") == session_token

    return lets_through


def takes_bearer(token: str) -> Callable[[Request], bool]:
    """Return a guard that knows one token."""
    return lambda request: _header(request, "Authorization") == f"Bearer {token}"


def takes_basic(username: str, password: str) -> Callable[[Request], bool]:
    """Return a guard that knows one user."""
    return lambda request: _basic(request) == (username, password)


def takes_sigv4(access_key_id: str, secret_access_key: str, region: str, service: str) -> Callable[[Request], bool]:
    """Return a guard that signs each request itself, as AWS does, and compares (AWS Signature Version 4)."""
    credentials = Credentials(access_key_id, secret_access_key)

    def lets_through(request: Request) -> bool:
        given = _header(request, "Authorization")
        if not given.startswith("AWS4-HMAC-SHA256"):
            return False
        parts = dict(part.strip().split("=", 1) for part in given.split(" ", 1)[1].split(","))
        names = parts["SignedHeaders"].split(";")
        signed = {name: _header(request, name) for name in names}
        again = AWSRequest(
            method=request.method,
            url=f"http://{_header(request, 'Host')}{request.path}",
            data=request.body,
            headers=signed,
        )
        again.context["timestamp"] = _header(request, "X-Amz-Date")
        signer = SigV4Auth(credentials, service, region)
        # The last line is the body's hash, in hex; Iceberg's header of that name has it in base 64.
        head, _, _ = signer.canonical_request(again).rpartition("\n")
        canonical = f"{head}\n{hashlib.sha256(request.body).hexdigest()}"
        signature = signer.signature(signer.string_to_sign(again, canonical), again)
        return bool(parts["Signature"] == signature)

    return lets_through


def _basic(request: Request) -> tuple[str, str] | None:
    given = _header(request, "Authorization")
    if not given.startswith("Basic "):
        return None
    name, _, password = base64.b64decode(given.removeprefix("Basic ")).decode().partition(":")
    return name, password


def _header(request: Request, name: str) -> str:
    return next((value for key, value in request.headers.items() if key.lower() == name.lower()), "")

"""Keys from AWS services: for containers, for EC2 instances and for users who have logged in with SSO."""

import datetime as dt
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.tokens import SSOTokenProvider

from dagster_iceberg_spark.catalog.aws_credentials import current_keys
from dagster_iceberg_spark.catalog.description import AwsIdentity, AwsKeys

TOKEN = "hush-of-the-service"


class KeyService:
    """Hands out new keys for each request with the token, as the AWS services do.

    Attributes:
        asked: The paths of the requests.
        lasts: How long keys are valid.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.lasts = dt.timedelta(hours=1)
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                service.asked.append(self.path)
                self._answer(TOKEN.encode())

            def do_GET(self) -> None:
                service.asked.append(self.path)
                shown = {value for name, value in self.headers.items() if name.lower() in _TOKEN_HEADERS}
                if shown != {TOKEN}:
                    self.send_error(401)
                    return
                self._answer(service.answer_to(urlsplit(self.path).path))

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer_to(self, path: str) -> bytes:
        """Answer as documented by AWS for containers, instances (IMDSv2) and `GetRoleCredentials`."""
        if path == "/latest/meta-data/iam/security-credentials/":
            return b"lake-role"
        number = len(self.asked)
        until = dt.datetime.now(dt.timezone.utc) + self.lasts
        if path == "/federation/credentials":
            keys = {
                "accessKeyId": f"ASIA{number}",
                "secretAccessKey": "hushhush",
                "sessionToken": "hushtoken",
                "expiration": int(until.timestamp() * 1000),
            }
            return json.dumps({"roleCredentials": keys}).encode()
        return json.dumps(
            {
                "Code": "Success",
                "AccessKeyId": f"ASIA{number}",
                "SecretAccessKey": "hushhush",
                "Token": "hushtoken",
                "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        ).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


_TOKEN_HEADERS = frozenset({"authorization", "x-aws-ec2-metadata-token", "x-amz-sso_bearer_token"})


@pytest.fixture
def service() -> Iterator[KeyService]:
    started = KeyService()
    yield started
    started.close()


def container(service: KeyService, directory: Path) -> Mapping[str, str]:
    """ECS, EKS Pod Identity."""
    del directory
    return {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{service.uri}/v2/credentials",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": TOKEN,
    }


def instance(service: KeyService, directory: Path) -> Mapping[str, str]:
    """The role of an EC2 instance."""
    del directory
    return {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": service.uri}


def sso(service: KeyService, directory: Path) -> Mapping[str, str]:
    """A profile whose user has run `aws sso login`."""
    start = "https://lake.example.com/start"
    config = directory / "config"
    config.write_text(
        "[profile lake]\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = lake\nregion = eu-north-1\n"
        f"[sso-session corp]\nsso_start_url = {start}\nsso_region = eu-north-1\n"
        "sso_registration_scopes = sso:account:access\n"
    )
    until = dt.datetime.now(dt.timezone.utc) + dt.timedelta(hours=8)
    login = {"startUrl": start, "accessToken": TOKEN, "expiresAt": until.strftime("%Y-%m-%dT%H:%M:%SZ")}
    (directory / f"{hashlib.sha1(b'corp', usedforsecurity=False).hexdigest()}.json").write_text(json.dumps(login))
    return {"AWS_CONFIG_FILE": str(config), "AWS_PROFILE": "lake", "AWS_ENDPOINT_URL_SSO": service.uri}


@pytest.mark.parametrize("way", [container, instance, sso], ids=lambda way: way.__name__)
def test_keys_from_a_service_are_found_cached_and_renewed(
    service: KeyService, way: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in way(service, tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(SSOTokenProvider, "_SSO_TOKEN_CACHE_DIR", str(tmp_path))
    identity = AwsIdentity(role_session_name=way.__name__)
    first = current_keys(identity)
    assert isinstance(first, AwsKeys)
    assert (first.access_key_id[:4], first.secret_access_key, first.session_token) == ("ASIA", "hushhush", "hushtoken")
    assert current_keys(identity) == first
    if way is instance:  # botocore extends the validity of these keys, since the service may renew them late
        return
    service.lasts = dt.timedelta(minutes=1)
    hurried = AwsIdentity(role_session_name=f"{way.__name__} expiring")
    expiring = current_keys(hurried)
    service.lasts = dt.timedelta(hours=1)
    renewed = current_keys(hurried)
    assert renewed is not None
    assert renewed != expiring
    assert current_keys(hurried) == renewed

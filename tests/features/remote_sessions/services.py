"""AWS and Kubernetes as far as the providers use them, over HTTP, for their real clients."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, Any]]


@contextmanager
def serving(answer: Callable[[str, str, str, dict[str, Any]], Answer]) -> Iterator[str]:
    """Serve answers to a method, a path, a target and a body. Yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            target = self.headers.get("X-Amz-Target") or ""
            status, document = answer(self.command, self.path, target, json.loads(content or b"{}"))
            text = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            if "__type" in document:
                self.send_header("x-amzn-ErrorType", document["__type"])
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = respond  # noqa: N815 - the names of the base class

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@dataclass
class Aws:
    """The session operations of EMR Serverless and of EMR.

    Args:
        states: The states of a new session, one for each look. The last one stays.
        details: Details of the states.
        token_seconds: How long a token is valid.
        address_of: Returns the endpoint of a session.
    """

    states: tuple[str, ...] = ("STARTED",)
    details: str = ""
    token_seconds: float = 3600
    address_of: Callable[[str], str] = "https://{}.example.com".format
    sessions: dict[str, list[str]] = field(default_factory=dict)
    started: list[dict[str, Any]] = field(default_factory=list)
    terminated: list[str] = field(default_factory=list)
    tokens: int = 0
    refusal: tuple[int, str] | None = None
    loses_answers: bool = False
    _by_token: dict[str, str] = field(default_factory=dict)

    def answer(self, method: str, path: str, target: str, body: dict[str, Any]) -> Answer:
        if self.refusal is not None:
            return self.refusal[0], {"__type": self.refusal[1], "message": "not today"}
        return self._of_emr(target.partition(".")[2], body) if target else self._of_serverless(method, path, body)

    def _of_serverless(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        session_id = path.split("/sessions", 1)[1].strip("/").removesuffix("/endpoint")
        if method == "POST":
            made = self._start(body["clientToken"], body)
            if self.loses_answers:
                return 500, {"__type": "InternalServerException", "message": "lost"}
            return 200, {"applicationId": "a", "sessionId": made, "arn": "arn"}
        if session_id not in self.sessions:
            return 404, {"__type": "ResourceNotFoundException", "message": "no such session"}
        answer: dict[str, Any] = {"applicationId": "a", "sessionId": session_id}
        if method == "DELETE":
            self._terminate(session_id)
        elif path.endswith("/endpoint"):
            token, expires_at = self._token()
            answer |= {"endpoint": self.address_of(session_id), "authToken": token, "authTokenExpiresAt": expires_at}
        else:
            answer = {"session": {"state": self._look(session_id), "stateDetails": self.details}}
        return 200, answer

    def _of_emr(self, operation: str, body: dict[str, Any]) -> Answer:
        if operation == "StartSession":
            return 200, {"Id": self._start(body["ClientRequestToken"], body)}
        session_id = body["SessionId"]
        if session_id not in self.sessions:
            return 400, {"__type": "InvalidRequestException", "message": "no such session"}
        answer: dict[str, Any] = {"ClusterId": "j", "SessionId": session_id, "State": "TERMINATING"}
        if operation == "TerminateSession":
            self._terminate(session_id)
        elif operation == "GetSessionEndpoint":
            token, expires_at = self._token()
            expiry = {"AuthToken": token, "AuthTokenExpirationTime": expires_at}
            answer = {"Endpoint": self.address_of(session_id), **expiry}
        else:
            answer = {"Session": {"State": self._look(session_id), "StateChangeReason": self.details}}
        return 200, answer

    def _start(self, token: str, body: dict[str, Any]) -> str:
        if token not in self._by_token:
            session_id = self._by_token[token] = f"s{len(self.sessions) + 1}"
            self.sessions[session_id] = list(self.states)
            self.started.append(body)
        return self._by_token[token]

    def _look(self, session_id: str) -> str:
        states = self.sessions[session_id]
        return states.pop(0) if len(states) > 1 else states[0]

    def _terminate(self, session_id: str) -> None:
        self.terminated.append(session_id)
        self.sessions[session_id] = ["TERMINATED"]

    def _token(self) -> tuple[str, float]:
        self.tokens += 1
        return f"hush={self.tokens};", time.time() + self.token_seconds


@dataclass
class Clock:
    """A clock that moves only where something sleeps."""

    now: float = field(default_factory=time.time)

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds

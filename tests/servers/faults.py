"""An HTTP proxy in front of a REST catalog that loses, delays and repeats commits when a test asks for it."""

import json
import re
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

Moment: TypeAlias = Literal["before forwarding", "after forwarding"]
Actions: TypeAlias = tuple[str, ...]
"""What a commit does: the names of its updates, such as `add-snapshot`."""

ERROR_TYPES: Final = {
    401: "NotAuthorizedException",
    409: "CommitFailedException",
    419: "AuthenticationTimeoutException",
    429: "TooManyRequestsException",
    500: "InternalServerError",
    502: "BadGatewayException",
    503: "ServiceUnavailableException",
    504: "GatewayTimeoutException",
}
"""The statuses that a fault may answer with, and the error types that stand in the body."""

_COMMIT: Final = re.compile(r".*/namespaces/[^/]+/tables/[^/]+|.*/transactions/commit")
_HOP_BY_HOP: Final = ("connection", "keep-alive", "transfer-encoding", "content-length", "host")
_ANSWER_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of a commit; by default, nothing.

    Args:
        forwards: How often the catalog gets the request.
        answer: What the client gets: the catalog's first or last answer, a status, or None, a closed connection.
        seconds_before: Seconds before the request is forwarded.
        seconds_after: Seconds before the client gets the answer.
        retry_after_seconds: The header `Retry-After` of an answer with a status.
    """

    forwards: int = 1
    answer: Literal["first", "last"] | int | None = "last"
    seconds_before: float = 0.0
    seconds_after: float = 0.0
    retry_after_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response as bytes."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(slots=True)
class _Planned:
    fault: Fault
    left: int | None
    applies: Callable[[Actions], bool]


@dataclass(slots=True)
class _Plan:
    """The faults to come, and those that have been."""

    planned: list[_Planned] = field(default_factory=list)
    injected: list[Fault] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next_for(self, actions: Actions) -> Fault:
        with self.lock:
            for item in self.planned:
                if item.left != 0 and item.applies(actions):
                    item.left = None if item.left is None else item.left - 1
                    self.injected.append(item.fault)
                    return item.fault
        return Fault()


def adds_snapshot(actions: Actions) -> bool:
    """Say whether a commit adds a snapshot."""
    return "add-snapshot" in actions


class FaultyProxy:
    """Passes everything on to the catalog, save for the faults that are injected.

    Args:
        uri: The catalog's.

    Attributes:
        on_commit: Called before and after each forwarding of a commit that adds a snapshot, in the request's thread.
    """

    def __init__(self, uri: str) -> None:
        self.on_commit: Callable[[Moment], None] = _ignore
        self._catalog = urlsplit(uri).netloc
        self._plan = _Plan()
        self._under_way = 0
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def injected(self) -> list[Fault]:
        """The faults that commits have met since the last `heal`."""
        return self._plan.injected

    def inject(
        self, fault: Fault, *, times: int | None = 1, applies: Callable[[Actions], bool] = adds_snapshot
    ) -> None:
        """Let the fault happen to so many of the next commits to which it applies, or to all of them (None)."""
        self._plan.planned.append(_Planned(fault, times, applies))

    def heal(self) -> None:
        """Inject nothing any more; what is under way goes on."""
        self._plan = _Plan()
        self.on_commit = _ignore

    def wait_until_idle(self, seconds: float) -> None:
        """Wait for the commits under way, also for those whose client has given up."""
        with self._changed:
            assert self._changed.wait_for(lambda: not self._under_way, seconds)

    def close(self) -> None:
        """End every connection and every thread."""
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()

    def answer_to(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer | None:
        """Return what the client gets; None where it gets nothing."""
        if method != "POST" or not _COMMIT.fullmatch(urlsplit(path).path):
            return self._forward(method, path, headers, body)
        actions = _actions(body)
        fault = self._plan.next_for(actions)
        on_commit = self.on_commit if adds_snapshot(actions) else _ignore
        self._count(1)
        try:
            self._closing.wait(fault.seconds_before)
            answers = []
            for _ in range(fault.forwards):
                on_commit("before forwarding")
                answers.append(self._forward(method, path, headers, body))
                on_commit("after forwarding")
            self._closing.wait(fault.seconds_after)
            return _chosen(fault, answers)
        finally:
            self._count(-1)

    def _forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        with closing(HTTPConnection(self._catalog, timeout=_ANSWER_SECONDS)) as connection:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Answer(response.status, tuple(response.getheaders()), response.read())

    def _count(self, difference: int) -> None:
        with self._changed:
            self._under_way += difference
            self._changed.notify_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that `server_close` joins them

    def __init__(self, proxy: FaultyProxy) -> None:
        self.proxy = proxy
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End the connections that clients keep."""
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that gave up."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet for head and body
    server: _Server

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        answer = self.server.proxy.answer_to(self.command, self.path, headers, body)
        if answer is None:
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = _answer  # noqa: N815 - the names that http.server looks for

    def log_message(self, *args: Any) -> None:
        """Keep the tests' output to itself."""


def _actions(body: bytes) -> Actions:
    document = json.loads(body)
    changes = document.get("table-changes", [document])
    return tuple(update["action"] for change in changes for update in change["updates"])


def _chosen(fault: Fault, answers: list[Answer]) -> Answer | None:
    if fault.answer is None:
        return None
    if isinstance(fault.answer, int):
        return _error(fault.answer, fault.retry_after_seconds)
    return answers[0] if fault.answer == "first" else answers[-1]


def _error(status: int, retry_after_seconds: int | None) -> Answer:
    """Return an error as the REST specification writes it."""
    error = {"message": "injected by the test", "type": ERROR_TYPES[status], "code": status}
    headers = [("Content-Type", "application/json")]
    if retry_after_seconds is not None:
        headers.append(("Retry-After", str(retry_after_seconds)))
    return Answer(status, tuple(headers), json.dumps({"error": error}).encode())


def _ignore(_moment: Moment) -> None:
    """Do nothing at that moment."""

"""An HTTP proxy in front of a REST catalog; what it does beside passing on is its subclasses'."""

import json
import socket
import ssl
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

ERROR_TYPES: Final = {
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    409: "CommitFailedException",
    419: "AuthenticationTimeoutException",
    429: "TooManyRequestsException",
    500: "InternalServerError",
    502: "BadGatewayException",
    503: "ServiceUnavailableException",
    504: "GatewayTimeoutException",
}
"""The statuses that a proxy may answer with, and the error types that stand in the body."""

_HOP_BY_HOP: Final = ("connection", "keep-alive", "transfer-encoding", "content-length", "host")
_ANSWER_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response as bytes."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class HttpProxy:
    """Passes requests on to a catalog, and its answers back.

    Args:
        uri: The catalog's.
        tls: What it shows to those who ask by HTTPS; None: it is asked by HTTP.
    """

    def __init__(self, uri: str, tls: ssl.SSLContext | None = None) -> None:
        self._catalog = urlsplit(uri).netloc
        self._scheme = "http" if tls is None else "https"
        self._server = _Server(self)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def uri(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """End every connection and every thread."""
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()

    def answer_to(self, request: Request) -> Answer | None:
        """Return what the client gets; None where it gets nothing."""
        return self.forward(request)

    def forward(self, request: Request) -> Answer:
        """Ask the catalog."""
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        with closing(HTTPConnection(self._catalog, timeout=_ANSWER_SECONDS)) as connection:
            connection.request(request.method, request.path, request.body, headers)
            response = connection.getresponse()
            return Answer(response.status, tuple(response.getheaders()), response.read())


def error_answer(status: int, message: str, headers: Sequence[tuple[str, str]] = ()) -> Answer:
    """Return an error as the REST specification writes it."""
    error = {"message": message, "type": ERROR_TYPES[status], "code": status}
    return Answer(status, (("Content-Type", "application/json"), *headers), json.dumps({"error": error}).encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that `server_close` joins them

    def __init__(self, proxy: HttpProxy) -> None:
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
        if not isinstance(sys.exc_info()[1], (ConnectionError, ssl.SSLError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet for head and body
    server: _Server

    def _answer(self) -> None:
        is_chunked = self.headers.get("Transfer-Encoding", "") == "chunked"
        body = b"".join(self._chunks()) if is_chunked else self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = self.server.proxy.answer_to(Request(self.command, self.path, dict(self.headers.items()), body))
        if answer is None:
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        length = dict(answer.headers).get("Content-Length", "0") if self.command == "HEAD" else str(len(answer.body))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(answer.body)

    def _chunks(self) -> Iterator[bytes]:
        """Read a body whose length nobody said (RFC 9112, section 7.1)."""
        while length := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(length)
            self.rfile.readline()
        while self.rfile.readline().strip():
            """Trailers say nothing to the server."""

    do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = _answer  # noqa: N815 - the names that http.server looks for

    def log_message(self, *args: Any) -> None:
        """Keep the tests' output to itself."""

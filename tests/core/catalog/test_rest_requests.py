"""Commits to a REST catalog whose server loses, forgets or delays answers.

docs/exactly-once.md: Lost responses and retries
"""

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from requests import RequestException

from dagster_iceberg_spark.catalog.clients import rest_requests
from dagster_iceberg_spark.catalog.clients.rest_requests import new_key, post_commit

PATH = "namespaces/db/tables/t"


class Server:
    """A REST catalog that counts commits. `fault` answers a request in its own way, or returns None."""

    def __init__(self, *, lifetime: str | None = "PT30M", remembers: bool = True) -> None:
        self.config = {"defaults": {}, "overrides": {}, **({"idempotency-key-lifetime": lifetime} if lifetime else {})}
        self.keys: list[str | None] = []
        self.commits = 0
        self.answers: dict[str, int] = {}
        self.remembers = remembers
        self.faults: list[Callable[[Any], None]] = []
        own = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(200, own.config)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                key = self.headers.get("Idempotency-Key")
                own.keys.append(key)
                status = own.answers.get(str(key)) if key and own.remembers else None
                if status is None:
                    status = 409 if own.commits else 200
                    own.commits += status == 200
                    own.answers[str(key)] = status
                if own.faults:
                    own.faults.pop(0)(self)
                    return
                error = {"error": {"message": "no", "type": "CommitFailedException", "code": 409}}
                self.answer(status, {} if status == 200 else error)

            def answer(self, status: int, document: Any) -> None:
                content = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.catalog: Any = load_catalog("rest", type="rest", uri=f"http://127.0.0.1:{self._server.server_port}")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def commit(self, key: str | None = None) -> None:
        post_commit(self.catalog, PATH, "{}", key=key or new_key())


def lost(handler: Any) -> None:
    """The commit is made, and the connection breaks."""
    handler.connection.close()


def unknown(handler: Any) -> None:
    handler.answer(504, {"error": {"message": "late", "type": "Timeout", "code": 504}})


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Server]]:
    monkeypatch.setattr(rest_requests, "_FIRST_WAIT_SECONDS", 0.01)
    servers: list[Server] = []
    yield servers
    for server in servers:
        server.close()


def test_the_key_is_a_uuid_of_version_7_and_new_for_each_attempt(opened: list[Server]) -> None:
    opened.append(server := Server())
    server.commit()
    with pytest.raises(CommitFailedException):
        server.commit()
    first, second = (uuid.UUID(key) for key in server.keys)
    assert (first.version, first.variant) == (7, uuid.RFC_4122)
    assert first != second
    assert 0 <= (second.int >> 80) - (first.int >> 80) < 60_000, "milliseconds"


@pytest.mark.parametrize("faults", [[lost], [unknown], [lost, unknown, lost]])
def test_a_lost_answer_is_asked_for_again(opened: list[Server], faults: list[Any]) -> None:
    opened.append(server := Server())
    server.faults += faults
    server.commit()
    assert (server.commits, len(set(server.keys)), len(server.keys)) == (1, 1, len(faults) + 1)


def test_a_server_that_never_answers_leaves_the_commit_unknown(opened: list[Server]) -> None:
    opened.append(server := Server())
    server.faults += [unknown] * 9
    with pytest.raises(CommitStateUnknownException):
        server.commit()
    assert (server.commits, len(server.keys)) == (1, 4)


def test_a_server_that_forgets_the_key_rejects_the_second_request(opened: list[Server]) -> None:
    """`commit_table` looks then whether the table has the snapshot."""
    opened.append(server := Server(remembers=False))
    server.faults.append(lost)
    with pytest.raises(CommitFailedException):
        server.commit()
    assert server.commits == 1


@pytest.mark.parametrize(("fault", "error"), [(lost, RequestException), (unknown, CommitStateUnknownException)])
def test_nothing_is_sent_twice_to_a_server_that_takes_no_keys(opened: list[Server], fault: Any, error: Any) -> None:
    opened.append(server := Server(lifetime=None))
    server.faults.append(fault)
    with pytest.raises(error):
        server.commit()
    assert (server.commits, server.keys) == (1, [None])

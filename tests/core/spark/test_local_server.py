"""The local Spark Connect server, which processes share. One test holds its life: each start takes seconds."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dagster_iceberg_spark.errors import SparkEnvironmentError
from dagster_iceberg_spark.spark.session import local_server, local_watch
from dagster_iceberg_spark.spark.session.local_server import ServerState, _answers
from dagster_iceberg_spark.spark.versions.spark_3_5 import Spark35
from dagster_iceberg_spark.spark.versions.spark_4_0 import Spark40

_USE = """
import json, sys
from pathlib import Path
from dagster_iceberg_spark.spark.session.local_server import local_url
local_url(Path(sys.argv[1]), json.loads(sys.argv[2]), idle_seconds=3)
print((Path(sys.argv[1]) / "server.json").read_text(), flush=True)
sys.stdin.read()
"""
_WRONG = """
import sys
from dagster_iceberg_spark.errors import SparkEnvironmentError
from dagster_iceberg_spark.config.sql_catalog import EmbeddedCatalog
from dagster_iceberg_spark.spark.session.session import SessionSettings, open_session
try:
    open_session(SessionSettings(EmbeddedCatalog(directory=sys.argv[1]).describe(), {}, sys.argv[2]))
except SparkEnvironmentError as error:
    print(error)
"""


@pytest.mark.full
def test_processes_share_a_server_until_it_changes_or_is_idle(tmp_path: Path) -> None:
    directory = tmp_path / "server"
    first, second = _user(directory, {}), _user(directory, {})
    used = _state(first)
    assert _state(second) == used
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / "server.json").stat().st_mode & 0o777 == 0o600

    wrong = f"sc://localhost:{used['port']}/;token=not-the-token"
    answer = subprocess.run(
        [sys.executable, "-c", _WRONG, str(tmp_path), wrong], capture_output=True, text=True, check=True, timeout=60
    )
    assert "expected a token that the server accepts" in answer.stdout
    assert "not-the-token" not in answer.stdout + answer.stderr

    third = _user(directory, {"spark.driver.memory": "900m"})
    changed = _state(third)
    assert changed["port"] != used["port"]
    assert _answers(used["port"]), "a server that is replaced runs while processes use it"
    for user in (first, second, third):
        user.communicate(timeout=60)
    _wait_until_gone(used["port"], changed["port"])
    assert not (directory / "server.json").exists()


def test_a_failed_start_shows_the_end_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(SparkEnvironmentError, match="nowhere"):
        local_server.local_url(tmp_path / "server", {})


def test_a_server_that_does_not_answer_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def start(directory: Path, static: object, fingerprint: str, idle_seconds: float) -> ServerState:
        started.append(ServerState("b", 15002, fingerprint, "token"))
        return started[-1]

    monkeypatch.setattr(local_server, "_start", start)
    monkeypatch.setattr(local_server, "_ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as hung:
        port = hung.getsockname()[1]
        state = {"name": "a", "port": port, "fingerprint": local_server._fingerprint({}), "token": "secret"}
        (tmp_path / "server.json").write_text(json.dumps(state))
        assert local_server.local_url(tmp_path, {}) == "sc://localhost:15002/;token=token"
    local_server._in_use.pop("b").close()
    assert len(started) == 1
    assert "'token'" not in repr(started)


@pytest.mark.parametrize("inherited", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_server_without_a_directory_is_stopped(tmp_path: Path, inherited: signal.Handlers) -> None:
    directory = tmp_path / "server"
    directory.mkdir()
    for name in ("start.lock", "a.use"):
        (directory / name).touch()
    (directory / "server.json").write_text('{"name": "a"}')
    command = [sys.executable, "-I", local_watch.__file__, str(directory), "a", "1", "sleep", "600"]
    before = signal.signal(signal.SIGTERM, inherited)
    watch = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, before)
    time.sleep(0.5)
    assert watch.poll() is None
    shutil.rmtree(directory)
    assert watch.wait(timeout=15) == -signal.SIGTERM % 256


@pytest.mark.parametrize("version", [Spark40(), Spark35()])
def test_older_versions_have_no_local_server(version: Spark40) -> None:
    with pytest.raises(SparkEnvironmentError, match=r"expected pyspark 4\.1 or newer"):
        version.require_local_server()


def _user(directory: Path, conf: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _USE, str(directory), json.dumps(conf)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    )


def _state(user: "subprocess.Popen[str]") -> dict[str, Any]:
    assert user.stdout is not None
    return json.loads(user.stdout.readline())  # type: ignore[no-any-return]


def _wait_until_gone(*ports: int) -> None:
    deadline = time.monotonic() + 60
    while any(_answers(port) for port in ports):
        assert time.monotonic() < deadline, "an idle server still runs"
        time.sleep(0.2)

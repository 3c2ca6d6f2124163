"""Starts the Spark Connect server of a Dagster instance, which the processes of the instance share."""

import atexit
import fcntl
import gc
import hashlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import pyspark

from dagster_iceberg_spark.errors import SparkEnvironmentError
from dagster_iceberg_spark.spark.session import local_watch
from dagster_iceberg_spark.spark.session.runtime import require_java, require_jvm
from dagster_iceberg_spark.spark.versions import installed_version
from dagster_iceberg_spark.versions import ICEBERG_SPARK_RUNTIME

IDLE_SECONDS: Final = 900.0
_START_SECONDS: Final = 300.0
_ANSWER_SECONDS: Final = 5.0
_HTTP2_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The preface of a connection and an empty frame of settings."""
_LOG_LINES: Final = 20
_STATIC_SQL: Final = ("spark.sql.extensions", "spark.sql.warehouse.dir", "spark.sql.catalogImplementation")
_in_use: Final[dict[str, Any]] = {}
"""The locked use files of the servers that this process uses. The locks end with the process."""
_watches: Final[list[Any]] = []
"""The watchers that this process has started and that survive it. Python warns of those that it forgets."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server that a process has started.

    Args:
        name: The name of the server, which no other server has.
        port: The port on 127.0.0.1.
        fingerprint: The digest of the configuration that it was started with.
        token: The token that it expects.
    """

    name: str
    port: int
    fingerprint: str
    token: str = field(repr=False)


def local_url(directory: Path, conf: Mapping[str, str], *, idle_seconds: float = IDLE_SECONDS) -> str:
    """Return the address, with its token, of the directory's server. Start or replace the server if necessary.

    Args:
        directory: The directory of the server's state, which only its owner may read.
        conf: The configuration to start a JVM with. Settings of a session start no other server.
        idle_seconds: Seconds without a process that uses the server, after which it stops.
    """
    require_jvm()
    installed_version().require_local_server()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory.chmod(0o700)
    static = {key: value for key, value in conf.items() if not key.startswith("spark.sql.") or key in _STATIC_SQL}
    fingerprint = _fingerprint(static)
    with _start_lock(directory):
        state = _read_state(directory)
        if state is None or state.fingerprint != fingerprint or not _answers(state.port):
            require_java()
            state = _start(directory, static, fingerprint, idle_seconds)
        _use(directory, state.name)
    return f"sc://localhost:{state.port}/;token={state.token}"  # pyspark sends a token without TLS only to this name


def _fingerprint(static: Mapping[str, str]) -> str:
    parts = [pyspark.__version__, ICEBERG_SPARK_RUNTIME, os.environ.get("JAVA_HOME"), sorted(static.items())]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@contextmanager
def _start_lock(directory: Path) -> Iterator[None]:
    with (directory / "start.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _read_state(directory: Path) -> ServerState | None:
    try:
        return ServerState(**json.loads((directory / "server.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _answers(port: int) -> bool:
    """Return whether a server at the port speaks HTTP/2. A JVM that hangs accepts connections but does not answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_SECONDS) as connection:
            connection.sendall(_HTTP2_GREETING)
            return len(connection.recv(9)) > 0
    except OSError:
        return False


def _use(directory: Path, name: str) -> None:
    path = directory / f"{name}.use"
    path.touch()
    if name not in _in_use:
        file = path.open("a")
        fcntl.flock(file, fcntl.LOCK_SH)
        _in_use[name] = file
        if len(_in_use) == 1:
            # At its end, Python looks for cycles among all objects, many times: a second of a run that takes three.
            atexit.register(gc.freeze)


def _start(directory: Path, static: Mapping[str, str], fingerprint: str, idle_seconds: float) -> ServerState:
    state = ServerState(secrets.token_hex(8), _free_port(), fingerprint, secrets.token_urlsafe(32))
    conf = {
        "spark.log.level": "WARN",
        **static,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(state.port),
    }
    for log in directory.glob("*.log"):
        if not log.with_suffix(".use").exists():  # of a server that has ended
            log.unlink()
    properties = directory / f"{state.name}.conf"
    _write_private(properties, "".join(f"{key} {_escape(value)}\n" for key, value in conf.items()))
    (directory / f"{state.name}.use").touch()
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    command = [submit, "--properties-file", str(properties), *server]
    environment = {**os.environ, "SPARK_CONNECT_AUTHENTICATE_TOKEN": state.token}
    for inherited in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_GATEWAY_PORT"):
        environment.pop(inherited, None)
    watch = subprocess.Popen(  # noqa: S603
        [sys.executable, "-I", local_watch.__file__, str(directory), state.name, str(idle_seconds), *command],
        env=environment,
        cwd=directory,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _watches.append(watch)
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(state.port):
        if watch.poll() is not None or time.monotonic() > deadline:
            watch.terminate()
            raise SparkEnvironmentError.refusing(
                "start",
                "the local Spark Connect server",
                expected="a server that answers",
                found=f"a log that ends with\n{_log_tail(directory / f'{state.name}.log', state.token)}\n",
                hint="check Java and `spark_config`.",
            )
        time.sleep(0.1)
    _write_private(directory / "server.json", json.dumps(asdict(state)))
    return state


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _write_private(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    new.replace(path)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _log_tail(log: Path, token: str) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(lines[-_LOG_LINES:]).replace(token, "***") or "no log"

"""A PostgreSQL server of the tests' own: loopback only, with a password that matters."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from sqlalchemy import Engine, NullPool, create_engine, text
from sqlalchemy.exc import OperationalError

from tests.lakes import free_port

USER: Final = "lake keeper"
PASSWORD: Final = "p@ss w:rd/%hushhush"
"""Each special character means something in a URI, and the last letters are in no other text."""
DATABASE: Final = "lake"
START_SECONDS: Final = 60
_ACCOUNT: Final = "postgres"


class PostgreSqlServer:
    """A server in a directory of its own; data survive a stop, connections do not."""

    def __init__(self) -> None:
        binaries = _binaries()
        self.port = free_port()
        # Not below pytest's directory: that one belongs to the user alone, whom the server may not run as.
        self._directory = Path(tempfile.mkdtemp(prefix="iceberg-postgresql-"))
        self._account = _other_account()
        if self._account is not None:
            os.chown(self._directory, self._account.pw_uid, self._account.pw_gid)
        self._data, self._log = self._directory / "data", self._directory / "server.log"
        self._postgres = binaries / "postgres"
        self._process: subprocess.Popen[bytes] | None = None
        secret = self._directory / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        options = [
            "-D",
            str(self._data),
            "-A",
            "scram-sha-256",
            "-U",
            USER,
            f"--pwfile={secret}",
            "--no-sync",
            "-E",
            "UTF8",
        ]
        self._run([str(binaries / "initdb"), *options, "--locale=C"]).wait()
        secret.unlink()
        self.start()
        self.create_database(DATABASE)

    def uri(self, *, password: str = PASSWORD, port: int | None = None, database: str = DATABASE) -> str:
        """The database's URI; others than the right password or port are for tests of failures."""
        account = f"{quote(USER, safe='')}:{quote(password, safe='')}"
        return f"postgresql://{account}@127.0.0.1:{port or self.port}/{database}"

    def start(self) -> None:
        options = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "max_connections=300"]
        command = [str(self._postgres), "-D", str(self._data), "-p", str(self.port)]
        self._process = self._run(command + [word for option in options for word in ("-c", option)])
        try:
            self._wait()
        except BaseException:
            self.stop(signal.SIGQUIT)
            raise

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop and end all connections: `SIGINT` tells the clients, `SIGQUIT` is as good as a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_SECONDS)
            self._process = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def close(self) -> None:
        """Stop, and delete the data."""
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _run(self, command: list[str]) -> "subprocess.Popen[bytes]":
        who: dict[str, Any] = {}
        if self._account is not None:
            who = {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}
        with self._log.open("a") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                start_new_session=True,
                **who,
            )

    def engine(self, database: str) -> Engine:
        """Connections to one of its databases, each with transactions of its own."""
        uri = self.uri(database=database).replace("postgresql", "postgresql+psycopg2", 1)
        return create_engine(uri, poolclass=NullPool)

    def create_database(self, name: str) -> None:
        self._run_sql(f"CREATE DATABASE {name}")

    def _run_sql(self, statement: str) -> None:
        engine = self.engine("postgres").execution_options(isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(statement))

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            try:
                return self._run_sql("SELECT 1")
            except OperationalError:
                time.sleep(0.1)
        pytest.fail(f"PostgreSQL did not start:\n{self._log.read_text()[-4000:]}")


def _binaries() -> Path:
    """Return the directory of PostgreSQL's programs, installed where that is possible."""
    return _find_binaries() or _install_binaries()


def _find_binaries() -> Path | None:
    on_path = shutil.which("initdb")
    if on_path is not None and Path(on_path).resolve().with_name("postgres").exists():
        return Path(on_path).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    return versions[-1].parent if versions else None


def _install_binaries() -> Path:
    apt_get = shutil.which("apt-get")
    if apt_get is None or os.geteuid() != 0:
        pytest.fail(
            "PostgreSQL's `initdb` is not here: install a PostgreSQL server (Debian: `apt-get install postgresql`)"
        )
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # What is known of packages already may do.
    subprocess.run([apt_get, "update"], capture_output=True, check=False, env=quiet)
    install = [apt_get, "install", "--yes", "--no-install-recommends", "postgresql"]
    answer = subprocess.run(install, capture_output=True, text=True, check=False, env=quiet, stdin=subprocess.DEVNULL)
    found = _find_binaries()
    if found is None:
        pytest.fail(f"`apt-get install postgresql` brought no `initdb`:\n{(answer.stdout + answer.stderr)[-4000:]}")
    return found


def _other_account() -> pwd.struct_passwd | None:
    """Return the account to run the server as, made if need be: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_ACCOUNT)
    except KeyError:
        subprocess.run(["useradd", "--system", "--shell", "/bin/false", _ACCOUNT], check=True)
        return pwd.getpwnam(_ACCOUNT)

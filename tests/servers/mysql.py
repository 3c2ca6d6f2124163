"""A MySQL server of the tests' own, MariaDB's: loopback only, with a password that matters."""

import os
import pwd
import shutil
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
from tests.servers.postgresql import PASSWORD
from tests.servers.programs import program

USER: Final = "lake keeper"
DATABASE: Final = "lake"
START_SECONDS: Final = 60
_PACKAGE: Final = "mariadb-server-core"


class MySqlServer:
    """A server in a directory of its own; data survive a stop, connections do not."""

    def __init__(self) -> None:
        self._server = program("mariadbd", _PACKAGE)
        self.port = free_port()
        install = self._installer()
        self._directory = Path(tempfile.mkdtemp(prefix="iceberg-mysql-"))
        self._data, self._log = self._directory / "data", self._directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._as_user = [f"--user={pwd.getpwuid(os.geteuid()).pw_name}"]
        secret = self._directory / "users.sql"
        secret.write_text(
            f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;\n"
            f"CREATE USER '{USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON {DATABASE}.* TO '{USER}'@'127.0.0.1';\n"
        )
        options = ["--no-defaults", f"--datadir={self._data}", "--auth-root-authentication-method=normal"]
        made = subprocess.run([install, *options, *self._as_user], capture_output=True, text=True, check=False)
        if made.returncode:
            self.close()
            pytest.fail(f"MariaDB made no database:\n{(made.stdout + made.stderr)[-4000:]}")
        self.start(f"--init-file={secret}")
        secret.unlink()

    @staticmethod
    def _installer() -> str:
        program("my_print_defaults", "mariadb-client-core")  # which the installer runs
        return program("mariadb-install-db", _PACKAGE)

    def uri(self, *, password: str = PASSWORD, port: int | None = None) -> str:
        """The database's URI; others than the right password or port are for tests of failures."""
        account = f"{quote(USER, safe='')}:{quote(password, safe='')}"
        return f"mysql://{account}@127.0.0.1:{port or self.port}/{DATABASE}"

    def start(self, *more: str) -> None:
        command = [
            self._server,
            "--no-defaults",
            f"--datadir={self._data}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--socket={self._directory / 'socket'}",
            f"--pid-file={self._directory / 'pid'}",
            "--innodb-flush-log-at-trx-commit=0",
            *self._as_user,
            *more,
        ]
        with self._log.open("a") as log:
            who: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self._process = subprocess.Popen(command, cwd=self._directory, start_new_session=True, **who)
        try:
            self._wait()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_SECONDS)
            self._process = None

    def close(self) -> None:
        """Stop, and delete the data."""
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def engine(self) -> Engine:
        """Connections, each with transactions of its own."""
        return create_engine(self.uri().replace("mysql", "mysql+pymysql", 1), poolclass=NullPool)

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            try:
                with self.engine().connect() as connection:
                    connection.execute(text("SELECT 1"))
            except OperationalError:
                time.sleep(0.1)
            else:
                return
        pytest.fail(f"MariaDB did not start:\n{self._log.read_text()[-4000:]}")

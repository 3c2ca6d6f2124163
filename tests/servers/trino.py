"""Trino, from its published core and its connector for Iceberg.

It needs a newer Java than Spark does, which a package of PyPI brings.
"""

import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from tests.lakes import free_port
from tests.servers.jars import fetch, newer_java
from tests.servers.programs import is_ready, made_once

TRINO_VERSION: Final = "476"
IVY_FILE: Final = f"""\
<ivy-module version="2.0">
  <info organisation="dagster-iceberg-spark" module="trino"/>
  <dependencies>
    <dependency org="io.trino" name="trino-server-core" rev="{TRINO_VERSION}" transitive="false">
      <artifact name="trino-server-core" type="tar.gz"/>
    </dependency>
    <dependency org="io.trino" name="trino-iceberg" rev="{TRINO_VERSION}" transitive="false">
      <artifact name="trino-iceberg" type="zip"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
START_SECONDS: Final = 180
_OPTIONS: Final = ("-Xmx1g", "--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED")


class TrinoError(Exception):
    """What Trino says of a statement that failed."""


class Trino:
    """The server, of one process. Statements add and drop its catalogs (`CREATE CATALOG`).

    Args:
        directory: Of its configuration and its log.
    """

    def __init__(self, directory: Path) -> None:
        self.uri = f"http://127.0.0.1:{free_port()}"
        self._log = directory / "trino.log"
        of_server = {
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": self.uri.rpartition(":")[2],
            "discovery.uri": self.uri,
            "catalog.management": "dynamic",
            "catalog.store": "memory",
        }
        configuration = directory / "config.properties"
        configuration.write_text("".join(f"{name}={value}\n" for name, value in of_server.items()))
        home = made_once(f"trino-{TRINO_VERSION}", _install)
        settings = {
            "config": configuration,
            "plugin.dir": home / "plugins",
            "node.environment": "test",
            "node.id": "one",
            "node.data-dir": directory / "data",
        }
        command = [str(newer_java()), *_OPTIONS, *(f"-D{name}={value}" for name, value in settings.items())]
        with self._log.open("w") as log:
            who: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "cwd": directory}
            # The options of the tests' JVMs are those of an older Java.
            self._process = subprocess.Popen(
                [*command, "-cp", f"{home}/server/lib/*", "io.trino.server.TrinoServer"], env={}, **who
            )
        self._wait()

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, by the protocol that Trino's own clients use.

        Raises:
            TrinoError: The statement failed.
        """
        user = {"X-Trino-User": "test"}
        found, rows = requests.post(f"{self.uri}/v1/statement", statement, headers=user, timeout=60).json(), []
        while True:
            if "error" in found:
                raise TrinoError(found["error"]["message"])
            rows += [tuple(row) for row in found.get("data", ())]
            if "nextUri" not in found:
                return rows
            found = requests.get(found["nextUri"], headers=user, timeout=60).json()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _wait(self) -> None:
        def answers() -> bool:
            return not requests.get(f"{self.uri}/v1/info", timeout=30).json()["starting"]

        if not is_ready(self._process, answers, seconds=START_SECONDS):
            self.close()
            pytest.fail(f"Trino did not start:\n{self._log.read_text()[-4000:]}")


def _install(scratch: Path) -> Path:
    """Unpack the server as `server`, and the connector as `plugins/iceberg`."""
    home = scratch / "home"
    for archive in fetch(IVY_FILE, scratch).iterdir():
        is_server, directory = archive.suffix == ".gz", scratch / archive.stem
        if is_server:
            shutil.unpack_archive(archive, directory)
        else:  # with jars whose names have two dots, which `shutil` leaves out
            zipfile.ZipFile(archive).extractall(directory)
        place = home / ("server" if is_server else "plugins/iceberg")
        place.parent.mkdir(parents=True, exist_ok=True)
        next(directory.iterdir()).rename(place)
        archive.unlink()
    return home

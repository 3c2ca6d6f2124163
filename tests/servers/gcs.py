"""An object store that speaks Google's protocol: fake-gcs-server, built once; it checks no token."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from dagster_iceberg_spark import GcsStore
from tests.lakes import free_port, wait_for_port
from tests.servers.guards import GuardedProxy, takes_bearer
from tests.servers.programs import go_program

MODULE: Final = "github.com/fsouza/fake-gcs-server@v1.52.3"
TOKEN: Final = "ya29.hushhush"
START_SECONDS: Final = 60


class GcsServer:
    """The store, with one bucket."""

    container = "lake"

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        log_path = directory / "gcs.log"
        command = [str(go_program(MODULE)), "-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port)]
        command += ["-backend", "memory", "-external-url", self.endpoint, "-public-host", f"127.0.0.1:{self.port}"]
        with log_path.open("w") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory)
        wait_for_port(self.port, self._process, log_path, seconds=START_SECONDS)
        answer = requests.post(f"{self.endpoint}/storage/v1/b", json={"name": self.container}, timeout=30)
        answer.raise_for_status()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def warehouse(self, directory: str, *, container: str = container) -> str:
        return f"gs://{container}/{directory}"

    def store(self, **fields: Any) -> GcsStore:
        return GcsStore(endpoint=self.endpoint, project_id="tests", **(fields or {"token": TOKEN}))

    def paths(self, prefix: str) -> Iterator[str]:
        """The objects below a prefix."""
        found = requests.get(f"{self.endpoint}/storage/v1/b/{self.container}/o", params={"prefix": prefix}, timeout=30)
        found.raise_for_status()
        yield from (item["name"] for item in found.json().get("items", ()))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class GuardedGcs:
    """The store behind one that lets no other token pass, in a process of its own.

    pyarrow keeps Python's lock while it waits for Google's store, so that nothing in this process could answer it.
    """

    def __init__(self, endpoint: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, endpoint],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert self._process.stdout is not None
        self.uri = self._process.stdout.readline().strip()
        if not self.uri:
            pytest.fail("the guard's process died")

    def close(self) -> tuple[int, int]:
        """End it; return how many requests passed, and how many were refused."""
        counts, _ = self._process.communicate(timeout=60)
        passed, refused = counts.split()
        return int(passed), int(refused)


def main() -> None:
    with closing(GuardedProxy(sys.argv[1], takes_bearer(TOKEN))) as guarded:
        _tell(guarded.uri)
        sys.stdin.read()
        _tell(f"{len(guarded.passed)} {guarded.refused}")


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

"""A Spark standalone cluster from pyspark's own distribution: a master and workers, with executors of their own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pyspark
import pytest

from tests.lakes import free_port, wait_for_port

START_SECONDS: Final = 60
EXECUTOR: Final = b"CoarseGrainedExecutorBackend"


class SparkCluster:
    """A master and workers. Each worker has a working directory and a local directory that no other process uses."""

    def __init__(self, directory: Path, *, workers: int = 2) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.port = free_port()
        try:
            self._start_all(workers)
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def _start_all(self, workers: int) -> None:
        master = ("--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(free_port()))
        process, log = self._start("master", "master.Master", *master)
        wait_for_port(self.port, process, log, seconds=START_SECONDS)
        for number in range(workers):
            port, name = free_port(), f"worker{number}"
            options = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port()))
            size = ("--cores", "2", "--memory", "2g", "--work-dir", str(self._directory / name / "work"))
            process, log = self._start(name, "worker.Worker", *options, *size, self.address)
            wait_for_port(port, process, log, seconds=START_SECONDS)

    def _start(self, name: str, program: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        home, cwd = Path(pyspark.__file__).parent, self._directory / name
        (cwd / "local").mkdir(parents=True)
        log = cwd / "log"
        env = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(cwd / "local"),
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{program}", *arguments]
        with log.open("w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, cwd=cwd, env=env, start_new_session=True)
        self._processes.append(process)
        return process, log

    def executors(self, application: str) -> list[int]:
        """Return the processes of the application's executors on this cluster's workers."""
        processes = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return sorted(int(entry.name) for entry in processes if self._is_executor(entry, application))

    def _is_executor(self, process: Path, application: str) -> bool:
        try:
            line = (process / "cmdline").read_bytes()
            cwd = (process / "cwd").readlink()
        except OSError:  # it has ended, or belongs to another user
            return False
        return EXECUTOR in line and application.encode() in line and cwd.is_relative_to(self._directory)

    def wait_for_executors(self, session: Any, count: int = 2) -> list[int]:
        """Return the executors of the session once there are so many."""
        deadline = time.monotonic() + START_SECONDS
        application = session.conf.get("spark.app.id")
        while time.monotonic() < deadline:
            found = [process for process in self.executors(application) if _stores_blocks(process)]
            if len(found) >= count:
                return found
            time.sleep(0.2)
        pytest.fail(f"expected {count} executors, found {found}")

    def kill_an_executor(self, session: Any) -> None:
        """Kill one executor of the session, as the machine's lack of memory would."""
        os.kill(self.executors(session.conf.get("spark.app.id"))[0], signal.SIGKILL)

    def close(self) -> None:
        """Stop all processes. A worker that is terminated stops its executors."""
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes.clear()


def _stores_blocks(executor: int) -> bool:
    """Return whether the executor has registered: before, others cannot copy blocks to it."""
    try:
        return "Initialized BlockManager" in Path(f"/proc/{executor}/cwd/stderr").read_text()
    except OSError:  # it has ended
        return False

"""Runs the local Spark Connect server and stops it when it is idle. Runs as a script and needs only Python's library.

Processes that use the server hold a shared lock on its use file, which ends with them.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any


def main(directory: Path, name: str, idle_seconds: float, command: list[str]) -> int:
    """Run the command until it ends, is idle, or is replaced and unused. Return its exit code."""
    os.umask(0o077)
    # A process that ignores interrupts, such as one in the background of a shell, ignores SIGTERM as well once Dagster
    # has run in it, and the server would inherit that.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with (directory / f"{name}.log").open("wb") as log:
        server = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    try:
        _watch(server, directory, name, idle_seconds)
        _forget(directory, name)
    except FileNotFoundError:
        pass  # someone has removed the directory, and no process can find the server any more
    finally:
        _stop(server)
    return server.returncode


def _watch(server: "subprocess.Popen[Any]", directory: Path, name: str, idle_seconds: float) -> None:
    use, used_at = directory / f"{name}.use", time.time()
    while server.poll() is None:
        time.sleep(min(2.0, idle_seconds / 4))
        with (directory / "start.lock").open("r") as start:
            # No process decides to use the server at this time. A starter that waits for it keeps the lock.
            if not _locks(start):
                continue
            if _is_used(use):
                used_at = time.time()
                continue
            idle = time.time() - max(used_at, use.stat().st_mtime)
            is_current = _is_current(directory, name)
            if is_current and idle < idle_seconds:
                continue
            if is_current:
                (directory / "server.json").unlink()
            _stop(server)  # while the lock is held: no process finds a server that is ending


def _forget(directory: Path, name: str) -> None:
    """Remove the server's files, but for its log."""
    with (directory / "start.lock").open("r") as start:
        fcntl.flock(start, fcntl.LOCK_EX)
        if _is_current(directory, name):
            (directory / "server.json").unlink()
    for left in directory.glob(f"{name}.*"):
        if left.suffix != ".log":
            left.unlink()


def _is_used(use: Path) -> bool:
    with use.open("r") as file:
        return not _locks(file)


def _locks(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_current(directory: Path, name: str) -> bool:
    """Return whether the server is the recorded one. While it starts, its starter holds the start lock."""
    try:
        return bool(json.loads((directory / "server.json").read_text())["name"] == name)
    except FileNotFoundError:
        return False


def _stop(server: "subprocess.Popen[Any]") -> None:
    server.terminate()
    try:
        server.wait(timeout=20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4:]))

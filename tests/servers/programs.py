"""Programs that servers are made with, and where what they make is kept."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import requests

BUILD_SECONDS: Final = 800
_AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")


def program(name: str, *debian_packages: str) -> str:
    """Return the path of a program, installed where that is possible."""
    found = _found(name)
    if found is None and os.geteuid() == 0 and (apt_get := shutil.which("apt-get")):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for arguments in (["update"], ["install", "--yes", "--no-install-recommends", *debian_packages]):
            # Another process of the tests may be installing.
            subprocess.run(
                [apt_get, "-o", "DPkg::Lock::Timeout=300", *arguments],
                capture_output=True,
                check=False,
                env=quiet,
                stdin=subprocess.DEVNULL,
            )
        found = _found(name)
    if found is None:
        pytest.fail(f"`{name}` is not here: install it (Debian: `apt-get install {' '.join(debian_packages)}`)")
    return found


def _found(name: str) -> str | None:
    """Return the program's path: on the PATH, or where servers and Go's own installer put theirs."""
    places = [os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/usr/local/go/bin"]
    return shutil.which(name, path=os.pathsep.join(places))


def trusting() -> dict[str, str]:
    """Return the environment in which uv and npm trust the authorities that the machine does, their own beside them."""
    known = {"NODE_EXTRA_CA_CERTS": str(_AUTHORITIES)} if _AUTHORITIES.exists() else {}
    return {"UV_NATIVE_TLS": "true", **known, **os.environ}


def is_ready(process: "subprocess.Popen[bytes]", answers: Callable[[], bool], *, seconds: float) -> bool:
    """Wait until a server answers as it should. Return false if it has ended, or after some time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(requests.ConnectionError):
            if answers():
                return True
        time.sleep(0.2)
    return False


def cache() -> Path:
    """Return the user's directory of what is fetched or built once."""
    directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "dagster-iceberg-spark-tests")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def made_once(name: str, make: Callable[[Path], Path]) -> Path:
    """Return what is kept under that name for the user; where there is none, what is made in a scratch directory."""
    kept = cache() / name
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=cache()) as scratch:
            made = make(Path(scratch))
            try:
                made.rename(kept)
            except OSError:
                if not kept.exists():  # else another process was first
                    raise
    return kept


def go_program(module: str) -> Path:
    """Return a program written in Go, built once for each user and each version.

    Args:
        module: Of the program, with its version: `example.com/program@v1.2.3`.
    """
    name, _, version = module.rpartition("/")[2].partition("@")
    return made_once(f"{name}-{version}", partial(_build, module))


def _build(module: str, scratch: Path) -> Path:
    go = program("go", "golang")
    answer = subprocess.run(
        [go, "install", module],
        cwd=scratch,
        env={**os.environ, "GOBIN": str(scratch), "GOFLAGS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS,
        stdin=subprocess.DEVNULL,
    )
    if answer.returncode:
        pytest.fail(f"Go cannot build {module}:\n{(answer.stdout + answer.stderr)[-4000:]}")
    return scratch / module.rpartition("/")[2].partition("@")[0]

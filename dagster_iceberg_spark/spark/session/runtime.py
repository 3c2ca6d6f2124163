"""What Spark runs on: Java, and for a session, this process, a Spark Connect server or a cluster."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from dagster_iceberg_spark.errors import SparkEnvironmentError
from dagster_iceberg_spark.timeouts import JAVA_VERSION_SECONDS
from dagster_iceberg_spark.versions import MINIMUM_JAVA_VERSION, SPARK_VERSION, has_jvm

_JAVA_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def require_jvm() -> None:
    """Reject an installation that has only the client of Spark Connect.

    Raises:
        SparkEnvironmentError: The message says how to get a JVM.
    """
    if not has_jvm():
        raise SparkEnvironmentError.refusing(
            "start",
            "Spark",
            expected="pyspark, which has a JVM",
            found=f"pyspark-client {SPARK_VERSION}, which has none",
            hint="set `remote` to a Spark Connect server, or run `pip install 'dagster-iceberg-spark[classic]'`.",
        )


def require_java() -> str:
    """Reject a Java version that Spark cannot run on. Return the installed version, in words."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        found = f"no `java` in JAVA_HOME={home}" if home else "no `java` on the PATH and no JAVA_HOME"
        raise _unfit_java(found)
    command = [str(java), "-version"]
    answer = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, timeout=JAVA_VERSION_SECONDS
    )
    match = _JAVA_VERSION.search(answer.stderr + answer.stdout)
    version = int(match[2] if match[1] == "1" and match[2] else match[1]) if match else 0
    if version < MINIMUM_JAVA_VERSION:
        found = f"Java {version} at {java}" if version else f"no version in the answer of {java}"
        raise _unfit_java(found)
    return f"Java {version} at {java}"


def _unfit_java(found: str) -> SparkEnvironmentError:
    """There is no Java that Spark can run on."""
    return SparkEnvironmentError.refusing(
        "start",
        "Spark",
        expected=f"Java {MINIMUM_JAVA_VERSION} or newer",
        found=found,
        hint=f"install Java {MINIMUM_JAVA_VERSION} (Debian: `apt-get install openjdk-17-jre-headless`) or set "
        "JAVA_HOME; with Spark Connect (`remote`) no Java is needed here.",
    )


def is_connect(session: Any) -> bool:
    """Return whether the session is a Spark Connect session."""
    return any(kind.__module__.startswith("pyspark.sql.connect") for kind in type(session).__mro__)


def loses_executors(session: Any) -> bool:
    """Return whether the executors of the session are processes apart from its driver."""
    master = session.conf.get("spark.master", "local") if is_connect(session) else session.sparkContext.master
    return str(master).partition("[")[0] != "local"


def is_in_process(session: Any) -> bool:
    """Return whether this process's own JVM is the driver of the session and its only executor."""
    return not is_connect(session) and not loses_executors(session)

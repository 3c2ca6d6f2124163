"""Java, which Spark runs on."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from dagster_iceberg_spark.spark import session_refusals
from dagster_iceberg_spark.timeouts import JAVA_VERSION_SECONDS
from dagster_iceberg_spark.versions import MINIMUM_JAVA_VERSION

_JAVA_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def require_java() -> str:
    """Reject a Java version that Spark cannot run on. Return the installed version, in words.

    Raises:
        SparkEnvironmentError: The message names what was found and what to install.
    """
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        found = f"no `java` in JAVA_HOME={home}" if home else "no `java` on the PATH and no JAVA_HOME"
        raise session_refusals.unfit_java(found)
    command = [str(java), "-version"]
    answer = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, timeout=JAVA_VERSION_SECONDS
    )
    match = _JAVA_VERSION.search(answer.stderr + answer.stdout)
    version = int(match[2] if match[1] == "1" and match[2] else match[1]) if match else 0
    if version < MINIMUM_JAVA_VERSION:
        found = f"Java {version} at {java}" if version else f"no version in the answer of {java}"
        raise session_refusals.unfit_java(found)
    return f"Java {version} at {java}"

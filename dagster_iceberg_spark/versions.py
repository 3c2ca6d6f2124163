"""Maven coordinates for the installed Spark, and the versions that the package is tested with."""

import os
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

MINIMUM_JAVA_VERSION: Final = 17
"""Spark 4 and Iceberg 1.11 run on Java 17 and newer (Spark 4.1 documentation, "Downloading"; Iceberg 1.11 release)."""

ICEBERG_VERSIONS: Final[Mapping[tuple[str, str], str]] = {
    ("3.5", "2.12"): "1.12.0",
    ("3.5", "2.13"): "1.11.0",
    ("4.0", "2.13"): "1.11.0",
    ("4.1", "2.13"): "1.12.0",
}
"""Iceberg's version by the versions of Spark and Scala. Others have no runtime, or none that was tested."""
SPARK_VERSIONS: Final = tuple(dict.fromkeys(spark for spark, _ in ICEBERG_VERSIONS))
"""The versions of Spark that the package supports, oldest first."""


def minor_version(text: str) -> str:
    """Return the version of a release line: `4.1` for `4.1.4`."""
    return ".".join(text.split(".")[:2])


def installed_pyspark() -> str | None:
    """Return the version of `pyspark`, or of `pyspark-client`. None if neither is installed."""
    return _version_of("pyspark") or _version_of("pyspark-client") or _version_on_path()


def has_jvm() -> bool:
    """Return whether the installed pyspark can start a JVM. `pyspark-client` is for Spark Connect only."""
    return _version_of("pyspark") is not None or (
        _version_of("pyspark-client") is None and installed_pyspark() is not None
    )


@cache  # reading it takes 2 ms, of each run
def _version_of(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _version_on_path() -> str | None:
    """Return the version of the pyspark that `spark-submit` adds to the path: in a directory or an archive."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    loader: Any = found.loader
    text = loader.get_data(str(Path(found.origin).with_name("version.py"))).decode()
    match = re.search(r"__version__.*[\"'](.+)[\"']", text)
    return None if match is None else match[1]


def _scala_version(spark: str) -> str:
    """Return the version of Scala. pyspark's own Spark 3.5 has Scala 2.12; one in SPARK_HOME may have 2.13."""
    home = os.environ.get("SPARK_HOME")
    has_newer = home is not None and any(Path(home, "jars").glob("scala-library-2.13.*.jar"))
    return "2.12" if spark == "3.5" and not has_newer else "2.13"


_installed: Final = minor_version(installed_pyspark() or "")
SPARK_VERSION: Final = _installed if _installed in SPARK_VERSIONS else SPARK_VERSIONS[-1]
"""The version of the installed pyspark, or the newest that the package supports."""
_SCALA: Final = _scala_version(SPARK_VERSION)

ICEBERG_VERSION: Final = ICEBERG_VERSIONS[SPARK_VERSION, _SCALA]
ICEBERG_SPARK_RUNTIME: Final = f"org.apache.iceberg:iceberg-spark-runtime-{SPARK_VERSION}_{_SCALA}:{ICEBERG_VERSION}"
ICEBERG_AWS_BUNDLE: Final = f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG_VERSION}"
ICEBERG_AZURE_BUNDLE: Final = f"org.apache.iceberg:iceberg-azure-bundle:{ICEBERG_VERSION}"
ICEBERG_GCP_BUNDLE: Final = f"org.apache.iceberg:iceberg-gcp-bundle:{ICEBERG_VERSION}"
SQLITE_JDBC: Final = "org.xerial:sqlite-jdbc:3.53.4.0"
MYSQL_JDBC: Final = "com.mysql:mysql-connector-j:9.4.0"
POSTGRESQL_JDBC: Final = "org.postgresql:postgresql:42.7.8"

ICEBERG_EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
ICEBERG_SPARK_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"

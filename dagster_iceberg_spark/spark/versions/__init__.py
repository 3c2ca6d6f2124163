"""What differs between the versions of Spark.

Each version has a file and a class, which inherits what the next newer version does in the same way. Nothing else asks
for a version.
"""

from functools import cache
from typing import Any, Final
from weakref import WeakKeyDictionary

from dagster_iceberg_spark.errors import SparkEnvironmentError
from dagster_iceberg_spark.spark.session.runtime import is_connect
from dagster_iceberg_spark.spark.versions.spark_3_5 import Spark35
from dagster_iceberg_spark.spark.versions.spark_4_0 import Spark40
from dagster_iceberg_spark.spark.versions.spark_4_1 import Spark41
from dagster_iceberg_spark.versions import SPARK_VERSIONS, installed_pyspark, minor_version

_VERSIONS: Final = (Spark35(), Spark40(), Spark41())
_of_servers: Final[WeakKeyDictionary[Any, Spark41]] = WeakKeyDictionary()


@cache
def installed_version() -> Spark41:
    """Return the version of the installed pyspark.

    Raises:
        SparkEnvironmentError: There is no runtime of Iceberg for it, or none that was tested.
    """
    found = installed_pyspark() or "none"
    for version in _VERSIONS:
        if version.name == minor_version(found):
            return version
    raise SparkEnvironmentError.refusing(
        "use",
        f"pyspark {found}",
        expected=f"pyspark {', '.join(SPARK_VERSIONS[:-1])} or {SPARK_VERSIONS[-1]}",
        found="a version for which the package has no runtime of Iceberg",
        hint=f"install the newest version that works: `pip install 'pyspark=={SPARK_VERSIONS[-1]}.*'`.",
    )


def version_of(session: Any) -> Spark41:
    """Return the version of the session: the older one of the client and the Spark Connect server."""
    if not is_connect(session):
        return installed_version()
    version = _of_servers.get(session)
    if version is None:
        version = _of_servers[session] = _of_server(minor_version(session.version))
    return version


def sibling_of(session: Any) -> Any:
    """Return a new session with the same configuration and the same global views."""
    version = version_of(session)
    sibling = version.sibling(session)
    if is_connect(sibling):
        _of_servers[sibling] = version
    return sibling


def _of_server(name: str) -> Spark41:
    """Return the version for a server. A newer server does all that the client asks for."""
    client = installed_version()
    number = tuple(map(int, name.split(".")))
    if number < tuple(map(int, SPARK_VERSIONS[0].split("."))):
        raise SparkEnvironmentError.refusing(
            "use",
            "the Spark Connect server",
            expected=f"Spark {SPARK_VERSIONS[0]} or newer",
            found=f"Spark {name}",
            hint=f"start a server of Spark {', '.join(SPARK_VERSIONS[:-1])} or {SPARK_VERSIONS[-1]}.",
        )
    return next((version for version in _VERSIONS if version.name == name and version.name < client.name), client)

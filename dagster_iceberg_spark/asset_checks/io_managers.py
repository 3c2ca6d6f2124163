"""The IO manager of a check's asset."""

from typing import Any

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.io_manager import IcebergPySparkIOManager


def io_manager_of(resource: Any, key: str, *, checks: str) -> IcebergPySparkIOManager:
    """Return the resource as this package's IO manager, for checks of a kind such as `table checks`."""
    if isinstance(resource, IcebergPySparkIOManager):
        return resource
    raise ConfigurationError.refusing(
        "check",
        f"the tables of the resource {key!r}",
        expected="an IcebergPySparkIOManager",
        found=type(resource).__name__,
        hint=f"build {checks} for assets that it stores only.",
    )

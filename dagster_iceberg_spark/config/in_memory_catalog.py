"""A catalog for tests."""

import atexit
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Literal

from pydantic import Field

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.config.catalog import Catalog
from dagster_iceberg_spark.config.sql_catalog import describe_in


class InMemoryCatalog(Catalog):
    """A catalog for tests, which is gone when the process ends.

    Spark and pyiceberg share it through a temporary directory of the process. Other processes do not see it.

    Example:
        >>> InMemoryCatalog(key="test_flights").kind
        'in_memory'
    """

    kind: Literal["in_memory"] = Field(default="in_memory", description="A catalog for tests, gone with the process.")
    key: str = Field(
        default="",
        description="Tells catalogs apart: those with the same `name` and `key` are one. Set a key to give a test a "
        "catalog of its own.",
    )

    def describe(self) -> CatalogDescription:
        """Create the directory, and return what Spark and pyiceberg need."""
        return describe_in(_directories[self.name, self.key], self)


_directories: defaultdict[tuple[str, str], Path] = defaultdict(
    lambda: Path(tempfile.mkdtemp(prefix="iceberg-in-memory-"))
)
"""By name and key."""


@atexit.register
def _remove_directories() -> None:
    for directory in _directories.values():
        shutil.rmtree(directory, ignore_errors=True)

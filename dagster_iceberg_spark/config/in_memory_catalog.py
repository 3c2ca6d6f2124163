"""A catalog for tests."""

import atexit
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Literal

from pydantic import Field

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.config.catalog import BaseCatalog
from dagster_iceberg_spark.config.sql_catalog import describe_in


class InMemoryCatalog(BaseCatalog):
    """A catalog for tests: it is there while the process runs, and leaves nothing.

    Spark and pyiceberg share it through a directory of the process's own among the temporary files; other processes do
    not see it.

    Example:
        >>> InMemoryCatalog(key="test_flights").kind
        'in_memory'
    """

    kind: Literal["in_memory"] = Field(default="in_memory", description="A catalog for tests, gone with the process.")
    key: str = Field(
        default="",
        description="Which catalog it is: those of one `name` and `key` are the same. A test that wants a catalog of "
        "its own gives a key of its own.",
    )

    def describe(self) -> CatalogDescription:
        """Return the description of the catalog, whose directory is created."""
        return describe_in(_directories[self.name, self.key], self)


_directories: defaultdict[tuple[str, str], Path] = defaultdict(
    lambda: Path(tempfile.mkdtemp(prefix="iceberg-in-memory-"))
)
"""By name and key."""


@atexit.register
def _remove_directories() -> None:
    for directory in _directories.values():
        shutil.rmtree(directory, ignore_errors=True)

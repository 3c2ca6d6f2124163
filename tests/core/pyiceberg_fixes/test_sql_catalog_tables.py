"""Two processes that open a new SQL catalog at the same time."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog as pyiceberg_load_catalog
from pyiceberg.catalog.sql import IcebergNamespaceProperties, IcebergTables
from sqlalchemy import event
from sqlalchemy.exc import OperationalError
from sqlalchemy.schema import CreateTable

from dagster_iceberg_spark.pyiceberg_fixes.sql_catalog_tables import load_catalog

TABLES: Any = (IcebergTables.__table__, IcebergNamespaceProperties.__table__)


@pytest.fixture
def properties(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A new catalog. Another process creates its tables right before pyiceberg does."""
    path = tmp_path / "c.db"

    def create_first(target: Any, *_: Any, **__: Any) -> None:
        with closing(sqlite3.connect(path)) as other:
            other.execute(str(CreateTable(target)))

    for table in TABLES:
        event.listen(table, "before_create", create_first)
    yield {"type": "sql", "uri": f"sqlite:///{path}", "warehouse": f"file://{tmp_path}"}
    for table in TABLES:
        event.remove(table, "before_create", create_first)


def test_a_catalog_created_concurrently_is_opened(properties: dict[str, str]) -> None:
    assert load_catalog("lake", **properties).list_namespaces() == []


def test_pyiceberg_still_fails(properties: dict[str, str]) -> None:
    with pytest.raises(OperationalError, match="already exists"):
        pyiceberg_load_catalog("lake", **properties)

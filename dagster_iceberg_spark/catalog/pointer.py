"""Reads the metadata file that a row of a SQL catalog points to.

The row is the one that Iceberg's JDBC catalog and pyiceberg's SqlCatalog share (Iceberg documentation, "JDBC").
pyiceberg would create objects for the whole history, which is not needed.
"""

import gzip
import zlib
from typing import Any

from pydantic_core import from_json
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import load_file_io
from sqlalchemy import column, select, table

from dagster_iceberg_spark.catalog.first_line import first_line
from dagster_iceberg_spark.catalog.garbage_collection import paused_collection
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.failure_kinds import FailureKind
from dagster_iceberg_spark.table.identifier import TableIdentifier

_TABLES = table("iceberg_tables")
_GZIP = b"\x1f\x8b"


def read_pointed_document(catalog: SqlCatalog, identifier: TableIdentifier) -> dict[str, Any] | None:
    """Return the table's metadata document, or None if the catalog has no such table."""
    location = _pointer(catalog, identifier)
    if location is None:
        return None
    try:
        content = _content(catalog, location)
    except FileNotFoundError:
        # A concurrent commit may have deleted the file (`write.metadata.delete-after-commit.enabled`).
        moved = _pointer(catalog, identifier)
        if moved in (None, location):
            raise
        location, content = moved, _content(catalog, moved)
    try:
        with paused_collection():
            document: Any = from_json(gzip.decompress(content) if content.startswith(_GZIP) else content)
    except (ValueError, EOFError, zlib.error) as error:
        raise _damaged(identifier, location, first_line(error)) from error
    if not isinstance(document, dict):
        raise _damaged(identifier, location, f"a {type(document).__name__} in place of a JSON object")
    return document


def pointed_location(catalog: Catalog, identifier: TableIdentifier) -> str | None:
    """Return where the table's metadata file is, or None if the catalog does not tell it without reading the file."""
    return _pointer(catalog, identifier) if isinstance(catalog, SqlCatalog) else None


def _damaged(identifier: TableIdentifier, location: str, found: str) -> IcebergSparkError:
    return FailureKind.METADATA_DAMAGED.refusal("read", str(identifier), f"{found} in {location}")


def _pointer(catalog: SqlCatalog, identifier: TableIdentifier) -> str | None:
    query = (
        select("*")
        .select_from(_TABLES)
        .where(
            column("catalog_name") == catalog.name,
            column("table_namespace") == Catalog.namespace_to_string(identifier.namespace),
            column("table_name") == identifier.name,
        )
    )
    with catalog.engine.connect() as connection:
        row = connection.execute(query).mappings().first()
    # Catalogs of the first schema version have no types and contain only tables.
    if row is None or row.get("iceberg_type") not in (None, "TABLE"):
        return None
    return row["metadata_location"] or None


def _content(catalog: SqlCatalog, location: str) -> bytes:
    with load_file_io(catalog.properties, location).new_input(location).open() as stream:
        return stream.read()

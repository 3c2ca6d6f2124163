"""From a SQL catalog's row to the metadata file that it points at.

The row is the one that Iceberg's JDBC catalog and pyiceberg's SqlCatalog share (Iceberg documentation, "JDBC").
pyiceberg would make objects of the whole history, for which a look has no use.
"""

import gzip
from typing import Any

from pydantic_core import from_json
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import load_file_io
from sqlalchemy import column, select, table

from dagster_iceberg_spark.table.identifier import TableIdentifier

_TABLES = table("iceberg_tables")
_GZIP = b"\x1f\x8b"


def read_pointed_document(catalog: SqlCatalog, identifier: TableIdentifier) -> dict[str, Any] | None:
    """Return the table's metadata document; None if the catalog has no such table.

    Raises:
        SQLAlchemyError: The catalog does not answer.
        OSError: The file cannot be read.
        ValueError: The file is no JSON.
    """
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
    # Catalogs of the first schema version have no types: all that they hold are tables.
    if row is None or row.get("iceberg_type") not in (None, "TABLE") or not row["metadata_location"]:
        return None
    location = row["metadata_location"]
    with load_file_io(catalog.properties, location).new_input(location).open() as stream:
        content = stream.read()
    document: dict[str, Any] = from_json(gzip.decompress(content) if content.startswith(_GZIP) else content)
    return document

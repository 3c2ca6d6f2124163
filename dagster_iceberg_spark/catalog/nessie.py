"""Project Nessie shows the newest snapshot of a table alone: the older ones are versions in its history of commits.

Source: Nessie's API v2, `GET /trees/{ref}/history`. Its REST catalog tells where that API is, and of each table the
commit that it was read at.
"""

import json
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

_API: Final = "nessie.core-base-uri"
_REFERENCE: Final = "nessie.commit.ref"
_COMMIT: Final = "nessie.commit.id"
_ENTRIES: Final = 100
"""Commits in an answer, those of other tables left out by the server."""


def is_versioned(table: Table) -> bool:
    """Say whether the table's older snapshots are to be found in Nessie's history."""
    has_history = isinstance(table.catalog, RestCatalog) and _API in table.catalog.properties
    return has_history and _COMMIT in table.metadata.properties


def older_versions(table: Table) -> Iterator[TableMetadata]:
    """Yield the table as earlier commits left it, newest first, under its present name, as far as files are there.

    Raises:
        requests.RequestException: Nessie's API does not answer, or refuses.
    """
    for location in _locations(table):
        if location == table.metadata_location:
            continue
        try:
            version = FromInputFile.table_metadata(table.io.new_input(location))
        except FileNotFoundError:  # Nessie's garbage collection takes old ones
            return
        if version.table_uuid != table.metadata.table_uuid:  # another one had the name
            return
        yield version


def version_of(table: Table, snapshot_id: int) -> Table:
    """Return the table as the commit of that snapshot left it; where there is no such version, as it is.

    Raises:
        requests.RequestException: Nessie's API does not answer, or refuses.
    """
    for version in older_versions(table):
        if version.current_snapshot_id == snapshot_id:
            return Table(table.name(), version, table.metadata_location, table.io, table.catalog, table.config)
    return table


def _locations(table: Table) -> Iterator[str]:
    """Yield the metadata file of each version, newest first."""
    *namespace, name = elements = list(table.name())
    found, properties = table.catalog.properties, table.metadata.properties
    at = quote(f"{properties.get(_REFERENCE, '')}@{properties[_COMMIT]}", safe="")
    asked: dict[str, Any] = {
        "fetch": "ALL",
        "max-records": _ENTRIES,
        # Strings of the Common Expression Language are JSON's.
        "filter": f"operations.exists(op, op.name == {json.dumps(name)} && "
        f"op.namespace == {json.dumps('.'.join(namespace))})",
    }
    session = table.catalog._session  # type: ignore[attr-defined] # noqa: SLF001 - it is logged in
    while True:
        answer = session.get(f"{found[_API].rstrip('/')}/v2/trees/{at}/history", params=asked)
        answer.raise_for_status()
        page = answer.json()
        for entry in page["logEntries"]:
            for operation in entry.get("operations") or ():
                if operation["key"]["elements"] == elements and operation["type"] == "PUT":
                    yield operation["content"]["metadataLocation"]
        if not page.get("hasMore"):
            return
        asked["page-token"] = page["token"]

"""Finds the older snapshots of a table in Project Nessie, which shows only the newest.

Each older snapshot is in an earlier version of the table, which Nessie keeps in its history of commits. A commit that
another one followed is found nowhere else. `look` uses `with_history` and `version_of`; for any other catalog, these
return their arguments unchanged.

Source: Nessie's API v2, `GET /trees/{ref}/history`. The configuration that Nessie's REST catalog sends names the API;
the properties of a table name the commit that it was read at.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from dagster_iceberg_spark.catalog.document import document_of, snapshot_of
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

_API: Final = "nessie.core-base-uri"
_REFERENCE: Final = "nessie.commit.ref"
_COMMIT: Final = "nessie.commit.id"
_FORGOTTEN: Final = 0
"""An id that no snapshot has, for the parent of a snapshot whose parent is unknown."""
_ENTRIES: Final = 100
"""The number of commits in a response. The server leaves out those of other tables."""


def with_history(state: TableState, table: Table, back_to: Callable[[Snapshot], bool] | None) -> TableState:
    """Return the table's state with the snapshots back to that for which `back_to` returns true, or with the newest."""
    head = state.head()
    if back_to is None or head is None or back_to(head) or not _is_in_nessie(table):
        return state
    return replace(state, snapshots=_line(table, head, back_to))


def version_of(table: Table, snapshot_id: int) -> Table:
    """Return the version of the table that shows the snapshot, or the table itself if there is no such version."""
    if table.snapshot_by_id(snapshot_id) is not None or not _is_in_nessie(table):
        return table
    for version in _older_versions(table):
        if version.current_snapshot_id == snapshot_id:
            return Table(table.name(), version, table.metadata_location, table.io, table.catalog, table.config)
    return table


def is_nessie(catalog: Catalog) -> bool:
    """Return whether a catalog is Nessie's."""
    return isinstance(catalog, RestCatalog) and _API in catalog.properties


def _is_in_nessie(table: Table) -> bool:
    return is_nessie(table.catalog) and _COMMIT in table.metadata.properties


def _line(table: Table, head: Snapshot, back_to: Callable[[Snapshot], bool]) -> Mapping[int, Snapshot]:
    """Return the head and its ancestors by id, each with its parent, which Nessie leaves out."""
    line = [head]
    sequence = max(item.sequence_number or 0 for item in table.metadata.snapshots)
    for version in _older_versions(table):
        item = version.current_snapshot()
        if item is None:
            break
        # Nessie let two writers commit a table's first snapshot. Only one of them is an ancestor.
        if (item.sequence_number or 0) < sequence:
            sequence = item.sequence_number or 0
            line.append(snapshot_of(document_of(item)))
        if back_to(line[-1]):
            break
    has_older = sequence > 1 and not back_to(line[-1])
    parents = (*(item.snapshot_id for item in line[1:]), _FORGOTTEN if has_older else None)
    return {
        item.snapshot_id: replace(item, parent_snapshot_id=parent) for item, parent in zip(line, parents, strict=True)
    }


def _older_versions(table: Table) -> Iterator[TableMetadata]:
    """Yield the earlier versions of the table, newest first, under its current name, if their files still exist."""
    for location in _locations(table):
        if location == table.metadata_location:
            continue
        try:
            version = FromInputFile.table_metadata(table.io.new_input(location))
        except FileNotFoundError:  # Nessie's garbage collection deletes old files
            return
        if version.table_uuid != table.metadata.table_uuid:  # another table had the name
            return
        yield version


def _locations(table: Table) -> Iterator[str]:
    """Yield the metadata file of each version, newest first."""
    *namespace, name = elements = list(table.name())
    found, properties = table.catalog.properties, table.metadata.properties
    at = quote(f"{properties.get(_REFERENCE, '')}@{properties[_COMMIT]}", safe="")
    parameters: dict[str, Any] = {
        "fetch": "ALL",
        "max-records": _ENTRIES,
        # Strings in the Common Expression Language are JSON strings.
        "filter": f"operations.exists(op, op.name == {json.dumps(name)} && "
        f"op.namespace == {json.dumps('.'.join(namespace))})",
    }
    session = table.catalog._session  # type: ignore[attr-defined] # noqa: SLF001 - it is logged in
    while True:
        answer = session.get(f"{found[_API].rstrip('/')}/v2/trees/{at}/history", params=parameters)
        answer.raise_for_status()
        page = answer.json()
        for entry in page["logEntries"]:
            for operation in entry.get("operations") or ():
                if operation["key"]["elements"] == elements and operation["type"] == "PUT":
                    yield operation["content"]["metadataLocation"]
        if not page.get("hasMore"):
            return
        parameters["page-token"] = page["token"]

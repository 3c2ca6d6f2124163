"""The older snapshots of a table in Project Nessie, which shows only the newest.

Each older snapshot is in an earlier version of the table, which Nessie's own history of commits has. A commit that was
followed by another one is found nowhere else. `with_history` and `version_of` are all that a look knows of Nessie: of
any other catalog, they return what they are given.

Source: Nessie's API v2, `GET /trees/{ref}/history`. The configuration that Nessie's REST catalog sends names the API;
the properties of a table name the commit that it was read at.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

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
"""The id of no snapshot: the parent of a snapshot whose parent cannot be named any more."""
_ENTRIES: Final = 100
"""Commits in an answer, those of other tables left out by the server."""


def with_history(state: TableState, table: Table, back_to: Callable[[Snapshot], bool] | None) -> TableState:
    """Return the table's state with its older snapshots, as far as they are needed.

    Args:
        state: The state that the catalog shows.
        table: The table.
        back_to: True of the snapshot that the history has to go back to; None: no older one is needed.

    Raises:
        requests.RequestException: Nessie's API does not answer, or refuses.
    """
    head = state.head()
    if back_to is None or head is None or back_to(head) or not _is_in_nessie(table):
        return state
    return replace(state, snapshots=_line(table, head, back_to))


def version_of(table: Table, snapshot_id: int) -> Table:
    """Return the version of the table that shows the snapshot; the table itself where there is no such version.

    Raises:
        requests.RequestException: Nessie's API does not answer, or refuses.
    """
    if table.snapshot_by_id(snapshot_id) is not None or not _is_in_nessie(table):
        return table
    for version in _older_versions(table):
        if version.current_snapshot_id == snapshot_id:
            return Table(table.name(), version, table.metadata_location, table.io, table.catalog, table.config)
    return table


def _is_in_nessie(table: Table) -> bool:
    has_history = isinstance(table.catalog, RestCatalog) and _API in table.catalog.properties
    return has_history and _COMMIT in table.metadata.properties


def _line(table: Table, head: Snapshot, back_to: Callable[[Snapshot], bool]) -> Mapping[int, Snapshot]:
    """Return the head and its ancestors by id, each with the parent that Nessie leaves out."""
    line = [head]
    sequence = max(item.sequence_number or 0 for item in table.metadata.snapshots)
    for version in _older_versions(table):
        item = version.current_snapshot()
        if item is None:
            break
        # Nessie has let two writers commit a table's first snapshot: only one of them is an ancestor.
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
    """Yield the table as earlier commits left it, newest first, under its present name, as far as files are there."""
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

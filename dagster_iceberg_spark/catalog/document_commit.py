"""Commits on the metadata document itself, where the catalog keeps the pointer to it: SQL, Hive Metastore and Glue.

pyiceberg would copy all snapshots for each update, and keep every metadata file, whatever
`write.metadata.delete-after-commit.enabled` says (Iceberg documentation, "Configuration"). It writes no metadata of
format 3 (apache/iceberg-python #1551), and drops what it does not know. In a SQL catalog, a long history costs the
parsing of JSON alone.
"""

import gzip
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import from_json, to_json
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.document import is_in_current_form
from dagster_iceberg_spark.catalog.files import discard
from dagster_iceberg_spark.catalog.look import (
    call_catalog,
    known_table,
    open_catalog,
    paused_collection,
    pointed_document,
)
from dagster_iceberg_spark.pyiceberg_fixes.unknown_types import complete_documents, without_unknown_columns
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH

_FORMATS: Final = (2, 3)
_KEPT: Final = "write.metadata.previous-versions-max"
_DELETES: Final = "write.metadata.delete-after-commit.enabled"
_CODEC: Final = "write.metadata.compression-codec"
_GZIP: Final = "gzip"
_SUFFIX: Final = ".metadata.json"


@dataclass(frozen=True, slots=True)
class NewSchema:
    """Makes a schema the table's current one. It is a JSON document: pyiceberg may lack the type of a column."""

    document: Mapping[str, Any]
    last_column_id: int


_UPDATES: Final = (NewSchema, AddSnapshotUpdate, SetSnapshotRefUpdate, RemoveSnapshotRefUpdate, SetPropertiesUpdate)
_REQUIREMENTS: Final = (AssertTableUUID, AssertRefSnapshotId, AssertCurrentSchemaId)


@dataclass(frozen=True, slots=True)
class StagedMetadata:
    """A new metadata file that the catalog does not point to yet.

    Args:
        before: The location of the current metadata file.
        location: The location of the new one.
        document: What is in the new one.
        outdated: The metadata files that the table no longer needs once the catalog points to the new one.
    """

    io: FileIO
    before: str
    location: str
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)
    outdated: tuple[str, ...] = ()

    def delete(self) -> None:
        """Delete the new file."""
        discard(self.io, [self.location])

    def delete_outdated(self) -> None:
        """Delete the metadata files that the commit has made superfluous."""
        discard(self.io, self.outdated)


def stage(
    catalog: MetastoreCatalog,
    before: str,
    document: dict[str, Any],
    requirements: Sequence[TableRequirement],
    updates: Sequence[TableUpdate | NewSchema],
    *,
    at_ms: int | None = None,
) -> StagedMetadata | None:
    """Write the new metadata of a commit of snapshots, refs and properties. Return None if pyiceberg has to do it.

    Args:
        catalog: The catalog that keeps the pointer.
        before: The location of the current metadata file.
        document: What is in the file.
        requirements: What the document must meet.
        updates: The changes.
        at_ms: When the tables of one transaction move, in milliseconds since 1970. So no instant lies between them.

    Raises:
        CommitFailedException: The table no longer meets the requirements.
    """
    if not all(isinstance(update, _UPDATES) for update in updates):
        return None
    if not all(isinstance(requirement, _REQUIREMENTS) for requirement in requirements):
        return None
    if not _is_editable(document):
        return None
    _require(document, requirements)
    with paused_collection():
        changed = {**document, **_changes(document, updates, before, at_ms)}
        provider = load_location_provider(document["location"], document.get("properties") or {})
        version = catalog._parse_metadata_version(before) + 1  # noqa: SLF001 - as pyiceberg numbers metadata files
        location = provider.new_table_metadata_file_location(version)
        content = to_json(changed)
        if _codec(document) == _GZIP:
            location, content = f"{location.removesuffix(_SUFFIX)}.gz{_SUFFIX}", gzip.compress(content)
        io = catalog._load_file_io(document.get("properties") or {}, location)  # noqa: SLF001
        with io.new_output(location).create(overwrite=True) as stream:
            stream.write(content)
    log = {item["metadata-file"] for item in changed["metadata-log"]}
    deletes = (document.get("properties") or {}).get(_DELETES, "false").lower() == "true"
    logged = [item["metadata-file"] for item in document.get("metadata-log") or () if deletes]
    outdated = tuple(path for path in logged if path not in log)
    return StagedMetadata(io, before, location, changed, outdated)


class MetastoreCommit:
    """A commit to a Hive Metastore or to Glue. pyiceberg locks the table and moves the pointer, to our document.

    It stands in for the catalog while pyiceberg commits: the catalog's own methods stage and write the metadata.
    """

    def __init__(self, catalog: MetastoreCatalog) -> None:
        """Prepare a commit to a table of the catalog."""
        self._catalog = catalog
        self._documents: list[dict[str, Any]] = []
        self._listed: list[Any] = []  # the columns in Glue's own list
        self.staged: StagedMetadata | None = None

    def commit(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> None:
        """Make the commit.

        Raises:
            CommitFailedException: The table no longer meets the requirements, or another writer holds its lock.
        """
        own: Any = type(self._catalog)
        with complete_documents() as self._documents:
            own.commit_table(self, table, requirements, updates)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def _update_and_stage_table(
        self,
        table: Table | None,
        identifier: Any,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> Any:
        catalog: Any = self._catalog
        if table is not None:
            self.staged = stage(catalog, table.metadata_location, self._documents[-1], requirements, updates)
        if table is None or self.staged is None:
            return catalog._update_and_stage_table(table, identifier, requirements, updates)  # noqa: SLF001
        metadata = _trimmed(self.staged.document)
        return StagedTable(identifier, metadata, self.staged.location, self.staged.io, catalog)

    def _write_metadata(self, metadata: Any, io: FileIO, metadata_path: str) -> None:
        if self.staged is None:
            self._catalog._write_metadata(metadata, io, metadata_path)  # noqa: SLF001

    _write_metadata_no_exist_check = _write_metadata

    def _get_glue_table(self, database_name: str, table_name: str) -> Any:
        catalog: Any = self._catalog
        found = catalog._get_glue_table(database_name, table_name)  # noqa: SLF001
        self._listed = found.get("StorageDescriptor", {}).get("Columns", [])
        return found

    def _update_glue_table(self, database_name: str, table_name: str, table_input: Any, version_id: str) -> None:
        """Keep Glue's list of columns if the columns stay: pyiceberg would leave out those that it does not know."""
        catalog: Any = self._catalog
        before, after = self._documents[-1], None if self.staged is None else self.staged.document
        if after is not None and after["current-schema-id"] == before["current-schema-id"]:
            table_input["StorageDescriptor"]["Columns"] = self._listed
        catalog._update_glue_table(database_name, table_name, table_input, version_id)  # noqa: SLF001


def table_to_commit_to(description: CatalogDescription, identifier: TableIdentifier, *, action: str) -> Table:
    """Return the table with the snapshots that its refs point to. Only a SQL catalog can leave the others out."""
    catalog = open_catalog(description)
    if not isinstance(catalog, SqlCatalog):
        return known_table(description, identifier, action=action)

    def read() -> Table | None:
        found = pointed_document(catalog, identifier)
        if found is None or not _is_editable(found[1]):
            return None
        location, document = found
        metadata = _trimmed(document)
        io = catalog._load_file_io(metadata.properties, location)  # noqa: SLF001
        return Table(identifier.parts, metadata, location, io, catalog)

    return call_catalog(description, read, action=f"look at {identifier} in") or known_table(
        description, identifier, action=action
    )


def _trimmed(document: Mapping[str, Any]) -> TableMetadata:
    """Return pyiceberg's metadata, of the snapshots that refs point to, and of the columns that pyiceberg knows."""
    heads = {ref["snapshot-id"] for ref in (document.get("refs") or {}).values()}
    snapshots = [item for item in document.get("snapshots") or () if item["snapshot-id"] in heads]
    trimmed = {**document, "snapshots": snapshots, "snapshot-log": [], "metadata-log": []}
    return TableMetadataUtil.parse_obj(without_unknown_columns(trimmed))


def _is_editable(document: dict[str, Any]) -> bool:
    is_known = document.get("format-version") in _FORMATS and _codec(document) in ("none", _GZIP)
    return is_known and is_in_current_form(document)


def _codec(document: dict[str, Any]) -> str:
    return str((document.get("properties") or {}).get(_CODEC, "none")).lower()


def _require(document: dict[str, Any], requirements: Sequence[TableRequirement]) -> None:
    refs = document.get("refs") or {}
    for requirement in requirements:
        if isinstance(requirement, AssertTableUUID) and str(requirement.uuid) != document.get("table-uuid"):
            raise CommitFailedException(f"another table: {document.get('table-uuid')}")
        schema_id = document.get("current-schema-id")
        if isinstance(requirement, AssertCurrentSchemaId) and requirement.current_schema_id != schema_id:
            raise CommitFailedException(f"the schema is {schema_id}, and not {requirement.current_schema_id}")
        if isinstance(requirement, AssertRefSnapshotId):
            found = refs.get(requirement.ref, {}).get("snapshot-id")
            if found != requirement.snapshot_id:
                raise CommitFailedException(f"{requirement.ref} is at {found}, and not at {requirement.snapshot_id}")


def _changes(
    document: dict[str, Any], updates: Sequence[TableUpdate | NewSchema], before: str, at_ms: int | None
) -> dict[str, Any]:
    """Return the changed fields of the document (Iceberg spec, "Table Metadata Fields")."""
    now = int(time.time() * 1000) if at_ms is None else at_ms
    snapshots, refs = list(document.get("snapshots") or ()), dict(document.get("refs") or {})
    changed: dict[str, Any] = {"last-updated-ms": max(now, document["last-updated-ms"])}
    for update in updates:
        match update:
            case AddSnapshotUpdate(snapshot=snapshot):
                if (snapshot.sequence_number or 0) <= changed.get(
                    "last-sequence-number", document["last-sequence-number"]
                ):
                    raise CommitFailedException("another commit has taken the sequence number")
                next_row_id = changed.get("next-row-id", document.get("next-row-id"))
                first_row_id = snapshot.first_row_id or 0
                if next_row_id is not None and first_row_id < next_row_id:
                    raise CommitFailedException("another commit has taken the ids of the rows")
                snapshots.append(from_json(snapshot.model_dump_json(by_alias=True, exclude_none=True)))
                changed |= {
                    **({} if next_row_id is None else {"next-row-id": first_row_id + (snapshot.added_rows or 0)}),
                    "last-sequence-number": snapshot.sequence_number,
                    "last-updated-ms": max(snapshot.timestamp_ms, document["last-updated-ms"], at_ms or 0),
                }
            case SetSnapshotRefUpdate():
                refs[update.ref_name] = dict(_ref(update))
                if update.ref_name == MAIN_BRANCH:
                    entry = {"snapshot-id": update.snapshot_id, "timestamp-ms": changed["last-updated-ms"]}
                    log = changed.get("snapshot-log", document.get("snapshot-log") or [])
                    changed |= {"current-snapshot-id": update.snapshot_id, "snapshot-log": [*log, entry]}
            case RemoveSnapshotRefUpdate():
                refs.pop(update.ref_name, None)
            case NewSchema() | SetPropertiesUpdate():
                changed |= _of_definition({**document, **changed}, update)
    ids = {item["snapshot-id"] for item in snapshots}
    if any(ref["snapshot-id"] not in ids for ref in refs.values()):
        raise CommitFailedException("a snapshot of the commit has expired")
    kept = int((document.get("properties") or {}).get(_KEPT, "100"))
    entry = {"metadata-file": before, "timestamp-ms": document["last-updated-ms"]}
    log = [*(document.get("metadata-log") or ()), entry][-kept:]
    return {**changed, "snapshots": snapshots, "refs": refs, "metadata-log": log}


def _of_definition(document: Mapping[str, Any], update: NewSchema | SetPropertiesUpdate) -> dict[str, Any]:
    if isinstance(update, SetPropertiesUpdate):
        return {"properties": {**(document.get("properties") or {}), **update.updates}}
    return {
        "schemas": [*document["schemas"], update.document],
        "current-schema-id": update.document["schema-id"],
        "last-column-id": max(update.last_column_id, document["last-column-id"]),
    }


def _ref(update: SetSnapshotRefUpdate) -> Iterator[tuple[str, Any]]:
    yield "snapshot-id", update.snapshot_id
    yield "type", update.type
    for name, value in (
        ("max-ref-age-ms", update.max_ref_age_ms),
        ("max-snapshot-age-ms", update.max_snapshot_age_ms),
        ("min-snapshots-to-keep", update.min_snapshots_to_keep),
    ):
        if value is not None:
            yield name, value

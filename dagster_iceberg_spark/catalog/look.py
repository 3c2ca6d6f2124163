"""Loads the current state of a table through pyiceberg, without a JVM, in 1 to 30 ms.

A Spark session may use its cache, and its metadata tables are queries. pyiceberg reads the catalog's pointer and the
metadata file each time. In a SQL catalog, the pointer is the row that Iceberg's JDBC catalog and pyiceberg's SqlCatalog
share (Iceberg documentation, "JDBC"). It is read here, because pyiceberg would create objects for the whole history.
"""

import gc
import gzip
import socket
import threading
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
)
from pyiceberg.exceptions import ValidationError as MetadataValidationError
from pyiceberg.io import load_file_io
from pyiceberg.table import Table
from sqlalchemy import RowMapping, column, select, table

from dagster_iceberg_spark.catalog.clients.nessie import version_of, with_history
from dagster_iceberg_spark.catalog.description import AwsKeys, CatalogDescription, first_line
from dagster_iceberg_spark.catalog.document import Snapshots, document_of, is_in_current_form, table_state
from dagster_iceberg_spark.catalog.failures import catalog_errors, kind_of
from dagster_iceberg_spark.errors import (
    CatalogUnavailableError,
    ConfigurationError,
    IcebergSparkError,
    NotAnIcebergTableError,
)
from dagster_iceberg_spark.failure_kinds import FailureKind
from dagster_iceberg_spark.pyiceberg_fixes.sql_catalog_tables import load_catalog
from dagster_iceberg_spark.pyiceberg_fixes.unknown_types import LoadedTable, load_complete, load_table
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState
from dagster_iceberg_spark.timeouts import ANSWER_TIMEOUT_SECONDS, CONNECT_TIMEOUT_SECONDS, answer_within


@contextmanager
def paused_collection() -> Iterator[None]:
    """Pause the search for cycles, of which metadata has none, while the block runs.

    With 100,000 data files or 50,000 snapshots, Python searched the growing lists for half of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_AnswerT = TypeVar("_AnswerT")
_FoundT = TypeVar("_FoundT")


@dataclass(frozen=True, slots=True)
class _OpenedCatalog:
    """A catalog of the process, with the keys that sign its requests."""

    description: CatalogDescription
    catalog: Catalog
    keys: AwsKeys | None


_NO_JSON: Final = "json_invalid"
_catalogs: dict[tuple[object, ...], _OpenedCatalog] = {}
_lock = threading.Lock()


def look(
    description: CatalogDescription, identifier: TableIdentifier, *, back_to: Callable[[Snapshot], bool] | None = None
) -> TableState | None:
    """Return the current state of the table, or None if it does not exist.

    `back_to` returns true for the snapshot that the history must go back to, for a catalog that shows only the newest
    snapshot and needs a request for each of the others.
    """
    _require_namespace(description, identifier)

    def read() -> TableState | None:
        catalog = open_catalog(description)
        document = read_pointed_document(catalog, identifier) if isinstance(catalog, SqlCatalog) else None
        if document is None or not is_in_current_form(document):
            loaded = _load_table(description, identifier)
            if loaded is None:
                return None
            if loaded.document is None:
                return with_history(_state_of(loaded.table, identifier), loaded.table, back_to)
            document = loaded.document
        return table_state(
            document, identifier, Snapshots({item["snapshot-id"]: item for item in document.get("snapshots") or ()})
        )

    try:
        return call_catalog(description, read, action=f"look at {identifier} in")
    except IcebergSparkError:
        raise
    except (KeyError, ValueError) as error:
        raise _not_iceberg(identifier, description, error) from None


@dataclass(frozen=True, slots=True)
class TableDocument:
    """A table's metadata as the catalog shows it.

    Args:
        location: Where its file is.
        document: The JSON of the metadata (Iceberg spec, appendix C).
        state: The state that it describes.
    """

    location: str
    document: Mapping[str, Any]
    state: TableState


def table_document(description: CatalogDescription, identifier: TableIdentifier) -> TableDocument | None:
    """Return a table's metadata, or None if the table does not exist.

    A catalog that shows only the newest snapshot shows no other here either.
    """

    def read() -> tuple[str, Mapping[str, Any]] | None:
        catalog = open_catalog(description)
        found = pointed_document(catalog, identifier) if isinstance(catalog, SqlCatalog) else None
        if found is not None and is_in_current_form(found[1]):
            return found
        loaded = _load_table(description, identifier, load_complete)
        if loaded is None:
            return None
        document: Mapping[str, Any] | None = loaded.document
        if document is None or not is_in_current_form(document):
            document = from_json(loaded.table.metadata.model_dump_json(by_alias=True, exclude_none=True))
        return loaded.table.metadata_location, document

    found = call_catalog(description, read, action=f"look at {identifier} in")
    if found is None:
        return None
    location, document = found
    snapshots = Snapshots({item["snapshot-id"]: item for item in document.get("snapshots") or ()})
    return TableDocument(location, document, table_state(document, identifier, snapshots))


def pointer_of(description: CatalogDescription, identifier: TableIdentifier) -> str | None:
    """Return the location of the table's metadata file. Return None if it takes as long to find as `look` takes."""

    def read() -> str | None:
        return pointed_location(open_catalog(description), identifier)

    return call_catalog(description, read, action=f"look at {identifier} in")


def pointers_of(
    description: CatalogDescription, identifiers: Collection[TableIdentifier]
) -> dict[TableIdentifier, str | None]:
    """Return what `pointer_of` returns of each table, as of one query."""

    def read() -> dict[TableIdentifier, str | None]:
        catalog = open_catalog(description)
        if not isinstance(catalog, SqlCatalog):
            return dict.fromkeys(identifiers)
        query = select("*").select_from(_TABLES).where(column("catalog_name") == catalog.name)
        with catalog.engine.connect() as connection:
            rows = {(row["table_namespace"], row["table_name"]): row for row in connection.execute(query).mappings()}
        names = {item: (Catalog.namespace_to_string(item.namespace), item.name) for item in identifiers}
        return {item: _location(rows.get(name)) for item, name in names.items()}

    return call_catalog(description, read, action="look at the tables of")


def find_table(
    description: CatalogDescription, identifier: TableIdentifier, *, snapshot_id: int | None = None
) -> Table | None:
    """Load the table with pyiceberg. Return None if it does not exist.

    If the catalog shows only the newest snapshot, this loads the earlier version of the table that shows `snapshot_id`.
    """
    _require_namespace(description, identifier)

    def load() -> Table | None:
        loaded = _load_table(description, identifier)
        table = None if loaded is None else loaded.table
        return table if table is None or snapshot_id is None else version_of(table, snapshot_id)

    return call_catalog(description, load, action=f"look at {identifier} in")


def known_table(
    description: CatalogDescription, identifier: TableIdentifier, *, action: str, snapshot_id: int | None = None
) -> Table:
    """Load a table that was there a moment ago, as `find_table` does. The error for a missing one names the action."""
    table = find_table(description, identifier, snapshot_id=snapshot_id)
    return _known(table, identifier, action=action)


def _known(found: _FoundT | None, identifier: TableIdentifier, *, action: str) -> _FoundT:
    if found is None:
        raise FailureKind.TABLE_VANISHED.refusal(action, str(identifier), "none")
    return found


def known_document(
    description: CatalogDescription, identifier: TableIdentifier, *, action: str
) -> tuple[Table, Mapping[str, Any]]:
    """Load a table as `known_table` does, and return its metadata document with it."""
    loaded = call_catalog(
        description, lambda: _load_table(description, identifier, load_complete), action=f"look at {identifier} in"
    )
    known = _known(loaded, identifier, action=action)
    return known.table, known.document or {}


def has_namespace(description: CatalogDescription, namespace: Sequence[str]) -> bool:
    """Return whether the namespace exists. Return true for a catalog that does not support the request."""

    def exists() -> bool:
        try:
            return open_catalog(description).namespace_exists(tuple(namespace))
        except NotImplementedError:  # in a directory, a namespace is a directory with tables
            return True

    return call_catalog(description, exists, action=f"look for the namespace {'.'.join(namespace)} in")


def call_catalog(description: CatalogDescription, request: Callable[[], _AnswerT], *, action: str) -> _AnswerT:
    """Send a request to the catalog, with the time limit of a metadata request."""
    with translated_answers(description, action=action):
        return request() if description.is_local else _answer_in_time(description, request)


@contextmanager
def translated_answers(description: CatalogDescription, *, action: str) -> Iterator[None]:
    """Translate the errors of the catalog and the store. There is no time limit for reading files."""
    try:
        yield
    except IcebergSparkError:
        raise
    except catalog_errors() as error:
        kind = kind_of(error)
        if kind is None:
            raise
        raise kind.refusal(action, str(description), description.redact(first_line(error))) from None


def open_catalog(description: CatalogDescription) -> Catalog:
    """Return the process's pyiceberg catalog for the description.

    No lock is held while a catalog is loaded, because a silent server would block it. If several threads load the same
    catalog, the first one is kept.
    """
    identity, keys = description.identity, _keys_of(description)
    opened = _catalogs.get(identity)
    if opened is None or opened.keys != keys:
        require_reachable(description)
        loaded = _OpenedCatalog(description, _load(description, keys), keys)
        with _lock:
            _close_gone()
            known = _catalogs.get(identity)
            opened = _catalogs[identity] = loaded if known is None or known.keys != keys else known
    return opened.catalog


def can_commit(description: CatalogDescription) -> bool:
    """Return whether a commit needs no engine. pyiceberg 0.12 reads directories, but does not write them."""
    return not isinstance(open_catalog(description), NoopCatalog)


def _close_gone() -> None:
    """Close catalogs that no longer exist, such as that of an ephemeral instance."""
    for identity, opened in list(_catalogs.items()):
        if opened.description.is_gone:
            del _catalogs[identity]
            opened.catalog.close()


def require_reachable(description: CatalogDescription) -> None:
    """Open and close a connection to the catalog's host, which detects a dead host within seconds."""
    if description.host is None:
        return
    found = ""
    for host in (description.host, *description.other_hosts):
        try:
            socket.create_connection(host, timeout=CONNECT_TIMEOUT_SECONDS).close()
        except OSError as error:
            found = str(error)
        else:
            return
    raise CatalogUnavailableError.refusing(
        "reach",
        str(description),
        expected=f"a server that accepts connections within {CONNECT_TIMEOUT_SECONDS:.0f} s",
        found=found,
        hint="check host and port in the catalog's `uri`, and that the server runs.",
    )


def _require_namespace(description: CatalogDescription, identifier: TableIdentifier) -> None:
    if description.has_flat_namespaces and len(identifier.namespace) > 1:
        raise ConfigurationError.refusing(
            "use",
            str(identifier),
            expected=f"a namespace of one level in the {description}",
            found=f"{len(identifier.namespace)} levels",
            hint="set `namespace` of the IO manager, or `schema` in the asset's metadata, to a name without dots.",
        )


def _load_table(
    description: CatalogDescription,
    identifier: TableIdentifier,
    load: Callable[[Catalog, tuple[str, ...]], LoadedTable] = load_table,
) -> LoadedTable | None:
    catalog = open_catalog(description)
    try:
        return load(catalog, identifier.parts)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except (NoSuchIcebergTableError, NoSuchPropertyException, ValidationError, MetadataValidationError) as error:
        if isinstance(error, ValidationError) and error.errors(include_input=False)[0]["type"] == _NO_JSON:
            raise
        raise _not_iceberg(identifier, description, error) from None


def _state_of(table: Table, identifier: TableIdentifier) -> TableState:
    history = {"snapshots", "metadata_log"}
    document = table.metadata.model_dump(mode="json", by_alias=True, exclude=history)
    by_id = {item.snapshot_id: item for item in table.metadata.snapshots}
    return table_state(document, identifier, Snapshots(by_id, document_of))


def _keys_of(description: CatalogDescription) -> AwsKeys | None:
    if description.aws is None:
        return None
    # Importing boto3 takes a quarter of a second.
    from dagster_iceberg_spark.catalog.aws_credentials import current_keys

    return current_keys(description.aws)


def _load(description: CatalogDescription, keys: AwsKeys | None) -> Catalog:
    properties: dict[str, Any] = dict(description.pyiceberg_properties)
    if description.needs_region:
        from dagster_iceberg_spark.catalog.aws_credentials import region_of

        region = region_of(description)
        names = ("client.region", *(("rest.signing-region",) if description.is_signed else ()))
        properties.update({} if region is None else dict.fromkeys(names, region) | properties)
    if description.aws is not None and description.is_signed:
        from dagster_iceberg_spark.catalog.aws_credentials import session_of

        properties["botocore_session"] = session_of(description.aws)._session  # noqa: SLF001 - pyiceberg asks for it
    if keys is not None and "s3.access-key-id" not in properties:
        properties["s3.access-key-id"] = keys.access_key_id
        properties["s3.secret-access-key"] = keys.secret_access_key
        properties["s3.session-token"] = keys.session_token
    if description.is_hive:
        _require_metastore_client(properties)
    return load_catalog(description.name, **properties)


def _require_metastore_client(properties: Mapping[str, Any]) -> None:
    """Reject a Hive Metastore if the libraries of the extra `hive` are not installed."""
    libraries = {"thrift": "dagster-iceberg-spark[hive]"}
    if properties.get("hive.kerberos-authentication") == "true":
        libraries |= dict.fromkeys(("puresasl", "kerberos"), "pyiceberg[hive-kerberos]")
    for module, package in libraries.items():
        if find_spec(module) is None:
            raise ConfigurationError.missing_package(
                "open", "a Hive Metastore", package=f"that brings `{module}`", install=package
            )


def _answer_in_time(description: CatalogDescription, request: Callable[[], _AnswerT]) -> _AnswerT:
    try:
        return answer_within(ANSWER_TIMEOUT_SECONDS, request, thread_name="iceberg-look")
    except FutureTimeoutError:  # including the timeout of a client
        _catalogs.pop(description.identity, None)  # with connections that still wait for responses
        raise CatalogUnavailableError.refusing(
            "ask",
            str(description),
            expected=f"an answer within {ANSWER_TIMEOUT_SECONDS:.0f} s",
            found="a connection that stays silent",
        ) from None


def _not_iceberg(
    identifier: TableIdentifier, description: CatalogDescription, error: Exception
) -> NotAnIcebergTableError:
    """Describe an invalid response of the catalog. The error itself could reveal credentials in the response."""
    return NotAnIcebergTableError.refusing(
        "use",
        str(identifier),
        expected=f"an Iceberg table in the {description}",
        found=description.redact(first_line(error)),
        hint="choose another name with `iceberg/table`.",
    )


_TABLES = table("iceberg_tables")
_GZIP = b"\x1f\x8b"


def read_pointed_document(catalog: SqlCatalog, identifier: TableIdentifier) -> dict[str, Any] | None:
    """Return the table's metadata document, or None if the catalog has no such table."""
    found = pointed_document(catalog, identifier)
    return None if found is None else found[1]


def pointed_document(catalog: SqlCatalog, identifier: TableIdentifier) -> tuple[str, dict[str, Any]] | None:
    """Return where the table's metadata document is, and the document, or None if the catalog has no such table."""
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
        raise _damage(identifier, location, first_line(error)) from error
    if not isinstance(document, dict):
        raise _damage(identifier, location, f"a {type(document).__name__} in place of a JSON object")
    return location, document


def pointed_location(catalog: Catalog, identifier: TableIdentifier) -> str | None:
    """Return where the table's metadata file is, or None if the catalog cannot say without reading the file."""
    return _pointer(catalog, identifier) if isinstance(catalog, SqlCatalog) else None


def _damage(identifier: TableIdentifier, location: str, found: str) -> IcebergSparkError:
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
    return _location(row)


def _location(row: RowMapping | None) -> str | None:
    # Catalogs of the first schema version have no types and contain only tables.
    if row is None or row.get("iceberg_type") not in (None, "TABLE"):
        return None
    return row["metadata_location"] or None


def _content(catalog: SqlCatalog, location: str) -> bytes:
    with load_file_io(catalog.properties, location).new_input(location).open() as stream:
        return stream.read()

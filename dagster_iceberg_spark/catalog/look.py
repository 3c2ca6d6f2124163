"""The fresh look at a table, through pyiceberg: no JVM, 1 to 30 ms.

A Spark session may answer from its cache, and its metadata tables are queries; pyiceberg reads the catalog's pointer
and the metadata file each time.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchIcebergTableError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.exceptions import ValidationError as MetadataValidationError
from pyiceberg.table import Table
from sqlalchemy.exc import SQLAlchemyError

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.document import Document, Snapshots, is_in_current_form, table_state
from dagster_iceberg_spark.catalog.failures import CATALOG_ERRORS, first_line, rule_for
from dagster_iceberg_spark.catalog.pointer import read_pointed_document
from dagster_iceberg_spark.errors import CatalogUnavailableError, IcebergSparkError, NotAnIcebergTableError
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import TableState

CONNECT_TIMEOUT_SECONDS: Final = 5.0
ANSWER_TIMEOUT_SECONDS: Final = 60.0

_AnswerT = TypeVar("_AnswerT")


@dataclass(slots=True)
class _OpenedCatalog:
    """A catalog of the process; one that stays silent holds up nobody else's."""

    catalog: Catalog | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_catalogs: dict[tuple[object, ...], _OpenedCatalog] = {}
_lock = threading.Lock()


def look(description: CatalogDescription, identifier: TableIdentifier) -> TableState | None:
    """Return the table as it is now; None if it does not exist.

    Raises:
        CatalogUnavailableError: The catalog does not answer in time.
        ConfigurationError: The catalog refuses the credentials, a file must not be read, or the name is not an
            Iceberg table's.
        InvestigationError: The table's metadata file, or the catalog's own, is missing or damaged.
    """

    def read() -> TableState | None:
        catalog = open_catalog(description)
        document = read_pointed_document(catalog, identifier) if isinstance(catalog, SqlCatalog) else None
        if document is None or not is_in_current_form(document):
            table = _load_table(description, identifier)
            return None if table is None else _state_of(table, identifier)
        return table_state(
            document, identifier, Snapshots({item["snapshot-id"]: item for item in document.get("snapshots") or ()})
        )

    try:
        return asked(description, read, action=f"look at {identifier} in")
    except IcebergSparkError:
        raise
    except (KeyError, ValueError) as error:
        raise _not_iceberg(identifier, description, first_line(error)) from error


def find_table(description: CatalogDescription, identifier: TableIdentifier) -> Table | None:
    """Return pyiceberg's table, freshly loaded; None if it does not exist.

    Raises:
        CatalogUnavailableError: The catalog does not answer in time.
        ConfigurationError: The catalog refuses the credentials, a file must not be read, or the name is not an
            Iceberg table's.
        InvestigationError: The table's metadata file, or the catalog's own, is missing or damaged.
    """
    return asked(description, lambda: _load_table(description, identifier), action=f"look at {identifier} in")


def asked(description: CatalogDescription, question: Callable[[], _AnswerT], *, action: str) -> _AnswerT:
    """Ask the catalog, and wait so long as a question of metadata may take.

    Raises:
        CatalogUnavailableError: It does not answer within `ANSWER_TIMEOUT_SECONDS`, or breaks off.
        ConfigurationError: It refuses the credentials, or a file must not be read.
        InvestigationError: A file is missing or damaged.
    """
    with translated_answers(description, action=action):
        return question() if description.host is None else _answer_in_time(description, question)


@contextmanager
def translated_answers(description: CatalogDescription, *, action: str) -> Iterator[None]:
    """Translate what goes wrong with the catalog or the store; files are read for as long as they take.

    Raises:
        CatalogUnavailableError: It breaks off.
        ConfigurationError: It refuses the credentials, or a file must not be read.
        InvestigationError: A file is missing or damaged.
    """
    try:
        yield
    except IcebergSparkError:
        raise
    except CATALOG_ERRORS as error:
        rule = rule_for(error)
        if rule is None:
            raise
        found = description.redact(first_line(error))
        raise rule.error.refusing(
            action, str(description), expected=rule.expected, found=found, hint=rule.hint
        ) from None


def open_catalog(description: CatalogDescription) -> Catalog:
    """Return the process's pyiceberg catalog for that description."""
    with _lock:
        opened = _catalogs.setdefault(description.identity, _OpenedCatalog())
    with opened.lock:
        if opened.catalog is None:
            require_reachable(description)
            opened.catalog = _load(description)
        return opened.catalog


def require_reachable(description: CatalogDescription) -> None:
    """Open and close a connection to the catalog's host, so that a dead one is found in seconds.

    Raises:
        CatalogUnavailableError: Nothing accepts the connection.
    """
    if description.host is None:
        return
    try:
        socket.create_connection(description.host, timeout=CONNECT_TIMEOUT_SECONDS).close()
    except OSError as error:
        raise CatalogUnavailableError.refusing(
            "reach",
            str(description),
            expected=f"a server that accepts connections within {CONNECT_TIMEOUT_SECONDS:.0f} s",
            found=str(error),
            hint="check host and port in the catalog's `uri`, and that the server runs.",
        ) from None


def _load_table(description: CatalogDescription, identifier: TableIdentifier) -> Table | None:
    try:
        return open_catalog(description).load_table(identifier.parts)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except NoSuchIcebergTableError as error:
        raise _not_iceberg(identifier, description, str(error)) from error
    except (ValidationError, MetadataValidationError) as error:
        raise _not_iceberg(identifier, description, first_line(error)) from error


def _state_of(table: Table, identifier: TableIdentifier) -> TableState:
    def documented(item: BaseModel) -> Document:
        return item.model_dump(mode="json", by_alias=True)

    history = {"snapshots", "snapshot_log", "metadata_log"}
    document = table.metadata.model_dump(mode="json", by_alias=True, exclude=history)
    by_id = {item.snapshot_id: item for item in table.metadata.snapshots}
    return table_state(document, identifier, Snapshots(by_id, documented))


def _load(description: CatalogDescription) -> Catalog:
    properties: dict[str, Any] = dict(description.pyiceberg_properties)
    try:
        return load_catalog(description.name, **properties)
    except SQLAlchemyError:
        # Two processes that open a new SQL catalog at once both create its tables; the second finds them.
        return load_catalog(description.name, **properties)


def _answer_in_time(description: CatalogDescription, question: Callable[[], _AnswerT]) -> _AnswerT:
    answer: Future[_AnswerT] = Future()

    def ask() -> None:
        try:
            answer.set_result(question())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that asked
            answer.set_exception(error)

    # A daemon, so that a server that stays silent does not keep the process from ending.
    threading.Thread(target=ask, name="iceberg-look", daemon=True).start()
    try:
        return answer.result(timeout=ANSWER_TIMEOUT_SECONDS)
    except FutureTimeoutError:
        raise CatalogUnavailableError.refusing(
            "ask",
            str(description),
            expected=f"an answer within {ANSWER_TIMEOUT_SECONDS:.0f} s",
            found="a connection that stays silent",
        ) from None


def _not_iceberg(identifier: TableIdentifier, description: CatalogDescription, found: str) -> NotAnIcebergTableError:
    return NotAnIcebergTableError.refusing(
        "use",
        str(identifier),
        expected=f"an Iceberg table in the {description}",
        found=description.redact(found),
        hint="choose another name with `iceberg/table`.",
    )

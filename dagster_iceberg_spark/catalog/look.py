"""The fresh look at a table, through pyiceberg: no JVM, 1 to 30 ms.

A Spark session may answer from its cache, and its metadata tables are queries; pyiceberg reads the catalog's pointer
and the metadata file each time.
"""

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    ForbiddenError,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    UnauthorizedError,
)
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.partitioning import PartitionSpec as PyIcebergSpec
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.table.sorting import SortField as PyIcebergSortField
from pyiceberg.types import PrimitiveType as PyIcebergPrimitive
from sqlalchemy.exc import SQLAlchemyError

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.values import bounds_of_value, python_value
from dagster_iceberg_spark.errors import (
    CatalogUnavailableError,
    ConfigurationError,
    IcebergSparkError,
    NotAnIcebergTableError,
)
from dagster_iceberg_spark.plan.coverage import ColumnBounds, DataFile
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.ordering import SortField
from dagster_iceberg_spark.table.partitioning import PartitionField, PartitionSpec, parse_transform
from dagster_iceberg_spark.table.schema import Schema, parse_schema
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

CONNECT_TIMEOUT_SECONDS: Final = 5.0
ANSWER_TIMEOUT_SECONDS: Final = 60.0

_AnswerT = TypeVar("_AnswerT")

_REFUSED_LOGINS: Final = ("password authentication failed", "no password supplied")
"""What PostgreSQL's client says: a connection that never was has no SQL state."""


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
        ConfigurationError: The catalog refuses the credentials, or the name is not an Iceberg table's.
    """
    table = find_table(description, identifier)
    return None if table is None else state_of(table, identifier)


def find_table(description: CatalogDescription, identifier: TableIdentifier) -> Table | None:
    """Return pyiceberg's table, freshly loaded; None if it does not exist.

    Raises:
        CatalogUnavailableError: The catalog does not answer in time.
        ConfigurationError: The catalog refuses the credentials, or the name is not an Iceberg table's.
    """

    def load() -> Table | None:
        try:
            return open_catalog(description).load_table(identifier.parts)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except NoSuchIcebergTableError as error:
            raise _not_iceberg(identifier, description, str(error)) from error
        except ValidationError as error:
            raise _not_iceberg(identifier, description, _first_line(error)) from error

    return asked(description, load, action=f"look at {identifier} in")


def asked(description: CatalogDescription, question: Callable[[], _AnswerT], *, action: str) -> _AnswerT:
    """Ask the catalog, and wait so long as a question of metadata may take.

    Raises:
        CatalogUnavailableError: It does not answer within `ANSWER_TIMEOUT_SECONDS`, or breaks off.
        ConfigurationError: It refuses the credentials.
    """
    with translated_answers(description, action=action):
        return question() if description.host is None else _answer_in_time(description, question)


@contextmanager
def translated_answers(description: CatalogDescription, *, action: str) -> Iterator[None]:
    """Translate what goes wrong with the catalog or the store; files are read for as long as they take.

    Raises:
        CatalogUnavailableError: It breaks off.
        ConfigurationError: It refuses the credentials.
    """
    try:
        yield
    except IcebergSparkError:
        raise
    except (UnauthorizedError, ForbiddenError, AuthorizationExpiredError, OAuthError) as error:
        raise _unauthorised(description, error, action=action) from None
    except (SQLAlchemyError, RESTError, OSError) as error:
        if any(words in str(error) for words in _REFUSED_LOGINS):
            raise _unauthorised(description, error, action=action) from None
        raise CatalogUnavailableError.refusing(
            action, str(description), expected="an answer", found=description.redact(_first_line(error))
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


def state_of(table: Table, identifier: TableIdentifier) -> TableState:
    """Return the vocabulary's form of pyiceberg's table."""
    metadata = table.metadata
    schemas = {item.schema_id: _schema(item) for item in metadata.schemas}
    current = schemas[metadata.current_schema_id]
    return TableState(
        identifier=identifier,
        location=metadata.location,
        format_version=metadata.format_version,
        schema=current,
        specs={spec.spec_id: _spec(spec, schemas.values(), current) for spec in metadata.partition_specs},
        default_spec_id=metadata.default_spec_id,
        properties=dict(metadata.properties),
        snapshots=_Snapshots(metadata.snapshots),
        refs={name: ref.snapshot_id for name, ref in metadata.refs.items()},
        schemas=schemas,
        identifier_fields=tuple(sorted(table.schema().identifier_field_names())),
        sort_order=tuple(_sort_field(item, current) for item in table.sort_order().fields),
    )


def data_files(
    description: CatalogDescription, table: Table, snapshot_id: int, columns: Iterable[str]
) -> tuple[DataFile, ...]:
    """Return the bounds of those columns in every data file of the snapshot, from the manifests alone.

    Args:
        description: The catalog.
        table: As `find_table` returned it.
        snapshot_id: One of its snapshots.
        columns: The columns.

    Raises:
        CatalogUnavailableError: The store does not answer.
    """

    def listed() -> Iterator[ManifestDataFile]:
        yield from (task.file for task in table.scan(snapshot_id=snapshot_id).plan_files())

    return _described_files(description, table, columns, listed())


def added_files(
    description: CatalogDescription, table: Table, snapshot_id: int, columns: Iterable[str]
) -> tuple[DataFile, ...]:
    """Return the data files that the snapshot added, from its own manifests alone.

    Args:
        description: The catalog.
        table: As `find_table` returned it.
        snapshot_id: One of its snapshots.
        columns: The columns whose bounds are wanted.

    Raises:
        CatalogUnavailableError: The store does not answer.
    """

    def listed() -> Iterator[ManifestDataFile]:
        snapshot = table.snapshot_by_id(snapshot_id)
        for manifest in () if snapshot is None else snapshot.manifests(table.io):
            if manifest.added_snapshot_id == snapshot_id:
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                    if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot_id:
                        yield entry.data_file

    return _described_files(description, table, columns, listed())


class _Snapshots(Mapping[int, Snapshot]):
    """Snapshots by id, each put into words when it is asked for: a look needs few of a long history."""

    def __init__(self, snapshots: Iterable[Any]) -> None:
        self._by_id = {item.snapshot_id: item for item in snapshots}

    def __getitem__(self, snapshot_id: int) -> Snapshot:
        return _snapshot(self._by_id[snapshot_id])

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)


def _described_files(
    description: CatalogDescription, table: Table, columns: Iterable[str], listed: Iterable[ManifestDataFile]
) -> tuple[DataFile, ...]:
    wanted, specs, schema = tuple(columns), table.metadata.specs(), table.schema()
    with translated_answers(description, action=f"read the manifests of {'.'.join(table.name())} in"):
        return tuple(_data_file(file, specs[file.spec_id], schema, wanted) for file in listed)


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


def _unauthorised(description: CatalogDescription, error: BaseException, *, action: str) -> ConfigurationError:
    return ConfigurationError.refusing(
        action,
        str(description),
        expected="credentials that it accepts",
        found=description.redact(_first_line(error)),
        hint="check the catalog's credentials in the resource configuration.",
    )


def _not_iceberg(identifier: TableIdentifier, description: CatalogDescription, found: str) -> NotAnIcebergTableError:
    return NotAnIcebergTableError.refusing(
        "use",
        str(identifier),
        expected=f"an Iceberg table in the {description}",
        found=description.redact(found),
        hint="choose another name with `iceberg/table`.",
    )


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _schema(schema: Any) -> Schema:
    return parse_schema(schema.model_dump(by_alias=True, mode="json"))


def _spec(spec: PyIcebergSpec, schemas: Iterable[Schema], current: Schema) -> PartitionSpec:
    candidates = (current, *schemas)
    return PartitionSpec(
        tuple(
            PartitionField(
                column=next((name for schema in candidates if (name := schema.name_of(field.source_id))), "?"),
                transform=parse_transform(str(field.transform)),
                name=field.name,
            )
            for field in spec.fields
        ),
        spec.spec_id,
    )


def _sort_field(field: PyIcebergSortField, schema: Schema) -> SortField:
    column = schema.name_of(field.source_id) or "?"
    transform = str(field.transform)
    return SortField(
        column if transform == "identity" else f"{transform}({column})",
        "asc" if field.direction is SortDirection.ASC else "desc",
        "first" if field.null_order is NullOrder.NULLS_FIRST else "last",
    )


def _snapshot(snapshot: Any) -> Snapshot:
    summary = snapshot.summary
    return Snapshot(
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=snapshot.parent_snapshot_id,
        committed_at_ms=snapshot.timestamp_ms,
        operation=summary.operation.value if summary else "unknown",
        summary=dict(summary.additional_properties) if summary else {},
        schema_id=snapshot.schema_id,
    )


def _data_file(file: ManifestDataFile, spec: PyIcebergSpec, schema: Any, columns: tuple[str, ...]) -> DataFile:
    return DataFile(
        path=file.file_path,
        bounds={column: _column_bounds(file, spec, schema.find_field(column)) for column in columns},
        rows=file.record_count,
    )


def _column_bounds(file: ManifestDataFile, spec: PyIcebergSpec, field: Any) -> ColumnBounds:
    """Return what metrics and partition values together say: the tighter of both bounds."""
    lower = _metric(file.lower_bounds, field)
    upper = _metric(file.upper_bounds, field)
    nulls: Mapping[int, int] = file.null_value_counts or {}
    may_hold_null = not field.required and nulls.get(field.field_id, 1) > 0
    for low, high in _partition_bounds(file, spec, field):
        lower = low if lower is None else max(lower, low)
        upper = high if upper is None else min(upper, high)
        may_hold_null = False
    return ColumnBounds(lower=lower, upper=upper, may_hold_null=may_hold_null)


def _metric(bounds: Mapping[int, bytes] | None, field: Any) -> Any:
    if not bounds or field.field_id not in bounds or not isinstance(field.field_type, PyIcebergPrimitive):
        return None
    return python_value(from_bytes(field.field_type, bounds[field.field_id]), field.field_type)


def _partition_bounds(file: ManifestDataFile, spec: PyIcebergSpec, field: Any) -> Iterator[tuple[Any, Any]]:
    for position, partition_field in enumerate(spec.fields):
        value = file.partition[position]
        if partition_field.source_id == field.field_id and value is not None:
            bounds = bounds_of_value(parse_transform(str(partition_field.transform)), value, field.field_type)
            if bounds is not None:
                yield bounds

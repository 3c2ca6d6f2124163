"""The database of a DuckLake's metadata, by Python's DB-API. DuckDB itself is needed only for a database of its own.

A change is one transaction of a few milliseconds. It takes the database's lock for writers first, so that it waits for
another writer instead of failing.
"""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from dagster_iceberg_spark.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    ConfigurationError,
    IcebergSparkError,
)
from dagster_iceberg_spark.features.mirror.plan import AUTHOR, RECORD_TAG, Column, MirroredObject, MirrorRecord
from dagster_iceberg_spark.features.mirror.table_mirror import DatabaseKind, DuckLake
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.timeouts import CLIENT_CONNECT_TIMEOUT_SECONDS, MIRROR_LOCK_SECONDS

_ROWS_AT_ONCE: Final = 200
_EXTRA: Final = {"duckdb": "ducklake", "psycopg2": "postgres"}
_MODULES: Final[dict[DatabaseKind, str]] = {"sqlite": "sqlite3", "duckdb": "duckdb", "postgresql": "psycopg2"}
_BEGIN: Final[dict[DatabaseKind, tuple[str, ...]]] = {
    "sqlite": ("BEGIN IMMEDIATE",),
    "duckdb": ("BEGIN",),
    "postgresql": ("BEGIN", "LOCK TABLE ducklake_snapshot IN SHARE ROW EXCLUSIVE MODE"),
}
_CONFLICTS: Final = frozenset(
    {
        "ConstraintException",  # DuckDB: another writer has taken the id of the snapshot
        "DeadlockDetected",
        "IntegrityError",
        "SerializationFailure",
        "TransactionException",
        "UniqueViolation",
    }
)
"""The names of the drivers' errors for a change that another writer has overtaken."""
_LOCKED: Final = ("database is locked", "Could not set lock", "file handle conflict", "already exists")
LOCK_POLL_SECONDS: Final = 0.1
"""Between two looks whether another process has released a lock."""
_TABLES: Final = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'ducklake_metadata'"
_SQLITE_TABLES: Final = "SELECT count(*) FROM sqlite_master WHERE name = 'ducklake_metadata'"


@dataclass(frozen=True, slots=True)
class Database:
    """An open connection to the database of a DuckLake."""

    lake: DuckLake
    cursor: Any

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query, whose parameters are question marks."""
        self.execute(sql, *parameters)
        with translating(self.lake, action="read"):
            return list(self.cursor.fetchall())

    def execute(self, sql: str, *parameters: Any) -> None:
        """Execute a statement, whose parameters are question marks."""
        with translating(self.lake, action="use"):
            self.cursor.execute(sql.replace("?", "%s") if self.lake.kind == "postgresql" else sql, parameters)

    def insert(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert rows, all of which have the same columns. The others are NULL."""
        remaining = iter(rows)
        while batch := list(islice(remaining, _ROWS_AT_ONCE)):
            marks = f"({', '.join('?' * len(batch[0]))})"
            self.execute(
                f"INSERT INTO {table} ({', '.join(batch[0])}) VALUES {', '.join([marks] * len(batch))}",
                *(value for row in batch for value in row.values()),
            )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what the block changes, or nothing if an error leaves the block."""
        for statement in _BEGIN[self.lake.kind]:
            self.execute(statement)
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    @property
    def has_ducklake(self) -> bool:
        """Whether the database has the tables of a DuckLake."""
        return bool(self.rows(_SQLITE_TABLES if self.lake.kind == "sqlite" else _TABLES)[0][0])

    def _roll_back(self) -> None:
        """Roll back, unless the database has done so already or is gone."""
        try:
            self.execute("ROLLBACK")
        except IcebergSparkError:
            return


@contextmanager
def open_database(lake: DuckLake) -> Iterator[Database]:
    """Yield a connection to the database of a DuckLake. The file of SQLite or DuckDB must exist."""
    with translating(lake, action="open"):
        connection = _connection(lake)
    with closing(connection):
        # A cursor of DuckDB is another connection, with transactions of its own.
        yield Database(lake, connection if lake.kind == "duckdb" else connection.cursor())


@contextmanager
def translating(lake: DuckLake, *, action: str) -> Iterator[None]:
    """Translate the errors of the database's driver."""
    try:
        yield
    except IcebergSparkError:
        raise
    except _driver_errors(lake) as error:
        found = lake.redact(" ".join(str(error).split()))
        if type(error).__name__ in _CONFLICTS:
            raise CommitConflictError.refusing(
                action, f"the {lake}", expected="no other writer to change it at the same time", found=found
            ) from None
        raise CatalogUnavailableError.refusing(
            action,
            f"the {lake}",
            expected=f"a database that answers, and no lock for longer than {MIRROR_LOCK_SECONDS:.0f} s",
            found=found,
            hint="check `catalog` of the mirror, and who uses its database.",
        ) from None


def _driver_errors(lake: DuckLake) -> type[Exception]:
    error: type[Exception] = import_module(_MODULES[lake.kind]).Error
    return error


def _connection(lake: DuckLake) -> Any:
    module = _MODULES[lake.kind]
    try:
        driver = import_module(module)
    except ImportError as error:
        raise ConfigurationError.missing_package(
            "open", f"the {lake}", package=f"`{module}`", install=f"dagster-iceberg-spark[{_EXTRA[module]}]"
        ) from error
    if lake.kind == "postgresql":
        options = f"-c lock_timeout={int(MIRROR_LOCK_SECONDS * 1000)}"
        connection = driver.connect(lake.address, connect_timeout=CLIENT_CONNECT_TIMEOUT_SECONDS, options=options)
        connection.autocommit = True
        return connection
    if lake.kind == "sqlite":
        uri = f"{Path(lake.address).absolute().as_uri()}?mode=rw"
        return sqlite3.connect(uri, uri=True, timeout=MIRROR_LOCK_SECONDS, isolation_level=None)
    return _duckdb_connection(driver, lake)


def _duckdb_connection(duckdb: Any, lake: DuckLake) -> Any:
    """Open the file of DuckDB, which only one process can have open at a time."""
    deadline = time.monotonic() + MIRROR_LOCK_SECONDS
    while True:
        try:
            return duckdb.connect(lake.address)
        except duckdb.Error as error:
            if not is_locked(str(error)) or time.monotonic() > deadline:
                raise
            time.sleep(LOCK_POLL_SECONDS)


def is_locked(message: str) -> bool:
    """Return whether an error of DuckDB or SQLite is about a database that another process is using."""
    return any(words in message for words in _LOCKED)


_VALUES_AT_ONCE: Final = 500
_ValueT = TypeVar("_ValueT")

# DuckDB ignores the case of names.
_OBJECT: Final = """
SELECT '{kind}', o.{kind}_id, t.value, t.begin_snapshot
FROM ducklake_schema s
JOIN ducklake_{kind} o ON o.schema_id = s.schema_id AND o.end_snapshot IS NULL
LEFT JOIN ducklake_tag t ON t.object_id = o.{kind}_id AND t.key = ? AND t.end_snapshot IS NULL
WHERE lower(s.schema_name) = lower(?) AND s.end_snapshot IS NULL AND lower(o.{kind}_name) = lower(?)
"""
_BOTH_KINDS: Final = f"{_OBJECT.format(kind='table')} UNION ALL {_OBJECT.format(kind='view')}"


def find_object(database: Database, name: TableIdentifier) -> MirroredObject | None:
    """Return the view or the table of a name, or None if the name is free."""
    wanted = (RECORD_TAG, ".".join(name.namespace), name.name)
    for kind, object_id, value, begin in database.rows(_BOTH_KINDS, *wanted, *wanted):
        record = None if value is None else MirrorRecord.parse(value)
        return MirroredObject(int(object_id), kind, record, None if begin is None else int(begin))
    return None


def columns_of(database: Database, table_id: int) -> tuple[Column, ...]:
    """Return the columns of a table, each before the fields inside of it."""
    rows = database.rows(
        "SELECT column_id, column_name, column_type, parent_column, nulls_allowed, initial_default "
        "FROM ducklake_column WHERE table_id = ? AND end_snapshot IS NULL ORDER BY column_order",
        table_id,
    )
    return tuple(
        Column(int(column_id), name, kind, None if parent is None else int(parent), bool(nulls), default)
        for column_id, name, kind, parent, nulls, default in rows
    )


def partition_of(database: Database, table_id: int) -> tuple[int | None, tuple[int, ...]]:
    """Return the id of the partitioning of a table's new files, or None, and the columns that partition them."""
    rows = database.rows(
        "SELECT i.partition_id, c.column_id FROM ducklake_partition_info i JOIN ducklake_partition_column c "
        "ON c.partition_id = i.partition_id AND c.table_id = i.table_id "
        "WHERE i.table_id = ? AND i.end_snapshot IS NULL ORDER BY c.partition_key_index",
        table_id,
    )
    return (int(rows[0][0]) if rows else None), tuple(int(column_id) for _, column_id in rows)


def data_files_of(database: Database, table_id: int) -> dict[str, int]:
    """Return the ids of a table's data files by path."""
    rows = database.rows(
        "SELECT path, data_file_id FROM ducklake_data_file WHERE table_id = ? AND end_snapshot IS NULL", table_id
    )
    return {path: int(file_id) for path, file_id in rows}


def delete_files_of(database: Database, table_id: int) -> dict[str, int]:
    """Return the ids of a table's data files that have deletes, by the path of the delete file."""
    rows = database.rows(
        "SELECT path, data_file_id FROM ducklake_delete_file WHERE table_id = ? AND end_snapshot IS NULL", table_id
    )
    return {path: int(file_id) for path, file_id in rows}


def ids_of_files(database: Database, table_id: int, paths: Iterable[str]) -> dict[str, int]:
    """Return the ids of these data files by path. Those that the table does not have are left out."""
    found: dict[str, int] = {}
    for batch in batches(paths):
        rows = database.rows(
            "SELECT path, data_file_id FROM ducklake_data_file WHERE table_id = ? AND end_snapshot IS NULL "
            f"AND path IN ({', '.join('?' * len(batch))})",
            table_id,
            *batch,
        )
        found.update({path: int(file_id) for path, file_id in rows})
    return found


def excludes_compaction(database: Database, table_id: int) -> bool:
    """Return whether DuckLake's compaction of the whole DuckLake leaves a table out."""
    rows = database.rows(
        "SELECT value FROM ducklake_metadata WHERE key = 'auto_compact' AND scope = 'table' AND scope_id = ?", table_id
    )
    return [value for (value,) in rows] == ["false"]


def scheduled_files(database: Database, data_path: str) -> list[str]:
    """Return the files that DuckLake is about to delete although they are not below its own data path."""
    own = f"{data_path.rstrip('/')}/"
    rows = database.rows("SELECT path, path_is_relative FROM ducklake_files_scheduled_for_deletion")
    return sorted(path for path, is_relative in rows if not is_relative and not path.startswith(own))


def changed_by_others(database: Database, known: MirroredObject) -> int | None:
    """Return the first DuckLake snapshot in which another writer has changed a mirror, or None."""
    rows = database.rows(
        "SELECT snapshot_id, changes_made FROM ducklake_snapshot_changes WHERE snapshot_id > ? "
        "AND (author IS NULL OR author <> ?) ORDER BY snapshot_id",
        known.recorded_at or 0,
        AUTHOR,
    )
    suffix = f":{known.object_id}"
    changed = (int(snapshot) for snapshot, made in rows if any(item.endswith(suffix) for item in made.split(",")))
    return next(changed, None)


def batches(values: Iterable[_ValueT]) -> Iterator[list[_ValueT]]:
    """Yield the values in lists that are short enough for one statement."""
    remaining = iter(values)
    while batch := list(islice(remaining, _VALUES_AT_ONCE)):
        yield batch

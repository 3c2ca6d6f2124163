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
from typing import Any, Final

from dagster_iceberg_spark.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    ConfigurationError,
    IcebergSparkError,
)
from dagster_iceberg_spark.features.mirror.table_mirror import DatabaseKind, DuckLake
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
        with translated(self.lake, action="read"):
            return list(self.cursor.fetchall())

    def execute(self, sql: str, *parameters: Any) -> None:
        """Execute a statement, whose parameters are question marks."""
        with translated(self.lake, action="use"):
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
def opened(lake: DuckLake) -> Iterator[Database]:
    """Yield a connection to the database of a DuckLake. The file of SQLite or DuckDB must exist.

    Raises:
        ConfigurationError: The database cannot be opened.
        CatalogUnavailableError: It does not answer, or another process keeps its lock.
    """
    with translated(lake, action="open"):
        connection = _connection(lake)
    with closing(connection):
        # A cursor of DuckDB is another connection, with transactions of its own.
        yield Database(lake, connection if lake.kind == "duckdb" else connection.cursor())


@contextmanager
def translated(lake: DuckLake, *, action: str) -> Iterator[None]:
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

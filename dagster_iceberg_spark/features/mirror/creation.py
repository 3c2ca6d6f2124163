"""Creates a DuckLake, and checks one that exists, with DuckDB and extensions from Python packages.

The packages are those of the extra `ducklake`. Nothing is downloaded.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.mirror.database import LOCK_POLL_SECONDS, Database, is_locked, open_database
from dagster_iceberg_spark.features.mirror.plan import quoted_name, text_literal
from dagster_iceberg_spark.features.mirror.table_mirror import FORMAT_VERSION, DatabaseKind, DuckLake
from dagster_iceberg_spark.timeouts import MIRROR_LOCK_SECONDS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_EXTENSIONS: Final[dict[DatabaseKind, tuple[str, ...]]] = {
    "sqlite": ("sqlite", "ducklake"),
    "duckdb": ("ducklake",),
    "postgresql": ("postgres", "ducklake"),
}
_PREFIXES: Final[dict[DatabaseKind, str]] = {"sqlite": "sqlite:", "duckdb": "", "postgresql": "postgres:"}


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """The options of a DuckLake that exists: the directory of its own files, and whether these are encrypted."""

    data_path: str
    is_encrypted: bool


@contextmanager
def opened_ducklake(lake: DuckLake) -> Iterator[tuple[Database, LakeOptions]]:
    """Yield the database of a DuckLake, which is created first if it does not exist."""
    with ExitStack() as stack:
        database = stack.enter_context(open_database(lake)) if lake.may_exist else None
        if database is None or not database.has_ducklake:
            stack.close()
            _create(lake)
            database = stack.enter_context(open_database(lake))
        yield database, options_of(database)


@contextmanager
def attach_ducklake(lake: DuckLake, *, name: str) -> "Iterator[DuckDBPyConnection]":
    """Yield a DuckDB in memory that has a DuckLake attached under a name, to read it.

    Raises:
        ConfigurationError: The extra `ducklake` is not installed, or there is no DuckLake.
    """
    with duckdb_with("avro", "iceberg", "httpfs", *_EXTENSIONS[lake.kind]) as connection:
        import duckdb

        try:
            connection.execute(f"ATTACH {text_literal(attached_name(lake))} AS {quoted_name(name)} (READ_ONLY)")
        except duckdb.Error as error:
            raise ConfigurationError.refusing(
                "attach", f"the {lake}", expected="a DuckLake", found=lake.redact(" ".join(str(error).split()))
            ) from None
        yield connection


def _create(lake: DuckLake) -> None:
    data_path = lake.data_path or (f"{lake.address}.files" if lake.kind != "postgresql" else None)
    if data_path is None:
        raise ConfigurationError.refusing(
            "create", f"the {lake}", expected="`data_path` of the mirror, the directory of its own files", found="none"
        )
    if lake.kind != "postgresql":
        _make_directory(lake, Path(lake.address).parent)
    if not urlsplit(data_path).scheme:
        _make_directory(lake, Path(data_path))
    attach = f"ATTACH {text_literal(attached_name(lake))} AS lake (DATA_PATH {text_literal(data_path)}"
    attach += ", ENCRYPTED)" if lake.is_encrypted else ")"
    deadline = time.monotonic() + MIRROR_LOCK_SECONDS
    while not _is_created(lake, attach, is_last=time.monotonic() > deadline):
        time.sleep(LOCK_POLL_SECONDS)


def _is_created(lake: DuckLake, attach: str, *, is_last: bool) -> bool:
    """Create a DuckLake. Return false if another process is creating it, unless this is the last attempt."""
    import duckdb

    with duckdb_with("httpfs", *_EXTENSIONS[lake.kind]) as connection:  # DuckLake checks the scheme of its data path
        try:
            connection.execute(attach)
        except duckdb.Error as error:
            found = lake.redact(" ".join(str(error).split()))
        else:
            return True
    if _exists(lake):
        return True
    if is_locked(found) and not is_last:
        return False
    raise ConfigurationError.refusing(
        "create", f"the {lake}", expected="a database in which DuckDB can create its tables", found=found
    )


def _exists(lake: DuckLake) -> bool:
    if not lake.may_exist:
        return False
    with open_database(lake) as database:
        return database.has_ducklake


def attached_name(lake: DuckLake) -> str:
    """Return the name by which DuckDB attaches a DuckLake. It may hold a password."""
    if lake.kind != "postgresql":
        return f"ducklake:{_PREFIXES[lake.kind]}{lake.address}"
    from psycopg2.extensions import make_dsn, parse_dsn

    return f"ducklake:{_PREFIXES[lake.kind]}{make_dsn(**parse_dsn(lake.address))}"


def _make_directory(lake: DuckLake, directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError.refusing(
            "create", f"the {lake}", expected=f"a directory {directory} that exists or can be created", found=str(error)
        ) from error


def options_of(database: Database) -> LakeOptions:
    """Return the options of a DuckLake that exists.

    Raises:
        ConfigurationError: It has another version, or its own files are elsewhere.
    """
    lake = database.lake
    refused = partial(ConfigurationError.refusing, "use", f"the {lake}")
    known = {
        str(key): str(value)
        for key, value in database.rows("SELECT key, value FROM ducklake_metadata WHERE scope IS NULL")
    }
    if known.get("version") != FORMAT_VERSION:
        raise refused(
            expected=f"version {FORMAT_VERSION} of DuckLake's format",
            found=repr(known.get("version")),
            hint="create another DuckLake with the DuckDB of the extra `ducklake`.",
        )
    found = known.get("data_path", "")
    if lake.data_path is not None and _directory(found) != _directory(lake.data_path):
        raise refused(
            expected=f"its own `data_path`, {found}",
            found=lake.data_path,
            hint="correct `data_path` of the mirror, or leave it out.",
        )
    return LakeOptions(found, known.get("encrypted") == "true")


def _directory(path: str) -> str:
    absolute = path if urlsplit(path).scheme else str(Path(path).absolute())
    return absolute.rstrip("/")


_OFFLINE: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_REGISTERED: Final = {"sqlite": "sqlite_scanner", "postgres": "postgres_scanner"}
"""DuckDB loads an extension by the name of its file, which differs from the name in the package."""


@contextmanager
def duckdb_with(*extensions: str) -> Iterator["DuckDBPyConnection"]:
    """Yield a DuckDB in memory with these extensions, such as `iceberg` (which needs `avro`)."""
    try:
        import duckdb
    except ImportError as error:
        raise _missing("duckdb") from error
    with duckdb.connect(config=_OFFLINE) as connection, tempfile.TemporaryDirectory() as directory:
        for name in extensions:
            link = Path(directory) / f"{_REGISTERED.get(name, name)}.duckdb_extension"
            link.symlink_to(_file_of(name))
            try:
                connection.load_extension(str(link))
            except duckdb.Error as error:
                raise _missing(f"duckdb-extension-{name}", found=str(error)) from error
        yield connection


def _file_of(extension: str) -> Path:
    spec = find_spec(f"duckdb_extension_{extension}")
    for place in () if spec is None else spec.submodule_search_locations or ():
        for file in Path(place).glob("extensions/*/*.duckdb_extension"):
            return file
    raise _missing(f"duckdb-extension-{extension}")


def _missing(package: str, found: str = "none") -> ConfigurationError:
    return ConfigurationError.missing_package(
        "use", "a DuckLake", package=f"`{package}`", found=found, install="dagster-iceberg-spark[ducklake]"
    )

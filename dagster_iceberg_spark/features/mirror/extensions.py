"""DuckDB with extensions from the Python packages of the extra `ducklake`. Nothing is downloaded."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dagster_iceberg_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_OFFLINE: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_REGISTERED: Final = {"sqlite": "sqlite_scanner", "postgres": "postgres_scanner"}
"""DuckDB loads an extension by the name of its file, which differs from the name in the package."""


@contextmanager
def duckdb_with(*extensions: str) -> Iterator["DuckDBPyConnection"]:
    """Yield a DuckDB in memory with these extensions, such as `iceberg` (which needs `avro`).

    Raises:
        ConfigurationError: The extra `ducklake` is not installed.
    """
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

"""A lake without an engine: pyiceberg writes its tables."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from dagster_iceberg_spark import SqlCatalog
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import open_catalog
from dagster_iceberg_spark.features.mirror.creation import attached_name, duckdb_with
from dagster_iceberg_spark.features.mirror.options import Codec, Mirror, MirrorMode
from dagster_iceberg_spark.features.mirror.plan import text_literal
from dagster_iceberg_spark.features.mirror.synchronization import MirrorState, mirror_problems, synchronize
from dagster_iceberg_spark.features.mirror.table_mirror import DuckLake
from dagster_iceberg_spark.table.identifier import TableIdentifier


@dataclass(frozen=True)
class Mirrors:
    """A catalog of Iceberg, and a DuckLake that may mirror its tables."""

    description: CatalogDescription
    lake: DuckLake

    @property
    def catalog(self) -> Catalog:
        return open_catalog(self.description)

    def create(self, name: str, schema: pa.Schema, *, by: str | None = None) -> Table:
        self.catalog.create_namespace_if_not_exists("db")
        table = self.catalog.create_table(f"db.{name}", schema=schema)
        if by is not None:
            with table.update_spec() as update:
                update.add_identity(by)
        return table

    def table(self, name: str) -> Table:
        return self.catalog.load_table(f"db.{name}")

    def mirror(
        self, name: str, mode: MirrorMode = "register", *, shown_as: str | None = None, codec: Codec = "snappy"
    ) -> Mirror:
        return Mirror(TableIdentifier(("db",), shown_as or name), mode, codec)

    def synchronize(self, name: str, mode: MirrorMode = "register", **options: Any) -> MirrorState:
        mirror = self.mirror(name, mode, **options)
        return synchronize(self.lake, mirror, self.description, TableIdentifier(("db",), name))

    def problems(self, name: str, mode: MirrorMode = "register", **options: Any) -> list[str]:
        mirror = self.mirror(name, mode, **options)
        return mirror_problems(self.lake, mirror, self.description, TableIdentifier(("db",), name))

    @contextmanager
    def duckdb(self, *, read_only: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
        with duckdb_with("avro", "iceberg", "sqlite", "ducklake") as connection:
            connection.execute("set timezone = 'UTC'")
            access = "read_only" if read_only else "data_inlining_row_limit 0"
            connection.execute(f"attach {text_literal(attached_name(self.lake))} as m ({access})")
            yield connection

    def shown(self, name: str) -> list[Any]:
        with self.duckdb() as connection:
            return in_order(connection.sql(f"from m.db.{name}").to_arrow_table())

    def query(self, sql: str) -> list[Any]:
        with self.duckdb() as connection:
            return connection.sql(sql).fetchall()

    def written(self, name: str) -> list[Any]:
        return in_order(self.table(name).scan().to_arrow())


def in_order(table: pa.Table) -> list[Any]:
    return sorted(table.to_pylist(), key=repr)


def numbers(*values: int, word: str = "a") -> pa.Table:
    """Rows with a number and a word."""
    return pa.table({"n": pa.array(values, pa.int32()), "word": [word] * len(values)}, schema=NUMBERS)


NUMBERS = pa.schema([pa.field("n", pa.int32()), pa.field("word", pa.string())])


def commits(mirrors: Mirrors) -> Sequence[Any]:
    """The DuckLake snapshots of this package."""
    return mirrors.query("select snapshot_id from m.snapshots() where author = 'dagster_iceberg_spark' order by 1")


@pytest.fixture(params=["sqlite", pytest.param("duckdb", marks=pytest.mark.full)])
def mirrors(request: pytest.FixtureRequest, tmp_path: Path) -> Mirrors:
    return lake_in(tmp_path, kind=request.param)


@pytest.fixture
def sqlite_mirrors(tmp_path: Path) -> Mirrors:
    return lake_in(tmp_path)


def lake_in(directory: Path, *, kind: Any = "sqlite", is_encrypted: bool = False) -> Mirrors:
    catalog = SqlCatalog(uri=f"sqlite:///{directory}/catalog.db", warehouse=str(directory / "warehouse"))
    address = str(directory / "nested" / "mirror.ducklake")
    return Mirrors(catalog.describe(), DuckLake(kind, address, address, str(directory / "files"), is_encrypted))

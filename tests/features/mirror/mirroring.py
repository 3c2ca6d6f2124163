"""Reads tables through a mirror, with DuckDB alone."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import duckdb
import pyarrow as pa

from dagster_iceberg_spark import DuckLakeMirror
from dagster_iceberg_spark.arrow.scan import texts_in, with_texts
from dagster_iceberg_spark.catalog.tables import tables_of
from dagster_iceberg_spark.features.mirror.copies import s3_secret
from dagster_iceberg_spark.features.mirror.creation import attach_ducklake
from dagster_iceberg_spark.features.mirror.options import MirrorMode
from tests.lakes import Lake

DEFAULT_CATALOG: Final = "sqlite:///{directory}/deep/mirror.ducklake"


def mirrored(
    lake: Lake,
    mode: MirrorMode = "register",
    catalog: str = DEFAULT_CATALOG,
    *,
    environment: str | None = None,
    **options: Any,
) -> Lake:
    """Return the lake with an IO manager that mirrors its tables."""
    uri = catalog.format(directory=lake.directory)
    return lake.with_options(mirror=DuckLakeMirror(catalog=uri, mode=mode, **options), environment=environment)


@contextmanager
def duckdb_of(lake: Lake, keys: Mapping[str, str] | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a DuckDB with the mirror of a lake attached as `m`, as somebody else opens it."""
    mirror = lake.io_manager.mirror
    assert isinstance(mirror, DuckLakeMirror)
    with attach_ducklake(mirror.ducklake(), name="m") as connection:
        properties = {**lake.spark.catalog_description.pyiceberg_properties, **(keys or {})}
        if "s3.access-key-id" in properties:
            connection.execute(s3_secret(properties))
        connection.execute("set timezone = 'UTC'")
        yield connection


def shown(lake: Lake, table: str, *, at: int | None = None) -> list[dict[str, Any]]:
    """Return the rows that the mirror shows, sorted by their texts."""
    version = "" if at is None else f" at (version => {at})"
    with duckdb_of(lake) as connection:
        return in_order(connection.sql(f"select * from m.db.{table}{version}").to_arrow_table())


def types_shown(lake: Lake, table: str) -> dict[str, str]:
    with duckdb_of(lake) as connection:
        relation = connection.sql(f"from m.db.{table} limit 0")
        return dict(zip(relation.columns, map(str, relation.types), strict=True))


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=repr)


def state_of(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    state: Mapping[str, Any] = metadata["iceberg/mirror_state"]
    return state


def snapshots(lake: Lake) -> Sequence[tuple[Any, ...]]:
    """Return the DuckLake snapshots that this package has committed: their message and their extra information."""
    with duckdb_of(lake) as connection:
        return connection.sql(
            "select snapshot_id, commit_message, commit_extra_info from m.snapshots() "
            "where author = 'dagster_iceberg_spark' order by 1"
        ).fetchall()


def compare(lake: Lake) -> None:
    """Compare all mirrored tables of a lake. Those that a test has changed without an IO manager are mirrored first."""
    mirror, catalog = lake.io_manager.mirror, lake.spark.catalog_description
    assert isinstance(mirror, DuckLakeMirror)
    for identifier in tables_of(catalog):
        chosen = mirror.mirror_of(identifier, None, subject=str(identifier))
        assert chosen is not None
        state = chosen.synchronize(catalog, identifier)
        if state.snapshot_id is None:
            continue
        written = lake.spark.pyiceberg_catalog.load_table(identifier.parts).scan().to_arrow()
        name = f'm."{".".join(identifier.namespace)}"."{identifier.name}"'
        with duckdb_of(lake) as connection:
            try:
                found = connection.sql(f"from {name}").to_arrow_table()
            except duckdb.InvalidInputException as error:
                if "not valid UTF8" in str(error):  # only Spark reads such texts
                    continue
                raise
        sys.stdout.write(f"{identifier}: {len(found)} rows\n")
        assert repr(in_order(_plain(found))) == repr(in_order(_plain(written))), identifier


def _plain(table: pa.Table) -> pa.Table:
    """Return uuids as texts, and dates as days, because Python has no dates beyond the year 9999."""
    plain = pa.Table.from_batches([with_texts(batch) for batch in table.to_batches()], texts_in(table.schema))
    types = [pa.int32() if field.type == pa.date32() else field.type for field in plain.schema]
    return plain.cast(pa.schema(list(zip(plain.schema.names, types, strict=True))))

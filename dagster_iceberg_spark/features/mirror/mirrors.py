"""Brings the mirrors of a code location's tables up to date by hand."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import dagster as dg

from dagster_iceberg_spark.assets.stored_tables import AssetTable, stored_members, tables_of_assets
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.features.mirror.observer import mirror_observer, mirror_of
from dagster_iceberg_spark.features.mirror.options import Mirror
from dagster_iceberg_spark.features.mirror.table_mirror import TableMirror
from dagster_iceberg_spark.table.identifier import TableIdentifier


@dataclass(frozen=True, slots=True)
class SynchronizedMirror:
    """A mirror that was brought up to date, or not.

    Args:
        table: The Iceberg table.
        mirror: How it is mirrored.
        snapshot_id: The snapshot that the mirror shows, or None if the table has none or the mirror failed.
        has_changed: Whether the mirror was behind.
        error: Why the mirror failed, or None.
    """

    table: TableIdentifier
    mirror: Mirror
    snapshot_id: int | None = None
    has_changed: bool = False
    error: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the mirror for JSON. The snapshot id is a text, because JavaScript would round it."""
        return {
            "table": str(self.table),
            "mirror": str(self.mirror.table),
            "mode": self.mirror.mode,
            "snapshot_id": None if self.snapshot_id is None else str(self.snapshot_id),
            "has_changed": self.has_changed,
            "error": self.error,
        }


def synchronize_mirrors(definitions: dg.Definitions, tables: Collection[str] = ()) -> Iterator[SynchronizedMirror]:
    """Make the mirrors of a code location's tables show their newest snapshots. No Spark session is started.

    Args:
        definitions: The code location.
        tables: The names of the Iceberg tables, or none for all.

    Raises:
        ConfigurationError: The code location has no IO manager of this package.
        MetadataKeyError: A metadata key or its value is invalid.
    """
    with stored_members(definitions, action="mirror the tables of") as members:
        for io_manager in {id(io_manager): io_manager for io_manager, _ in members}.values():
            observer = mirror_observer(io_manager)
            with suppress(IcebergSparkError):  # each of its tables says so
                if observer is not None:
                    observer.mirrors.keep_files()
        for table in tables_of_assets(members, tables):
            for mirror in dict.fromkeys(mirror_of(table.io_manager, spec) for spec in table.specs):
                if mirror is not None:
                    yield _synchronized(table, mirror)


def _synchronized(table: AssetTable, mirror: TableMirror) -> SynchronizedMirror:
    catalog = table.io_manager.spark.catalog_description
    try:
        state = mirror.synchronize(catalog, table.identifier)
    except Exception as error:  # noqa: BLE001 - one mirror must not keep the others back
        return SynchronizedMirror(table.identifier, mirror.mirror, error=mirror.failure_text(error, catalog))
    has_changed = state.ducklake_snapshot_id is not None
    return SynchronizedMirror(table.identifier, mirror.mirror, state.snapshot_id, has_changed)

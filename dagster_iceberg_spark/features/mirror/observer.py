"""Mirrors tables after their rows are committed. A failure of the mirror costs the table nothing."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import dagster as dg

from dagster_iceberg_spark.assets.observers import ObservedTable, Observer
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.errors import IcebergSparkError, MirrorFailedError
from dagster_iceberg_spark.features.mirror.options import MIRROR_STATE, MirrorSettings, mirror_settings
from dagster_iceberg_spark.features.mirror.table_mirror import TableMirror
from dagster_iceberg_spark.table.identifier import TableIdentifier


class Mirrors(Protocol):
    """Where an IO manager mirrors its tables: the configuration of its field `mirror`."""

    def mirror_of(
        self, identifier: TableIdentifier, settings: MirrorSettings | None, *, subject: str
    ) -> TableMirror | None:
        """Return the mirror of a table, or None without one."""

    def keep_files(self) -> None:
        """Keep DuckLake from deleting files that are Iceberg's."""


class MirrorObserver(Observer):
    """Makes the mirrors of tables show their newest snapshots.

    Args:
        mirrors: Where the tables are mirrored.
    """

    def __init__(self, mirrors: Mirrors) -> None:
        self.mirrors = mirrors

    def mirror_of(self, table: ObservedTable) -> TableMirror | None:
        """Return the mirror of a table, or None without one."""
        settings = mirror_settings(table.metadata, subject=table.subject)
        return self.mirrors.mirror_of(table.identifier, settings, subject=table.subject)

    def planned(self, table: ObservedTable) -> None:
        """Refuse settings that the mirror cannot follow."""
        self.mirror_of(table)

    def needed(self, table: ObservedTable) -> Mapping[int, str]:
        """Return the snapshot whose files the mirror shows. A copy has files of its own."""
        mirror = self.mirror_of(table)
        if mirror is None or mirror.mirror.mode == "copy":
            return {}
        try:
            record = mirror.record()
        except IcebergSparkError as error:
            raise type(error)(f"Cannot read what the mirror {mirror.mirror.table} shows. {error}") from error
        return {} if record is None else {record.snapshot_id: f"the mirror {mirror}, which shows it"}

    def moved(
        self, table: ObservedTable, *, report: Callable[[str], None], warn: Callable[[str], None]
    ) -> Mapping[str, Any]:
        """Make the mirror show the newest snapshot. Return what it shows.

        Raises:
            MirrorFailedError: The mirror failed, and its `on_failure` is `error`.
        """
        mirror = self.mirror_of(table)
        if mirror is None:
            return {}
        shown = {"table": str(mirror.mirror.table), "mode": mirror.mirror.mode}
        try:
            state = mirror.synchronize(table.catalog, table.identifier)
        except Exception as error:  # whatever happens to a mirror, the rows are committed
            found = mirror.failure_text(error, table.catalog)
            failure = MirrorFailedError.after_commit(table.identifier, found)
            if mirror.on_failure == "error":
                failure.allows_retries = not isinstance(error, IcebergSparkError) or error.allows_retries
                raise failure from error
            warn(str(failure))
            return {MIRROR_STATE: {**shown, "state": "behind", "error": found}}
        if state.ducklake_snapshot_id is not None:
            report(
                f"Mirrored snapshot {state.snapshot_id} of {table.identifier} in {state.seconds:.2f} s: "
                f"{mirror.mirror.table} ({mirror.mirror.mode}) in the {mirror.lake}, "
                f"DuckLake snapshot {state.ducklake_snapshot_id}."
            )
        known = {"snapshot_id": state.snapshot_id, "ducklake_snapshot_id": state.ducklake_snapshot_id}
        state_of = {
            **shown,
            "state": "current",
            **{key: str(value) for key, value in known.items() if value is not None},
            "seconds": round(state.seconds, 3),
        }
        return {MIRROR_STATE: state_of}


def mirror_observer(io_manager: TableIOManager) -> MirrorObserver | None:
    """Return the observer that mirrors the tables of an IO manager, or None if it has none."""
    return next((each for each in io_manager.observers() if isinstance(each, MirrorObserver)), None)


def mirror_of(io_manager: TableIOManager, spec: dg.AssetSpec) -> TableMirror | None:
    """Return the mirror of an asset's table, or None without one."""
    observer = mirror_observer(io_manager)
    return None if observer is None else observer.mirror_of(io_manager.observed_table(spec))

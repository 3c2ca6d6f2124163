"""The mirrors of assets: asset checks that compare them with their tables, and a way to bring them up to date."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.assets.stored_tables import (
    AssetTable,
    StoredAsset,
    stored_assets_in,
    stored_members,
    tables_of_assets,
)
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager, final_errors
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.features.mirror.config import MirrorObserver
from dagster_iceberg_spark.features.mirror.options import Mirror
from dagster_iceberg_spark.features.mirror.table_mirror import TableMirror
from dagster_iceberg_spark.table.identifier import TableIdentifier


def mirror_observer(io_manager: TableIOManager) -> MirrorObserver | None:
    """Return the observer that mirrors the tables of an IO manager, or None if it has none."""
    return next((each for each in io_manager.observers() if isinstance(each, MirrorObserver)), None)


def mirror_of(io_manager: TableIOManager, spec: dg.AssetSpec) -> TableMirror | None:
    """Return the mirror of an asset's table, or None without one."""
    observer = mirror_observer(io_manager)
    return None if observer is None else observer.mirror_of(io_manager.observed_table(spec))


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
                    yield _synchronize(table, mirror)


def _synchronize(table: AssetTable, mirror: TableMirror) -> SynchronizedMirror:
    catalog = table.io_manager.spark.catalog_description
    try:
        state = mirror.synchronize(catalog, table.identifier)
    except Exception as error:  # noqa: BLE001 - one mirror must not keep the others back
        return SynchronizedMirror(table.identifier, mirror.mirror, error=mirror.failure_text(error, catalog))
    has_changed = state.ducklake_snapshot_id is not None
    return SynchronizedMirror(table.identifier, mirror.mirror, state.snapshot_id, has_changed)


CHECK_NAME: Final = "iceberg_mirror"


def build_mirror_checks(assets: Iterable[dg.AssetsDefinition | dg.AssetSpec]) -> Sequence[dg.AssetChecksDefinition]:
    """Build an asset check for each asset that shows whether its mirror is current.

    A mirror that is behind, or that another writer has changed, is a warning. The check reads metadata and manifests,
    and starts no Spark session.

    Args:
        assets: Assets that an `IcebergPySparkIOManager` with a `mirror` stores.

    Example:
        >>> import dagster as dg
        >>> @dg.asset(io_manager_key="iceberg")
        ... def flights(): ...
        >>> [check.check_key.name for check in build_mirror_checks([flights])]
        ['iceberg_mirror']
    """
    return [_mirror_check(asset) for asset in stored_assets_in(assets)]


def _mirror_check(stored: StoredAsset) -> dg.AssetChecksDefinition:
    @stored.asset_check(CHECK_NAME, "Whether the mirror of the asset's Iceberg table shows its newest snapshot.")
    def iceberg_mirror(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        with final_errors():
            hint = "build mirror checks for assets that it stores only."
            io_manager = stored.io_manager(context.resources, action="check the mirrors of", hint=hint)
            mirror = mirror_of(io_manager, stored.spec)
        if mirror is None:
            return dg.AssetCheckResult(passed=True, description="The table is not mirrored.")
        catalog, identifier = io_manager.spark.catalog_description, io_manager.table_of(stored.spec)
        try:
            problems = mirror.problems(catalog, identifier)
        except IcebergSparkError as error:
            problems = [str(error)]
        return dg.AssetCheckResult(
            passed=not problems,
            severity=dg.AssetCheckSeverity.WARN,
            description=" ".join(problems) or f"{mirror} is current.",
        )

    return iceberg_mirror

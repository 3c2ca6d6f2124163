"""Mirrors a table after its rows are committed. A failure of the mirror costs the table nothing."""

from collections.abc import Callable
from typing import Any

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.config.mirror import DuckLakeMirror
from dagster_iceberg_spark.errors import IcebergSparkError, MirrorFailedError
from dagster_iceberg_spark.plan.mirror_options import Mirror
from dagster_iceberg_spark.table.identifier import TableIdentifier


def mirror_table(
    config: DuckLakeMirror,
    mirror: Mirror,
    catalog: CatalogDescription,
    identifier: TableIdentifier,
    *,
    report: Callable[[str], None],
    warn: Callable[[str], None],
) -> dict[str, Any]:
    """Make the mirror of a table show its newest snapshot. Return what it shows, for a materialization's metadata.

    Raises:
        MirrorFailedError: The mirror failed, and its `on_failure` is `error`.
    """
    lake = config.ducklake()
    shown = {"table": str(mirror.table), "mode": mirror.mode}
    try:
        state = config.synchronize(mirror, catalog, identifier)
    except Exception as error:
        found = str(error) if isinstance(error, IcebergSparkError) else f"{type(error).__name__}: {error}"
        found = lake.redact(catalog.redact(found))
        failure = MirrorFailedError.after_commit(identifier, found)
        if config.on_failure == "error":
            failure.allows_retries = not isinstance(error, IcebergSparkError) or error.allows_retries
            raise failure from error
        warn(str(failure))
        return {**shown, "state": "behind", "error": found}
    if state.ducklake_snapshot_id is not None:
        report(
            f"Mirrored snapshot {state.snapshot_id} of {identifier} in {state.seconds:.2f} s: {mirror.table} "
            f"({mirror.mode}) in the {lake}, DuckLake snapshot {state.ducklake_snapshot_id}."
        )
    known = {"snapshot_id": state.snapshot_id, "ducklake_snapshot_id": state.ducklake_snapshot_id}
    return {
        **shown,
        "state": "current",
        **{key: str(value) for key, value in known.items() if value is not None},
        "seconds": round(state.seconds, 3),
    }

"""Mirrors a table after its rows are committed. A failure of the mirror costs the table nothing."""

from collections.abc import Callable
from typing import Any

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.errors import IcebergSparkError, MirrorFailedError
from dagster_iceberg_spark.mirror.table_mirror import TableMirror
from dagster_iceberg_spark.table.identifier import TableIdentifier


def mirror_table(
    mirror: TableMirror,
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
    shown = {"table": str(mirror.mirror.table), "mode": mirror.mirror.mode}
    try:
        state = mirror.synchronize(catalog, identifier)
    except Exception as error:  # whatever happens to a mirror, the rows are committed
        found = mirror.failure_text(error, catalog)
        failure = MirrorFailedError.after_commit(identifier, found)
        if mirror.on_failure == "error":
            failure.allows_retries = not isinstance(error, IcebergSparkError) or error.allows_retries
            raise failure from error
        warn(str(failure))
        return {**shown, "state": "behind", "error": found}
    if state.ducklake_snapshot_id is not None:
        report(
            f"Mirrored snapshot {state.snapshot_id} of {identifier} in {state.seconds:.2f} s: "
            f"{mirror.mirror.table} ({mirror.mirror.mode}) in the {mirror.lake}, "
            f"DuckLake snapshot {state.ducklake_snapshot_id}."
        )
    known = {"snapshot_id": state.snapshot_id, "ducklake_snapshot_id": state.ducklake_snapshot_id}
    return {
        **shown,
        "state": "current",
        **{key: str(value) for key, value in known.items() if value is not None},
        "seconds": round(state.seconds, 3),
    }

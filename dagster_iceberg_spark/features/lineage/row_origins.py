"""Finds rows, and the snapshots that added their files. No JVM is needed."""

from collections.abc import Mapping
from typing import Any

from pyiceberg.table import Table

from dagster_iceberg_spark.arrow.scan import PlannedScan
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import data_manifests, entries_in
from dagster_iceberg_spark.catalog.look import known_table, translated_answers
from dagster_iceberg_spark.plan.read import ReadPlan


def rows_with_snapshots(
    description: CatalogDescription, plan: ReadPlan, *, limit: int
) -> list[tuple[dict[str, Any], int | None]]:
    """Return rows of a plan, each with the snapshot that added its file, or None if that is not known.

    Args:
        description: The catalog.
        plan: The plan of the read.
        limit: The number of rows after which the search ends.

    Raises:
        CatalogUnavailableError: The catalog or the store does not respond.
    """
    table = known_table(description, plan.identifier, action="read", snapshot_id=plan.snapshot_id)
    found: list[tuple[dict[str, Any], str]] = []
    with translated_answers(description, action=f"read {plan.identifier} from"):
        for path, batch in PlannedScan(table, plan).by_file():
            found += [(row, path) for row in batch.slice(0, limit - len(found)).to_pylist()]
            if len(found) >= limit:
                break
        added_by = _snapshots_of_files(table, plan.snapshot_id) if found else {}
    return [(row, added_by.get(path)) for row, path in found]


def _snapshots_of_files(table: Table, snapshot_id: int | None) -> Mapping[str, int | None]:
    """Return the snapshot that added each data file of a snapshot."""
    snapshot = None if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    manifests = data_manifests(table, snapshot)
    return dict(entries_in(table, manifests, lambda entry: (entry.data_file.file_path, entry.snapshot_id)))

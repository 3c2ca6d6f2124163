"""Reads the summaries of expired snapshots that maintenance has kept. No JVM is needed."""

from collections.abc import Mapping
from typing import Any

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import find_table, translated_answers
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import EXPIRED_SNAPSHOTS_TABLE, FIRST_ROW_ID, SEQUENCE_NUMBER
from dagster_iceberg_spark.table.snapshot import Snapshot


def expired_snapshots(description: CatalogDescription, namespace: tuple[str, ...]) -> Mapping[str, list[Snapshot]]:
    """Return the expired snapshots of a namespace's tables by the uuid of the table.

    Raises:
        CatalogUnavailableError: The catalog or the store does not respond.
    """
    identifier = TableIdentifier(namespace, EXPIRED_SNAPSHOTS_TABLE)
    table = find_table(description, identifier)
    found: dict[str, list[Snapshot]] = {}
    if table is None:
        return found
    with translated_answers(description, action=f"read {identifier} from"):
        for row in table.scan().to_arrow().to_pylist():
            found.setdefault(row["table_uuid"], []).append(_snapshot_of(row))
    return found


def _snapshot_of(row: Mapping[str, Any]) -> Snapshot:
    summary = dict(row["summary"] or ())
    sequence_number, first_row_id = (summary.pop(key, None) for key in (SEQUENCE_NUMBER, FIRST_ROW_ID))
    return Snapshot(
        row["snapshot_id"],
        row["parent_snapshot_id"],
        round(row["committed_at"].timestamp() * 1000),
        row["operation"],
        summary,
        sequence_number=None if sequence_number is None else int(sequence_number),
        first_row_id=None if first_row_id is None else int(first_row_id),
    )

"""Keeps the summaries of snapshots that expire, so that the lineage of the rows survives them."""

from collections.abc import Sequence
from typing import Final

from dagster_iceberg_spark.spark.own_tables import OwnTable, replace_rows, rows_about
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

EXPIRED_SNAPSHOTS: Final = OwnTable(
    lineage.EXPIRED_SNAPSHOTS_TABLE,
    "table_uuid STRING, table_name STRING, snapshot_id BIGINT, parent_snapshot_id BIGINT, committed_at TIMESTAMP, "
    "operation STRING, summary MAP<STRING, STRING>",
)


def keep_summaries(session: IcebergSession, state: TableState, snapshots: Sequence[Snapshot]) -> int:
    """Add the snapshots that are not kept yet, and return their number."""
    recorded = rows_about(session, EXPIRED_SNAPSHOTS, state)
    known = set() if recorded is None else {row[0] for row in recorded.select("snapshot_id").collect()}
    rows = [
        (
            state.uuid,
            str(state.identifier),
            snapshot.snapshot_id,
            snapshot.parent_snapshot_id,
            snapshot.committed_at,
            snapshot.operation,
            {**snapshot.summary, **_row_lineage(snapshot)},
        )
        for snapshot in snapshots
        if snapshot.snapshot_id not in known
    ]
    if rows:
        replace_rows(session, EXPIRED_SNAPSHOTS, state, rows, recorded)
    return len(rows)


def _row_lineage(snapshot: Snapshot) -> dict[str, str]:
    numbers = {lineage.SEQUENCE_NUMBER: snapshot.sequence_number, lineage.FIRST_ROW_ID: snapshot.first_row_id}
    return {key: str(number) for key, number in numbers.items() if number is not None}

"""Maintains a table by Iceberg's Spark procedures.

Summaries of snapshots that expire are kept, so that the lineage of the rows survives them. Files that belong to no
snapshot are removed in two phases: one run lists them, a later one removes those still listed. The files of a write in
progress look the same. They belong to a snapshot when the later run looks again.
"""

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from pyspark.sql import DataFrame

from dagster_iceberg_spark.catalog.description import HDFS_SCHEMES
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.features.maintenance.plan.actions import (
    Compact,
    ComputeStatistics,
    ExpireSnapshots,
    Procedure,
    RemoveOrphans,
    RewriteManifests,
    RewritePositionDeletes,
)
from dagster_iceberg_spark.plan.write.draft import CREATION_PROPERTIES
from dagster_iceberg_spark.plan.write.write_request import WriteRequest
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import functions_of
from dagster_iceberg_spark.spark.failures import translating
from dagster_iceberg_spark.spark.session.session import IcebergSession
from dagster_iceberg_spark.spark.tables import refresh
from dagster_iceberg_spark.spark.write.engine import commit_frame
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import DAY_MS, Commit, Snapshot, TableState
from dagster_iceberg_spark.table.sql_text import quote, table_name, text_literal

TABLE_UUID: Final = "table_uuid"
_MANY_SNAPSHOTS: Final = 100


@dataclass(frozen=True, slots=True)
class OwnTable:
    """A table of the package, in the namespace of the tables that its rows are about, and partitioned by these.

    Args:
        columns: The columns in Spark's notation. `table_uuid` is among them.
    """

    name: str
    columns: str

    def beside(self, state: TableState) -> TableIdentifier:
        """Return the table in the namespace of another one."""
        return TableIdentifier(state.identifier.namespace, self.name)


def rows_about(session: IcebergSession, own: OwnTable, state: TableState) -> DataFrame | None:
    """Return the rows about a table, or None if the package's table does not exist yet."""
    if look(session.catalog, own.beside(state)) is None:
        return None
    refresh(session, own.beside(state))
    column = functions_of(session.spark).col(TABLE_UUID)
    return session.spark.table(_name(session, own, state)).where(column == state.uuid)


def replace_rows(
    session: IcebergSession,
    own: OwnTable,
    state: TableState,
    rows: Sequence[tuple[Any, ...]],
    kept: DataFrame | None = None,
) -> None:
    """Replace the rows about a table by these, and by some that are kept. The first ones create the package's table."""
    name = _name(session, own, state)
    statement = sql.create_own_table(
        session.catalog.name, own.beside(state), own.columns, TABLE_UUID, CREATION_PROPERTIES
    )
    session.spark.sql(statement)
    frame: DataFrame = session.spark.createDataFrame(list(rows), own.columns)
    every = frame if kept is None else kept.unionByName(frame)
    column = functions_of(session.spark).col(TABLE_UUID)
    every.coalesce(1).writeTo(name).overwrite(column == state.uuid)
    _expire_own(session, own.beside(state))


def _expire_own(session: IcebergSession, identifier: TableIdentifier) -> None:
    state = look(session.catalog, identifier)
    if state is not None and len(state.snapshots) > _MANY_SNAPSHOTS:
        yesterday = sql.instant(int(time.time() * 1000) - DAY_MS)
        session.spark.sql(sql.call(session.catalog.name, "expire_snapshots", identifier, older_than=yesterday))


def _name(session: IcebergSession, own: OwnTable, state: TableState) -> str:
    return table_name(session.catalog.name, own.beside(state))


def perform(session: IcebergSession, state: TableState, action: Procedure, *, run_id: str) -> Mapping[str, Any]:
    """Do one action of a plan, and return what was done."""
    refresh(session, state.identifier)
    with translating(session.catalog, action=action.name, subject=str(state.identifier)):
        match action:
            case Compact():
                return _call(session, state, "rewrite_data_files", **_arguments_of_compaction(state, action))
            case RewritePositionDeletes():
                options = sql.string_map({"min-input-files": str(action.min_input_files)})
                return _call(session, state, "rewrite_position_delete_files", options=options)
            case RewriteManifests():
                return _call(session, state, "rewrite_manifests")
            case ComputeStatistics(has_partitions):
                done = _call(session, state, "compute_table_stats")
                return {**done, **(_call(session, state, "compute_partition_stats") if has_partitions else {})}
            case ExpireSnapshots():
                return _expire(session, state, action)
            case RemoveOrphans():
                return remove_orphans(session, state, older_than_ms=action.older_than_ms, run_id=run_id)


def delete_rows(session: IcebergSession, request: WriteRequest) -> Commit:
    """Replace the rows of the request by none, in one snapshot with its lineage."""
    name = table_name(session.catalog.name, request.identifier, request.branch)
    return commit_frame(session, request, session.spark.table(name).limit(0))


def _expire(session: IcebergSession, state: TableState, action: ExpireSnapshots) -> Mapping[str, Any]:
    going = [found for item in action.expiry.snapshots if (found := state.snapshots.get(item)) is not None]
    kept = keep_summaries(session, state, going) if action.keeps_lineage else 0
    done = _call(
        session,
        state,
        "expire_snapshots",
        older_than=sql.instant(action.older_than_ms),
        retain_last=str(action.retain_last),
        stream_results="true",
        clean_expired_metadata="true",
    )
    return {**done, "kept_summaries": kept}


def _call(session: IcebergSession, state: TableState, procedure: str, **arguments: str) -> Mapping[str, Any]:
    rows = session.spark.sql(sql.call(session.catalog.name, procedure, state.identifier, **arguments)).collect()
    return rows[0].asDict() if rows else {}


def _arguments_of_compaction(state: TableState, action: Compact) -> dict[str, str]:
    options = {
        "target-file-size-bytes": str(action.target_bytes),
        "min-input-files": str(action.min_input_files),
        "delete-ratio-threshold": str(action.delete_ratio),
        "remove-dangling-deletes": "true",
    }
    arguments = {"strategy": text_literal("binpack" if action.strategy == "binpack" else "sort")}
    if action.strategy == "zorder":
        arguments["sort_order"] = text_literal(f"zorder({', '.join(map(quote, action.zorder_by))})")
    arguments["options"] = sql.string_map(options)
    if action.field is not None and action.start is not None and action.end is not None:
        field = state.schema.field(action.field.column)
        if field is not None:
            arguments["where"] = text_literal(sql.time_window(field.name, field.type, action.start, action.end))
    return arguments


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


ORPHAN_FILES: Final = OwnTable(
    "dagster_orphan_files", "table_uuid STRING, path STRING, listed_at TIMESTAMP, run_id STRING"
)
_VIEW: Final = "dagster_iceberg_spark_orphans"
_LONG_AGO: Final = dt.datetime(1970, 1, 2, tzinfo=dt.timezone.utc)


def remove_orphans(session: IcebergSession, state: TableState, *, older_than_ms: int, run_id: str) -> Mapping[str, Any]:
    """List the files that belong to no snapshot. Remove those that an earlier run has listed too."""
    older_than = sql.instant(older_than_ms)
    found = _procedure(session, state, older_than=older_than, dry_run="true", prefix_listing=lists_by_prefix(state))
    recorded = rows_about(session, ORPHAN_FILES, state)
    earlier = {} if recorded is None else {row["path"]: row for row in recorded.collect()}
    removable = [path for path in found if path in earlier and earlier[path]["run_id"] != run_id]
    removed = frozenset(_remove(session, state, removable, older_than) if removable else ())
    if found or earlier:
        now = dt.datetime.now(dt.timezone.utc)
        left = [path for path in found if path not in removed]
        replace_rows(session, ORPHAN_FILES, state, [(state.uuid, path, now, run_id) for path in left])
    return {"removed_files": len(removed), "listed_files": len(found) - len(removed)}


def _remove(session: IcebergSession, state: TableState, paths: Sequence[str], older_than: str) -> list[str]:
    """Remove files by Iceberg's procedure, which compares them with the snapshots once more. Return their paths.

    The procedure skips files that do not begin with the location, as text: it lists `/lake` as `file:/lake`.
    """
    place = urlsplit(state.location).path
    listed_location = paths[0][: paths[0].index(place) + len(place)] if place in paths[0] else state.location
    frame = session.spark.createDataFrame(
        [(path, _LONG_AGO) for path in paths], "file_path STRING, last_modified TIMESTAMP"
    )
    frame.createOrReplaceTempView(_VIEW)
    try:
        return _procedure(
            session,
            state,
            older_than=older_than,
            location=text_literal(listed_location),
            file_list_view=text_literal(_VIEW),
        )
    finally:
        session.spark.catalog.dropTempView(_VIEW)


def lists_by_prefix(state: TableState) -> str:
    """Return whether the catalog's own client lists the files. Hadoop knows local files and HDFS."""
    return str(urlsplit(state.location).scheme not in ("", "file", *HDFS_SCHEMES)).lower()


def _procedure(session: IcebergSession, state: TableState, **arguments: str) -> list[str]:
    call = sql.call(session.catalog.name, "remove_orphan_files", state.identifier, **arguments)
    return [row[0] for row in session.spark.sql(call).collect()]

"""Removes files that belong to no snapshot, in two phases: one run lists them, a later one removes those still listed.

The files of a write in progress look the same. They belong to a snapshot when the later run looks again.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from dagster_iceberg_spark.catalog.description import HDFS_SCHEMES
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.own_tables import OwnTable, replace_rows, rows_about
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.table.snapshot import TableState

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
    removed = frozenset(_removed(session, state, removable, older_than) if removable else ())
    if found or earlier:
        now = dt.datetime.now(dt.timezone.utc)
        left = [path for path in found if path not in removed]
        replace_rows(session, ORPHAN_FILES, state, [(state.uuid, path, now, run_id) for path in left])
    return {"removed_files": len(removed), "listed_files": len(found) - len(removed)}


def _removed(session: IcebergSession, state: TableState, paths: Sequence[str], older_than: str) -> list[str]:
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
            location=sql.text(listed_location),
            file_list_view=sql.text(_VIEW),
        )
    finally:
        session.spark.catalog.dropTempView(_VIEW)


def lists_by_prefix(state: TableState) -> str:
    """Return whether the catalog's own client lists the files. Hadoop knows local files and HDFS."""
    return str(urlsplit(state.location).scheme not in ("", "file", *HDFS_SCHEMES)).lower()


def _procedure(session: IcebergSession, state: TableState, **arguments: str) -> list[str]:
    call = sql.call(session.catalog.name, "remove_orphan_files", state.identifier, **arguments)
    return [row[0] for row in session.spark.sql(call).collect()]

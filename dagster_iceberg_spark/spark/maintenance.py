"""Maintains a table by Iceberg's Spark procedures."""

from collections.abc import Mapping
from typing import Any

from dagster_iceberg_spark.plan.maintenance import (
    Compact,
    ExpireSnapshots,
    Procedure,
    RemoveOrphans,
    RewriteManifests,
    RewritePositionDeletes,
)
from dagster_iceberg_spark.plan.write_request import WriteRequest
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.commit import materialize
from dagster_iceberg_spark.spark.expired_snapshots import keep_summaries
from dagster_iceberg_spark.spark.failures import translating
from dagster_iceberg_spark.spark.orphans import remove_orphans
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.spark.tables import refresh
from dagster_iceberg_spark.table.commit import Commit
from dagster_iceberg_spark.table.snapshot import TableState


def perform(session: IcebergSession, state: TableState, action: Procedure, *, run_id: str) -> Mapping[str, Any]:
    """Do one action of a plan, and return what was done.

    Raises:
        CommitConflictError: Another writer has changed the same files. Nothing was changed.
    """
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
            case ExpireSnapshots():
                return _expire(session, state, action)
            case RemoveOrphans():
                return remove_orphans(session, state, older_than_ms=action.older_than_ms, run_id=run_id)


def delete_rows(session: IcebergSession, request: WriteRequest) -> Commit:
    """Replace the rows of the request by none, in one snapshot with its lineage."""
    name = sql.table_name(session.catalog.name, request.identifier, request.branch)
    return materialize(session, request, session.spark.table(name).limit(0))


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
    [row] = session.spark.sql(sql.call(session.catalog.name, procedure, state.identifier, **arguments)).collect()
    found: Mapping[str, Any] = row.asDict()
    return found


def _arguments_of_compaction(state: TableState, action: Compact) -> dict[str, str]:
    options = {
        "target-file-size-bytes": str(action.target_bytes),
        "min-input-files": str(action.min_input_files),
        "delete-ratio-threshold": str(action.delete_ratio),
        "remove-dangling-deletes": "true",
    }
    arguments = {"strategy": sql.text("binpack" if action.strategy == "binpack" else "sort")}
    if action.strategy == "zorder":
        arguments["sort_order"] = sql.text(f"zorder({', '.join(map(sql.quote, action.zorder_by))})")
    arguments["options"] = sql.string_map(options)
    if action.field is not None and action.start is not None and action.end is not None:
        field = state.schema.field(action.field.column)
        if field is not None:
            arguments["where"] = sql.text(sql.time_window(field.name, field.type, action.start, action.end))
    return arguments

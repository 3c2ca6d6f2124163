"""From a commit to what Dagster shows of it. Nothing here reads data."""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import dagster as dg

from dagster_iceberg_spark.table.commit import Commit
from dagster_iceberg_spark.table.lineage import CARRIES_OVER, WRITE_DISPOSITION
from dagster_iceberg_spark.table.schema import Field, Schema
from dagster_iceberg_spark.table.scope import PartitionScope

_MARKUP: Final = re.compile(r"[\\\[\]<>&`]|://")
"""What begins a link, an image, an element or an entity in Markdown; a backslash before it makes it a character."""

DataVersionPolicy: TypeAlias = Literal["auto", "snapshot", "dagster"]


def materialization_metadata(
    commit: Commit, scope: PartitionScope, *, catalog: str, column_docs: Mapping[str, str]
) -> dict[str, Any]:
    """Return Dagster's standard keys and the commit's own.

    Args:
        commit: What was done.
        scope: The run's partitions.
        catalog: The catalog's name.
        column_docs: The descriptions of columns that the definition gives.
    """
    snapshot, counts = commit.snapshot, commit.counts
    added = snapshot.count("added-records")
    own = added if counts.rows is None else counts.rows
    metadata: dict[str, Any] = {
        "dagster/column_schema": column_schema(commit.schema, column_docs),
        "dagster/table_name": f"{catalog}.{commit.identifier}",
        "dagster/uri": commit.location,
        "dagster/storage_kind": "iceberg",
        "iceberg/snapshot_id": str(snapshot.snapshot_id),
        "iceberg/operation": snapshot.operation,
        "iceberg/added_rows": added,
        "iceberg/deleted_rows": snapshot.count("deleted-records"),
        "iceberg/added_files": snapshot.count("added-data-files"),
        "iceberg/deleted_files": snapshot.count("deleted-data-files"),
        "iceberg/added_bytes": snapshot.count("added-files-size"),
        "iceberg/deleted_bytes": snapshot.count("removed-files-size"),
        "iceberg/write_seconds": round(commit.write_seconds, 3),
        "iceberg/commit_seconds": round(commit.commit_seconds, 3),
        "iceberg/retries": commit.retries,
        "iceberg/retry_seconds": round(commit.retry_seconds, 3),
        **_row_counts(commit, scope, own),
    }
    if snapshot.parent_snapshot_id is not None:
        metadata["iceberg/parent_snapshot_id"] = str(snapshot.parent_snapshot_id)
    if commit.changes:
        metadata["iceberg/table_changes"] = list(commit.changes)
    if commit.is_adopted:
        metadata["iceberg/adopted"] = True
    if counts.dropped:
        metadata["iceberg/dropped_rows"] = counts.dropped
    metadata.update(_merge_counts(commit))
    if counts.rows is not None and added > counts.rows:
        metadata["iceberg/carried_over_rows"] = added - counts.rows
    return metadata


def partition_metadata(commit: Commit) -> Mapping[str, dict[str, Any]]:
    """Return what is known of each partition of a run of several: its rows, as the write counted them.

    Only a replace writes all rows that its partitions have. A task that the engine ran twice would be counted twice;
    then the counts do not add up, and none is reported.
    """
    counts = commit.counts
    adds_up = sum(counts.by_partition.values()) == counts.rows
    if not counts.by_partition or not adds_up or not _replaces(commit):
        return {}
    return {key: {"dagster/partition_row_count": rows} for key, rows in counts.by_partition.items()}


def data_version(commit: Commit, policy: DataVersionPolicy, *, code_version: str | None) -> str | None:
    """Return the data version to record; None leaves it to Dagster.

    Where the asset has a code version, Dagster's own memoization goes on working.
    """
    if policy == "dagster" or (policy == "auto" and code_version is not None):
        return None
    return str(commit.snapshot.snapshot_id)


def column_schema(schema: Schema, column_docs: Mapping[str, str]) -> dg.TableSchema:
    """Return the table's columns as Dagster shows them.

    The UI renders descriptions as Markdown. Those that the definition does not give may be anybody's: in them nothing
    becomes a link, an image or an element.
    """
    return dg.TableSchema(columns=[_column(field, column_docs) for field in schema])


def _column(field: Field, column_docs: Mapping[str, str]) -> dg.TableColumn:
    doc = field.doc
    if doc is not None and column_docs.get(field.name) != doc:
        doc = _MARKUP.sub(r"\\\g<0>", doc)
    return dg.TableColumn(
        name=field.name,
        type=str(field.type),
        description=doc,
        constraints=dg.TableColumnConstraints(nullable=not field.is_required),
    )


def _merge_counts(commit: Commit) -> dict[str, int]:
    """Return what a merge did to rows, as the engine counted it (Iceberg's `spark.merge-into.` summary).

    `replace_where` meets no rows by their keys: there is nothing to say of it.
    """
    summary = commit.snapshot.summary
    is_counted = commit.counts.unchanged is not None or any(key.startswith("spark.merge-into.") for key in summary)
    if summary.get(WRITE_DISPOSITION) != "merge" or not is_counted:
        return {}
    counts = {
        f"iceberg/merge_{done}_rows": commit.snapshot.count(f"spark.merge-into.num-target-rows-{done}")
        for done in ("inserted", "updated", "deleted")
    }
    unchanged = commit.counts.unchanged
    return counts if unchanged is None else {**counts, "iceberg/merge_unchanged_rows": unchanged}


def _row_counts(commit: Commit, scope: PartitionScope, own: int) -> dict[str, int]:
    """Return the rows of the table, or of the one partition, where the snapshot tells them."""
    summary = commit.snapshot.summary
    if scope.is_whole_table:
        # Files of deletes may outlive those that they delete from: how many rows they take off is not in the summary.
        is_told = "total-records" in summary and commit.snapshot.count("total-delete-files") == 0
        return {"dagster/row_count": int(summary["total-records"])} if is_told else {}
    is_counted = commit.counts.rows is not None or CARRIES_OVER not in summary
    is_known = _replaces(commit) and len(scope.keys) == 1 and is_counted
    return {"dagster/partition_row_count": own} if is_known else {}


def _replaces(commit: Commit) -> bool:
    return commit.snapshot.summary.get(WRITE_DISPOSITION) == "replace"

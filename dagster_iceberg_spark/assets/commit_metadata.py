"""The metadata that Dagster shows for a commit. Nothing here reads data."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeAlias

import dagster as dg

from dagster_iceberg_spark.assets.dagster_private.context import (
    add_partition_metadata,
    record_evaluation,
    set_data_version,
)
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.errors import AuditFailedError
from dagster_iceberg_spark.plan.read.history import HistoryEntry, entries_as_markdown, escape, inputs_as_markdown
from dagster_iceberg_spark.plan.write.write_request import WriteRequest
from dagster_iceberg_spark.table.audit import AuditResult
from dagster_iceberg_spark.table.lineage import (
    CARRIES_OVER,
    COMMIT_TOKEN,
    COUNTED_ROWS,
    MERGED_ROWS,
    SNAPSHOT_ID,
    STAGED_TOKEN,
    WRITE_DISPOSITION,
    UpstreamRead,
)
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, Commit, Snapshot

_MERGE_COUNTS: Final = "spark.merge-into."

INPUTS: Final = "iceberg/inputs"
HISTORY: Final = "iceberg/history"
"""Keys of tables: what the step has read, and the newest snapshots of the table."""

PUBLISHED: Final = "iceberg/published"
STAGED_BRANCH: Final = "iceberg/staged_branch"
"""Keys of rows that wait for a release: that they are not published, and their branch."""

DataVersionPolicy: TypeAlias = Literal["auto", "snapshot", "dagster"]


def report_commit(
    context: dg.OutputContext,
    catalog: CatalogDescription,
    request: WriteRequest,
    commit: Commit,
    reported: Mapping[str, Any],
    *,
    policy: DataVersionPolicy,
) -> None:
    """Add the metadata of a commit to its materialization, and log what was done.

    `reported` has the metadata of observers. What the asset itself has given stays.
    """
    materialization, given = request.materialization, context.output_metadata
    metadata = materialization_metadata(
        commit,
        materialization.scope,
        materialization.upstream,
        catalog=catalog.name,
        column_docs=request.table.column_docs,
    )
    context.add_output_metadata({key: value for key, value in (metadata | dict(reported)).items() if key not in given})
    for partition_key, of_partition in partition_metadata(commit).items():
        add_partition_metadata(context, partition_key, of_partition)
    version = data_version(commit, policy, code_version=materialization.code_version)
    if version is not None:
        set_data_version(context, version)
    if commit.has_created:
        context.log.info(f"Created {commit.identifier} at {commit.location}, in the {catalog}.")
    done = "Adopted the earlier attempt's" if commit.is_adopted else "Committed"
    branch = request.table.options.branch
    place = "" if branch == MAIN_BRANCH else f", branch {branch}"
    done = "Staged" if commit.staged_branch else done
    context.log.info(
        f"{done} snapshot {commit.snapshot.snapshot_id} of {commit.identifier}{place}: "
        f"{commit.snapshot.count('added-records')} rows added, {commit.snapshot.count('deleted-records')} deleted, "
        f"{commit.write_seconds:.1f} s to write, {commit.commit_seconds:.1f} s to commit."
    )
    if commit.staged_branch is not None:
        context.log.info(
            f"The rows of {commit.identifier} are in the branch {commit.staged_branch} until a release publishes "
            f"them. Only this run reads them."
        )
    if commit.publication is not None:
        context.log.info(
            f"Published {commit.identifier} in {commit.publication_seconds:.2f} s by a {commit.publication}: "
            f"{sum(result.passed for result in commit.audits)} of {len(commit.audits)} audits passed."
        )


def materialization_metadata(
    commit: Commit,
    scope: PartitionScope,
    reads: Sequence[UpstreamRead],
    *,
    catalog: str,
    column_docs: Mapping[str, str],
) -> dict[str, Any]:
    """Return the metadata of a materialization: Dagster's standard keys and the package's keys.

    Args:
        commit: The commit.
        scope: The partitions of the run.
        reads: What the step has read.
        catalog: The name of the catalog.
        column_docs: The descriptions of columns in the definition.
    """
    snapshot, counts = commit.snapshot, commit.counts
    added = snapshot.count("added-records")
    owned = added if counts.rows is None else counts.rows
    metadata = {
        "dagster/column_schema": column_schema(commit.schema, column_docs),
        "dagster/table_name": f"{catalog}.{commit.identifier}",
        "dagster/uri": commit.location,
        "dagster/storage_kind": "iceberg",
        SNAPSHOT_ID: str(snapshot.snapshot_id),
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
        **_tables(commit, reads),
        **_row_counts(commit, scope, owned),
    }
    optional = {
        "iceberg/parent_snapshot_id": snapshot.parent_snapshot_id and str(snapshot.parent_snapshot_id),
        "iceberg/table_changes": list(commit.changes),
        "iceberg/adopted": commit.is_adopted,
        "iceberg/dropped_rows": counts.dropped,
        "iceberg/carried_over_rows": max(added - owned, 0),
        "iceberg/publication": commit.publication,
        "iceberg/publication_seconds": round(commit.publication_seconds, 3),
    }
    known = {key: value for key, value in optional.items() if value}
    return {**metadata, **known, **_merge_counts(commit), **_staged_metadata(commit)}


def partition_metadata(commit: Commit) -> Mapping[str, dict[str, Any]]:
    """Return the row count of each partition, for a run of several partitions.

    Only a replace writes all rows of its partitions. If the engine ran a task twice, its rows are counted twice. The
    counts then do not add up, and none is reported.
    """
    counts = commit.counts.by_partition
    if sum(counts.values()) != commit.counts.rows or not _replaces(commit):
        return {}
    return {key: {"dagster/partition_row_count": rows} for key, rows in counts.items()}


def data_version(commit: Commit, policy: DataVersionPolicy, *, code_version: str | None) -> str | None:
    """Return the data version to record, or None to leave it to Dagster.

    If the asset has a code version, Dagster's memoization keeps working.
    """
    if policy == "dagster" or (policy == "auto" and code_version is not None):
        return None
    return str(commit.snapshot.snapshot_id)


def column_schema(schema: Schema, column_docs: Mapping[str, str]) -> dg.TableSchema:
    """Return the table's columns as Dagster shows them, with the descriptions of the definition as they are."""
    columns = (
        table_column(
            field.name,
            str(field.type),
            field.doc,
            is_required=field.is_required,
            is_trusted=column_docs.get(field.name) == field.doc,
        )
        for field in schema
    )
    return dg.TableSchema(columns=list(columns))


def table_column(
    name: str, column_type: str, doc: str | None, *, is_required: bool, is_trusted: bool = False
) -> dg.TableColumn:
    """Return a column as Dagster shows it.

    The UI renders descriptions as Markdown. Anyone may have written a description that is not in the definition, so its
    markup is escaped: it cannot become a link, an image or an element.
    """
    shown = doc if doc is None or is_trusted else escape(doc)
    constraints = dg.TableColumnConstraints(nullable=not is_required)
    return dg.TableColumn(name, column_type, description=shown, constraints=constraints)


def _tables(commit: Commit, reads: Sequence[UpstreamRead]) -> dict[str, dg.MarkdownMetadataValue]:
    tables = {INPUTS: inputs_as_markdown(reads), HISTORY: entries_as_markdown(map(HistoryEntry, commit.history))}
    return {key: dg.MetadataValue.md(table) for key, table in tables.items() if table is not None}


def _staged_metadata(commit: Commit) -> dict[str, Any]:
    """Return where the rows are until a release publishes them."""
    if commit.staged_branch is None:
        return {}
    token = commit.snapshot.summary[COMMIT_TOKEN]
    return {PUBLISHED: False, STAGED_BRANCH: commit.staged_branch, STAGED_TOKEN: token}


def _merge_counts(commit: Commit) -> dict[str, int]:
    """Return how many rows a merge changed. `replace_where` matches no keys and has no such counts."""
    summary, unchanged = commit.snapshot.summary, commit.counts.unchanged
    is_counted = COUNTED_ROWS.format("inserted") in summary
    is_known = is_counted or unchanged is not None or any(key.startswith(_MERGE_COUNTS) for key in summary)
    if summary.get(WRITE_DISPOSITION) != "merge" or not is_known:
        return {}
    name = COUNTED_ROWS if is_counted else MERGED_ROWS
    found = {done: commit.snapshot.count(name.format(done)) for done in ("inserted", "updated", "deleted")}
    if is_counted:
        found["deleted"] = _deleted_rows(commit.snapshot, found["inserted"])
    if unchanged is not None:
        found["unchanged"] = unchanged
    return {f"iceberg/merge_{done}_rows": count for done, count in found.items()}


def _deleted_rows(merged: Snapshot, inserted: int) -> int:
    """Return how many rows a MERGE deleted: those that it removed, without those that it updated or wrote again."""
    positions = merged.count("added-position-deletes") - merged.count("removed-position-deletes")
    return merged.count("deleted-records") + positions - (merged.count("added-records") - inserted)


def _row_counts(commit: Commit, scope: PartitionScope, owned: int) -> dict[str, int]:
    """Return the row count of the table or of the run's only partition, if it is known."""
    summary = commit.snapshot.summary
    if scope.is_whole_table:
        # Delete files may outlive the data files that they apply to, so the summary does not show how many rows they
        # delete.
        is_known = "total-records" in summary and commit.snapshot.count("total-delete-files") == 0
        return {"dagster/row_count": int(summary["total-records"])} if is_known else {}
    is_counted = commit.counts.rows is not None or CARRIES_OVER not in summary
    is_known = _replaces(commit) and len(scope.keys) == 1 and is_counted
    return {"dagster/partition_row_count": owned} if is_known else {}


def _replaces(commit: Commit) -> bool:
    return commit.snapshot.summary.get(WRITE_DISPOSITION) == "replace"


@contextmanager
def recorded_failures(context: dg.OutputContext) -> Iterator[None]:
    """Record the results of all audits if the block fails because of one."""
    try:
        yield
    except AuditFailedError as error:
        record_audits(context, error.results)
        raise


def record_audits(context: dg.OutputContext, results: Iterable[AuditResult], *, snapshot_id: int | None = None) -> None:
    """Record each result as the evaluation of the check of its name, and log the failures that are warnings."""
    if not context.has_asset_key:
        return
    for result in results:
        record_evaluation(context, evaluation_of(context.asset_key, result, snapshot_id=snapshot_id))
        if not result.passed and not result.forbids_publication:
            context.log.warning(f"The rows fail the audit {result}. They are published, as its severity is `warn`.")


def evaluation_of(key: dg.AssetKey, result: AuditResult, *, snapshot_id: int | None) -> dg.AssetCheckEvaluation:
    """Return a result as the evaluation of the asset's check of its name."""
    is_error = result.audit.severity == "error"
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=result.audit.name,
        passed=result.passed,
        metadata=_metadata(result, snapshot_id),
        severity=dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
        description=None if result.passed else str(result),
    )


def _metadata(result: AuditResult, snapshot_id: int | None) -> dict[str, Any]:
    """Return what a check shows of a result: the rule, the values, rows that fail it, and where it was found."""
    sample = [dg.TableRecord(dict(row)) for row in result.sample]
    columns = [dg.TableColumn(name) for name in (result.sample[0] if result.sample else ())]
    values = {name: value if isinstance(value, int | float) else str(value) for name, value in result.found.items()}
    optional = {
        "iceberg/failing_rows": dg.MetadataValue.table(sample, dg.TableSchema(columns)) if sample else None,
        SNAPSHOT_ID: None if snapshot_id is None else str(snapshot_id),
    }
    return {
        "iceberg/rule": str(result.audit.rule),
        **values,
        **{key: value for key, value in optional.items() if value is not None},
        "iceberg/evaluated_by": result.source,
    }

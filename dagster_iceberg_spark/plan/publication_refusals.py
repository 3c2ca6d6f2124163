"""The reasons not to publish what is staged."""

from collections.abc import Callable, Sequence

from dagster_iceberg_spark.errors import AuditFailedError, CommitConflictError
from dagster_iceberg_spark.plan.staging import Staging
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.audit import AuditResult
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import Snapshot


def conflict(identifier: TableIdentifier, staging: Staging, snapshot: Snapshot) -> CommitConflictError:
    """Another writer has changed the rows of the staged write on the target."""
    summary = snapshot.summary
    run, keys = summary.get(lineage.RUN_ID), summary.get(lineage.PARTITION_KEYS)
    writer = f"run {run} of {summary.get(lineage.ASSET_KEY)}" if run else "another writer"
    partitions = f", partitions {keys}" if keys else ""
    return CommitConflictError.refusing(
        "publish",
        str(identifier),
        expected=f"the rows of this run in {staging.target!r} as they were when they were staged",
        found=f"snapshot {snapshot.snapshot_id} of {writer}{partitions}, which has added or removed some of them since",
        hint="run the asset again.",
    )


def other_history(identifier: TableIdentifier, staging: Staging) -> CommitConflictError:
    """The staged branch and its target have no common history, or the branch holds another writer's snapshot."""
    return CommitConflictError.refusing(
        "publish",
        str(identifier),
        expected=f"the staged branch {staging.branch!r} to hold one snapshot on top of a snapshot of "
        f"{staging.target!r}",
        found="another history: somebody has replaced the table, rolled it back or written to the branch",
        hint="run the asset again.",
    )


def lost_branch(identifier: TableIdentifier, staging: Staging) -> CommitConflictError:
    """The staged branch has gone while the rows were written."""
    return CommitConflictError.refusing(
        "stage",
        str(identifier),
        expected=f"the staged branch {staging.branch!r} that was created before the write",
        found="none: an expiry of snapshots or another writer has removed it",
        hint="run the asset again.",
    )


def moved(identifier: TableIdentifier, staging: Staging) -> CommitConflictError:
    """Another writer has committed while the staged rows were being published."""
    return CommitConflictError.refusing(
        "publish",
        str(identifier),
        expected=f"{staging.target!r} as it was a moment ago",
        found="a commit of another writer since",
        hint="run the asset again.",
    )


def failed_audits(
    identifier: TableIdentifier,
    staging: Staging,
    results: Sequence[AuditResult],
    query: Callable[[AuditResult], str] | None,
) -> AuditFailedError:
    """Rows fail an audit. `query` returns the query that shows the staged rows that fail it.

    It is None if the staged rows are dropped.
    """
    failed = [result for result in results if result.forbids_publication]
    found = "; ".join(f"{result}{_sample(result)}" for result in failed)
    left = "The staged rows are dropped."
    if query is not None:
        left = (
            f"The staged rows stay in the branch {staging.branch!r} for {staging.retention_days} days. To look at "
            f"them: {query(failed[0])}"
        )
    error = AuditFailedError.refusing(
        "publish",
        str(identifier),
        expected="rows that pass every audit",
        found=found,
        hint="fix the rows or the audit, and run the asset again. "
        f"The rows of {staging.target!r} are unchanged. {left}",
    )
    error.results = tuple(results)
    return error


def _sample(result: AuditResult) -> str:
    rows = [", ".join(f"{name}={value}" for name, value in row.items()) for row in result.sample]
    return f", such as {' and '.join(f'({row})' for row in rows)}" if rows else ""

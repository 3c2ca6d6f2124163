"""Audits and publishes a staged write, by pyiceberg or, where that cannot commit, by the engine."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame

from dagster_iceberg_spark.catalog.audits import AuditedRows, audited_rows, evaluate
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.catalog.publication import publish
from dagster_iceberg_spark.errors import CommitConflictError, ConfigurationError, IcebergSparkError
from dagster_iceberg_spark.plan.partitions.binding import BoundScope
from dagster_iceberg_spark.plan.publication.staged_rows import (
    Member,
    StagedRows,
    failed_audits,
    is_published,
    published_snapshot,
)
from dagster_iceberg_spark.plan.write.write_request import Staging, WriteRequest
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.failures import ENGINE_ERRORS, translate
from dagster_iceberg_spark.spark.session.session import IcebergSession
from dagster_iceberg_spark.spark.tables import change_branches, refresh
from dagster_iceberg_spark.spark.write.audits import (
    Expressions,
    Results,
    evaluable,
    looks_at_rows_together,
    query_of,
    scan,
)
from dagster_iceberg_spark.spark.write.execution import run_query
from dagster_iceberg_spark.table.audit import Audit, AuditResult
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.snapshot import Commit, TableState
from dagster_iceberg_spark.table.updates import DropBranch


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """A write to a staged branch.

    Args:
        given: The columns of the DataFrame.
        expressions: What to aggregate for its audits.
    """

    session: IcebergSession
    request: WriteRequest
    staging: Staging
    given: Schema
    expressions: Expressions

    @classmethod
    def of(
        cls, session: IcebergSession, request: WriteRequest, frame: DataFrame, given: Schema, state: TableState | None
    ) -> "StagedWrite | None":
        """Return the staged write of the DataFrame, or None if the request is published at once."""
        staging = request.table.staging
        if staging is None:
            return None
        return cls(session, request, staging, given, evaluable(session, request, frame, given, state))

    def audit_and_publish(
        self, commit: Commit, state: TableState, owned: BoundScope | None
    ) -> tuple[Commit, TableState | None]:
        """Audit the staged snapshot and publish it. Return the published commit, and the state of the table after it.

        A snapshot that a release publishes stays in its branch.

        A snapshot that an earlier attempt has published is audited again, because its results may not be recorded. The
        state is None if the table lacks the published snapshot. `owned` has the rows that the write replaced, updated
        or deleted, or is None if an earlier attempt wrote.

        Raises:
            CommitConflictError: Another writer has changed the rows concurrently.
        """
        began, request, staged = time.monotonic(), self.request, commit.snapshot
        options, scope = request.table.options, request.materialization.scope
        rows = audited_rows(state, staged, self.given, options, samples=request.audit_samples, scope=scope)
        results = self._results(rows)
        if is_published(state, self.staging, staged):
            if self.staging.branch in state.refs:  # an attempt was interrupted before it dropped the branch
                self._drop_branch()
            return replace(commit, audits=results), state
        if any(result.forbids_publication for result in results):
            is_kept = options.on_failure == "keep"
            if not is_kept:
                self._drop_branch()
            query = partial(query_of, self.session, request, rows=rows, branch=self.staging.branch)
            raise failed_audits(request.identifier, self.staging, results, query if is_kept else None)
        if self.staging.published_by == "release":
            return replace(commit, audits=results, staged_branch=self.staging.branch), state
        replaced = owned or rows.scope.without(options.merge.validity)
        audited = rows.scope if looks_at_rows_together(self.expressions) else None
        staged_rows = StagedRows(self.staging, (staged,), replaced, audited)
        try:
            release = publish(
                self.session.catalog, [Member(request.subject, state, staged_rows)], partial(fast_forward, self.session)
            )
        except CommitConflictError:
            with suppress(IcebergSparkError):  # the next attempt drops it too
                self._drop_branch()
            raise
        after = look(self.session.catalog, request.identifier)
        if after is not None and self.staging.branch in after.refs:  # the engine's answer to the commit was lost
            self._drop_branch()
        published = None if after is None else published_snapshot(after, self.staging, staged)
        done = replace(
            commit,
            snapshot=published or staged,
            audits=results,
            publication=release.members[0].how,
            publication_seconds=time.monotonic() - began,
        )
        return done, None if published is None else after

    def require_branch(self, failure: IcebergSparkError) -> None:
        """Raise a conflict if the staged branch was dropped during a write that failed, because snapshots were expired.

        A new branch is as old as the snapshot that it starts at.
        """
        if isinstance(failure, ConfigurationError):
            state = look(self.session.catalog, self.request.identifier)
            if state is not None and self.staging.branch not in state.refs:
                raise CommitConflictError.refusing(
                    "stage",
                    str(self.request.identifier),
                    expected=f"the staged branch {self.staging.branch!r} that was created before the write",
                    found="none: an expiry of snapshots or another writer has removed it",
                    hint="run the asset again.",
                )

    def _drop_branch(self) -> None:
        change_branches(self.session, self.request.identifier, [DropBranch(self.staging.branch)])

    def _results(self, rows: AuditedRows) -> tuple[AuditResult, ...]:
        def scan_rows(audits: Sequence[Audit]) -> Results:
            query = partial(scan, self.session, audits, rows, self.expressions)
            return run_query(self.session, self.request, query, action="audit")

        return tuple(evaluate(self.session.catalog, self.request.table.options.audits, rows, scan_rows).values())


def fast_forward(session: IcebergSession, state: TableState, rows: StagedRows) -> bool:
    """Move the target by Iceberg's procedure, which verifies that the target's head is an ancestor.

    Return false if the target has moved.

    It moves to the head of the staged branch, which `choose_publication` has verified a moment ago.
    """
    staging = rows.staging
    refresh(session, state.identifier)
    catalog, identifier = session.catalog, state.identifier
    try:
        session.spark.sql(sql.fast_forward(catalog.name, identifier, branch=staging.target, to=staging.branch))
    except ENGINE_ERRORS as error:
        failure = translate(error, action="publish", subject=str(identifier), redact=catalog.redact)
        after = look(catalog, identifier)
        head = None if after is None else after.refs.get(staging.target)
        has_moved = head != state.refs.get(staging.target)
        if not has_moved and not isinstance(failure, CommitConflictError):  # which a commit to any branch causes
            raise failure from error
        if head != rows.snapshot.snapshot_id:
            return False
    change_branches(session, state.identifier, [DropBranch(staging.branch)])
    return True

"""Publishes a staged write: its audits, and the commits of which pyiceberg is not capable."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from pyspark.sql import DataFrame

from dagster_iceberg_spark.catalog.audits import AuditedRows, audited_rows, evaluated
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.catalog.publication import Engine, publish
from dagster_iceberg_spark.errors import CommitConflictError, ConfigurationError, IcebergSparkError
from dagster_iceberg_spark.plan.binding import BoundScope
from dagster_iceberg_spark.plan.merging import MergeRules
from dagster_iceberg_spark.plan.publication import (
    Member,
    StagedRows,
    failed_audits,
    is_published,
    is_rewritable,
    published_snapshot,
)
from dagster_iceberg_spark.plan.staging import Staging
from dagster_iceberg_spark.plan.write_request import RetryLimits, WriteRequest
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.audits import Expressions, Results, evaluable, looks_at_rows_together, query_of, scan
from dagster_iceberg_spark.spark.branches import change_branches
from dagster_iceberg_spark.spark.columns import column_of, functions_of
from dagster_iceberg_spark.spark.engine_failure import ENGINE_ERRORS
from dagster_iceberg_spark.spark.failures import translated, translating
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.spark.tables import added_between, refresh
from dagster_iceberg_spark.spark.touched import run_query
from dagster_iceberg_spark.table.audit import Audit, AuditResult
from dagster_iceberg_spark.table.commit import Commit
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.snapshot import TableState
from dagster_iceberg_spark.table.updates import DropBranch

Write: TypeAlias = Callable[[WriteRequest, DataFrame], Commit]
"""Writes a DataFrame as one snapshot."""


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
        """Return the staged write of the DataFrame, or None if the request is published at once.

        Raises:
            MetadataKeyError: Spark cannot evaluate an audit on the columns.
        """
        staging = request.table.staging
        if staging is None:
            return None
        return cls(session, request, staging, given, evaluable(session, request, frame, given, state))

    def published(
        self, commit: Commit, state: TableState, owned: BoundScope | None, *, write: Write
    ) -> tuple[Commit, TableState | None]:
        """Audit the staged snapshot and publish it. Return the published commit, and the state of the table after it.

        A snapshot that a release publishes stays in its branch.

        A snapshot that an earlier attempt has published is audited again, because its results may not be recorded. The
        state is None if the table lacks the published snapshot. `owned` has the rows that the write replaced, updated
        or deleted, or is None if an earlier attempt wrote. `write` writes rows that cannot be published as files.

        Raises:
            AuditFailedError: The rows fail an audit.
            CommitConflictError: Another writer has changed the rows meanwhile.
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
        # Only the overwrite of all audited rows detects what others commit to them while the engine writes.
        is_validated = audited is None or (options.write_disposition != "append" and replaced == audited)
        can_rewrite = is_validated and is_rewritable(
            options, knows_rows=owned is not None, has_renames=rows.has_renames
        )
        staged_rows = StagedRows(self.staging, (staged,), replaced, audited)
        rewrite = partial(self._rewrite, staged_rows, write) if can_rewrite else None
        try:
            release = publish(
                self.session.catalog,
                [Member(request.subject, state, staged_rows)],
                Engine(partial(fast_forward, self.session), rewrite),
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
        """Raise a conflict if the staged branch has gone during a write that failed, because snapshots were expired.

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

    def _rewrite(self, rows: StagedRows, write: Write, state: TableState) -> None:
        """Write the staged rows to the target again, if that has not moved in these rows, and drop their branch."""
        write(*self._rewriting(rows, state))
        self._drop_branch()

    def _rewriting(self, rows: StagedRows, state: TableState) -> tuple[WriteRequest, DataFrame]:
        """Return the request and the rows that write the staged rows again, if the target does not move in these."""
        refresh(self.session, state.identifier)
        options, head = self.request.table.options, state.refs[rows.staging.target]
        is_append = options.write_disposition == "append"
        validated = {} if is_append else {"isolation-level": "serializable", "validate-from-snapshot-id": str(head)}
        replaced = replace(options, write_disposition="replace", merge=MergeRules()) if options.merges else options
        wanted = replace(
            replaced,
            audits=(),
            renames={},
            schema_evolution="add_columns",
            write_options={**options.write_options, **validated},
        )
        rewritten = replace(
            self.request,
            table=replace(self.request.table, options=wanted, staging=None),
            candidates=(),
            earlier_attempts=tuple,
            limits=RetryLimits(attempts=1),
            base_snapshot_id=head,
        )
        return rewritten, self._rows_of(rows, are_appended=is_append)

    def _rows_of(self, staged: StagedRows, *, are_appended: bool) -> DataFrame:
        """Return the rows to write again: those that the snapshot appended, or those of the scope in it."""
        session, snapshot, since = self.session, staged.snapshot, staged.snapshot.parent_snapshot_id
        name = sql.table_name(session.catalog.name, self.request.identifier)
        with translating(session.catalog, action="publish", subject=str(self.request.identifier)):
            if are_appended and since is not None:
                return added_between(session, self.request.identifier, since, snapshot.snapshot_id)
            rows = session.spark.sql(sql.rows_at(name, snapshot.snapshot_id))
            predicate = staged.owned.predicate()
            return rows.where(column_of(functions_of(session.spark), predicate, catalog=session.catalog.name))

    def _results(self, rows: AuditedRows) -> tuple[AuditResult, ...]:
        def scanned(audits: Sequence[Audit]) -> Results:
            query = partial(scan, self.session, audits, rows, self.expressions)
            return run_query(self.session, self.request, query, action="audit")

        return tuple(evaluated(self.session.catalog, self.request.table.options.audits, rows, scanned).values())


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
        failure = translated(error, action="publish", subject=str(identifier), redact=catalog.redact)
        after = look(catalog, identifier)
        head = None if after is None else after.refs.get(staging.target)
        has_moved = head != state.refs.get(staging.target)
        if not has_moved and not isinstance(failure, CommitConflictError):  # which a commit to any branch causes
            raise failure from error
        if head != rows.snapshot.snapshot_id:
            return False
    change_branches(session, state.identifier, [DropBranch(staging.branch)])
    return True

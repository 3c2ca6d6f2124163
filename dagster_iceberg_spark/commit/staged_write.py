"""Audits and publishes a staged write, by pyiceberg or, where that cannot commit, by the engine."""

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from dagster_iceberg_spark.catalog.audits import AuditedRows, audited_rows, evaluate
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.catalog.publication import publish
from dagster_iceberg_spark.commit.engine import Audits, Engine
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
from dagster_iceberg_spark.table.audit import AuditResult
from dagster_iceberg_spark.table.snapshot import Commit, TableState
from dagster_iceberg_spark.table.updates import DropBranch


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """A write to a staged branch.

    Args:
        audits: Its audits, as the engine evaluates them.
    """

    engine: Engine
    request: WriteRequest
    staging: Staging
    audits: Audits

    @classmethod
    def of(cls, engine: Engine, request: WriteRequest, state: TableState | None) -> "StagedWrite | None":
        """Return the staged write of the engine's rows, or None if the request is published at once."""
        staging = request.table.staging
        return None if staging is None else cls(engine, request, staging, engine.audits(state))

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
        rows = audited_rows(state, staged, self.engine.given, options, samples=request.audit_samples, scope=scope)
        results = self._results(rows)
        if is_published(state, self.staging, staged):
            if self.staging.branch in state.refs:  # an attempt was interrupted before it dropped the branch
                self._drop_branch()
            return replace(commit, audits=results), state
        if any(result.forbids_publication for result in results):
            is_kept = options.on_failure == "keep"
            if not is_kept:
                self._drop_branch()
            query = partial(rows.query_of, catalog=self.engine.catalog.name, branch=self.staging.branch)
            raise failed_audits(request.identifier, self.staging, results, query if is_kept else None)
        if self.staging.published_by == "release":
            return replace(commit, audits=results, staged_branch=self.staging.branch), state
        replaced = owned or rows.scope.without(options.merge.validity)
        audited = rows.scope if self.audits.look_at_rows_together else None
        staged_rows = StagedRows(self.staging, (staged,), replaced, audited)
        try:
            member = Member(request.subject, state, staged_rows)
            release = publish(self.engine.catalog, [member], self.engine.fast_forward)
        except CommitConflictError:
            with suppress(IcebergSparkError):  # the next attempt drops it too
                self._drop_branch()
            raise
        after = look(self.engine.catalog, request.identifier)
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
            state = look(self.engine.catalog, self.request.identifier)
            if state is not None and self.staging.branch not in state.refs:
                raise CommitConflictError.to_plan_again(
                    "stage",
                    self.request.identifier,
                    expected=f"the staged branch {self.staging.branch!r} that was created before the write",
                    found="none: an expiry of snapshots or another writer has removed it",
                )

    def _drop_branch(self) -> None:
        self.engine.change_branches(self.request.identifier, [DropBranch(self.staging.branch)])

    def _results(self, rows: AuditedRows) -> tuple[AuditResult, ...]:
        scan = partial(self.audits.scan, rows=rows)
        return tuple(evaluate(self.engine.catalog, self.request.table.options.audits, rows, scan).values())

"""Publishes a staged write: decides how, and does it through pyiceberg or, where that cannot, through the engine."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyspark.sql import DataFrame

from dagster_iceberg_spark.catalog import publication as metadata
from dagster_iceberg_spark.catalog.branches import ATTEMPTS, can_commit, wait_for_others
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.errors import CommitConflictError, IcebergSparkError
from dagster_iceberg_spark.plan.merging import MergeRules
from dagster_iceberg_spark.plan.publication import Publication, StagedRows, is_published, moved
from dagster_iceberg_spark.plan.write_request import RetryLimits, WriteRequest
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.branches import change_branches
from dagster_iceberg_spark.spark.columns import column_of, functions_of
from dagster_iceberg_spark.spark.engine_failure import ENGINE_ERRORS
from dagster_iceberg_spark.spark.failures import translated, translating
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.spark.tables import added_between, refresh
from dagster_iceberg_spark.table.commit import Commit
from dagster_iceberg_spark.table.snapshot import TableState
from dagster_iceberg_spark.table.updates import DropBranch

Write: TypeAlias = Callable[[WriteRequest, DataFrame], Commit]
"""Writes a DataFrame as one snapshot."""


def publish(
    session: IcebergSession, request: WriteRequest, rows: StagedRows, state: TableState, *, rewrite: Write | None
) -> Publication:
    """Publish the staged rows of the request, and drop their branch.

    `rewrite` writes the rows again if no commit of metadata can publish them. It is None if they are not those that
    the staged write replaced, updated or deleted.

    Raises:
        CommitConflictError: Another writer has changed these rows of the target. The staged branch is dropped.
    """
    write = _StagedSnapshot(session, request, rows)
    try:
        is_possible = True
        for retry in range(ATTEMPTS):
            how = write.publication(state, in_python=is_possible)
            if how == "rewrite":
                if rewrite is None:
                    break
                rewrite(*write.rewriting(state))
                write.drop_branch()
                return how
            outcome = write.commit(state, how)
            if outcome == "published":
                return how
            is_possible = outcome != "impossible"
            wait_for_others(retry)
            state = look(session.catalog, request.identifier) or state
            if is_published(state, rows.staging, rows.snapshot):  # the answer to the commit was lost
                write.drop_branch()
                return how
        raise moved(request.identifier, rows.staging)
    except CommitConflictError:
        with suppress(IcebergSparkError):  # the next attempt drops it too
            write.drop_branch()
        raise


@dataclass(frozen=True, slots=True)
class _StagedSnapshot:
    """A staged snapshot to publish. The fields are those of `publish`."""

    session: IcebergSession
    request: WriteRequest
    rows: StagedRows

    def publication(self, state: TableState, *, in_python: bool) -> Publication:
        """Decide how to publish. `in_python` says whether pyiceberg may take files over."""
        how = metadata.choose_publication(self.session.catalog, state, self.rows)
        in_python = in_python and can_commit(self.session.catalog, state.format_version)
        return how if how != "rebase" or in_python else "rewrite"

    def commit(self, state: TableState, how: Publication) -> metadata.Outcome:
        catalog = self.session.catalog
        if how == "rebase":
            return metadata.rebase(catalog, state, self.rows)
        if can_commit(catalog, state.format_version):
            return metadata.fast_forward(catalog, state, self.rows)
        return fast_forward(self.session, state, self.rows)

    def drop_branch(self) -> None:
        change_branches(self.session, self.request.identifier, [DropBranch(self.rows.staging.branch)])

    def rewriting(self, state: TableState) -> tuple[WriteRequest, DataFrame]:
        """Return the request and the rows that write the staged rows again, if the target does not move in these."""
        refresh(self.session, state.identifier)
        options, head = self.request.table.options, state.refs[self.rows.staging.target]
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
        return rewritten, self._rows(are_appended=is_append)

    def _rows(self, *, are_appended: bool) -> DataFrame:
        """Return the rows to write again: those that the snapshot appended, or those of the scope in it."""
        session, snapshot, since = self.session, self.rows.snapshot, self.rows.snapshot.parent_snapshot_id
        name = sql.table_name(session.catalog.name, self.request.identifier)
        with translating(session.catalog, action="publish", subject=str(self.request.identifier)):
            if are_appended and since is not None:
                return added_between(session, self.request.identifier, since, snapshot.snapshot_id)
            rows = session.spark.sql(sql.rows_at(name, snapshot.snapshot_id))
            predicate = self.rows.owned.predicate()
            return rows.where(column_of(functions_of(session.spark), predicate, catalog=session.catalog.name))


def fast_forward(session: IcebergSession, state: TableState, rows: StagedRows) -> metadata.Outcome:
    """Move the target by Iceberg's procedure, which verifies that the target's head is an ancestor.

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
            return "moved"
    change_branches(session, state.identifier, [DropBranch(staging.branch)])
    return "published"

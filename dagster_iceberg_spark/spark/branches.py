"""Creates and drops staged branches, through pyiceberg or, where that cannot commit, by Spark's statements.

Neither depends on what other writers commit meanwhile, so a conflict with them needs no new plan. Iceberg's own
transaction for branches does not try again (`SnapshotManager` of 1.12).
"""

from collections.abc import Sequence
from typing import Final

import tenacity

from dagster_iceberg_spark.catalog import publication as metadata
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.errors import CommitConflictError
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.failures import translating
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.updates import CreateBranch, DropBranch, TableUpdate
from dagster_iceberg_spark.timeouts import LONGEST_WAIT_SECONDS

ATTEMPTS: Final = 20
"""The attempts of a commit that changes only branches: as many as Iceberg makes of a commit to these tables."""
FIRST_WAIT_SECONDS: Final = 0.02


class _BranchTakenError(CommitConflictError):
    """Another attempt has created the branch. The write has to be planned again."""


def change_branches(session: IcebergSession, identifier: TableIdentifier, changes: Sequence[TableUpdate]) -> None:
    """Create and drop branches in order."""
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(_is_passing),
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        wait=tenacity.wait_random_exponential(multiplier=FIRST_WAIT_SECONDS, max=LONGEST_WAIT_SECONDS),
        reraise=True,
    )
    for change in changes:
        retrying(_change, session, identifier, change)


def _is_passing(error: BaseException) -> bool:
    return isinstance(error, CommitConflictError) and not isinstance(error, _BranchTakenError)


def _change(session: IcebergSession, identifier: TableIdentifier, change: TableUpdate) -> None:
    state = look(session.catalog, identifier)
    in_python = state is not None and metadata.can_publish(session.catalog, state)
    match change:
        case CreateBranch(name) | DropBranch(name) if state and (name in state.refs) is isinstance(
            change, CreateBranch
        ):
            return
        case CreateBranch(name, snapshot_id, retention_days) if in_python and snapshot_id is not None:
            metadata.create_branch(session.catalog, identifier, name, snapshot_id, retention_days=retention_days)
        case DropBranch(name) if in_python:
            metadata.drop_branch(session.catalog, identifier, name)
        case _:
            _by_statement(session, identifier, change)


def _by_statement(session: IcebergSession, identifier: TableIdentifier, change: TableUpdate) -> None:
    """Let Spark make the change. If the table has no snapshot, Iceberg adds an empty one to a new branch."""
    with translating(session.catalog, action="stage", subject=str(identifier)):
        for statement in sql.change_table(session.catalog.name, identifier, [change]):
            session.spark.sql(statement)

"""Changes branches and tags: through pyiceberg or, where that cannot commit, by Spark's statements."""

from collections.abc import Sequence

from dagster_iceberg_spark.catalog.branches import AGAIN_AFTER_CONFLICTS, change_branch
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.failures import translating
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.updates import BranchUpdate, SetProperties, TagUpdate


def change_branches(session: IcebergSession, identifier: TableIdentifier, changes: Sequence[BranchUpdate]) -> None:
    """Create and drop branches in order."""
    for change in changes:
        if not change_branch(session.catalog, identifier, change):
            AGAIN_AFTER_CONFLICTS(_change, session, identifier, change)


def change_tags(
    session: IcebergSession, identifier: TableIdentifier, changes: Sequence[TagUpdate | SetProperties]
) -> None:
    """Set and drop tags, and set properties, one after the other."""
    for change in changes:
        AGAIN_AFTER_CONFLICTS(_change, session, identifier, change)


def delete_rows(session: IcebergSession, identifier: TableIdentifier, branch: str) -> None:
    """Delete all rows of a branch, in one commit of metadata."""
    with translating(session.catalog, action="delete the rows of a branch of", subject=str(identifier)):
        session.spark.sql(sql.delete_rows(session.catalog.name, identifier, branch))


def _change(
    session: IcebergSession, identifier: TableIdentifier, change: BranchUpdate | TagUpdate | SetProperties
) -> None:
    """Let Spark make the change, if it is still to be made.

    If the table has no snapshot, Iceberg adds an empty one to a new branch. Its own transaction for branches does not
    try again after a conflict (`SnapshotManager` of 1.12).
    """
    with translating(session.catalog, action="change the branches and tags of", subject=str(identifier)):
        for statement in sql.change_table(session.catalog.name, identifier, [change]):
            session.spark.sql(statement)

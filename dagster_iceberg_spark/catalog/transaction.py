"""Commits metadata through pyiceberg: to one table, or to several tables at one instant.

Only a SQL catalog commits several tables together: one transaction moves the pointers of all tables, or none.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from sqlalchemy import update
from sqlalchemy.orm import Session

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import call_catalog, open_catalog
from dagster_iceberg_spark.table.identifier import TableIdentifier

_OUTDATED: Final = "older than last sequence number"
"""What catalogs say of a new snapshot if a commit to any branch was faster. They check the refs first."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A commit of metadata that is ready to be made.

    Args:
        table: The table as it was when the commit was prepared.
        requirements: What the catalog verifies.
        snapshot_id: The snapshot that the commit makes current on its branch.
        discard: Deletes the files that were written for the commit, if it is not made.
    """

    identifier: TableIdentifier
    table: Table
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    snapshot_id: int
    discard: Callable[[], None]


def is_transactional(description: CatalogDescription) -> bool:
    """Return whether the catalog commits several tables at one instant."""
    return isinstance(open_catalog(description), SqlCatalog)


def commit_table(description: CatalogDescription, commit: TableCommit) -> bool:
    """Make a commit. Return false if the table no longer meets its requirements."""

    def committed() -> bool:
        return _has_no_conflict(
            lambda: commit.table.catalog.commit_table(commit.table, commit.requirements, commit.updates)
        )

    return call_catalog(description, committed, action=f"publish {commit.identifier} in")


def commit_tables(description: CatalogDescription, commits: Sequence[TableCommit]) -> bool:
    """Make all commits at one instant. Return false, with nothing committed, if a table does not meet its requirements.

    The catalog must be transactional. The tables are updated in order, so that two transactions do not wait for each
    other.

    Raises:
        CatalogUnavailableError: The database does not answer. It has made all commits or none.
    """
    catalog = open_catalog(description)
    if not isinstance(catalog, SqlCatalog):
        raise TypeError(f"the {description} commits one table at a time")
    ordered = sorted(commits, key=lambda commit: commit.identifier.parts)
    names = ", ".join(str(commit.identifier) for commit in ordered)

    def committed() -> bool:
        return _has_no_conflict(lambda: _commit_together(catalog, ordered))

    return call_catalog(description, committed, action=f"publish {names} in")


def _has_no_conflict(commit: Callable[[], object]) -> bool:
    """Make a commit. Return false if another commit was faster."""
    try:
        commit()
    except CommitFailedException:
        return False
    except (ValueError, BadRequestError) as error:
        if _OUTDATED not in str(error):
            raise
        return False
    return True


def _commit_together(catalog: SqlCatalog, commits: Sequence[TableCommit]) -> None:
    """Write the new metadata of all tables, then move their pointers in one transaction."""
    written: list[tuple[Table, Table]] = []
    with ExitStack() as stack:
        stack.callback(_delete_metadata, written)
        for commit in commits:
            table = catalog.load_table(commit.identifier.parts)
            # As `SqlCatalog.commit_table` of pyiceberg 0.12, which moves the pointer of one table.
            new: Table = catalog._update_and_stage_table(table, table.name(), commit.requirements, commit.updates)  # noqa: SLF001
            written.append((table, new))
            catalog._write_metadata(new.metadata, new.io, new.metadata_location)  # noqa: SLF001
        with Session(catalog.engine) as session:
            for table, new in written:
                _move_pointer(session, catalog.name, table, new)
            stack.pop_all()  # the database may make a commit whose answer is lost
            session.commit()


def _delete_metadata(written: Sequence[tuple[Table, Table]]) -> None:
    """Delete metadata files that no table has. A file that cannot be deleted takes up space and does no other harm."""
    for _, new in written:
        with suppress(Exception):  # of any store; the error that led here is the one to raise
            new.io.delete(new.metadata_location)


def _move_pointer(session: Session, catalog_name: str, table: Table, new: Table) -> None:
    *namespace, name = table.name()
    moved: Any = session.execute(
        update(IcebergTables)
        .where(
            IcebergTables.catalog_name == catalog_name,
            IcebergTables.table_namespace == Catalog.namespace_to_string(tuple(namespace)),
            IcebergTables.table_name == name,
            IcebergTables.metadata_location == table.metadata_location,
        )
        .values(metadata_location=new.metadata_location, previous_metadata_location=table.metadata_location)
    )
    if moved.rowcount < 1:
        raise CommitFailedException(f"another writer has committed to {'.'.join(table.name())}")

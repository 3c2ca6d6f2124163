"""Commits metadata through pyiceberg: to one table, or to several tables at one instant.

A SQL catalog moves the pointers of all tables in one transaction. A REST catalog may have the endpoint
`transactions/commit`, but not every server behind it commits all tables or none: Iceberg's reference server commits one
after the other. The configuration of the catalog says whether it does.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.catalog import TOKEN, Catalog, MetastoreCatalog
from pyiceberg.catalog.rest import Endpoint, Endpoints, RestCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.table import CommitTableRequest, Namespace, Table
from pyiceberg.table import TableIdentifier as RestIdentifier
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from sqlalchemy import update
from sqlalchemy.orm import Session

from dagster_iceberg_spark.catalog.clients.rest_requests import new_key, post_commit, takes_keys
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.document_commit import MetastoreCommit, StagedMetadata, stage
from dagster_iceberg_spark.catalog.look import call_catalog, open_catalog, pointed_document
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.pyiceberg_fixes.unknown_types import load_complete
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import PublishedSnapshot

_OUTDATED: Final = "older than last sequence number"
"""What catalogs say of a new snapshot if a commit to any branch was faster. They check the refs first."""
_TRANSACTIONS: Final = Endpoint.from_string("POST /v1/{prefix}/transactions/commit")


def ignore(*_: object) -> None:
    """Do nothing: for a commit that has written no file, or whose progress is not reported."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A commit of metadata that is ready to be made.

    Args:
        table: The table as it was when the commit was prepared.
        published: The snapshots that the commit publishes, by the ids of the staged ones.
        requirements: What the catalog verifies.
        discard: Deletes the files that were written for the commit, if it is not made.
        key: By which a REST catalog recognizes a repeated request.
        by_engine: Makes the commit with an engine, because pyiceberg cannot. Returns false if the table has moved.
    """

    identifier: TableIdentifier
    table: Table
    published: Mapping[int, PublishedSnapshot]
    requirements: tuple[TableRequirement, ...] = ()
    updates: tuple[TableUpdate, ...] = ()
    discard: Callable[[], None] = ignore
    by_engine: Callable[[], bool] | None = None
    key: str = field(default_factory=new_key)


def is_transactional(description: CatalogDescription) -> bool:
    """Return whether the catalog commits several tables at one instant."""
    return description.has_transactions or isinstance(open_catalog(description), SqlCatalog)


def recognizes_repetitions(description: CatalogDescription) -> bool:
    """Return whether the catalog recognizes a repeated commit by its key (Iceberg's REST specification)."""
    catalog = open_catalog(description)
    return isinstance(catalog, RestCatalog) and takes_keys(catalog)


def commit_in_order(
    description: CatalogDescription, commits: Sequence[TableCommit], *, done: str, report: Callable[[str], None]
) -> tuple[int, bool]:
    """Make the commits: at one instant where the catalog can, else one after the other until a table has moved.

    Those that are not made are discarded.

    Args:
        description: The catalog.
        commits: The commits, in order.
        done: What a commit has done, for the report of each, such as `Published`.
        report: Called with a sentence after each commit of several.

    Returns:
        The number of commits that were made, and whether they would be made at one instant.
    """
    made, is_atomic = 0, is_transactional(description) and all(commit.by_engine is None for commit in commits)
    if is_atomic:
        made = len(commits) if commit_tables(description, commits) else 0
    else:
        while made < len(commits) and commit_table(description, commits[made]):
            made += 1
            report(f"{done} {commits[made - 1].identifier}, {made} of {len(commits)} tables.")
    for commit in commits[made:]:
        commit.discard()
    return made, is_atomic


def commit_table(description: CatalogDescription, commit: TableCommit, *, action: str | None = None) -> bool:
    """Make a commit. Return false if the table no longer meets its requirements. `action` is for messages."""
    if commit.by_engine is not None:
        return commit.by_engine()

    def committed() -> bool:
        catalog = commit.table.catalog
        if isinstance(catalog, SqlCatalog):
            return _has_no_conflict(lambda: _commit_by_sql(catalog, [commit]))
        if isinstance(catalog, RestCatalog):
            return _has_no_conflict(lambda: _commit_one_by_rest(catalog, commit)) or _is_made(catalog, commit)
        if isinstance(catalog, MetastoreCatalog):
            return _commit_by_metastore(catalog, commit)
        raise TypeError(f"only an engine commits to the {description}")

    return call_catalog(description, committed, action=action or f"publish {commit.identifier} in")


def commit_tables(description: CatalogDescription, commits: Sequence[TableCommit]) -> bool:
    """Make all commits at one instant. Return false, with nothing committed, if a table does not meet its requirements.

    The catalog must be transactional. The tables are updated in order, so that two transactions do not wait for each
    other.

    Raises:
        CatalogUnavailableError: The database does not answer. It has made all commits or none.
    """
    if len(commits) == 1:
        return commit_table(description, commits[0])
    catalog = open_catalog(description)
    ordered = sorted(commits, key=lambda commit: commit.identifier.parts)
    names = ", ".join(str(commit.identifier) for commit in ordered)

    def committed() -> bool:
        match catalog:
            case SqlCatalog():
                return _has_no_conflict(lambda: _commit_by_sql(catalog, ordered))
            case RestCatalog():
                _require_transactions(description, catalog)
                is_made = _has_no_conflict(lambda: _commit_by_rest(catalog, ordered))
                return is_made or all(_is_made(catalog, commit) for commit in ordered)
            case _:
                raise TypeError(f"the {description} commits one table at a time")

    return call_catalog(description, committed, action=f"publish {names} in")


def _is_made(catalog: Catalog, commit: TableCommit, location: str | None = None) -> bool:
    """Return whether a commit that the catalog reports as rejected was made.

    A client may repeat a request on the way, so that the catalog rejects the second one. `location` is that of the new
    metadata file, if the client has written it.
    """
    added = {update.snapshot.snapshot_id for update in commit.updates if isinstance(update, AddSnapshotUpdate)}
    if not added and location is None:
        return False
    found = load_complete(catalog, commit.identifier.parts)
    document = found.document or {}
    log = {item["metadata-file"] for item in document.get("metadata-log") or ()}
    snapshots = {item["snapshot-id"] for item in document.get("snapshots") or ()}
    return location in {found.table.metadata_location, *log} or bool(added and added <= snapshots)


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


def _commit_by_sql(catalog: SqlCatalog, commits: Sequence[TableCommit]) -> None:
    """Write the new metadata of all tables, then move their pointers in one transaction."""
    written: list[tuple[TableIdentifier, StagedMetadata]] = []
    at_ms = int(time.time() * 1000) if len(commits) > 1 else None
    with ExitStack() as stack:
        stack.callback(_delete_metadata, written)
        for commit in commits:
            found = pointed_document(catalog, commit.identifier)
            staged = found and stage(catalog, *found, commit.requirements, commit.updates, at_ms=at_ms)
            written.append((commit.identifier, staged or _stage_by_pyiceberg(catalog, commit)))
        with Session(catalog.engine) as session:
            for identifier, metadata in written:
                _move_pointer(session, catalog.name, identifier, metadata)
            stack.pop_all()  # the database may make a commit whose answer is lost
            session.commit()
    for _, metadata in written:
        metadata.delete_outdated()


def _commit_by_metastore(catalog: MetastoreCatalog, commit: TableCommit) -> bool:
    own = MetastoreCommit(catalog)
    is_made = _has_no_conflict(lambda: own.commit(commit.table, commit.requirements, commit.updates))
    if not is_made:  # the new file stays: a request whose answer was lost may still be executed
        return _is_made(catalog, commit, None if own.staged is None else own.staged.location)
    if own.staged is not None:
        own.staged.delete_outdated()
    return True


def _stage_by_pyiceberg(catalog: SqlCatalog, commit: TableCommit) -> StagedMetadata:
    table = catalog.load_table(commit.identifier.parts)
    # As `SqlCatalog.commit_table` of pyiceberg 0.12, which moves the pointer of one table.
    new: Table = catalog._update_and_stage_table(table, table.name(), commit.requirements, commit.updates)  # noqa: SLF001
    catalog._write_metadata(new.metadata, new.io, new.metadata_location)  # noqa: SLF001
    return StagedMetadata(new.io, table.metadata_location, new.metadata_location)


def _require_transactions(description: CatalogDescription, catalog: RestCatalog) -> None:
    if _TRANSACTIONS not in catalog._supported_endpoints:  # noqa: SLF001 - no public call shows it
        raise ConfigurationError.refusing(
            "publish tables at one instant in",
            str(description),
            expected=f"a server that announces the endpoint `{_TRANSACTIONS}`",
            found="none in its response to `v1/config`",
            hint="remove `atomic_transactions` from the catalog.",
        )


def _commit_by_rest(catalog: RestCatalog, commits: Sequence[TableCommit]) -> None:
    """Send all commits in one request (Iceberg's REST specification, `commitTransaction`)."""
    changes = ",".join(_request_of(commit).model_dump_json() for commit in commits)
    post_commit(catalog, "transactions/commit", f'{{"table-changes":[{changes}]}}', key=commits[0].key)


def _commit_one_by_rest(catalog: RestCatalog, commit: TableCommit) -> None:
    request = _request_of(commit)
    place = catalog._split_identifier_for_path(request.identifier)  # noqa: SLF001 - no public call encodes it
    path, token = Endpoints.update_table.format(**place), commit.table.config.get(TOKEN)
    post_commit(catalog, path, request.model_dump_json(), key=commit.key, token=token)


def _request_of(commit: TableCommit) -> CommitTableRequest:
    namespace = Namespace(list(commit.identifier.namespace))
    return CommitTableRequest(
        identifier=RestIdentifier(namespace=namespace, name=commit.identifier.name),
        requirements=commit.requirements,
        updates=commit.updates,
    )


def _delete_metadata(written: Sequence[tuple[TableIdentifier, StagedMetadata]]) -> None:
    """Delete metadata files that no table has."""
    for _, metadata in written:
        metadata.delete()


def _move_pointer(session: Session, catalog_name: str, identifier: TableIdentifier, metadata: StagedMetadata) -> None:
    moved: Any = session.execute(
        update(IcebergTables)
        .where(
            IcebergTables.catalog_name == catalog_name,
            IcebergTables.table_namespace == Catalog.namespace_to_string(identifier.namespace),
            IcebergTables.table_name == identifier.name,
            IcebergTables.metadata_location == metadata.before,
        )
        .values(metadata_location=metadata.location, previous_metadata_location=metadata.before)
    )
    if moved.rowcount < 1:
        raise CommitFailedException(f"another writer has committed to {identifier}")

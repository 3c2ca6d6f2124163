"""Making the table what the plan wants: create it, change its metadata. Each step may be repeated."""

import hashlib
import re
from collections.abc import Iterator, Sequence

from dagster_iceberg_spark.plan.write import CreateTable, WritePlan
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.failures import ENGINE_ERRORS, translated
from dagster_iceberg_spark.spark.session import IcebergSession
from dagster_iceberg_spark.table.changes import SetIdentifierFields, SetSortOrder, TableChange
from dagster_iceberg_spark.table.identifier import TableIdentifier

_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


def prepare(session: IcebergSession, plan: WritePlan) -> None:
    """Create the table and apply the plan's changes; none of it adds a snapshot to `main`.

    Raises:
        CommitConflictError: Another writer changed the table meanwhile; plan again.
        ConfigurationError: The catalog or the session refuses.
    """
    _run(session, plan.identifier, statements(session, plan))


def _run(session: IcebergSession, identifier: TableIdentifier, planned: Sequence[str]) -> None:
    for statement in planned:
        try:
            session.spark.sql(statement)
        except ENGINE_ERRORS as error:
            raise translated(error, action="prepare", subject=str(identifier), redact=session.catalog.redact) from error


def statements(session: IcebergSession, plan: WritePlan) -> list[str]:
    """Return the statements that prepare the table, in order."""
    catalog, identifier, create = session.catalog.name, plan.identifier, plan.create
    planned: list[str] = []
    if create is not None:
        location = create.location or _safe_location(session, identifier)
        planned.append(sql.create_namespace(catalog, identifier.namespace))
        planned.append(sql.create_table(catalog, identifier, create, location))
        planned.extend(sql.change_table(catalog, identifier, change) for change in _finishing(create))
    planned.extend(sql.change_table(catalog, identifier, change) for change in plan.changes)
    if planned and session.may_be_stale:
        planned.append(sql.refresh(catalog, identifier))
    return planned


def apply(session: IcebergSession, identifier: TableIdentifier, changes: Sequence[TableChange]) -> None:
    """Change the table's metadata.

    Raises:
        CommitConflictError: Another writer changed the table meanwhile.
        ConfigurationError: The catalog or the session refuses.
    """
    refresh(session, identifier)
    _run(session, identifier, [sql.change_table(session.catalog.name, identifier, change) for change in changes])


def _finishing(create: CreateTable) -> Iterator[TableChange]:
    """Yield what Spark cannot say while it creates a table."""
    if create.sort_by:
        yield SetSortOrder(create.sort_by, is_partitioned=bool(create.spec.fields))
    if create.identifier_fields:
        yield SetIdentifierFields(create.identifier_fields)


def refresh(session: IcebergSession, identifier: TableIdentifier) -> None:
    """Make the session forget what it remembers of the table, where it may remember anything.

    Raises:
        UpstreamMissingError: The table is gone.
    """
    if not session.may_be_stale:
        return
    try:
        session.spark.sql(sql.refresh(session.catalog.name, identifier))
    except ENGINE_ERRORS as error:
        raise translated(error, action="read", subject=str(identifier), redact=session.catalog.redact) from error


def _safe_location(session: IcebergSession, identifier: TableIdentifier) -> str | None:
    """Return a location for a table whose name would make a path that not every engine reads.

    pyiceberg takes `#` and `?` in a path for the parts of a URI; a slash would nest one table in another.
    """
    warehouse = session.catalog.warehouse
    if warehouse is None or all(_PLAIN.fullmatch(part) for part in identifier.parts):
        return None
    digest = hashlib.sha256("\0".join(identifier.parts).encode()).hexdigest()[:12]
    safe = [_UNSAFE.sub("_", part) for part in identifier.parts]
    return "/".join([warehouse.rstrip("/"), *safe[:-1], f"{safe[-1]}-{digest}"])

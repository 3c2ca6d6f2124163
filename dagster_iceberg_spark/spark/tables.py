"""Changes the metadata of tables: for a plan, and their branches and tags. Each step can be repeated."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import groupby
from types import MappingProxyType

from pyspark.sql import DataFrame, DataFrameWriterV2, SparkSession

from dagster_iceberg_spark.catalog.branches import AGAIN_AFTER_CONFLICTS, change_branch
from dagster_iceberg_spark.catalog.column_defaults import is_default, set_defaults
from dagster_iceberg_spark.catalog.damage import forget_unmade, lone_creation
from dagster_iceberg_spark.catalog.look import find_table
from dagster_iceberg_spark.errors import CommitConflictError, InvestigationError
from dagster_iceberg_spark.plan.write.placement import TableCreation, default_location
from dagster_iceberg_spark.plan.write.write_plan import WritePlan
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import functions_of, written_value
from dagster_iceberg_spark.spark.failures import translating
from dagster_iceberg_spark.spark.session.runtime import is_connect
from dagster_iceberg_spark.spark.session.session import CASE_SENSITIVE, IcebergSession, temporary_settings
from dagster_iceberg_spark.spark.versions import version_of
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.schema import fold
from dagster_iceberg_spark.table.sql_text import table_name
from dagster_iceberg_spark.table.updates import (
    BranchUpdate,
    RenameColumn,
    SetIdentifierFields,
    SetProperties,
    SetSortOrder,
    TableUpdate,
    TagUpdate,
)


def target(session: IcebergSession, plan: WritePlan) -> str:
    """Return the full name of the table or of its branch."""
    return table_name(session.catalog.name, plan.identifier, plan.branch)


def stored_rows(session: IcebergSession, plan: WritePlan, base_snapshot_id: int | None) -> DataFrame:
    """Return the rows of the table or branch as they are, with its current columns.

    Spark answers `spark.table(...)` from what the user has cached, and Spark 4.1 with the table as it was then. It does
    not keep a table of a version. The head of a branch has the current columns, which a snapshot has not
    (`SnapshotUtil.schemaFor` of Iceberg 1.12).
    """
    if base_snapshot_id is None:  # a branch without a snapshot has no version
        return session.spark.table(target(session, plan))
    return session.spark.sql(sql.rows_of_branch(session.catalog.name, plan.identifier, plan.branch))


def with_default_values(session: IcebergSession, plan: WritePlan, frame: DataFrame) -> DataFrame:
    """Return the DataFrame with the default values of the columns that it lacks. Spark adds them from 4.1 on."""
    if not plan.defaults:
        return frame
    functions, held = functions_of(session.spark), set(frame.columns)
    for name, field in plan.defaults.items():
        if name not in held:
            frame = frame.withColumn(name, written_value(functions, field))
    return frame


def writer_to(
    session: IcebergSession, plan: WritePlan, frame: DataFrame, options: Mapping[str, str] = MappingProxyType({})
) -> DataFrameWriterV2:
    """Return the engine's writer of the DataFrame to the plan's table, with the plan's options and further ones."""
    table = target(session, plan)
    frame = with_default_values(session, plan, frame)
    complete = version_of(session.spark).with_all_columns(frame, lambda: session.spark.table(table))
    properties = {f"snapshot-property.{key}": value for key, value in plan.snapshot_properties.items()}
    return complete.writeTo(table).options(**{**plan.write_options, **properties, **options})


def append(session: IcebergSession, plan: WritePlan, frame: DataFrame) -> None:
    """Append the DataFrame's rows, possibly none, in one snapshot."""
    writer_to(session, plan, frame).append()


def append_alone(session: IcebergSession, plan: WritePlan, frame: DataFrame, base_snapshot_id: int | None) -> None:
    """Append the rows unless another writer has added some since the base snapshot, or since the beginning.

    This is an overwrite of no rows, which Iceberg validates against all new rows
    (`BaseOverwriteFiles.dataConflictDetectionFilter` of 1.12).
    """
    since = {} if base_snapshot_id is None else {"validate-from-snapshot-id": str(base_snapshot_id)}
    writer = writer_to(session, plan, frame, {**since, "isolation-level": "serializable"})
    writer.overwrite(functions_of(session.spark).lit(False))  # noqa: FBT003


def prepare(session: IcebergSession, plan: WritePlan) -> None:
    """Create the table and apply the plan's changes. This adds no snapshot to `main`."""
    try:
        if plan.create is not None:
            with lone_creation(session.catalog, plan.identifier.namespace):
                _run(session, plan.identifier, list(_namespaces(session, plan.identifier, plan.create.creation)))
        # Columns with a default come first, because other changes may refer to them, if the table has format 3 already.
        is_first = plan.create is None and not any(map(_upgrades, plan.changes))
        if is_first:
            _set_defaults(session, plan)
        _run(session, plan.identifier, statements(session, plan))
        if not is_first:
            _set_defaults(session, plan)
        if plan.staging:
            change_branches(session, plan.identifier, plan.staging)
            refresh(session, plan.identifier)
        if plan.create is not None and session.catalog.is_hive:
            find_table(session.catalog, plan.identifier)
    except InvestigationError as error:
        if plan.create is None or not forget_unmade(session.catalog, plan.identifier):
            raise
        raise CommitConflictError.to_plan_again(
            "create",
            plan.identifier,
            expected="one answer to its creation",
            found="that the catalog made it and answered that it was there already",
        ) from error


def _upgrades(change: TableUpdate) -> bool:
    return isinstance(change, SetProperties) and "format-version" in change.properties


def _set_defaults(session: IcebergSession, plan: WritePlan) -> None:
    defaults = [change for change in plan.changes if is_default(change)]
    if defaults:
        set_defaults(session.catalog, plan.identifier, defaults)
        refresh(session, plan.identifier)


def _run(
    session: IcebergSession, identifier: TableIdentifier, planned: Sequence[str], *, spark: SparkSession | None = None
) -> None:
    with translating(session.catalog, action="prepare", subject=str(identifier)):
        for statement in planned:
            (spark or session.spark).sql(statement)


def statements(session: IcebergSession, plan: WritePlan) -> list[str]:
    """Return the statements that prepare the table and its namespace, in order."""
    catalog, identifier, create = session.catalog.name, plan.identifier, plan.create
    together = version_of(session.spark).alters_columns_together
    planned: list[str] = []
    if create is not None:
        placed = create.creation.location
        location_of = default_location if placed is None else placed.location_of
        location = create.location or location_of(identifier, session.catalog.warehouse)
        planned.append(sql.create_table(catalog, identifier, create, location))
        # Spark's CREATE TABLE does not support these.
        finishing: list[TableUpdate] = []
        if create.sort_by:
            finishing.append(SetSortOrder(create.sort_by, is_partitioned=bool(create.spec.fields)))
        if create.identifier_fields:
            finishing.append(SetIdentifierFields(create.identifier_fields))
        planned.extend(sql.change_table(catalog, identifier, finishing))
    changes = [change for change in plan.changes if not is_default(change)]
    planned.extend(sql.change_table(catalog, identifier, changes, alters_together=together))
    if planned and session.may_be_stale:
        planned.append(sql.refresh(catalog, identifier))
    return planned


def _namespaces(session: IcebergSession, identifier: TableIdentifier, creation: TableCreation) -> Iterator[str]:
    """Yield the statements that create the namespace, or that fail if it does not exist.

    Some catalogs need its parent namespaces first. Those do not get its properties.
    """
    catalog = session.catalog.name
    if not creation.creates_namespace:
        yield sql.describe_namespace(catalog, identifier.namespace)  # SQL catalogs create tables without a namespace
        return
    for levels in range(1, len(identifier.namespace)):
        yield sql.create_namespace(catalog, identifier.namespace[:levels])
    yield sql.create_namespace(catalog, identifier.namespace, creation.namespace_properties)


def apply(session: IcebergSession, identifier: TableIdentifier, changes: Sequence[TableUpdate]) -> None:
    """Change the table's metadata.

    Only a session that is case-sensitive gives a column a name that differs in case alone (`FIELD_ALREADY_EXISTS`).
    """
    name, version = session.catalog.name, version_of(session.spark)
    for is_of_case, group in groupby(changes, key=_changes_case_alone):
        refresh(session, identifier)
        planned = sql.change_table(name, identifier, list(group), alters_together=version.alters_columns_together)
        if not is_of_case:
            _run(session, identifier, planned)
            continue
        has_siblings = version.has_siblings_on_connect or not is_connect(session.spark)
        apart = session.sibling({}) if has_siblings else nullcontext(session.spark)
        with apart as beside, temporary_settings(beside, {CASE_SENSITIVE: "true"}):
            _run(session, identifier, [sql.refresh(name, identifier), *planned], spark=beside)


def _changes_case_alone(change: TableUpdate) -> bool:
    return isinstance(change, RenameColumn) and fold(change.name) == fold(change.path[-1])


def refresh(session: IcebergSession, identifier: TableIdentifier) -> None:
    """Clear the session's cache of the table, if it may have one."""
    if session.may_be_stale:
        with translating(session.catalog, action="read", subject=str(identifier)):
            session.spark.sql(sql.refresh(session.catalog.name, identifier))


def added_between(
    session: IcebergSession, identifier: TableIdentifier, since: int, until: int, *, view: str = ""
) -> DataFrame:
    """Return the rows that were added after a snapshot up to another one, or a view of the table such as `.changes`.

    Spark 4.1 reads the state in which the user has cached a table, which may not have these snapshots.
    """
    name, spark = table_name(session.catalog.name, identifier), session.spark
    has_caches = is_connect(spark) or not spark._jsparkSession.sharedState().cacheManager().isEmpty()
    if has_caches and spark.catalog.isCached(name):
        spark.sql(sql.refresh(session.catalog.name, identifier))
    ends = {"start-snapshot-id": str(since), "end-snapshot-id": str(until)}
    return spark.read.options(**ends).table(f"{name}{view}")


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

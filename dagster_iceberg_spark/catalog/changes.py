"""Creates tables and changes their metadata through pyiceberg, without a JVM.

pyiceberg's own retries are not used. A conflict means that another writer was faster, and the write is planned again.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.table.update import AddSortOrderUpdate, SetDefaultSortOrderUpdate
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from dagster_iceberg_spark.catalog.branches import change_branch
from dagster_iceberg_spark.catalog.damage import lone_creation
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import call_catalog, find_table, known_table, open_catalog
from dagster_iceberg_spark.catalog.transaction import TableCommit, commit_table
from dagster_iceberg_spark.errors import CommitConflictError
from dagster_iceberg_spark.plan.write.placement import TableCreation, default_location, missing_namespace, taken_name
from dagster_iceberg_spark.plan.write.write_plan import CreateTable
from dagster_iceberg_spark.table import partitioning, schema, updates
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.updates import CreateBranch, DropBranch, TableUpdate

_METADATA_TABLES: Final = re.compile(
    r"(all_)?(data_files|delete_files|entries|files|manifests)|history|metadata_log_entries|partitions|"
    r"position_deletes|refs|snapshots"
)
"""The names under which Spark finds the metadata of a table (Iceberg documentation, "Spark Queries")."""
_CODEC = "write.parquet.compression-codec"
_DISTRIBUTION = "write.distribution-mode"


def create_table(description: CatalogDescription, identifier: TableIdentifier, create: CreateTable) -> None:
    """Create a table and its namespace.

    Raises:
        CommitConflictError: Another writer has created the table first.
        ConfigurationError: The namespace does not exist, and is not to be created.
        NotAnIcebergTableError: Something else has the name, such as a view.
    """
    catalog = open_catalog(description)
    if _METADATA_TABLES.fullmatch(identifier.name) and _is_table(description, identifier.namespace):
        raise taken_name(identifier)
    _create_namespace(description, identifier, create.creation)
    placed = create.creation.location
    location_of = default_location if placed is None else placed.location_of
    location = create.location or location_of(identifier, description.warehouse)
    if location is None and isinstance(catalog, SqlCatalog) and description.warehouse is not None:
        # As `JdbcCatalog` of Iceberg's Java library. pyiceberg joins the levels of the namespace by dots.
        location = "/".join((description.warehouse.rstrip("/"), *identifier.parts))
    columns = _schema(create)
    # Iceberg's Java library records the codec in new tables too (`TableMetadata.persistedProperties` of 1.12).
    properties = {_CODEC: "zstd", **_distribution(create.sort_by, is_partitioned=bool(create.spec.fields))}
    make = partial(
        catalog.create_table,
        identifier.parts,
        columns,
        location=location,
        partition_spec=PartitionSpec(*_partition_fields(create.spec, columns)),
        sort_order=_sort_order(create.sort_by, columns),
        properties={**properties, **create.properties},
    )
    try:
        call_catalog(description, make, action=f"create {identifier} in")
    except NoSuchNamespaceError:
        raise missing_namespace(identifier) from None
    except (TableAlreadyExistsError, CommitFailedException) as error:
        if isinstance(error, TableAlreadyExistsError) and find_table(description, identifier) is None:
            raise taken_name(identifier) from None
        raise CommitConflictError.to_plan_again(
            "create", identifier, expected="a free name", found="a table that another writer has just created"
        ) from error


def change_table(
    description: CatalogDescription, identifier: TableIdentifier, changes: Sequence[TableUpdate]
) -> Sequence[CreateBranch]:
    """Make the changes in order, all but those of branches in one commit.

    Return the branches that pyiceberg cannot create, because the table has no snapshot.
    """
    of_branches = [change for change in changes if isinstance(change, CreateBranch | DropBranch)]
    others = [change for change in changes if not isinstance(change, CreateBranch | DropBranch)]
    if others:
        table = known_table(description, identifier, action="prepare")
        transaction = table.transaction()
        try:
            for change in others:
                _stage(transaction, change)
        except ValueError as error:  # the table is not as it was when the write was planned
            raise CommitConflictError.to_plan_again(
                "prepare", identifier, expected="the columns and fields of a moment ago", found=str(error)
            ) from error
        requirements, staged = transaction._requirements, transaction._updates  # noqa: SLF001 - pyiceberg would retry
        if not commit_table(description, TableCommit(identifier, table, {}, requirements, staged)):
            raise CommitConflictError.to_plan_again(
                "prepare",
                identifier,
                expected="a table that no other writer changes",
                found="a commit of another writer",
            )
    left = [change for change in of_branches if not change_branch(description, identifier, change)]
    return [change for change in left if isinstance(change, CreateBranch)]


def _is_table(description: CatalogDescription, namespace: Sequence[str]) -> bool:
    return (
        len(namespace) > 1
        and find_table(description, TableIdentifier(tuple(namespace[:-1]), namespace[-1])) is not None
    )


def _create_namespace(description: CatalogDescription, identifier: TableIdentifier, creation: TableCreation) -> None:
    catalog = open_catalog(description)
    whole = identifier.namespace

    def exists() -> bool:
        return catalog.namespace_exists(whole)

    if call_catalog(description, exists, action=f"look for the namespace {'.'.join(whole)} in"):
        return
    if not creation.creates_namespace:
        raise missing_namespace(identifier)

    def create() -> None:
        for levels in range(1, len(whole) + 1):
            properties = dict(creation.namespace_properties) if levels == len(whole) else {}
            with suppress(NamespaceAlreadyExistsError):  # a parent, or another writer's
                catalog.create_namespace(whole[:levels], properties)

    with lone_creation(description, whole):
        call_catalog(description, create, action=f"create the namespace {'.'.join(whole)} in")


def _stage(transaction: Transaction, change: TableUpdate) -> None:
    match change:
        case updates.SetProperties(properties):
            transaction.set_properties(dict(properties))
        case updates.RemoveProperties(keys):
            transaction.remove_properties(*keys)
        case updates.AddPartitionField(field):
            with transaction.update_spec() as spec:
                spec.add_field(field.column, parse_transform(str(field.transform)), field.name or field.derived_name)
        case updates.DropPartitionField(field):
            with transaction.update_spec() as spec:
                spec.remove_field(field.name or field.derived_name)
        case updates.RenamePartitionField(field, name):
            with transaction.update_spec() as spec:
                spec.rename_field(field.name or field.derived_name, name)
        case updates.SetSortOrder(fields, is_partitioned):
            transaction._stage(tuple(_order_updates(transaction, fields)))  # noqa: SLF001 - see there
            mode = "hash" if is_partitioned else "none"
            transaction.set_properties({_DISTRIBUTION: mode})
        case _:
            with transaction.update_schema() as columns:
                _stage_column(columns, change)


def _order_updates(
    transaction: Transaction, fields: Sequence[partitioning.SortField]
) -> Iterator[AddSortOrderUpdate | SetDefaultSortOrderUpdate]:
    """Yield the updates that set a sort order.

    `update_sort_order` of pyiceberg 0.12.0 sets the order of the highest id in place of an empty one that it adds.
    """
    metadata = transaction.table_metadata
    known = {tuple(item.fields): item.order_id for item in metadata.sort_orders}
    order = _sort_order(fields, metadata.schema(), order_id=max(known.values(), default=0) + 1)
    order_id = known.get(tuple(order.fields))
    if order_id is None:
        order_id = order.order_id
        yield AddSortOrderUpdate.model_validate({"sort-order": order})
    yield SetDefaultSortOrderUpdate.model_validate({"sort-order-id": order_id})


def _stage_column(columns: Any, change: TableUpdate) -> None:
    match change:
        case updates.AddColumn(path, kind, doc):
            columns.add_column(path, pyiceberg_type(kind), doc)
        case updates.WidenColumn(path, _, after):
            columns.update_column(path, pyiceberg_type(after))
        case updates.DescribeColumn(path, doc):
            columns.update_column(path, doc=doc)
        case updates.RelaxColumn(path):
            columns.make_column_optional(path)
        case updates.RenameColumn(path, name):
            columns.rename_column(path, name)
        case updates.DropColumn(path):
            columns.delete_column(path)
        case updates.MoveColumn(path, None):
            columns.move_first(path)
        case updates.MoveColumn(path, after):
            columns.move_after(path, (*path[:-1], after))
        case updates.SetIdentifierFields(names):
            columns.set_identifier_fields(*names)
        case _:
            raise NotImplementedError(change)


def _schema(create: CreateTable) -> Schema:
    """Return the columns with ids. Those of the columns come before those of the fields inside them, as in Java."""
    ids = count(1)
    columns: Any = pyiceberg_type(schema.StructType(create.schema.fields), ids)
    known = {field.name: field.field_id for field in columns.fields}
    return Schema(*columns.fields, identifier_field_ids=[known[name] for name in create.identifier_fields])


def pyiceberg_type(kind: schema.IcebergType, ids: Iterator[int] | None = None) -> IcebergType:
    """Return pyiceberg's type, with ids for what is inside of it."""
    ids = count(1) if ids is None else ids
    match kind:
        case schema.StructType(fields):
            own = [next(ids) for _ in fields]
            return StructType(*(_nested(field, ids, field_id) for field, field_id in zip(fields, own, strict=True)))
        case schema.ListType(element):
            return ListType(next(ids), pyiceberg_type(element, ids), element_required=kind.is_element_required)
        case schema.MapType(key, value):
            key_id, value_id = next(ids), next(ids)
            return MapType(
                key_id,
                pyiceberg_type(key, ids),
                value_id,
                pyiceberg_type(value, ids),
                value_required=kind.is_value_required,
            )
        case _:
            return IcebergType.model_validate(str(kind))


def _nested(field: schema.Field, ids: Iterator[int], field_id: int) -> NestedField:
    return NestedField(field_id, field.name, pyiceberg_type(field.type, ids), required=field.is_required, doc=field.doc)


def _partition_fields(spec: partitioning.PartitionSpec, columns: Schema) -> Iterator[PartitionField]:
    for position, field in enumerate(spec.fields):
        source = columns.find_field(field.column).field_id
        yield PartitionField(source, 1000 + position, parse_transform(str(field.transform)), field.derived_name)


def _sort_order(fields: Sequence[partitioning.SortField], columns: Schema, *, order_id: int = 1) -> SortOrder:
    sorted_by = (
        SortField(columns.find_field(field.column).field_id, IdentityTransform(), *_direction(field))
        for field in fields
    )
    return SortOrder(*sorted_by, order_id=order_id) if fields else SortOrder(order_id=0)


def _direction(field: partitioning.SortField) -> tuple[SortDirection, NullOrder]:
    """Return the direction and the place of NULL, which is first in ascending order by default, as in Spark."""
    is_ascending = field.direction == "asc"
    nulls_first = is_ascending if field.nulls is None else field.nulls == "first"
    direction = SortDirection.ASC if is_ascending else SortDirection.DESC
    return direction, NullOrder.NULLS_FIRST if nulls_first else NullOrder.NULLS_LAST


def _distribution(fields: Sequence[partitioning.SortField], *, is_partitioned: bool) -> dict[str, str]:
    """Return the property that Spark sets with a sort order (`WRITE ... ORDERED BY`)."""
    return {_DISTRIBUTION: "hash" if is_partitioned else "none"} if fields else {}

"""The plan of one write: everything that is decided before anything is done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dagster_iceberg_spark.errors import ConfigurationError, TableOwnershipError
from dagster_iceberg_spark.plan.binding import BoundScope, bind_each_partition, bind_scope
from dagster_iceberg_spark.plan.coverage import Coverage, DataFile, cover, follows_spec
from dagster_iceberg_spark.plan.evolution import (
    AddPartitionField,
    SetProperties,
    TableChange,
    check_transforms,
    plan_schema_changes,
    plan_spec_changes,
    refuse_repeated_columns,
    with_docs,
)
from dagster_iceberg_spark.plan.options import SortField, WriteOptions
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import Materialization
from dagster_iceberg_spark.table.partitioning import PartitionField, PartitionSpec, Transform
from dagster_iceberg_spark.table.predicate import Predicate
from dagster_iceberg_spark.table.schema import DATE, INTEGERS, STRING, Schema
from dagster_iceberg_spark.table.scope import Dimension, PartitionScope
from dagster_iceberg_spark.table.snapshot import TableState

MAXIMUM_COUNTED_PARTITIONS: Final = 50
"""In a run of more partitions, rows are not counted while they are written: each count is an expression per row."""
MAXIMUM_LISTED_PARTITIONS: Final = 1000
"""In a run of more partitions, the metadata of the new files is not searched for each."""

CREATION_PROPERTIES: Final = {
    "commit.retry.num-retries": "20",
    "commit.retry.min-wait-ms": "20",
    "commit.retry.max-wait-ms": "2000",
}
"""With Iceberg's default of 4 retries, some of 8 concurrent writers of disjoint partitions fail; with 20 none did."""

SINGLE_PARTITION_OPTIONS: Final = {"advisory-partition-size": str(32 * 1024 * 1024)}
"""Rows of one table partition hash to one task; this size, in bytes of shuffled data, lets the engine split it. Runs of
several partitions have several tasks anyway: there it was measured to make no difference but smaller files."""


MAXIMUM_OPEN_PARTITIONS: Final = 100
"""In a run of more partitions a task writes one after the other. By Iceberg's default it keeps a file of each open,
with its buffers: 3,000 days in one run need more than a heap of 2 GB."""

FANOUT_OPTION: Final = "fanout-enabled"
FANOUT_PROPERTY: Final = "write.spark.fanout.enabled"


@dataclass(frozen=True, slots=True)
class TableRequest:
    """What the definition wants of the table.

    Args:
        identifier: The table's name.
        asset_key: The owning asset, its parts joined by slashes; None for an op's output, which owns nothing.
        is_named_explicitly: Whether `iceberg/table` gave the name.
        options: How the output is written.
        column_docs: Descriptions of columns that the definition gives.
    """

    identifier: TableIdentifier
    asset_key: str | None
    is_named_explicitly: bool
    options: WriteOptions
    column_docs: Mapping[str, str] = field(default_factory=dict)

    def ownership(self) -> dict[str, str]:
        """Return the table properties that record the owner."""
        if self.asset_key is None:
            return {}
        named = {lineage.SHARED_PROPERTY: lineage.NAMED_EXPLICITLY} if self.is_named_explicitly else {}
        return {lineage.OWNER_PROPERTY: self.asset_key, **named}


@dataclass(frozen=True, slots=True)
class FrameShape:
    """What is known of a frame before it is evaluated."""

    schema: Schema
    is_case_sensitive: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Create the table if it does not exist."""

    schema: Schema
    spec: PartitionSpec
    properties: Mapping[str, str]
    location: str | None
    sort_by: tuple[SortField, ...]


@dataclass(frozen=True, slots=True)
class Guard:
    """Rows that the run owns; what to do with others is the options' `rows_outside_partition`.

    Args:
        owned: The rows that may be written.
        columns: The columns that decide, whose values the message shows.
        drops: Whether other rows are dropped and counted instead of refused.
        partitions: The run's partitions in words, for the message.
    """

    owned: Predicate
    columns: tuple[str, ...]
    drops: bool
    partitions: str


@dataclass(frozen=True, slots=True)
class Append:
    """Add the rows."""


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Remove the rows that the coverage's filter matches, add the frame and what is carried over.

    Args:
        coverage: What to overwrite.
        base_snapshot_id: The snapshot that carried rows are read from and that the commit validates against.
    """

    coverage: Coverage
    base_snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class Merge:
    """Update rows of the scope that have a key of the batch, insert the others.

    Args:
        keys: The columns that identify a row.
        scope: The rows that may be updated.
    """

    keys: tuple[str, ...]
    scope: Predicate


WriteAction: TypeAlias = Append | Overwrite | Merge


@dataclass(frozen=True, slots=True)
class WritePlan:
    """One write, decided.

    Args:
        identifier: The table.
        branch: The branch that is written.
        create: How to create the table; None if it exists.
        changes: Changes to the table's metadata, in order.
        action: How the rows are written.
        guard: Which rows may be written; None: all.
        write_options: Options for the engine's writer.
        snapshot_properties: What the snapshot says about itself.
        counted_partitions: Partitions whose rows are counted while they are written.
        listed_partitions: Partitions whose rows the new files' metadata tells: each file holds rows of one of them.
    """

    identifier: TableIdentifier
    branch: str
    create: CreateTable | None
    changes: tuple[TableChange, ...]
    action: WriteAction
    guard: Guard | None
    write_options: Mapping[str, str]
    snapshot_properties: Mapping[str, str]
    counted_partitions: tuple[tuple[str, Predicate], ...] = ()
    listed_partitions: tuple[tuple[str, BoundScope], ...] = ()

    @property
    def carries_over(self) -> bool:
        """Whether rows of other partitions are written again."""
        return isinstance(self.action, Overwrite) and self.action.coverage.carries_over


def plan_write(
    request: TableRequest,
    materialization: Materialization,
    frame: FrameShape,
    state: TableState | None,
    files: Sequence[DataFile] | None = None,
) -> WritePlan:
    """Decide one write, or refuse it.

    Args:
        request: What the definition wants.
        materialization: The run's scope and what the snapshot will say.
        frame: The frame's columns.
        state: The table as a fresh look saw it; None if it does not exist.
        files: Bounds of the table's data files, where `needs_files` asked for them.

    Raises:
        ConfigurationError: The metadata, the partitions definition and the table do not fit together.
        DataError: The frame cannot be stored in the table.
    """
    subject = str(request.identifier)
    options, scope = request.options, materialization.scope
    refuse_repeated_columns(frame.schema, is_case_sensitive=frame.is_case_sensitive, subject=subject)
    check_ownership(request, state)
    wanted_fields = _wanted_fields(request, scope, frame.schema, state)
    create = None if state else _creation(request, wanted_fields or (), frame.schema)
    changes = _changes(request, wanted_fields, frame.schema, state)
    columns = _columns_to_tell_by(frame.schema, state)
    own = bind_scope(scope, columns, subject=subject)
    _check_columns(options, frame.schema, subject=subject)
    guard = _guard(own, scope, options)
    action = _action(options, own, state, files)
    spec = state.spec if state and wanted_fields is None else PartitionSpec(wanted_fields or ())
    partitions = _partitions_to_count(options, scope, columns, subject=subject)
    are_listed = all(follows_spec(part, [spec]) for _, part in partitions)
    counted = partitions if len(partitions) <= MAXIMUM_COUNTED_PARTITIONS else ()
    return WritePlan(
        identifier=request.identifier,
        branch=options.branch,
        create=create,
        changes=changes,
        action=action,
        guard=guard,
        write_options=_write_options(options, scope, state),
        snapshot_properties=materialization.properties(),
        counted_partitions=() if are_listed else tuple((key, part.predicate()) for key, part in counted),
        listed_partitions=partitions if are_listed else (),
    )


def needs_files(request: TableRequest, scope: PartitionScope, state: TableState | None) -> bool:
    """Say whether the plan depends on how rows lie in the table's data files."""
    if state is None or state.head(request.options.branch) is None or request.options.write_disposition != "replace":
        return False
    if any(state.schema.field(dimension.column) is None for dimension in scope.dimensions):
        return False  # a column that the table is about to get: no stored row has a value in it
    own = bind_scope(scope, state.schema, subject=str(request.identifier))
    return not follows_spec(own, state.specs.values())


def check_ownership(request: TableRequest, state: TableState | None) -> None:
    """Refuse a table that another asset owns.

    Raises:
        TableOwnershipError: Names the owner.
    """
    if state is None or request.asset_key is None:
        return
    owner = state.properties.get(lineage.OWNER_PROPERTY)
    shared = state.properties.get(lineage.SHARED_PROPERTY) == lineage.NAMED_EXPLICITLY
    if owner is None or owner == request.asset_key or (shared and request.is_named_explicitly):
        return
    raise TableOwnershipError.refusing(
        "write",
        str(request.identifier),
        expected=f"a table of the asset {request.asset_key!r}",
        found=f"a table of the asset {owner!r}",
        hint="give one of them another `schema`, or name the table by `iceberg/table` in both if they mean to share "
        "it.",
    )


def _wanted_fields(
    request: TableRequest, scope: PartitionScope, frame: Schema, state: TableState | None
) -> tuple[PartitionField, ...] | None:
    """Return the partition fields to have; None: those that the table has."""
    subject = str(request.identifier)
    if request.options.partition_by is not None:
        columns = Schema((*frame.fields, *(state.schema.fields if state else ())))
        known = {field.name.casefold(): field for field in reversed(columns.fields)}
        return check_transforms(request.options.partition_by, Schema(tuple(known.values())), subject=subject)
    if state is not None:
        return None
    return tuple(default_partition_field(dimension, frame) for dimension in scope.dimensions)


def default_partition_field(dimension: Dimension, schema: Schema) -> PartitionField:
    """Return the partition field that a dimension makes in a new table.

    A dimension of keys becomes its column's identity; one of time windows the coarsest of year, month, day and hour
    that its windows are made of.
    """
    field = schema.field(dimension.column)
    if field is None or dimension.calendar is None or field.type == STRING or field.type in INTEGERS:
        transform = Transform("identity")
    elif field.type == DATE and dimension.calendar.granule == "hour":
        transform = Transform("day")
    else:
        transform = Transform(dimension.calendar.granule)
    column = dimension.column if field is None else field.name
    return PartitionField(column, transform)


def _creation(request: TableRequest, fields: tuple[PartitionField, ...], frame: Schema) -> CreateTable:
    options = request.options
    if not frame.fields:
        raise ConfigurationError.refusing(
            "create", str(request.identifier), expected="at least one column", found="a DataFrame without columns"
        )
    version = {"format-version": str(options.format_version)} if options.format_version else {}
    return CreateTable(
        schema=with_docs(frame, request.column_docs),
        spec=PartitionSpec(tuple(dict.fromkeys(field for field in fields if field.name is None))),
        properties={**CREATION_PROPERTIES, **version, **options.table_properties, **request.ownership()},
        location=options.location,
        sort_by=options.sort_by,
    )


def _changes(
    request: TableRequest,
    wanted_fields: tuple[PartitionField, ...] | None,
    frame: Schema,
    state: TableState | None,
) -> tuple[TableChange, ...]:
    options, subject = request.options, str(request.identifier)
    if state is None:
        # The frame may hold what no table can: find that before anything is created.
        plan_schema_changes(frame, Schema(()), policy="add_columns", docs={}, subject=subject)
        return tuple(AddPartitionField(field) for field in wanted_fields or () if field.name is not None)
    schema_changes = plan_schema_changes(
        with_docs(frame, request.column_docs),
        state.schema,
        policy=options.schema_evolution,
        docs=request.column_docs,
        subject=subject,
    )
    spec_changes = plan_spec_changes(wanted_fields, state.spec, policy=options.partition_evolution, subject=subject)
    wanted_properties = {
        **options.table_properties,
        **({} if lineage.OWNER_PROPERTY in state.properties else request.ownership()),
    }
    new = {key: value for key, value in wanted_properties.items() if state.properties.get(key) != value}
    return (*schema_changes, *spec_changes, *((SetProperties(new),) if new else ()))


def _columns_to_tell_by(frame: Schema, state: TableState | None) -> Schema:
    """Return the frame's columns as the table stores them: a partition column must be in the frame."""
    stored = (None if state is None else state.schema.field(field.name) for field in frame)
    return Schema(tuple(field if known is None else known for field, known in zip(frame, stored, strict=True)))


def _check_columns(options: WriteOptions, frame: Schema, *, subject: str) -> None:
    named = {
        "iceberg/merge_keys": options.merge_keys if options.write_disposition == "merge" else (),
        "iceberg/sort_by": tuple(field.column for field in options.sort_by),
    }
    for key, columns in named.items():
        for column in columns:
            if frame.field(column) is None:
                raise ConfigurationError.refusing(
                    "write",
                    subject,
                    expected=f"the column {column!r} of `{key}`",
                    found=f"a DataFrame with the columns {', '.join(frame.names)}",
                )


def _guard(own: BoundScope, scope: PartitionScope, options: WriteOptions) -> Guard | None:
    if own.is_whole_table:
        return None
    return Guard(
        owned=own.predicate(),
        columns=own.columns,
        drops=options.rows_outside_partition == "drop",
        partitions=scope.describe(),
    )


def _action(
    options: WriteOptions, own: BoundScope, state: TableState | None, files: Sequence[DataFile] | None
) -> WriteAction:
    if options.write_disposition == "append":
        return Append()
    if options.write_disposition == "merge":
        return Merge(keys=options.merge_keys, scope=own.predicate())
    head = state.head(options.branch) if state else None
    owned = own.predicate()
    coverage = Coverage(filter=owned, owned=owned) if files is None else cover(own, files)
    return Overwrite(coverage=coverage, base_snapshot_id=head.snapshot_id if head else None)


def _write_options(options: WriteOptions, scope: PartitionScope, state: TableState | None) -> dict[str, str]:
    """Return the engine's write options: for one partition a size that lets its rows be split over tasks."""
    properties = {**(state.properties if state else {}), **options.table_properties}
    user_decides = "write.distribution-mode" in properties or "distribution-mode" in options.write_options
    automatic = SINGLE_PARTITION_OPTIONS if len(scope.keys) == 1 and not user_decides else {}
    if len(scope.keys) > MAXIMUM_OPEN_PARTITIONS and FANOUT_PROPERTY not in properties:
        automatic = {**automatic, FANOUT_OPTION: "false"}
    return {**automatic, **options.write_options}


def _partitions_to_count(
    options: WriteOptions, scope: PartitionScope, schema: Schema, *, subject: str
) -> tuple[tuple[str, BoundScope], ...]:
    """Return the partitions whose rows a run of several should report: only a replace writes all that they have."""
    if options.write_disposition != "replace" or not 1 < len(scope.keys) <= MAXIMUM_LISTED_PARTITIONS:
        return ()
    return bind_each_partition(scope, schema, subject=subject)

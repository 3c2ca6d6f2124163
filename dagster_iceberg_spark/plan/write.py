"""The plan of one write: everything that is decided before anything is done."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias
from urllib.parse import quote_plus

from dagster_iceberg_spark.errors import ConfigurationError, SchemaMismatchError, TableOwnershipError
from dagster_iceberg_spark.plan.binding import BoundScope, bind_each_partition, bind_scope
from dagster_iceberg_spark.plan.coverage import Coverage, DataFile, cover, follows_spec
from dagster_iceberg_spark.plan.evolution import (
    check_transforms,
    completed_columns,
    plan_schema_changes,
    plan_spec_changes,
    refuse_repeated_columns,
    with_docs,
)
from dagster_iceberg_spark.plan.options import IDENTIFIER_FIELDS, MERGE_KEYS, REQUIRED_COLUMNS, SORT_BY, WriteOptions
from dagster_iceberg_spark.plan.renames import StoredNames
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.changes import (
    AddPartitionField,
    DropColumn,
    RelaxColumn,
    RemoveProperties,
    SetIdentifierFields,
    SetProperties,
    SetSortOrder,
    TableChange,
)
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import Materialization
from dagster_iceberg_spark.table.ordering import SortField
from dagster_iceberg_spark.table.partitioning import PartitionField, PartitionSpec, Transform
from dagster_iceberg_spark.table.predicate import Predicate
from dagster_iceberg_spark.table.schema import DATE, INTEGERS, STRING, IcebergType, Schema
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

MAXIMUM_PATH_SEGMENT: Final = 255
"""Bytes of a name that file systems take; Iceberg names a directory after the value of an identity partition."""
PLAIN_PATHS: Final = {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"}
"""Data files are placed by a hash, and no partition value is in their paths."""

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

    def by_names(self, names: StoredNames) -> "TableRequest":
        """Return the request over the names that the table has for its columns."""
        docs = {names.column(column): doc for column, doc in self.column_docs.items()}
        return replace(self, options=names.of_options(self.options), column_docs=docs)

    def with_properties(self, properties: Mapping[str, str]) -> "TableRequest":
        """Return the request with more table properties, where it does not say something else of them."""
        wanted = {**properties, **self.options.table_properties}
        return replace(self, options=replace(self.options, table_properties=wanted))

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
    sort_by: tuple[SortField, ...] = ()
    identifier_fields: tuple[str, ...] = ()


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
        completions: Columns whose structs lack fields that the table has, with the type that has them all.
        required: Columns that may not hold NULL by the definition alone: the table would let them.
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
    completions: Mapping[str, IcebergType]
    required: tuple[str, ...]
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
    spec = state.spec if state and wanted_fields is None else PartitionSpec(wanted_fields or ())
    request = request.with_properties(PLAIN_PATHS) if _has_long_paths(scope, spec) else request
    create = None if state else _creation(request, wanted_fields or (), frame.schema)
    changes = _changes(request, wanted_fields, frame.schema, state)
    columns = _columns_to_tell_by(frame.schema, state)
    own = bind_scope(scope, columns, subject=subject)
    _check_columns(options, frame.schema, state, subject=subject)
    guard = _guard(own, scope, options)
    action = _action(options, own, state, files)
    partitions = _partitions_to_count(options, scope, columns, subject=subject)
    are_listed = all(follows_spec(part, [spec]) for _, part in partitions)
    counted = partitions if len(partitions) <= MAXIMUM_COUNTED_PARTITIONS else ()
    return WritePlan(
        identifier=request.identifier,
        branch=options.branch,
        create=create,
        changes=changes,
        completions=_completions(options, frame.schema, state, subject=subject),
        required=_required_by_definition(options, frame.schema, state),
        action=action,
        guard=guard,
        write_options=_write_options(options, scope, state),
        snapshot_properties=materialization.properties(),
        counted_partitions=() if are_listed else tuple((key, part.predicate()) for key, part in counted),
        listed_partitions=partitions if are_listed else (),
    )


def plan_finish(request: TableRequest, frame: FrameShape, state: TableState) -> tuple[TableChange, ...]:
    """Say what is left to change once the data is committed: what may lose something, and what only tidies up.

    Args:
        request: What the definition wants.
        frame: The frame's columns.
        state: The table after the commit.

    Raises:
        DataError: Another writer has changed the table's columns since.
    """
    options, subject = request.options, str(request.identifier)
    if options.schema_evolution != "full" and not options.renames:
        return ()
    names = StoredNames.of(options.renames, frame.schema, state.schema, subject=subject)
    changes = plan_schema_changes(
        names.of_schema(frame.schema), state.schema, policy=options.schema_evolution, docs={}, subject=subject
    )
    return (*changes.after, *names.changes)


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


def _has_long_paths(scope: PartitionScope, spec: PartitionSpec) -> bool:
    """Say whether a key would make a directory name that no file system takes."""
    names = {
        field.column: field.name or field.column for field in spec.live_fields if field.transform.name == "identity"
    }
    return any(
        len(quote_plus(f"{names[dimension.column]}={partition[position].key}")) > MAXIMUM_PATH_SEGMENT
        for position, dimension in enumerate(scope.dimensions)
        if dimension.calendar is None and dimension.column in names
        for partition in scope.partitions
    )


def _creation(request: TableRequest, fields: tuple[PartitionField, ...], frame: Schema) -> CreateTable:
    options = request.options
    if not frame.fields:
        raise ConfigurationError.refusing(
            "create", str(request.identifier), expected="at least one column", found="a DataFrame without columns"
        )
    version = {"format-version": str(options.format_version)} if options.format_version else {}
    required = {name for name, is_required in _required(options).items() if is_required}
    described = with_docs(frame, request.column_docs)
    return CreateTable(
        schema=Schema(tuple(replace(field, is_required=field.name in required) for field in described)),
        spec=PartitionSpec(tuple(dict.fromkeys(field for field in fields if field.name is None))),
        properties={**CREATION_PROPERTIES, **version, **_wanted_properties(options), **request.ownership()},
        location=options.location,
        sort_by=options.sort_by or (),
        identifier_fields=options.identifier_fields or (),
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
    _check_place(options, state, subject=subject)
    schema = plan_schema_changes(
        with_docs(frame, request.column_docs),
        state.schema,
        policy=options.schema_evolution,
        docs=request.column_docs,
        subject=subject,
        protected=_protected(options, wanted_fields, state),
    )
    relaxed = [
        RelaxColumn((field.name,))
        for name, is_required in options.required_columns.items()
        if not is_required and (field := state.schema.field(name)) is not None and field.is_required
    ]
    layout = (
        *plan_spec_changes(wanted_fields, state.spec, policy=options.partition_evolution, subject=subject),
        *_order_changes(options, state),
        *_identifier_changes(options, state, subject=subject),
    )
    _refuse_disagreement(request, state, layout, schema.after)
    return (*dict.fromkeys((*schema.before, *relaxed)), *layout, *_property_changes(request, state))


def _refuse_disagreement(
    request: TableRequest, state: TableState, layout: Sequence[TableChange], after: Sequence[TableChange]
) -> None:
    """Refuse what assets that share a table would change back and forth.

    Raises:
        TableOwnershipError: The layout is its owner's to change; the columns of all of them stay.
    """
    owner, sharers = state.properties.get(lineage.OWNER_PROPERTY), _sharers(state)
    others = sorted({owner, *sharers} - {request.asset_key, None})  # type: ignore[type-var]
    losses = [change for change in after if isinstance(change, DropColumn)]
    pending = StoredNames.of(request.options.renames, Schema(()), state.schema, subject=str(request.identifier)).changes
    refused = [*([] if owner in (None, request.asset_key) else layout), *losses, *pending]
    if others and refused:
        raise TableOwnershipError.refusing(
            "change",
            str(request.identifier),
            expected=f"what suits the other assets of the table too ({', '.join(map(repr, others))})",
            found=f"{request.asset_key!r} wants to {refused[0]}",
            hint=f"a table's layout is the matter of its owner, {owner!r}: define it there, and leave it out here. "
            "Columns of a table that several assets write are neither dropped nor renamed.",
        )


def _sharers(state: TableState) -> tuple[str, ...]:
    try:
        sharers = json.loads(state.properties.get(lineage.SHARERS_PROPERTY, "[]"))
    except ValueError:  # somebody else's text
        return ()
    return tuple(map(str, sharers)) if isinstance(sharers, list) else ()


def _wanted_properties(options: WriteOptions) -> dict[str, str]:
    return {key: value for key, value in options.table_properties.items() if value is not None}


def _property_changes(request: TableRequest, state: TableState) -> Iterator[TableChange]:
    options = request.options
    version = options.format_version
    wanted = {
        **({"format-version": str(version)} if version is not None and version > state.format_version else {}),
        **_wanted_properties(options),
        **({} if lineage.OWNER_PROPERTY in state.properties else request.ownership()),
        **_shared_by(request, state),
    }
    new = {key: value for key, value in wanted.items() if state.properties.get(key) != value}
    if new:
        yield SetProperties(new)
    removed = tuple(key for key, value in options.table_properties.items() if value is None and key in state.properties)
    if removed:
        yield RemoveProperties(removed)


def _shared_by(request: TableRequest, state: TableState) -> dict[str, str]:
    """Return the property that lets the table's other assets know of this one."""
    owner, sharers = state.properties.get(lineage.OWNER_PROPERTY), _sharers(state)
    if request.asset_key is None or owner in (None, request.asset_key) or request.asset_key in sharers:
        return {}
    return {lineage.SHARERS_PROPERTY: json.dumps(sorted({*sharers, request.asset_key}))}


def _order_changes(options: WriteOptions, state: TableState) -> Iterator[TableChange]:
    wanted, current = options.sort_by, state.sort_order
    if wanted is None:
        return
    named = tuple(replace(item, column=_exact(item.column, state.schema)) for item in wanted)
    if len(named) != len(current) or not all(map(SortField.same_order_as, named, current)):
        yield SetSortOrder(named, is_partitioned=bool(state.spec.live_fields))


def _identifier_changes(options: WriteOptions, state: TableState, *, subject: str) -> Iterator[TableChange]:
    if options.identifier_fields is None:
        return
    wanted = tuple(_exact(name, state.schema) for name in options.identifier_fields)
    if set(wanted) == set(state.identifier_fields):
        return
    for name in wanted:
        field = state.schema.field(name)
        if field is None or not field.is_required:
            raise ConfigurationError.refusing(
                "write",
                subject,
                expected=f"required columns of the table in `{IDENTIFIER_FIELDS}`",
                found=f"{name!r}, which {'it lacks' if field is None else 'may hold NULL'}",
                hint="a table gets required columns when it is created: a stored column is not made required.",
            )
    yield SetIdentifierFields(wanted, tuple(name for name in state.identifier_fields if name not in wanted))


def _exact(name: str, schema: Schema) -> str:
    field = schema.field(name)
    return name if field is None else field.name


def _protected(
    options: WriteOptions, wanted_fields: Sequence[PartitionField] | None, state: TableState
) -> dict[str, str]:
    """Return the columns that the table's layout needs, with what for."""
    sort_order = state.sort_order if options.sort_by is None else options.sort_by
    identifiers = state.identifier_fields if options.identifier_fields is None else options.identifier_fields
    return {
        **{
            field.column: "by which older files of the table are partitioned"
            for spec in state.specs.values()
            for field in spec.live_fields
        },
        **dict.fromkeys((item.column for item in sort_order), "by which the table's files are sorted"),
        **dict.fromkeys(identifiers, "which identifies its rows"),
        **dict.fromkeys(
            (field.column for field in (*state.spec.live_fields, *(wanted_fields or ()))),
            "by which the table is partitioned",
        ),
    }


def _check_place(options: WriteOptions, state: TableState, *, subject: str) -> None:
    if options.format_version is not None and options.format_version < state.format_version:
        raise ConfigurationError.refusing(
            "write",
            subject,
            expected=f"a table of format version {options.format_version} (`iceberg/format_version`)",
            found=f"version {state.format_version}",
            hint="a table's format is upgraded, never downgraded: leave the key out, or raise it.",
        )
    if options.location is not None and _plain_uri(options.location) != _plain_uri(state.location):
        raise ConfigurationError.refusing(
            "write",
            subject,
            expected=f"a table at {options.location} (`iceberg/location`)",
            found=f"one at {state.location}",
            hint="the key says where a new table is made; leave it out for this one, or move the table.",
        )


def _plain_uri(uri: str) -> str:
    return re.sub(r"^file:/*", "/", uri).rstrip("/")


def _required(options: WriteOptions) -> dict[str, bool]:
    return {**options.required_columns, **dict.fromkeys(options.identifier_fields or (), True)}


def _completions(
    options: WriteOptions, frame: Schema, state: TableState | None, *, subject: str
) -> Mapping[str, IcebergType]:
    completions = {} if state is None else completed_columns(frame, state.schema)
    if completions and options.write_disposition == "merge":
        name = next(iter(completions))
        raise SchemaMismatchError.refusing(
            "merge into",
            subject,
            expected=f"all fields that the table has inside of the column {name!r}",
            found=f"type {next(field.type for field in frame if field.name == name)}",
            hint="a merge keeps the stored values of a column that the DataFrame lacks, but writes a struct as a "
            "whole: add the fields, or leave the column out.",
        )
    return completions


def _required_by_definition(options: WriteOptions, frame: Schema, state: TableState | None) -> tuple[str, ...]:
    """Return the columns that the definition requires where the table, being older, does not."""
    if state is None:
        return ()
    wanted = (name for name, is_required in _required(options).items() if is_required)
    fields = ((name, state.schema.field(name), frame.field(name)) for name in wanted)
    return tuple(
        own.name for _, stored, own in fields if own is not None and (stored is None or not stored.is_required)
    )


def _columns_to_tell_by(frame: Schema, state: TableState | None) -> Schema:
    """Return the frame's columns as the table stores them: a partition column must be in the frame."""
    stored = (None if state is None else state.schema.field(field.name) for field in frame)
    return Schema(tuple(field if known is None else known for field, known in zip(frame, stored, strict=True)))


def _check_columns(options: WriteOptions, frame: Schema, state: TableState | None, *, subject: str) -> None:
    in_frame = {
        MERGE_KEYS: options.merge_keys if options.write_disposition == "merge" else (),
        IDENTIFIER_FIELDS: options.identifier_fields or (),
        REQUIRED_COLUMNS: tuple(name for name, is_required in options.required_columns.items() if is_required),
    }
    in_either = {SORT_BY: tuple(field.column for field in options.sort_by or ())}
    stored = state.schema if state else frame
    for key, columns in {**in_frame, **in_either}.items():
        for column in columns:
            if frame.field(column) is None and (key in in_frame or stored.field(column) is None):
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
    kept = {
        key: value for key, value in (state.properties if state else {}).items() if key not in options.table_properties
    }
    properties = {**kept, **_wanted_properties(options)}
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

"""The plan of one write, which decides everything before anything is changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dagster_iceberg_spark.errors import SchemaMismatchError
from dagster_iceberg_spark.plan.options.output_options import WriteOptions
from dagster_iceberg_spark.plan.partitions.binding import BoundScope, bind_each_partition, bind_scope
from dagster_iceberg_spark.plan.partitions.partition_spec import (
    PLAIN_PATHS,
    has_long_paths,
    plan_spec_changes,
    refuse_names_of_fields,
    refuse_redundant_fields,
    refuse_taken_names,
    wanted_partition_fields,
)
from dagster_iceberg_spark.plan.publication.branch import (
    new_branch,
    refuse_losses_of_main,
    refuse_outdated_branch,
    start_properties,
)
from dagster_iceberg_spark.plan.read.incremental import refuse_loss
from dagster_iceberg_spark.plan.schema.default_values import with_defaults
from dagster_iceberg_spark.plan.schema.renames import StoredNames
from dagster_iceberg_spark.plan.schema.schema_evolution import (
    columns_to_check,
    completed_columns,
    is_promotion,
    lacks_fields_of_structs_only,
    plan_schema_changes,
    refuse_no_columns,
    refuse_repeated_columns,
    refuse_reserved_columns,
    refuse_substituted,
    with_docs,
)
from dagster_iceberg_spark.plan.write import definition
from dagster_iceberg_spark.plan.write.definition import advice, whole_bounds
from dagster_iceberg_spark.plan.write.merging import MergeRules
from dagster_iceberg_spark.plan.write.overwrite_filter import (
    Coverage,
    DataFile,
    cover,
    file_transform,
    follows_spec,
    straddling_files,
)
from dagster_iceberg_spark.plan.write.placement import missing_table
from dagster_iceberg_spark.plan.write.replaced_rows import where_scope, with_columns
from dagster_iceberg_spark.plan.write.scd2 import boundary_of, history_properties, refuse_late
from dagster_iceberg_spark.plan.write.table_owner import check_ownership, refuse_disagreement, refuse_replacing_others
from dagster_iceberg_spark.plan.write.write_plan import (
    Append,
    AppendAlone,
    CreateTable,
    Guard,
    Merge,
    Overwrite,
    WriteAction,
    WritePlan,
    carries_over_rows,
)
from dagster_iceberg_spark.plan.write.write_request import TableRequest
from dagster_iceberg_spark.table.lineage import CARRIES_OVER, Materialization
from dagster_iceberg_spark.table.partitioning import PartitionField, PartitionSpec
from dagster_iceberg_spark.table.predicate import Predicate
from dagster_iceberg_spark.table.schema import Field, IcebergType, Schema, walk_paths
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import TableState
from dagster_iceberg_spark.table.updates import (
    AddColumn,
    AddPartitionField,
    BranchUpdate,
    DescribeColumn,
    DropColumn,
    MoveColumn,
    RelaxColumn,
    SetDefault,
    TableUpdate,
)

MAXIMUM_COUNTED_PARTITIONS: Final = 50
"""A run of more partitions does not count their rows while it writes: each count is an expression for each row."""
MAXIMUM_LISTED_PARTITIONS: Final = 1000
"""A run of more partitions does not look up their row counts in the metadata of the new files."""

CREATION_PROPERTIES: Final = {
    "commit.retry.num-retries": "20",
    "commit.retry.min-wait-ms": "20",
    "commit.retry.max-wait-ms": "2000",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
"""With Iceberg's default of 4 retries, some of 8 concurrent writers of disjoint partitions failed; with 20, none.

Each commit writes a metadata file that lists all snapshots. By Iceberg's default, all of these files stay. A reader has
100 commits of time to read the file that it has found.
"""

SINGLE_PARTITION_OPTIONS: Final = {"advisory-partition-size": str(32 * 1024 * 1024)}
"""Rows of one table partition hash to one task. This size, in bytes of shuffled data, lets the engine split the task.
Runs of several partitions have several tasks anyway; in measurements, the option only made their files smaller."""
MAXIMUM_OPEN_PARTITIONS: Final = 100
"""In a run of more partitions, a task writes one partition after the other. By Iceberg's default, it keeps a file of
each partition open with its buffers: 3,000 days in one run need more than a heap of 2 GB."""
FANOUT_OPTION: Final = "fanout-enabled"
FANOUT_PROPERTY: Final = "write.spark.fanout.enabled"


@dataclass(frozen=True, slots=True)
class WriteDraft:
    """A valid write whose overwritten files are not decided yet, because that may need the table's manifests.

    Args:
        frame: The DataFrame's columns that are stored.
        columns: The same columns as the table will store them.
        owned: The rows that the run replaces, updates or deletes.
        marker: The batch's column that marks keys to delete.
        fills_valid_from: Whether the DataFrame lacks the column that says when a version of a history begins.
    """

    request: TableRequest
    materialization: Materialization
    frame: Schema
    columns: Schema
    state: TableState | None
    partition_fields: tuple[PartitionField, ...]
    owned: BoundScope
    marker: str | None
    fills_valid_from: bool
    create: CreateTable | None
    changes: tuple[TableUpdate, ...]
    staging: tuple[BranchUpdate, ...]
    guard: Guard | None
    checked: Mapping[str, IcebergType]

    @property
    def _subject(self) -> str:
        return str(self.request.identifier)

    def partition_columns(self) -> tuple[tuple[PartitionField, Field], ...]:
        """Return the fields that the table is partitioned by, each with its column."""
        return with_columns(self.partition_fields, self.columns, subject=self._subject)

    @property
    def completions(self) -> Mapping[str, IcebergType]:
        """The columns whose structs lack fields of the table, with the complete type."""
        return _completions(self.request.options, self.frame, self.state, subject=self._subject)

    @property
    def has_one_spec(self) -> bool:
        """Whether all files of the table are, and will be, partitioned by the same fields."""
        specs = [PartitionSpec(self.partition_fields), *(self.state.specs.values() if self.state else ())]
        return len({frozenset((field.column, field.transform) for field in spec.live_fields) for spec in specs}) == 1

    def file_columns(self, touched: BoundScope | None = None) -> tuple[str, ...]:
        """Return the columns whose bounds in the data files the plan needs, usually none.

        `touched` has the rows of the partitions that the DataFrame's rows fall in, if only these are replaced.
        """
        options, state = self.request.options, self.state
        if options.merges or options.write_disposition == "append" or not (state and state.base(self.request.branch)):
            return ()
        owned = self._within(touched)
        if any(state.schema.field(column) is None for column in owned.columns):
            return ()  # a new column, in which no stored row has a value
        return () if follows_spec(owned, state.specs.values()) else tuple(sorted(owned.columns))

    def rows_to_find_by_partition(self, files: Sequence[DataFile]) -> Predicate | None:
        """Return the replaced rows, if the files with these rows can be found by partition and not by bounds."""
        specs = tuple(self.state.specs.values()) if self.state else ()
        has_transform = any(file_transform(constraint, specs) for box in self.owned.boxes for constraint in box)
        return self.owned.predicate() if has_transform and straddling_files(self.owned, files) else None

    def plan(self, files: Sequence[DataFile] | None = None, touched: BoundScope | None = None) -> WritePlan:
        """Plan the write, with the data files and their bounds of `file_columns`, or None if it needs none."""
        options, state, materialization = self.request.options, self.state, self.materialization
        owned = self._within(touched)
        action = self._action(owned, files, is_by_partition=touched is not None and bool(touched.boxes))
        refuse_outdated_branch(self.request, state, _columns_to_filter_by(action, owned), subject=self._subject)
        partitions = _partitions_to_count(options, materialization.scope, self.columns, subject=self._subject)
        are_listed = all(follows_spec(part, [PartitionSpec(self.partition_fields)]) for _, part in partitions)
        counted = partitions if len(partitions) <= MAXIMUM_COUNTED_PARTITIONS else ()
        history = {}
        if isinstance(action, Merge) and action.boundary is not None and self.fills_valid_from:
            history = history_properties(action.boundary, owned)
            refuse_late(action.boundary, owned, materialization, self.request.branch, state)
        carries_over = carries_over_rows(action)
        return WritePlan(
            identifier=self.request.identifier,
            branch=self.request.branch,
            create=self.create,
            changes=self.changes,
            completions=self.completions,
            defaults=self._defaults(),
            checked=self.checked,
            required=definition.required_by_definition(options, self.frame, state),
            action=action,
            guard=self.guard,
            write_options=_write_options(options, action, materialization.scope, state),
            snapshot_properties={
                **materialization.properties(),
                **start_properties(state, options.branch),
                **({CARRIES_OVER: "true"} if carries_over else {}),
                **history,
            },
            counted_partitions=() if are_listed else tuple((key, part.predicate()) for key, part in counted),
            listed_partitions=partitions if are_listed else (),
            owned=owned,
            staging=self.staging,
            is_sampled=_is_sampled(options, state),
            advice=advice(owned, state.schema, state.properties, self.request.identifier)
            if state and carries_over
            else None,
        )

    def _defaults(self) -> dict[str, Field]:
        """Return the columns that the DataFrame lacks and that have a default value, after the changes of the plan."""
        changed = {change.column: change.default for change in self.changes if isinstance(change, SetDefault)}
        known = (
            replace(field, write_default=changed.get(field.name, field.write_default))
            for field in (self.state.schema if self.state else ())
            if self.frame.field(field.name) is None
        )
        return {field.name: field for field in known if field.write_default is not None}

    def _within(self, touched: BoundScope | None) -> BoundScope:
        return self.owned if touched is None else self.owned.within(touched)

    def _action(self, owned: BoundScope, files: Sequence[DataFile] | None, *, is_by_partition: bool) -> WriteAction:
        options, state = self.request.options, self.state
        base = state.base(self.request.branch) if state else None
        base_id = base.snapshot_id if base else None
        if options.write_disposition == "append":
            return AppendAlone(base_id) if self.materialization.reads_changes else Append()
        rows = owned.predicate()
        if options.merges:
            rules, keys = options.merge, tuple(map(self.frame.exact, options.merge_keys))
            if not keys:  # each row as a whole
                rules = rules.model_copy(update={"null_keys": "match"})
                keys = tuple(name for name in self.frame.names if name not in rules.validity)
            return Merge(
                keys=keys,
                scope=rows,
                rules=rules,
                marker=self.marker,
                updated=_updated_columns(rules, self.frame),
                base_snapshot_id=base_id,
                materialization=self.materialization,
                boundary=boundary_of(options.merge, self.materialization, owned, subject=self._subject),
            )
        specs = state.specs.values() if state else ()
        coverage = Coverage(filter=rows, owned=rows) if files is None else cover(owned, files, specs)
        return Overwrite(coverage=coverage, base_snapshot_id=base_id, is_by_partition=is_by_partition)


def draft_write(
    request: TableRequest, materialization: Materialization, given: Schema, state: TableState | None
) -> WriteDraft:
    """Validate a write of the given columns, and plan it as far as possible without the table's manifests."""
    subject = str(request.identifier)
    options, scope = request.options, materialization.scope
    branches = new_branch(request, state) if request.staging is None else ()
    state, staging = (state, ()) if request.staging is None else request.staging.begun(state)
    frame = definition.stored_columns(options, given)
    for columns in (given, frame):
        refuse_no_columns(columns, subject=subject)
    refuse_repeated_columns(given, state.schema if state else None, subject=subject)
    refuse_substituted(request.identifier.parts, subject=subject)
    refuse_reserved_columns(given, subject=subject)
    refuse_loss(options, materialization, request.identifier)
    definition.check_columns(options, given, state, subject=subject)
    definition.check_validity(options, given, subject=subject)
    definition.check_marker(options, [dimension.column for dimension in scope.dimensions], given, subject=subject)
    check_ownership(request, state)
    refuse_replacing_others(request, materialization, state)
    definition.refuse_any_schema(options, state, subject=subject)
    is_layout_kept = state is not None and request.target.keeps_layout
    wanted_fields = None if is_layout_kept else wanted_partition_fields(request, scope, frame, state)
    spec = state.spec if state and wanted_fields is None else PartitionSpec(wanted_fields or ())
    placed = request.with_properties(PLAIN_PATHS) if has_long_paths(scope, spec) else request
    create = None if state else _creation(placed, wanted_fields or (), frame, scope)
    changes = (*_changes(placed, wanted_fields, frame, state), *branches)
    columns = _columns_as_stored(frame, state)
    owned = bind_scope(scope, columns, subject=subject)
    if options.write_disposition == "merge" and options.merge.where is not None:
        owned = owned.within(where_scope(options.merge.where, columns, subject=subject))
    guarded = owned.without(item.name for item in frame if given.field(item.name) is None) if options.merges else owned
    return WriteDraft(
        request=placed,
        materialization=materialization,
        frame=frame,
        columns=columns,
        state=state,
        partition_fields=spec.live_fields,
        # The versions of a key form one history, whatever partitions they begin or end in.
        owned=owned.without(options.merge.validity) if options.merges else owned,
        marker=definition.marker_of(options, given),
        fills_valid_from=given.field(options.merge.valid_from) is None,
        create=create,
        changes=changes,
        staging=staging,
        guard=_guard(guarded, scope, options),
        checked=columns_to_check(frame, state.schema) if state else {},
    )


def plan_finish(request: TableRequest, frame: Schema, state: TableState, planned_on: Schema) -> tuple[TableUpdate, ...]:
    """Return the changes that follow the commit of the data: those that may lose values or only tidy up.

    Columns that another writer has added since the write was planned, on the columns `planned_on`, are not dropped.
    """
    options, subject = request.options, str(request.identifier)
    if options.schema_evolution != "full" and not options.renames:
        return ()
    frame = definition.stored_columns(options, frame)
    names = StoredNames.of(options.renames, frame, state.schema, subject=subject)
    changes = plan_schema_changes(
        names.of_schema(frame), state.schema, policy=options.schema_evolution, docs={}, subject=subject
    )
    known = {field.field_id for _, field in walk_paths(planned_on.fields)}
    ids = {path: field.field_id for path, field in walk_paths(state.schema.fields)}
    after = (item for item in changes.after if not isinstance(item, DropColumn) or ids.get(item.path) in known)
    return (*after, *names.changes)


def _creation(
    request: TableRequest, fields: tuple[PartitionField, ...], frame: Schema, scope: PartitionScope
) -> CreateTable:
    options = request.options
    if not request.creation.creates_table:
        columns = ", ".join(f"{field.name} {field.type}" for field in frame)
        raise missing_table(request.identifier, columns)
    fields = tuple(dict.fromkeys(fields))
    unnamed = tuple(field for field in fields if field.name is None)
    refuse_redundant_fields(unnamed, subject=str(request.identifier))
    refuse_taken_names(fields, (), frame.fields, subject=str(request.identifier))
    version = {"format-version": str(options.format_version)} if options.format_version else {}
    required = {name for name, is_required in definition.required_columns_of(options).items() if is_required}
    described = with_docs(frame, request.column_docs)
    return CreateTable(
        schema=Schema(tuple(replace(field, is_required=field.name in required) for field in described)),
        spec=PartitionSpec(unnamed),
        properties={
            **CREATION_PROPERTIES,
            **whole_bounds(frame.exact(dimension.column) for dimension in scope.dimensions),
            **version,
            **definition.wanted_properties(options),
            **request.ownership(),
        },
        location=options.location,
        sort_by=options.sort_by or (),
        identifier_fields=options.identifier_fields or (),
        creation=request.creation,
    )


def _changes(
    request: TableRequest, wanted_fields: tuple[PartitionField, ...] | None, frame: Schema, state: TableState | None
) -> tuple[TableUpdate, ...]:
    options, subject = request.options, str(request.identifier)
    if state is None:
        # Reject a DataFrame that no table can store before anything is created.
        refused = definition.refused_types(options, None)
        plan_schema_changes(frame, Schema(()), policy="add_columns", docs={}, subject=subject, refused=refused)
        fields = tuple(AddPartitionField(field) for field in wanted_fields or () if field.name is not None)
        return (*fields, *with_defaults((), options, frame, None, subject=subject))
    definition.check_place(options, state, subject=subject)
    schema = plan_schema_changes(
        with_docs(frame, request.column_docs),
        state.schema,
        policy=options.schema_evolution,
        docs=request.column_docs,
        subject=subject,
        protected=definition.protected_columns(options, wanted_fields, state),
        refused=definition.refused_types(options, state),
    )
    relaxed = [
        RelaxColumn((field.name,))
        for name, is_required in options.required_columns.items()
        if not is_required and (field := state.schema.field(name)) is not None and field.is_required
    ]
    added = [".".join(change.path) for change in schema.before if isinstance(change, AddColumn)]
    refuse_names_of_fields(state.specs.values(), added, subject=subject)
    before = with_defaults(schema.before, options, frame, state, subject=subject)
    columns_first = tuple(dict.fromkeys((*before, *relaxed)))
    if request.target.keeps_layout:  # what all branches share stays as it is, unless the rows need it
        refuse_losses_of_main(options, state, schema.after, subject=subject)
        left_out = MoveColumn | DescribeColumn | SetDefault
        needed = tuple(change for change in columns_first if not isinstance(change, left_out))
        if needed and not request.target.may_add_columns:
            raise SchemaMismatchError.refusing(
                "replay",
                subject,
                expected="rows that fit the columns of the table, because a replay does not change them",
                found=f"rows that need other columns: {', '.join(map(str, needed))}",
                hint="replay the code version that fits, or run the asset in an environment.",
            )
        return needed
    layout = (
        *plan_spec_changes(wanted_fields, state.spec, policy=options.partition_evolution, subject=subject),
        *definition.order_changes(options, state),
        *definition.identifier_changes(options, state, subject=subject),
    )
    columns = (*state.schema.fields, *frame.fields)
    refuse_taken_names(wanted_fields or (), state.spec.live_fields, columns, subject=subject)
    refuse_disagreement(request, state, layout, schema.after)
    refuse_losses_of_main(options, state, schema.after, subject=subject)
    return (*columns_first, *layout, *definition.property_changes(request, state))


def _completions(
    options: WriteOptions, frame: Schema, state: TableState | None, *, subject: str
) -> Mapping[str, IcebergType]:
    completions = {} if state is None else completed_columns(frame, state.schema)
    for field in frame if options.merges else ():
        if field.name in completions and not lacks_fields_of_structs_only(field.type, completions[field.name]):
            raise SchemaMismatchError.refusing(
                "merge into",
                subject,
                expected=f"all fields that the table has inside of the column {field.name!r}",
                found=f"type {field.type}",
                hint="add the fields, or leave the column out: a merge keeps the stored values of columns and of "
                "fields of structs that the batch lacks, but writes lists and maps as a whole.",
            )
    return completions


def _columns_as_stored(frame: Schema, state: TableState | None) -> Schema:
    """Return the DataFrame's columns as the table will store them. They include the partition columns."""
    if state is None:
        return frame
    known = ((field, state.schema.field(field.name) or field) for field in frame)
    return frame.like(
        replace(stored, type=field.type if is_promotion(stored.type, field.type) else stored.type)
        for field, stored in known
    )


def _guard(owned: BoundScope, scope: PartitionScope, options: WriteOptions) -> Guard | None:
    if owned.is_whole_table:
        return None
    described = "" if scope.is_whole_table else scope.describe()
    condition = "" if options.merge.where is None else f"where {options.merge.where}"
    return Guard(
        owned=owned.predicate(),
        columns=owned.columns,
        drops=options.rows_outside_partition == "drop",
        partitions=" ".join(filter(None, (described, condition))),
    )


def _updated_columns(rules: MergeRules, frame: Schema) -> tuple[str, ...]:
    chosen = frame.names if rules.update_columns is None else tuple(map(frame.exact, rules.update_columns))
    excluded = tuple(map(frame.exact, rules.exclude_columns))
    return tuple(name for name in chosen if name not in excluded)


def _columns_to_filter_by(action: WriteAction, owned: BoundScope) -> tuple[str, ...]:
    """Return the columns by which the write filters stored rows. A replace of whole files has none."""
    match action:
        case Merge():
            return (*action.keys, *owned.columns)
        case Overwrite(coverage) if coverage.carries_over:
            return owned.columns
        case _:
            return ()


def _write_options(
    options: WriteOptions, action: WriteAction, scope: PartitionScope, state: TableState | None
) -> dict[str, str]:
    """Return the engine's write options. For one partition, a size lets the engine split its rows over tasks."""
    properties = _properties(options, state)
    automatic: dict[str, str] = {}
    user_decides = "write.distribution-mode" in properties or "distribution-mode" in options.write_options
    if len(scope.keys) == 1 and not user_decides:
        automatic |= SINGLE_PARTITION_OPTIONS
    if len(scope.keys) > MAXIMUM_OPEN_PARTITIONS and FANOUT_PROPERTY not in properties:
        automatic[FANOUT_OPTION] = "false"
    base_id = action.base_snapshot_id if isinstance(action, Overwrite) else None
    if options.concurrent_writes == "first_wins" and isinstance(action, Overwrite):
        automatic["isolation-level"] = "serializable"
    if base_id is not None and "isolation-level" in {**automatic, **options.write_options}:
        # By Iceberg's default, an isolation level checks all snapshots for conflicts.
        automatic["validate-from-snapshot-id"] = str(base_id)
    return {**automatic, **options.write_options}


def _properties(options: WriteOptions, state: TableState | None) -> dict[str, str]:
    """Return the properties of the table that is written."""
    stored = state.properties if state else {}
    kept = {key: value for key, value in stored.items() if key not in options.table_properties}
    return {**kept, **definition.wanted_properties(options)}


def _is_sampled(options: WriteOptions, state: TableState | None) -> bool:
    """Return whether Spark distributes the rows by ranges (`SparkWriteConf.distributionMode` of Iceberg 1.12)."""
    if options.write_options.get("use-table-distribution-and-ordering", "true").lower() == "false":
        return False
    stored = state.sort_order if state is not None else ()
    is_sorted = bool(stored if options.sort_by is None else options.sort_by)
    properties = _properties(options, state)
    mode = properties.get("write.distribution-mode")
    if options.merges:
        mode = properties.get("write.merge.distribution-mode", mode)
    asked = options.write_options.get("distribution-mode", mode)
    return is_sorted if asked is None else asked.lower() == "range"


def _partitions_to_count(
    options: WriteOptions, scope: PartitionScope, schema: Schema, *, subject: str
) -> tuple[tuple[str, BoundScope], ...]:
    """Return the partitions of a run of several whose rows it reports. Only a replace writes all rows of each."""
    if options.write_disposition != "replace" or not 1 < len(scope.keys) <= MAXIMUM_LISTED_PARTITIONS:
        return ()
    return bind_each_partition(scope, schema, subject=subject)

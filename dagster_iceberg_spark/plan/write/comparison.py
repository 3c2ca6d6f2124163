"""Compares a table with its asset's definition, without a DataFrame to write."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dagster_iceberg_spark.plan.options.output_options import (
    IDENTIFIER_FIELDS,
    MERGE_KEYS,
    PARTITION_BY,
    PARTITION_EXPR,
    REQUIRED_COLUMNS,
    SORT_BY,
)
from dagster_iceberg_spark.plan.partitions.partition_spec import check_transforms, plan_spec_changes
from dagster_iceberg_spark.plan.publication.branch import new_branch, refuse_losses_of_main
from dagster_iceberg_spark.plan.schema.renames import StoredNames
from dagster_iceberg_spark.plan.schema.schema_evolution import plan_schema_changes
from dagster_iceberg_spark.plan.write.definition import (
    check_place,
    identifier_changes,
    order_changes,
    property_changes,
    refuse_any_schema,
)
from dagster_iceberg_spark.plan.write.table_owner import check_ownership, refuse_disagreement
from dagster_iceberg_spark.plan.write.write_request import TableRequest
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.snapshot import TableState
from dagster_iceberg_spark.table.updates import TableUpdate

COLUMN_SCHEMA: Final = "dagster/column_schema"
_UNDECLARED_TYPE: Final = "string"
"""The default type of a `dagster.TableColumn`. A column of this type is compared by name only."""
_ICEBERG_NAMES: Final[Mapping[str, str]] = {
    "bigint": "long",
    "integer": "int",
    "real": "float",
    "timestamp_ltz": "timestamptz",
    "timestamp_ntz": "timestamp",
}
"""Spark SQL's names of types, with Iceberg's names. `timestamp` means different types in the two."""


@dataclass(frozen=True, slots=True)
class DefinedTable:
    """The table that a definition asks for, with the types of `dagster/column_schema` if it has that key."""

    request: TableRequest
    partition_columns: tuple[str, ...] = ()
    declared_types: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class TableReport:
    """What the next write would change in a table, and the columns of the definition that the table lacks."""

    identifier: TableIdentifier
    exists: bool
    differences: tuple[str, ...] = ()


def differences(defined: DefinedTable, state: TableState) -> tuple[str, ...]:
    """Return what the next write would change, and the columns of the definition that the table lacks, in words."""
    request, subject = defined.request, str(defined.request.identifier)
    check_ownership(request, state)
    refuse_any_schema(request.options, state, subject=subject)
    check_place(request.options, state, subject=subject)
    # This checks what a write of a DataFrame with the table's columns, by their new names, would check.
    names = StoredNames.of(request.options.renames, Schema(()), state.schema, subject=subject)
    stored = request.by_names(names)
    lacking = tuple(_lacking_columns(replace(defined, request=stored), names, state.schema))
    planned = (*_planned_changes(stored, state), *names.changes)
    return (*lacking, *_other_types(defined, names, state.schema), *map(str, planned))


def _planned_changes(request: TableRequest, state: TableState) -> tuple[TableUpdate, ...]:
    options, subject = request.options, str(request.identifier)
    schema = plan_schema_changes(
        state.schema, state.schema, policy="add_columns", docs=request.column_docs, subject=subject
    )
    if request.target.keeps_layout:
        refuse_losses_of_main(options, state, schema.after, subject=subject)
        return (*schema.before, *new_branch(request, state))
    known = tuple(item for item in options.partition_by or () if state.schema.field(item.column) is not None)
    is_whole = known == (options.partition_by or ())
    wanted = None if options.partition_by is None else check_transforms(known, state.schema, subject=subject)
    layout = (
        *plan_spec_changes(
            wanted if is_whole else None, state.spec, policy=options.partition_evolution, subject=subject
        ),
        *(order_changes(options, state) if _has(state, [item.column for item in options.sort_by or ()]) else ()),
        *(identifier_changes(options, state, subject=subject) if _has(state, options.identifier_fields) else ()),
    )
    refuse_disagreement(request, state, layout, schema.after)
    refuse_losses_of_main(options, state, schema.after, subject=subject)
    return (*schema.before, *layout, *property_changes(request, state), *new_branch(request, state))


def _has(state: TableState, columns: Sequence[str] | None) -> bool:
    return all(state.schema.field(column) is not None for column in columns or ())


def _lacking_columns(defined: DefinedTable, names: StoredNames, table: Schema) -> Iterator[str]:
    options = defined.request.options
    by_key: dict[str, Sequence[str]] = {
        PARTITION_EXPR: [names.column(column) for column in defined.partition_columns],
        PARTITION_BY: [item.column for item in options.partition_by or ()],
        MERGE_KEYS: options.merge_keys,
        IDENTIFIER_FIELDS: options.identifier_fields or (),
        REQUIRED_COLUMNS: tuple(options.required_columns),
        SORT_BY: [item.column for item in options.sort_by or ()],
        COLUMN_SCHEMA: [names.column(column) for column in defined.declared_types or ()],
    }
    for key, columns in by_key.items():
        for column in columns:
            if table.field(column) is None:
                yield f"the table lacks the column {column!r} of `{key}`"


def _other_types(defined: DefinedTable, names: StoredNames, table: Schema) -> Iterator[str]:
    declared = defined.declared_types
    if declared is None:
        return
    by_name = {names.column(column): declared_type for column, declared_type in declared.items()}
    for column, declared_type in by_name.items():
        stored = table.field(column)
        if stored is not None and not _may_be(declared_type, str(stored.type)):
            yield f"the column {column!r} is {stored.type}, `{COLUMN_SCHEMA}` says {declared_type}"
    known = table.like(item for name in by_name if (item := table.field(name)) is not None)
    for item in table:
        if known.field(item.name) is None:
            yield f"the table has the column {item.name!r}, `{COLUMN_SCHEMA}` has not"


def _may_be(declared: str, stored: str) -> bool:
    plain, actual = declared.strip().lower().replace(" ", ""), stored.replace(" ", "")
    if plain == _UNDECLARED_TYPE or _ICEBERG_NAMES.get(plain, plain) == actual:
        return True
    return plain == "timestamp" and actual == "timestamptz"  # Spark's name

"""The table properties, sort order, identifier fields, required columns and location that a definition asks for."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from dagster_iceberg_spark.errors import ConfigurationError, SchemaMismatchError
from dagster_iceberg_spark.plan.options.output_options import (
    COLUMNS,
    IDENTIFIER_FIELDS,
    MERGE,
    MERGE_KEYS,
    PARTITION_BY,
    PARTITION_EXPR,
    REQUIRED_COLUMNS,
    SORT_BY,
    WriteOptions,
)
from dagster_iceberg_spark.plan.partitions.binding import BoundScope, Values
from dagster_iceberg_spark.plan.schema.renames import StoredNames
from dagster_iceberg_spark.plan.schema.schema_evolution import REFUSED_TYPES, storage_verdict
from dagster_iceberg_spark.plan.write.table_owner import shared_by, takes_over
from dagster_iceberg_spark.plan.write.write_request import TableRequest
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.partitioning import PartitionField, SortField
from dagster_iceberg_spark.table.schema import BOOLEAN, TIMESTAMPTZ, Field, Schema, is_same_type
from dagster_iceberg_spark.table.snapshot import ROW_LINEAGE_VERSION, TableState
from dagster_iceberg_spark.table.updates import (
    RemoveProperties,
    SetIdentifierFields,
    SetProperties,
    SetSortOrder,
    TableUpdate,
)

_cannot_write = partial(ConfigurationError.refusing, "write")

ACCEPT_ANY_SCHEMA: Final = "write.spark.accept-any-schema"
_TYPES_OF_FORMAT_3: Final = ("variant",)
"""Those of them that Spark writes. For `unknown`, there is another refusal."""
WAP_ENABLED: Final = "write.wap.enabled"
WAP_SETTINGS: Final = ("spark.wap.branch", "spark.wap.id")
"""Spark stages the writes to a table with `write.wap.enabled` there (Iceberg docs, "Branching and Tagging")."""


def wanted_properties(options: WriteOptions) -> dict[str, str]:
    """Return the table properties that the definition sets."""
    return {key: value for key, value in options.table_properties.items() if value is not None}


def property_changes(request: TableRequest, state: TableState) -> Iterator[TableUpdate]:
    """Yield the properties to set, including the owner and the format version, and those to remove."""
    options = request.options
    version = options.format_version
    wanted = {
        **({"format-version": str(version)} if version is not None and version > state.format_version else {}),
        **wanted_properties(options),
        **(request.ownership() if lineage.OWNER_PROPERTY not in state.properties or takes_over(request, state) else {}),
        **shared_by(request, state),
    }
    new = {key: value for key, value in wanted.items() if state.properties.get(key) != value}
    if new:
        yield SetProperties(new)
    removed = tuple(key for key, value in options.table_properties.items() if value is None and key in state.properties)
    if removed:
        yield RemoveProperties(removed)


def is_switched_on(name: str, options: WriteOptions, state: TableState | None) -> bool:
    """Return whether a table property is true once the definition's properties are set."""
    stored = {} if state is None else state.properties
    return str({**stored, **options.table_properties}.get(name)).lower() == "true"


def refuse_any_schema(options: WriteOptions, state: TableState | None, *, subject: str) -> None:
    """Reject a table that disables Spark's checks: it would match columns by position and store any NULL."""
    if is_switched_on(ACCEPT_ANY_SCHEMA, options, state):
        raise _cannot_write(
            subject,
            expected=f"a table without `{ACCEPT_ANY_SCHEMA}`, under which Spark checks neither columns nor NULL",
            found="it switched on",
            hint=f'remove it: `"iceberg/table_properties": {{"{ACCEPT_ANY_SCHEMA}": None}}`; new columns are added by '
            "`iceberg/schema_evolution`.",
        )


def refuse_staging(settings: Mapping[str, str | None], *, subject: str) -> None:
    """Reject session settings (`WAP_SETTINGS`) that stage the rows of a table with `write.wap.enabled`."""
    for name, value in settings.items():
        if value is not None:
            raise _cannot_write(
                subject,
                expected=f"a session without `{name}`, which puts the rows of a table with `{WAP_ENABLED}` elsewhere",
                found=repr(value),
                hint="unset it; to write a branch, name it by `iceberg/branch`.",
            )


def order_changes(options: WriteOptions, state: TableState) -> Iterator[TableUpdate]:
    """Yield the sort order, if the definition's differs from the table's."""
    wanted, current = options.sort_by, state.sort_order
    if wanted is None:
        return
    named = tuple(replace(item, column=state.schema.exact(item.column)) for item in wanted)
    if len(named) != len(current) or not all(map(SortField.same_order_as, named, current)):
        yield SetSortOrder(named, is_partitioned=bool(state.spec.live_fields))


def identifier_changes(options: WriteOptions, state: TableState, *, subject: str) -> Iterator[TableUpdate]:
    """Yield the identifier fields, if the definition's differ from the table's."""
    if options.identifier_fields is None:
        return
    wanted = tuple(map(state.schema.exact, options.identifier_fields))
    if set(wanted) == set(state.identifier_fields):
        return
    for name in wanted:
        field = state.schema.field(name)
        if field is None or not field.is_required:
            raise _cannot_write(
                subject,
                expected=f"required columns of the table in `{IDENTIFIER_FIELDS}`",
                found=f"{name!r}, which {'it lacks' if field is None else 'may hold NULL'}",
                hint="leave the column out: a stored column cannot be made required; a table gets its required "
                "columns when it is created.",
            )
    yield SetIdentifierFields(wanted, tuple(name for name in state.identifier_fields if name not in wanted))


def protected_columns(
    options: WriteOptions, wanted_fields: Sequence[PartitionField] | None, state: TableState
) -> dict[str, str]:
    """Return the columns that the table's layout needs, each with the reason."""
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


def refused_types(options: WriteOptions, state: TableState | None) -> Mapping[str, str]:
    """Return the types of which no column is added, each with the reason."""
    of_format_3 = dict.fromkeys(_TYPES_OF_FORMAT_3, "which needs `iceberg/format_version` 3")
    unread = {name: REFUSED_TYPES.get(name, "which not all readers of the table read") for name in options.unread_types}
    return {**(of_format_3 if options.version_of(state) < ROW_LINEAGE_VERSION else {}), **unread}


def check_place(options: WriteOptions, state: TableState, *, subject: str) -> None:
    """Reject a definition with another location or an older format than the table's, or with a tag as its branch."""
    refused = partial(_cannot_write, subject)
    if options.format_version is not None and options.format_version < state.format_version:
        raise refused(
            expected=f"a table of format version {options.format_version} (`iceberg/format_version`)",
            found=f"version {state.format_version}",
            hint="leave the key out, or raise it: a table's format can be upgraded, never downgraded.",
        )
    if options.location is not None and _plain_uri(options.location) != _plain_uri(state.location):
        raise refused(
            expected=f"a table at {options.location} (`iceberg/location`)",
            found=f"one at {state.location}",
            hint="leave the key out, which only places new tables, or move the table.",
        )
    if options.branch in state.refs and options.branch not in state.branches:
        raise refused(
            expected=f"a branch {options.branch!r} (`iceberg/branch`)",
            found="a tag of that name, which stays where it is",
            hint="name another branch.",
        )


def _plain_uri(uri: str) -> str:
    return re.sub(r"^file:/*", "/", uri).rstrip("/")


def required_columns_of(options: WriteOptions) -> dict[str, bool]:
    """Return the columns that the definition makes required (true) or optional (false)."""
    return {**options.required_columns, **dict.fromkeys(options.identifier_fields or (), True)}


def required_by_definition(options: WriteOptions, frame: Schema, state: TableState | None) -> tuple[str, ...]:
    """Return the columns that the definition requires but the existing table does not."""
    if state is None:
        return ()
    wanted = (name for name, is_required in required_columns_of(options).items() if is_required)
    fields = ((state.schema.field(name), frame.field(name)) for name in wanted)
    return tuple(
        item.name for stored, item in fields if item is not None and (stored is None or not stored.is_required)
    )


def stored_columns(options: WriteOptions, frame: Schema) -> Schema:
    """Return the stored columns: without the one that marks keys to delete, and with those that a merge fills."""
    marker, rules = marker_of(options, frame), options.merge
    kept = tuple(item for item in frame if item.name != marker)
    if not options.merges:
        return frame
    filled = {name: BOOLEAN if name == rules.is_current else TIMESTAMPTZ for name in rules.validity}
    added = tuple(Field(name, held) for name, held in filled.items() if frame.field(name) is None)
    return replace(frame, fields=(*kept, *added))


def check_validity(options: WriteOptions, frame: Schema, *, subject: str) -> None:
    """Reject a batch that has a column which the merge fills. Only the start of each row's version may be given."""
    rules = options.merge
    for name in rules.validity if options.merges else ():
        field, may_be_given = frame.field(name), name == rules.valid_from
        if field is not None and not (may_be_given and field.type == TIMESTAMPTZ):
            raise _validity_in_frame(subject, field, may_be_given=may_be_given)


def check_marker(options: WriteOptions, partition_columns: Sequence[str], frame: Schema, *, subject: str) -> None:
    """Reject a column that marks keys to delete if another key needs it, because it is not stored."""
    marker = marker_of(options, frame)
    needed = {
        MERGE_KEYS: options.merge_keys,
        PARTITION_EXPR: partition_columns,
        f"{MERGE}: update_columns": options.merge.update_columns or (),
        IDENTIFIER_FIELDS: options.identifier_fields or (),
        REQUIRED_COLUMNS: tuple(options.required_columns),
        SORT_BY: tuple(field.column for field in options.sort_by or ()),
        PARTITION_BY: tuple(field.column for field in options.partition_by or ()),
    }
    for key, columns in needed.items():
        if marker is not None and marker in map(frame.exact, columns):
            raise ConfigurationError.refusing(
                "merge into",
                subject,
                expected=f"a column in `hard_delete` of `{MERGE}` that nothing else needs, because it is not stored",
                found=f"{marker!r}, which `{key}` names",
                hint="mark keys to delete by a column of its own.",
            )


def marker_of(options: WriteOptions, frame: Schema) -> str | None:
    """Return the name of the DataFrame's column that marks keys to delete, if a merge has one."""
    name = options.merge.hard_delete
    if not options.merges or name is None:
        return None
    field = frame.field(name)
    return None if field is None else field.name


def check_columns(options: WriteOptions, frame: Schema, state: TableState | None, *, subject: str) -> None:
    """Reject a definition that names a column which the DataFrame lacks. A sort column may be in the table only."""
    named = {
        **({MERGE_KEYS: options.merge_keys} if options.merges else {}),
        **{f"{MERGE}: {name}": columns for name, columns in options.merge.named_columns.items() if options.merges},
        IDENTIFIER_FIELDS: options.identifier_fields or (),
        REQUIRED_COLUMNS: tuple(name for name, is_required in options.required_columns.items() if is_required),
        SORT_BY: tuple(field.column for field in options.sort_by or ()),
    }
    for key, columns in named.items():
        for column in columns:
            is_stored = key == SORT_BY and state is not None and state.schema.field(column) is not None
            if frame.field(column) is None and not is_stored:
                raise _cannot_write(
                    subject,
                    expected=f"the column {column!r} of `{key}`",
                    found=f"a DataFrame with the columns {', '.join(frame.names)}",
                )


def refuse_other_columns(options: WriteOptions, given: Schema, state: TableState | None, *, subject: str) -> None:
    """Reject rows that do not have exactly the columns of `iceberg/columns`.

    A type that the column's type holds is accepted, but not if the table is created with it.
    """
    if not options.columns:
        return
    names = StoredNames.of(options.renames, given, None if state is None else state.schema, subject=subject)
    frame = stored_columns(options, names.of_schema(given))
    accepted: tuple[str, ...] = ("as is",) if state is None else ("as is", "stored")
    wrong = [f"no column {name!r}" for name in options.columns if frame.field(name) is None]
    declared = frame.like(Field(name, kind) for name, kind in options.columns.items())
    for field in frame:
        column = declared.field(field.name)
        if column is None:
            wrong.append(f"the column {field.name!r}")
        elif not is_same_type(field.type, column.type) and storage_verdict(field.type, column.type) not in accepted:
            wrong.append(f"{field.name!r} as {field.type} in place of {column.type}")
    if wrong:
        raise SchemaMismatchError.refusing(
            "write",
            subject,
            expected=f"the columns of `{COLUMNS}`, with their types",
            found=", ".join(wrong),
            hint="change the DataFrame, or the definition.",
        )


def _validity_in_frame(subject: str, field: Field, *, may_be_given: bool) -> ConfigurationError:
    """The batch has a column that the merge fills."""
    wanted = f"a timestamp in {field.name!r}" if may_be_given else f"a DataFrame without the column {field.name!r}"
    return ConfigurationError.refusing(
        "merge into",
        subject,
        expected=f"{wanted}, with which `{MERGE}` says when versions are valid",
        found=f"one of type {field.type}",
        hint="drop or cast it, or name other columns by `valid_from`, `valid_to` and `is_current`.",
    )


_OF_COLUMN: Final = "write.metadata.metrics.column."
_OF_ALL: Final = "write.metadata.metrics.default"
_COLUMNS: Final = "write.metadata.metrics.max-inferred-column-defaults"
_DEFAULT_COLUMNS: Final = "100"
_DEFAULT_MODE: Final = "truncate(16)"


def whole_bounds(columns: Iterable[str]) -> dict[str, str]:
    """Return the table properties that make Iceberg store whole bounds for the columns."""
    return {f"{_OF_COLUMN}{column}": "full" for column in columns}


def advice(owned: BoundScope, schema: Schema, properties: Mapping[str, str], identifier: TableIdentifier) -> str | None:
    """Return advice for a table whose replaces rewrite rows of other partitions for lack of bounds, or None.

    By default, Iceberg stores bounds for the first 100 columns of a table, and 16 characters of texts (Iceberg
    documentation, "Configuration", table properties).
    """
    columns = list(_without_bounds(owned, schema, properties))
    if not columns:
        return None
    wanted = " and ".join(f"`{key}` = `{value}`" for key, value in whole_bounds(columns).items())
    return (
        f"Rows of other partitions of {identifier} are written again with this one's: the metadata of its files lacks "
        f"whole bounds of {' and '.join(map(repr, columns))}. Set {wanted} in `iceberg/table_properties`: files "
        "written from then on have them."
    )


def _without_bounds(owned: BoundScope, schema: Schema, properties: Mapping[str, str]) -> Iterator[str]:
    inferred = schema.names[: int(properties.get(_COLUMNS, _DEFAULT_COLUMNS))]
    for column in owned.columns:
        mode = _DEFAULT_MODE if column in inferred else "none"
        mode = properties.get(f"{_OF_COLUMN}{column}", properties.get(_OF_ALL, mode))
        kept = re.fullmatch(r"truncate\((\d+)\)", mode)
        longest = max((len(text) for text in _texts(owned, column)), default=0)
        if mode in ("none", "counts") or (kept and longest > int(kept[1])):
            yield column


def _texts(owned: BoundScope, column: str) -> Iterator[str]:
    for box in owned.boxes:
        for constraint in box:
            if isinstance(constraint, Values) and constraint.column == column:
                yield from (value for value in constraint.values if isinstance(value, str))

"""The options of an output, parsed from its metadata and the IO manager's configuration.

Every option has the same precedence:

1. the metadata that the run attaches to the output (not for the keys that locate the table),
2. the metadata of the asset's definition,
3. the IO manager's configuration,
4. the default.

A value of None counts as no value: the next level applies.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Literal, TypeAlias

from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.plan.options.metadata_key import (
    PREFIX,
    MetadataKey,
    Options,
    key,
    keys_of,
    list_of_text,
    names,
    parse_options,
    read_metadata,
    sort_field,
    string_map,
    table_identifier,
    text,
    unknown_keys,
)
from dagster_iceberg_spark.plan.write.merging import MergeRules, parse_merge_rules
from dagster_iceberg_spark.registry import feature_options, features
from dagster_iceberg_spark.table.audit import Audit, AuditSeverity, Condition, NotNull, Unique
from dagster_iceberg_spark.table.identifier import NotationError, TableIdentifier, nearest_of, split_parts
from dagster_iceberg_spark.table.lineage import OWNER_PROPERTY, SHARED_PROPERTY, SHARERS_PROPERTY
from dagster_iceberg_spark.table.partitioning import PartitionField, SortField, parse_partition_field
from dagster_iceberg_spark.table.schema import IcebergType, is_type_name, parse_type
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, PublishedBy, TableState

WriteDisposition: TypeAlias = Literal["replace", "append", "merge", "overwrite_partitions"]
RowsOutsidePartition: TypeAlias = Literal["error", "drop"]
SchemaEvolution: TypeAlias = Literal["strict", "add_columns", "full"]
PartitionEvolution: TypeAlias = Literal["evolve", "error"]

ConcurrentWrites: TypeAlias = Literal["last_wins", "first_wins", "wait"]
WriteEngine: TypeAlias = Literal["auto", "arrow", "spark"]

PARTITION_EXPR: Final = "partition_expr"
SCHEMA: Final = "schema"
TABLE: Final = "iceberg/table"
PARTITION_BY: Final = "iceberg/partition_by"
WRITE_DISPOSITION: Final = "iceberg/write_disposition"
MERGE_KEYS: Final = "iceberg/merge_keys"
MERGE: Final = "iceberg/merge"
COLUMNS: Final = "iceberg/columns"
SCHEMA_EVOLUTION: Final = "iceberg/schema_evolution"
RENAMES: Final = "iceberg/renames"
REQUIRED_COLUMNS: Final = "iceberg/required_columns"
IDENTIFIER_FIELDS: Final = "iceberg/identifier_fields"
SORT_BY: Final = "iceberg/sort_by"
CONCURRENT_WRITES: Final = "iceberg/concurrent_writes"
DEFAULTS: Final = "iceberg/defaults"
FORMAT_VERSION: Final = "iceberg/format_version"
LOCATION: Final = "iceberg/location"
BRANCH: Final = "iceberg/branch"
TAKES_OVER: Final = "iceberg/takes_over"
AUDITS: Final = "iceberg/audits"
PUBLISH: Final = "iceberg/publish"

_RESULT_KEYS: Final = (
    "iceberg/snapshot_id",
    "iceberg/parent_snapshot_id",
    "iceberg/operation",
    "iceberg/added_rows",
    "iceberg/deleted_rows",
    "iceberg/carried_over_rows",
    "iceberg/dropped_rows",
    "iceberg/merge_inserted_rows",
    "iceberg/merge_updated_rows",
    "iceberg/merge_deleted_rows",
    "iceberg/merge_unchanged_rows",
    "iceberg/added_files",
    "iceberg/deleted_files",
    "iceberg/added_bytes",
    "iceberg/deleted_bytes",
    "iceberg/write_seconds",
    "iceberg/commit_seconds",
    "iceberg/retries",
    "iceberg/retry_seconds",
    "iceberg/table_changes",
    "iceberg/adopted",
    "iceberg/published",
    "iceberg/staged_branch",
    "iceberg/commit_token",
    "iceberg/publication",
    "iceberg/publication_seconds",
    "iceberg/inputs",
    "iceberg/history",
)

WRITE_OPTION_NAMES: Final = frozenset(
    {
        "write-format",
        "target-file-size-bytes",
        "check-nullability",
        "fanout-enabled",
        "check-ordering",
        "isolation-level",
        "validate-from-snapshot-id",
        "compression-codec",
        "compression-level",
        "compression-strategy",
        "distribution-mode",
        "advisory-partition-size",
        "delete-granularity",
        "output-spec-id",
        "use-table-distribution-and-ordering",
    }
)
"""Iceberg documentation, "Spark Configuration", write options. The engine silently ignores any other name."""
_RESERVED_TABLE_PROPERTIES: Final[Mapping[str, str]] = {
    "location": f"use `{LOCATION}` instead",
    "sort-order": f"use `{SORT_BY}` instead",
    "identifier-fields": f"use `{IDENTIFIER_FIELDS}` instead",
    **dict.fromkeys(
        ("owner", "provider", "external", "is_managed_location", "table_type", "collation"), "Spark reserves it"
    ),
    **dict.fromkeys(
        (
            "uuid",
            "snapshot-count",
            "current-snapshot-id",
            "cherry-pick-snapshot-id",
            "current-snapshot-summary",
            "current-snapshot-timestamp-ms",
            "current-schema",
            "default-partition-spec",
            "default-sort-order",
        ),
        "Iceberg sets it",
    ),
    **dict.fromkeys((OWNER_PROPERTY, SHARED_PROPERTY, SHARERS_PROPERTY), "this package sets it"),
}
"""The properties of Spark's `CatalogV2Util.TABLE_RESERVED_PROPERTIES` that SQL rejects, Iceberg's
`TableProperties.RESERVED_PROPERTIES`, and those that `Spark3Util` treats as commands."""
_SNAPSHOT_PROPERTY: Final = "snapshot-property."
_RESERVED_SNAPSHOT_PROPERTIES: Final = ("dagster.", "dagster_iceberg_spark.")
_FORMAT_VERSIONS: Final = (1, 2, 3)
_AUDIT_NAME: Final = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
_AUDIT_RULES: Final = ("condition", "unique", "not_null")


def _partition_fields(value: Any) -> tuple[PartitionField, ...]:
    return tuple(map(parse_partition_field, list_of_text(value)))


def _sort_fields(value: Any) -> tuple[SortField, ...]:
    return tuple(map(sort_field, list_of_text(value)))


def _table_properties(value: Any) -> dict[str, str | None]:
    given = value if isinstance(value, Mapping) else {}
    for name in given:
        if name in _RESERVED_TABLE_PROPERTIES:
            raise ValueError(f"the table property {name!r}: {_RESERVED_TABLE_PROPERTIES[name]}")
    removed = [name for name, item in given.items() if item is None]
    kept = {name: item for name, item in given.items() if item is not None} if removed else value
    return {**string_map(kept), **dict.fromkeys(map(text, removed))}


def _renames(value: Any) -> dict[str, str]:
    """Parse renames. They may be a history: `{"a": "b", "b": "c"}` renames both `a` and `b` to `c`."""
    renames = string_map(value)
    by_path = {split_parts(text): _new_name(split_parts(text), name) for text, name in renames.items()}
    return {text: _last_name(split_parts(text), by_path) for text in renames}


def _new_name(path: tuple[str, ...], text: str) -> str:
    """Return the new name of a column, which may be written with the path to it."""
    *parent, name = split_parts(text)
    if parent and tuple(parent) != path[:-1]:
        raise ValueError(f"{text!r}, which is elsewhere than {'.'.join(path)!r} (a name with a dot needs backticks)")
    return name


def _last_name(path: tuple[str, ...], by_path: Mapping[tuple[str, ...], str]) -> str:
    *parent, first = path
    name, seen = by_path[path], {first}
    while (following := by_path.get((*parent, name))) is not None:
        if name in seen:
            raise ValueError(f"renames that lead back to {name!r}")
        seen.add(name)
        name = following
    return name


def _required_columns(value: Any) -> dict[str, bool]:
    if not isinstance(value, Mapping):
        return dict.fromkeys(list_of_text(value), True)
    if not all(isinstance(item, bool) for item in value.values()):
        raise TypeError(f"{value!r}, whose values are not true or false")
    return {text(name): item for name, item in value.items()}


def _columns(value: Any) -> dict[str, IcebergType]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r}, which is not a dict")
    return {text(name): _column_type(item, name) for name, item in value.items()}


def _column_type(value: Any, name: str) -> IcebergType:
    if isinstance(value, str) and not is_type_name(value):
        raise ValueError(f"{value!r} for {name!r}")
    return parse_type(value)


def _write_options(value: Any) -> dict[str, str]:
    options = string_map(value)
    for name in options:
        if name.startswith(_SNAPSHOT_PROPERTY):
            if name.removeprefix(_SNAPSHOT_PROPERTY).lower().startswith(_RESERVED_SNAPSHOT_PROPERTIES):
                raise ValueError(f"the snapshot property {name!r}, which the package writes itself")
        elif name not in WRITE_OPTION_NAMES:
            nearest = nearest_of(name, tuple(WRITE_OPTION_NAMES))
            message = f"the write option {name!r}" + (f" (did you mean {nearest!r}?)" if nearest else "")
            raise ValueError(message)
    return options


def _defaults(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"{value!r}")
    for name, default in value.items():
        if not isinstance(default, str | int | float):
            raise NotationError(f"a text, a number or a boolean for {text(name)!r}", f"{default!r}")
    return dict(value)


def _format_version(value: Any) -> int:
    if isinstance(value, bool) or str(value) not in map(str, _FORMAT_VERSIONS):
        raise ValueError(f"{value!r}")
    return int(value)


def _partition_columns(value: Any) -> str | dict[str, str]:
    if isinstance(value, Mapping):
        return {text(dimension): text(column) for dimension, column in value.items()}
    return text(value)


def parse_audits(value: Any) -> tuple[Audit, ...]:
    """Parse a dict of names to conditions, or to dicts with a rule and a severity."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r}, which is not a dict")
    return tuple(_audit(name, rule) for name, rule in value.items())


class _AuditRule(Options):
    """An audit, as it is written: one rule and its severity."""

    condition: Any = None
    unique: Any = None
    not_null: Any = None
    severity: AuditSeverity = "error"


def _audit(name: Any, value: Any) -> Audit:
    if not isinstance(name, str) or not _AUDIT_NAME.fullmatch(name):
        raise ValueError(f"the name {name!r}: Dagster allows letters, digits and underscores in the name of a check")
    given = value if isinstance(value, Mapping) else {"condition": value}
    try:
        written = parse_options(_AuditRule, given, expected="a condition, or a dict with a rule")
    except NotationError as error:
        raise NotationError(f"{error.expected} in {name!r}", error.found, error.nearest) from error
    rules = [rule for rule in _AUDIT_RULES if rule in given]
    if len(rules) != 1:
        raise NotationError(f"one of {', '.join(_AUDIT_RULES)} in {name!r}", " and ".join(rules) or "none")
    rule = given[rules[0]]
    match rules[0]:
        case "condition":
            return Audit(name, Condition(text(rule.strip() if isinstance(rule, str) else rule)), written.severity)
        case "unique":
            return Audit(name, Unique(_audited_columns(rule, name)), written.severity)
        case _:
            return Audit(name, NotNull(_audited_columns(rule, name)), written.severity)


def _audited_columns(value: Any, name: str) -> tuple[str, ...]:
    columns = names(value)
    if not columns:
        raise ValueError(f"no columns in {name!r}")
    return tuple(dict.fromkeys(columns))


class TableAddress(Options):
    """The location of an asset's rows: its table, and the columns that hold its partitions."""

    partition_expr: str | Mapping[str, str] | None = key(
        "column that holds the partition, or {dimension: column}; required for an asset with partitions",
        _partition_columns,
        name=PARTITION_EXPR,
        expected="a column, or {dimension: column}",
        is_addressing=True,
    )
    namespace: tuple[str, ...] | None = key(
        "namespace of the table, with dots between levels; default: the IO manager's `namespace`, else the last part "
        "of the asset key's prefix, else `public`",
        lambda value: split_parts(text(value)),
        name=SCHEMA,
        expected="a namespace, with dots between levels",
        is_addressing=True,
    )
    table: TableIdentifier | None = key(
        "`namespace.table`, if the table is not named after the asset",
        table_identifier,
        default_text="the last part of the asset key",
        is_addressing=True,
    )


class WriteOptions(Options):
    """The resolved options of an output."""

    partition_by: tuple[PartitionField, ...] | None = key(
        "list of `col`, `year(col)`, `month(col)`, `day(col)`, `hour(col)`, `bucket(n, col)`, `truncate(w, col)`, each "
        "optionally followed by `as name`",
        _partition_fields,
        default_text="the table's spec; for a new table, derived from the partitions definition",
    )
    write_disposition: WriteDisposition = key(
        "`replace`, `append`, `merge` or `overwrite_partitions`", default="replace", is_configurable=True
    )
    merge_keys: tuple[str, ...] = key("list of columns that identify a row; required for `merge`", names, default=())
    merge: MergeRules = key(
        f"a strategy, or a dict with the keys {', '.join(f'`{name}`' for name in MergeRules.model_fields)}",
        parse_merge_rules,
        default=MergeRules,
        default_text="`upsert`",
    )
    columns: Mapping[str, IcebergType] = key(
        "dict of all columns to their types in Iceberg's notation, which the rows must have, such as `long`, "
        "`timestamptz` or `decimal(9, 2)`",
        _columns,
        default=dict,
        default_text="any columns",
    )
    schema_evolution: SchemaEvolution = key(
        "`strict`, `add_columns` or `full`", default="add_columns", is_configurable=True
    )
    partition_evolution: PartitionEvolution = key(
        "`evolve` or `error`: what happens if `iceberg/partition_by` differs from the table's spec",
        default="evolve",
        is_configurable=True,
    )
    rows_outside_partition: RowsOutsidePartition = key(
        "`error` or `drop`: what happens to rows that belong to none of the run's partitions",
        default="error",
        is_configurable=True,
    )
    renames: Mapping[str, str] = key(
        "dict of old to new column names, with dotted paths for fields of structs; renamed columns keep their values",
        _renames,
        default=dict,
    )
    required_columns: Mapping[str, bool] = key(
        "list of columns that must not hold NULL, or a dict of columns to `true` or `false`; `false` makes a required "
        "column optional",
        _required_columns,
        default=dict,
    )
    identifier_fields: tuple[str, ...] | None = key(
        "list of columns that identify a row; they become required", names, default_text="those of the table"
    )
    sort_by: tuple[SortField, ...] | None = key(
        "list of `col`, each optionally followed by `asc` or `desc` and `nulls first` or `nulls last`: the order of "
        "rows within new files; `[]` for none",
        _sort_fields,
        default_text="the table's order; none for a new table",
    )
    table_properties: Mapping[str, str | None] = key(
        "Iceberg table properties; a property set to null is removed, and those not named keep their values",
        _table_properties,
        default=dict,
        is_configurable=True,
    )
    write_options: Mapping[str, str] = key(
        "Iceberg's Spark write options, such as `target-file-size-bytes`",
        _write_options,
        default=dict,
        is_configurable=True,
    )
    engine: WriteEngine = key(
        "`auto`, `arrow` or `spark`: what writes rows of Arrow, pandas, polars, DuckDB and ibis; Spark writes its own",
        default="auto",
        is_configurable=True,
    )
    concurrent_writes: ConcurrentWrites = key(
        "`last_wins` replaces what another run has written to the same partitions since this run began, `first_wins` "
        "fails, and `wait` writes only when no other run does",
        default="last_wins",
    )
    format_version: int | None = key(
        "1, 2 or 3: the format version of the table; a table of an older version is upgraded permanently",
        _format_version,
        default_text="the table's version; Iceberg's default for a new table",
    )
    defaults: Mapping[str, Any] = key(
        "dict of columns to the value of new rows that lack the column; a column that is added has it in older rows "
        "too; needs format version 3",
        _defaults,
        default=dict,
    )
    unread_types: tuple[str, ...] = key(
        "list of types that readers of the table cannot read: no column of them is added; `iceberg/readers` sets it",
        names,
        default=("variant",),
    )
    location: str | None = key(
        "URI of the table's directory, if the asset creates the table",
        text,
        default_text="the catalog's choice; a name with unusual characters gets a safe directory",
        is_addressing=True,
    )
    branch: str = key("branch to write to", text, default=MAIN_BRANCH, is_addressing=True)
    audits: tuple[Audit, ...] = key(
        "dict of names to conditions in Spark SQL that the run's rows must meet before they are published, or to dicts "
        "with one of `condition`, `unique` and `not_null`, and `severity`: `error` (default) or `warn`",
        parse_audits,
        default=(),
        default_text="none: the rows are published without audits",
    )
    publish: PublishedBy = key(
        "`step` or `release`: whether the step that writes the rows publishes them, or a release asset publishes them "
        "with those of other assets",
        default="step",
        is_configurable=True,
    )
    on_failure: Literal["keep", "drop"] = key(
        "`keep` or `drop`: whether staged rows that an audit or a release rejects stay in their branch",
        default="keep",
        is_configurable=True,
    )
    takes_over: str | None = key(
        "the asset's former key, with slashes between its parts: the next write adopts the table that the asset of "
        "that key owns",
        text,
        is_addressing=True,
    )

    def version_of(self, state: TableState | None) -> int:
        """Return the format version that the table has after the write, or 0 if the catalog chooses it."""
        return max(self.format_version or 0, 0 if state is None else state.format_version)

    @property
    def merges(self) -> bool:
        """Whether the write matches its rows with those of the table by their keys."""
        return self.write_disposition == "merge" and self.merge.where is None


CONFIGURABLE: Final = tuple(item.option for item in keys_of(WriteOptions) if item.is_configurable)
"""The options whose default is a field of the IO manager."""


@cache
def output_keys() -> Mapping[str, MetadataKey]:
    """Return the metadata keys of an output by name: those of the core and of the features."""
    options = (TableAddress, WriteOptions, *feature_options())
    return {item.name: item for each in options for item in keys_of(each)}


@cache
def result_keys() -> tuple[str, ...]:
    """Return the keys that the package reports with a materialization."""
    return (*_RESULT_KEYS, *(name for feature in features() for name in feature.result_keys))


@cache
def addressing_keys() -> tuple[str, ...]:
    """Return the keys that locate the rows or name their owner."""
    return tuple(name for name, item in output_keys().items() if item.is_addressing)


def parse_write_options(
    definition: Mapping[str, Any],
    run: Mapping[str, Any] | None = None,
    configuration: Mapping[str, Any] | None = None,
    *,
    subject: str,
) -> WriteOptions:
    """Resolve the options of an output. `configuration` has the fields of the IO manager by name."""
    run = run or {}
    check_keys(definition, subject=subject)
    check_keys(run, subject=subject)
    _refuse_addressing(run, definition, subject=subject)
    configured = {f"{PREFIX}{name}": value for name, value in (configuration or {}).items()}
    levels = (configured, definition, run)
    chosen = {name: value for level in levels for name, value in level.items() if value is not None}
    options = _with_version(read_metadata(WriteOptions, chosen, subject=subject), subject)
    for others in feature_options():  # an invalid value should not wait until it is used
        read_metadata(others, chosen, subject=subject)
    if options.merges and not options.merge_keys and options.merge.strategy != "scd2":
        raise MetadataKeyError.refusing(
            "merge into",
            subject,
            expected=f"the columns that identify a row in `{MERGE_KEYS}`",
            found="none",
            hint=f'add metadata {{"{MERGE_KEYS}": ["id"]}} to the asset.',
        )
    return options


def _with_version(options: WriteOptions, subject: str) -> WriteOptions:
    """Move `format-version` from the table properties to its option: no table stores it as a property."""
    properties = dict(options.table_properties)
    version = properties.pop("format-version", None)
    if version is not None and options.format_version is None:
        parsed = output_keys()[FORMAT_VERSION].read(version, subject=subject)
        return options.model_copy(update={"table_properties": properties, "format_version": parsed})
    return options.model_copy(update={"table_properties": properties})


def check_keys(metadata: Mapping[str, Any], *, subject: str) -> None:
    """Reject `iceberg/` keys that the package does not know, and suggest the most similar key."""
    reported = result_keys()
    others = {name: value for name, value in metadata.items() if name not in reported}
    known = [name for name in output_keys() if name.startswith(PREFIX)]
    for name, hint in unknown_keys(others, dict.fromkeys(known)):
        raise MetadataKeyError.refusing(
            "use",
            f"the metadata of {subject}",
            expected="`iceberg/` keys that the package knows",
            found=f"`{name}`",
            hint=hint,
        )


def parse_key(name: str, metadata: Mapping[str, Any], *, subject: str) -> Any:
    """Return the value of one key of an output, parsed, or None if it is not given."""
    value = metadata.get(name)
    return None if value is None else output_keys()[name].read(value, subject=subject)


def _refuse_addressing(run: Mapping[str, Any], definition: Mapping[str, Any], *, subject: str) -> None:
    for name in addressing_keys():
        if run.get(name) is not None and run[name] != definition.get(name):
            raise MetadataKeyError.refusing(
                "write",
                subject,
                expected=f"`{name}` in the asset's definition only, where readers see it",
                found=f"{run[name]!r} in the metadata of the run",
                hint=f"move `{name}` to the definition's metadata.",
            )

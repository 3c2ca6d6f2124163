"""What the metadata and the configuration ask for, parsed once.

The precedence, for every option alike:

1. metadata that the run attaches to the output (not for keys that say where the table is),
2. metadata of the asset's definition,
3. the IO manager's configuration,
4. the default.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.plan.evolution import PartitionEvolution, SchemaEvolution
from dagster_iceberg_spark.plan.merging import MERGE_OPTIONS, MergeRules, MergeStrategy, parse_merge_rules
from dagster_iceberg_spark.plan.values import list_of_text, names, nearest_of, sort_field, string_map, text
from dagster_iceberg_spark.table.identifier import TableIdentifier, split_parts
from dagster_iceberg_spark.table.lineage import OWNER_PROPERTY, SHARED_PROPERTY, SHARERS_PROPERTY
from dagster_iceberg_spark.table.notation import NotationError
from dagster_iceberg_spark.table.ordering import SortField
from dagster_iceberg_spark.table.partitioning import (
    TRANSFORM_SPELLINGS,
    PartitionField,
    UnknownTransformError,
    parse_partition_field,
)
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH

WriteDisposition: TypeAlias = Literal["replace", "append", "merge", "overwrite_partitions"]
RowsOutsidePartition: TypeAlias = Literal["error", "drop"]

PREFIX: Final = "iceberg/"
PARTITION_EXPR: Final = "partition_expr"
SCHEMA: Final = "schema"
TABLE: Final = "iceberg/table"
PARTITION_BY: Final = "iceberg/partition_by"
WRITE_DISPOSITION: Final = "iceberg/write_disposition"
MERGE_KEYS: Final = "iceberg/merge_keys"
MERGE: Final = "iceberg/merge"
SCHEMA_EVOLUTION: Final = "iceberg/schema_evolution"
PARTITION_EVOLUTION: Final = "iceberg/partition_evolution"
ROWS_OUTSIDE_PARTITION: Final = "iceberg/rows_outside_partition"
RENAMES: Final = "iceberg/renames"
REQUIRED_COLUMNS: Final = "iceberg/required_columns"
IDENTIFIER_FIELDS: Final = "iceberg/identifier_fields"
SORT_BY: Final = "iceberg/sort_by"
TABLE_PROPERTIES: Final = "iceberg/table_properties"
WRITE_OPTIONS: Final = "iceberg/write_options"
FORMAT_VERSION: Final = "iceberg/format_version"
LOCATION: Final = "iceberg/location"
BRANCH: Final = "iceberg/branch"
TAKES_OVER: Final = "iceberg/takes_over"

ADDRESSING_KEYS: Final = (SCHEMA, TABLE, PARTITION_EXPR, BRANCH, LOCATION, TAKES_OVER)
"""Keys that say where the rows are, and whose. They are the definition's alone: readers never see run metadata."""

KEYS: Final[Mapping[str, str]] = {
    TABLE: "`namespace.table`, for a table not named after its asset",
    PARTITION_BY: "list of `col`, `year(col)`, `month(col)`, `day(col)`, `hour(col)`, `bucket(n, col)`, "
    "`truncate(w, col)`, each optionally `... as name`",
    WRITE_DISPOSITION: "`replace`, `append`, `merge` or `overwrite_partitions`",
    MERGE_KEYS: "list of columns that identify a row; required for `merge`",
    MERGE: f"a strategy, or a dict of {', '.join(f'`{name}`' for name in MERGE_OPTIONS)}",
    SCHEMA_EVOLUTION: "`strict`, `add_columns` or `full`",
    PARTITION_EVOLUTION: "`evolve` or `error`: when an explicit `iceberg/partition_by` differs from the table's spec",
    ROWS_OUTSIDE_PARTITION: "`error` or `drop`",
    RENAMES: "dict of old to new column names, fields of structs by their dotted path: columns keep their values",
    REQUIRED_COLUMNS: "list of columns that may not hold NULL, or a dict of columns to `true` and `false`: `false` "
    "lets a required column hold NULL",
    IDENTIFIER_FIELDS: "list of columns that identify a row; they are required",
    SORT_BY: "list of `col`, each optionally `asc` or `desc` and `nulls first` or `nulls last`: the order inside "
    "new files; `[]` for none",
    TABLE_PROPERTIES: "Iceberg table properties; those not named stay as they are, one set to null is removed",
    WRITE_OPTIONS: "Iceberg's Spark write options, such as `target-file-size-bytes`",
    FORMAT_VERSION: "1, 2 or 3: the format of the table; an older one is upgraded, for good",
    LOCATION: "URI of the directory of the table that the asset creates",
    BRANCH: "branch to write instead of `main`",
    TAKES_OVER: "the key that the asset had before, its parts joined by slashes: the next write takes over the table "
    "that the asset of that key owns",
}
"""Every `iceberg/` key of an output, and the values that it takes."""

RESULT_KEYS: Final = (
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
)
"""Keys that the package itself reports with a materialization."""

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
"""Iceberg documentation, "Spark Configuration", write options. The engine ignores any other name in silence."""
_RESERVED_TABLE_PROPERTIES: Final[Mapping[str, str]] = {
    "location": f"give it as `{LOCATION}`",
    "sort-order": f"give it as `{SORT_BY}`",
    "identifier-fields": f"give them as `{IDENTIFIER_FIELDS}`",
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
        "Iceberg keeps it itself",
    ),
    **dict.fromkeys((OWNER_PROPERTY, SHARED_PROPERTY, SHARERS_PROPERTY), "this package keeps it itself"),
}
"""Spark's `CatalogV2Util.TABLE_RESERVED_PROPERTIES` as far as SQL refuses them, Iceberg's
`TableProperties.RESERVED_PROPERTIES` and what `Spark3Util` takes for a command."""
_SNAPSHOT_PROPERTY: Final = "snapshot-property."
_RESERVED_SNAPSHOT_PROPERTIES: Final = ("dagster.", "dagster_iceberg_spark.")
_FORMAT_VERSIONS: Final = (1, 2, 3)

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class OptionDefaults:
    """The IO manager's configuration, as far as metadata can override it."""

    write_disposition: str = "replace"
    schema_evolution: str = "add_columns"
    partition_evolution: str = "evolve"
    rows_outside_partition: str = "error"
    table_properties: Mapping[str, str] = field(default_factory=dict)
    write_options: Mapping[str, str] = field(default_factory=dict)

    def as_metadata(self) -> dict[str, Any]:
        """Return the configuration under the metadata's names."""
        return {
            WRITE_DISPOSITION: self.write_disposition,
            SCHEMA_EVOLUTION: self.schema_evolution,
            PARTITION_EVOLUTION: self.partition_evolution,
            ROWS_OUTSIDE_PARTITION: self.rows_outside_partition,
            TABLE_PROPERTIES: dict(self.table_properties),
            WRITE_OPTIONS: dict(self.write_options),
        }


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How an output is written, every option resolved."""

    partition_by: tuple[PartitionField, ...] | None = None
    write_disposition: WriteDisposition = "replace"
    merge_keys: tuple[str, ...] = ()
    merge: MergeRules = field(default_factory=MergeRules)
    schema_evolution: SchemaEvolution = "add_columns"
    partition_evolution: PartitionEvolution = "evolve"
    rows_outside_partition: RowsOutsidePartition = "error"
    renames: Mapping[str, str] = field(default_factory=dict)
    required_columns: Mapping[str, bool] = field(default_factory=dict)
    identifier_fields: tuple[str, ...] | None = None
    sort_by: tuple[SortField, ...] | None = None
    table_properties: Mapping[str, str | None] = field(default_factory=dict)
    write_options: Mapping[str, str] = field(default_factory=dict)
    format_version: int | None = None
    location: str | None = None
    branch: str = MAIN_BRANCH
    takes_over: str | None = None

    @property
    def merges(self) -> bool:
        """Whether rows meet those of the table by their keys."""
        return self.write_disposition == "merge" and self.merge.where is None


def parse_write_options(
    definition: Mapping[str, Any],
    run: Mapping[str, Any] | None = None,
    defaults: OptionDefaults | None = None,
    *,
    subject: str,
) -> WriteOptions:
    """Resolve the options of an output.

    Args:
        definition: The metadata of the asset's definition, plain values.
        run: The metadata that the run attached to the output.
        defaults: The IO manager's configuration.
        subject: The asset, for messages.

    Raises:
        MetadataKeyError: A key is unknown, stands where it may not, or has a value that it does not take.
    """
    run = run or {}
    check_keys(definition, subject=subject)
    check_keys(run, subject=subject)
    _refuse_addressing(run, definition, subject=subject)
    chosen = {**(defaults or OptionDefaults()).as_metadata(), **definition, **run}
    read = _Reader(chosen, subject)
    properties: dict[str, str | None] = {**read.value(TABLE_PROPERTIES, _table_properties, {})}
    version = _Reader({FORMAT_VERSION: properties.pop("format-version", None)}, subject)  # which no table has as one
    options = WriteOptions(
        partition_by=read.value(PARTITION_BY, _partition_fields, None),
        write_disposition=read.choice(WRITE_DISPOSITION, get_args(WriteDisposition)),
        merge_keys=read.value(MERGE_KEYS, names, ()),
        merge=read.value(MERGE, parse_merge_rules, MergeRules()),
        schema_evolution=read.choice(SCHEMA_EVOLUTION, get_args(SchemaEvolution)),
        partition_evolution=read.choice(PARTITION_EVOLUTION, get_args(PartitionEvolution)),
        rows_outside_partition=read.choice(ROWS_OUTSIDE_PARTITION, get_args(RowsOutsidePartition)),
        renames=read.value(RENAMES, _renames, {}),
        required_columns=read.value(REQUIRED_COLUMNS, _required_columns, {}),
        identifier_fields=read.value(IDENTIFIER_FIELDS, names, None),
        sort_by=read.value(SORT_BY, _sort_fields, None),
        table_properties=properties,
        write_options=read.value(WRITE_OPTIONS, _write_options, {}),
        format_version=read.value(
            FORMAT_VERSION, _format_version, version.value(FORMAT_VERSION, _format_version, None)
        ),
        location=read.value(LOCATION, text, None),
        branch=read.value(BRANCH, text, MAIN_BRANCH),
        takes_over=read.value(TAKES_OVER, text, None),
    )
    if options.merges and not options.merge_keys and options.merge.strategy != "scd2":
        raise MetadataKeyError.refusing(
            "merge into",
            subject,
            expected=f"the columns that identify a row in `{MERGE_KEYS}`",
            found="none",
            hint=f'add metadata {{"{MERGE_KEYS}": ["id"]}} to the asset.',
        )
    return options


def check_keys(metadata: Mapping[str, Any], *, subject: str) -> None:
    """Refuse an `iceberg/` key that the package does not know.

    Raises:
        MetadataKeyError: Names the nearest known key.
    """
    for key in metadata:
        if key.startswith(PREFIX) and key not in KEYS and key not in RESULT_KEYS:
            raise _unknown_key(key, KEYS, subject=subject)


def parse_table_name(metadata: Mapping[str, Any], *, subject: str) -> TableIdentifier | None:
    """Return the table that `iceberg/table` names, if it does.

    Raises:
        MetadataKeyError: The value is no `namespace.table`.
    """
    return _Reader(metadata, subject).value(TABLE, lambda value: TableIdentifier.parse(text(value)), None)


def parse_namespace(metadata: Mapping[str, Any], *, subject: str) -> tuple[str, ...] | None:
    """Return the namespace that Dagster's own `schema` key names, if it does.

    Raises:
        MetadataKeyError: The value is no namespace.
    """
    return _Reader(metadata, subject).value(SCHEMA, lambda value: split_parts(text(value)), None)


def parse_partition_columns(metadata: Mapping[str, Any], *, subject: str) -> str | Mapping[str, str] | None:
    """Return `partition_expr`: a column, or one by dimension.

    Raises:
        MetadataKeyError: The value is neither.
    """
    return _Reader(metadata, subject).value(PARTITION_EXPR, _partition_columns, None)


def metadata_for_table(  # noqa: PLR0913 - one argument for every key
    *,
    partition_expr: str | Mapping[str, str] | None = None,
    schema: str | None = None,
    table: str | None = None,
    partition_by: Sequence[str] | None = None,
    write_disposition: WriteDisposition | None = None,
    merge_keys: Sequence[str] | None = None,
    merge: MergeStrategy | Mapping[str, Any] | None = None,
    schema_evolution: SchemaEvolution | None = None,
    partition_evolution: PartitionEvolution | None = None,
    rows_outside_partition: RowsOutsidePartition | None = None,
    renames: Mapping[str, str] | None = None,
    required_columns: Sequence[str] | Mapping[str, bool] | None = None,
    identifier_fields: Sequence[str] | None = None,
    sort_by: Sequence[str] | None = None,
    table_properties: Mapping[str, str | None] | None = None,
    write_options: Mapping[str, str] | None = None,
    format_version: Literal[1, 2, 3] | None = None,
    location: str | None = None,
    branch: str | None = None,
    takes_over: str | None = None,
) -> dict[str, Any]:
    """Build and check an asset's metadata; the result is the same plain dict that one could write by hand.

    Raises:
        MetadataKeyError: A value is not one that its key takes.

    Example:
        >>> metadata_for_table(partition_expr="ts", partition_by=["day(ts)"])
        {'partition_expr': 'ts', 'iceberg/partition_by': ['day(ts)']}
    """
    given = {
        PARTITION_EXPR: dict(partition_expr) if isinstance(partition_expr, Mapping) else partition_expr,
        SCHEMA: schema,
        TABLE: table,
        PARTITION_BY: None if partition_by is None else list(partition_by),
        WRITE_DISPOSITION: write_disposition,
        MERGE_KEYS: None if merge_keys is None else list(merge_keys),
        MERGE: dict(merge) if isinstance(merge, Mapping) else merge,
        SCHEMA_EVOLUTION: schema_evolution,
        PARTITION_EVOLUTION: partition_evolution,
        ROWS_OUTSIDE_PARTITION: rows_outside_partition,
        RENAMES: None if renames is None else dict(renames),
        REQUIRED_COLUMNS: dict(required_columns)
        if isinstance(required_columns, Mapping)
        else None
        if required_columns is None
        else list(required_columns),
        IDENTIFIER_FIELDS: None if identifier_fields is None else list(identifier_fields),
        SORT_BY: None if sort_by is None else list(sort_by),
        TABLE_PROPERTIES: None if table_properties is None else dict(table_properties),
        WRITE_OPTIONS: None if write_options is None else dict(write_options),
        FORMAT_VERSION: format_version,
        LOCATION: location,
        BRANCH: branch,
        TAKES_OVER: takes_over,
    }
    metadata = {key: value for key, value in given.items() if value is not None}
    parse_write_options(metadata, subject="the asset")
    parse_table_name(metadata, subject="the asset")
    parse_namespace(metadata, subject="the asset")
    parse_partition_columns(metadata, subject="the asset")
    return metadata


@dataclass(frozen=True, slots=True)
class _Reader:
    metadata: Mapping[str, Any]
    subject: str

    def value(self, key: str, parse: Callable[[Any], _Value], default: _Value) -> _Value:
        if self.metadata.get(key) is None:
            return default
        try:
            return parse(self.metadata[key])
        except UnknownTransformError as error:
            message, transform = error.args
            raise self.refusal(
                key, f"one of {', '.join(TRANSFORM_SPELLINGS)}", message, nearest_of(transform, TRANSFORM_SPELLINGS)
            ) from error
        except NotationError as error:
            raise self.refusal(key, error.expected, error.found, None) from error
        except (ValueError, TypeError) as error:
            raise self.refusal(key, KEYS.get(key, "a value that the key takes"), str(error), None) from error

    def choice(self, key: str, choices: tuple[Any, ...]) -> Any:
        value = self.metadata[key]
        if value not in choices:
            expected = f"one of {', '.join(choices)}"
            raise self.refusal(key, expected, repr(value), nearest_of(str(value), choices))
        return value

    def refusal(self, key: str, expected: str, found: str, nearest: str | None) -> MetadataKeyError:
        return MetadataKeyError.of_value(
            key,
            self.subject,
            expected=expected,
            found=found,
            hint=f"did you mean {nearest!r}?" if nearest else None,
        )


def _unknown_key(key: str, known: Mapping[str, str], *, subject: str) -> MetadataKeyError:
    nearest = nearest_of(key.removeprefix(PREFIX), tuple(name.removeprefix(PREFIX) for name in known))
    return MetadataKeyError.of_unknown_key(
        key,
        f"the metadata of {subject}",
        expected="a key of an output",
        known=known,
        nearest=nearest and f"{PREFIX}{nearest}",
    )


def _refuse_addressing(run: Mapping[str, Any], definition: Mapping[str, Any], *, subject: str) -> None:
    for key in ADDRESSING_KEYS:
        if key in run and run[key] != definition.get(key):
            raise MetadataKeyError.refusing(
                "write",
                subject,
                expected=f"`{key}` in the asset's definition only, where readers see it",
                found=f"{run[key]!r} in the metadata of the run",
                hint=f"move `{key}` to the definition's metadata.",
            )


def _partition_fields(value: Any) -> tuple[PartitionField, ...]:
    return tuple(parse_partition_field(item) for item in list_of_text(value))


def _sort_fields(value: Any) -> tuple[SortField, ...]:
    return tuple(sort_field(item) for item in list_of_text(value))


def _table_properties(value: Any) -> dict[str, str | None]:
    for name in value if isinstance(value, Mapping) else ():
        if name in _RESERVED_TABLE_PROPERTIES:
            message = f"the table property {name!r}: {_RESERVED_TABLE_PROPERTIES[name]}"
            raise ValueError(message)
    removed = {key: None for key, item in value.items() if item is None} if isinstance(value, Mapping) else {}
    kept = {key: item for key, item in value.items() if item is not None} if removed else value
    return {**string_map(kept), **{text(key): None for key in removed}}


def _renames(value: Any) -> dict[str, str]:
    """Read renames, which may be a history: `{"a": "b", "b": "c"}` makes `c` of either."""
    renames = string_map(value)
    by_path = {split_parts(text): name for text, name in renames.items()}
    return {text: _last_name(split_parts(text), by_path) for text in renames}


def _last_name(path: tuple[str, ...], by_path: Mapping[tuple[str, ...], str]) -> str:
    *parent, first = path
    name, seen = by_path[path], {first}
    while (following := by_path.get((*parent, name))) is not None:
        if name in seen:
            message = f"renames that lead back to {name!r}"
            raise ValueError(message)
        seen.add(name)
        name = following
    return name


def _required_columns(value: Any) -> dict[str, bool]:
    if not isinstance(value, Mapping):
        return dict.fromkeys(list_of_text(value), True)
    if not all(isinstance(item, bool) for item in value.values()):
        message = f"{value!r}, whose values are not true or false"
        raise TypeError(message)
    return {text(key): item for key, item in value.items()}


def _write_options(value: Any) -> dict[str, str]:
    options = string_map(value)
    for name in options:
        if name.startswith(_SNAPSHOT_PROPERTY):
            if name.removeprefix(_SNAPSHOT_PROPERTY).lower().startswith(_RESERVED_SNAPSHOT_PROPERTIES):
                message = f"the snapshot property {name!r}, which the package writes itself"
                raise ValueError(message)
        elif name not in WRITE_OPTION_NAMES:
            nearest = nearest_of(name, tuple(WRITE_OPTION_NAMES))
            message = f"the write option {name!r}" + (f" (did you mean {nearest!r}?)" if nearest else "")
            raise ValueError(message)
    return options


def _format_version(value: Any) -> int:
    if isinstance(value, bool) or str(value) not in map(str, _FORMAT_VERSIONS):
        message = f"{value!r}"
        raise ValueError(message)
    return int(value)


def _partition_columns(value: Any) -> str | dict[str, str]:
    if isinstance(value, Mapping):
        return {text(dimension): text(column) for dimension, column in value.items()}
    return text(value)

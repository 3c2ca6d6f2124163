"""The table that stores an asset, and the partitions that a run writes or an input reads."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.errors import MetadataKeyError, PartitioningError
from dagster_iceberg_spark.plan.options.output_options import PARTITION_EXPR, SCHEMA, TABLE, parse_key
from dagster_iceberg_spark.plan.partitions.binding import coarsest_granule
from dagster_iceberg_spark.registry import derived_metadata
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.scope import Dimension, PartitionScope, PartitionSlice, TimeCalendar, TimeWindow

DEFAULT_NAMESPACE: Final = "public"


def table_of(
    asset_key: dg.AssetKey | None,
    definition: Mapping[str, Any],
    namespace: str | None,
    *,
    mapping_key: str | None = None,
    subject: str,
) -> TableIdentifier:
    """Return the table that stores an asset or an op's output.

    The name is `iceberg/table`, else the last part of the asset key. The namespace is `schema`, else the IO manager's
    `namespace`, else the last part of the key's prefix, else `public`. Each output of a dynamic op has its own table.
    """
    named: TableIdentifier | None = parse_key(TABLE, definition, subject=subject)
    if named is not None:
        return named if mapping_key is None else TableIdentifier(named.namespace, f"{named.name}__{mapping_key}")
    if asset_key is None:
        raise MetadataKeyError.refusing(
            "store",
            subject,
            expected=f"the table's name in its metadata, as `{TABLE}`",
            found="none, and the output of an op has no asset key",
            hint=f'use `Out(io_manager_key=..., metadata={{"{TABLE}": "namespace.table"}})`, or another IO manager.',
        )
    prefix = asset_key.path[:-1]
    configured = (namespace,) if namespace else None
    default = (prefix[-1],) if prefix else (DEFAULT_NAMESPACE,)
    given: tuple[str, ...] | None = parse_key(SCHEMA, definition, subject=subject)
    return TableIdentifier(given or configured or default, asset_key.path[-1])


def spec_scope(spec: dg.AssetSpec, keys: Sequence[str]) -> PartitionScope:
    """Return these partitions of an asset, or the whole table of an asset without partitions."""
    if spec.partitions_def is None:
        return PartitionScope()
    subject = "/".join(spec.key.path)
    columns = parse_key(PARTITION_EXPR, plain_metadata(spec.metadata), subject=subject)
    return partition_scope(spec.partitions_def, keys, columns, subject=subject)


def known_scope(spec: dg.AssetSpec, keys: Iterable[str]) -> PartitionScope | None:
    """Return partitions that snapshots record, or None if these are keys of an earlier partitions definition."""
    try:
        return spec_scope(spec, sorted(keys))
    except (KeyError, ValueError):
        return None


def partition_scope(
    partitions_def: dg.PartitionsDefinition,
    keys: Sequence[str],
    columns: str | Mapping[str, str] | None,
    *,
    subject: str,
) -> PartitionScope:
    """Return the partitions of these keys, in any combination, and the columns that hold them."""
    definitions = by_dimension(partitions_def)
    names = tuple(definitions)
    parts: list[Mapping[Any, str]]
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        parts = [partitions_def.get_partition_key_from_str(str(key)).keys_by_dimension for key in keys]
    else:
        parts = [{None: key} for key in keys]
    column_of = _columns_by_dimension(names, columns, subject=subject)
    slices = {
        name: {key: _slice(definitions[name], key) for key in dict.fromkeys(part[name] for part in parts)}
        for name in names
    }
    return PartitionScope(
        dimensions=tuple(Dimension(name, column_of[name], _calendar(definitions[name])) for name in names),
        partitions=tuple(tuple(slices[name][part[name]] for name in names) for part in parts),
        keys=tuple(str(key) for key in keys),
    )


def partition_columns(
    partitions_def: dg.PartitionsDefinition | None, metadata: Mapping[str, Any], *, subject: str
) -> tuple[str, ...]:
    """Return the columns that hold the partitions of an asset, or none for an asset without partitions."""
    if partitions_def is None:
        return ()
    names = tuple(by_dimension(partitions_def))
    columns = parse_key(PARTITION_EXPR, metadata, subject=subject)
    return tuple(_columns_by_dimension(names, columns, subject=subject).values())


def plain_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the metadata as plain values, without Dagster's wrappers, with the keys that features derive."""
    return dict(derived_metadata({key: plain_value(value) for key, value in (metadata or {}).items()}))


def plain_value(value: Any) -> Any:
    """Return a value of metadata without Dagster's wrapper."""
    return value.value if isinstance(value, dg.MetadataValue) else value


def _calendar(partitions_def: dg.PartitionsDefinition) -> TimeCalendar | None:
    if not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return None
    granule = coarsest_granule(partitions_def.cron_schedule)
    return TimeCalendar(partitions_def.timezone, partitions_def.fmt, granule)


def _slice(partitions_def: dg.PartitionsDefinition, key: str) -> PartitionSlice:
    if not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return PartitionSlice(key, None)
    window = partitions_def.time_window_for_partition_key(key)
    return PartitionSlice(key, TimeWindow(window.start, window.end))


def by_dimension(partitions_def: dg.PartitionsDefinition) -> dict[str | None, dg.PartitionsDefinition]:
    """Return the definition of each dimension by name. The name of a single dimension is None."""
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return {item.name: item.partitions_def for item in partitions_def.partitions_defs}
    return {None: partitions_def}


def _columns_by_dimension(
    names: Sequence[str | None], columns: str | Mapping[str, str] | None, *, subject: str
) -> dict[str | None, str]:
    is_multi = names != (None,)
    expected = (
        f"`{PARTITION_EXPR}` with a column for each of the dimensions {', '.join(map(str, names))}"
        if is_multi
        else f"`{PARTITION_EXPR}` with the name of the column that holds the partition"
    )
    example = "{" + ", ".join(f'"{name}": "<column>"' for name in names) + "}" if is_multi else '"<column>"'
    hint = f'add metadata {{"{PARTITION_EXPR}": {example}}} to the asset.'
    if not is_multi and isinstance(columns, str):
        return {None: columns}
    if is_multi and isinstance(columns, Mapping) and set(columns) == set(names):
        return {name: columns[str(name)] for name in names}
    found = "none" if columns is None else repr(columns)
    raise PartitioningError.refusing("partition", subject, expected=expected, found=found, hint=hint)

"""The metadata of an asset, as keyword arguments that editors complete."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from typing_extensions import Unpack

from dagster_iceberg_spark.plan.options.metadata_key import PREFIX, read_metadata
from dagster_iceberg_spark.plan.options.output_options import (
    ConcurrentWrites,
    PartitionEvolution,
    RowsOutsidePartition,
    SchemaEvolution,
    TableAddress,
    WriteDisposition,
    WriteEngine,
    output_keys,
    parse_write_options,
)
from dagster_iceberg_spark.plan.write.merging import MergeStrategy
from dagster_iceberg_spark.table.snapshot import PublishedBy


class TableMetadata(TypedDict, total=False):
    """The metadata keys of an output, without their prefix. None counts as no value."""

    partition_expr: str | Mapping[str, str] | None
    schema: str | None
    table: str | None
    partition_by: Sequence[str] | None
    write_disposition: WriteDisposition | None
    merge_keys: Sequence[str] | None
    merge: MergeStrategy | Mapping[str, Any] | None
    columns: Mapping[str, str | Mapping[str, Any]] | None
    schema_evolution: SchemaEvolution | None
    partition_evolution: PartitionEvolution | None
    rows_outside_partition: RowsOutsidePartition | None
    engine: WriteEngine | None
    renames: Mapping[str, str] | None
    required_columns: Sequence[str] | Mapping[str, bool] | None
    identifier_fields: Sequence[str] | None
    sort_by: Sequence[str] | None
    table_properties: Mapping[str, str | None] | None
    write_options: Mapping[str, str] | None
    concurrent_writes: ConcurrentWrites | None
    format_version: Literal[1, 2, 3] | None
    location: str | None
    branch: str | None
    audits: Mapping[str, Any] | None
    publish: PublishedBy | None
    on_failure: Literal["keep", "drop"] | None
    takes_over: str | None
    contract: str | None
    requires: Sequence[str] | None
    readers: Sequence[str] | None
    defaults: Mapping[str, str | float | bool] | None
    unread_types: Sequence[str] | None
    maintenance: Mapping[str, Any] | Literal[False] | None
    retain: str | None
    min_file_size: str | None
    mirror: Mapping[str, Any] | Literal[False] | None


def metadata_for_table(**keys: Unpack[TableMetadata]) -> dict[str, Any]:
    """Build an asset's metadata and validate it. The result is a plain dict, as you would write it by hand.

    Raises:
        MetadataKeyError: A key has an invalid value.
        TypeError: There is no such key.

    Example:
        >>> metadata_for_table(partition_expr="ts", partition_by=["day(ts)"])
        {'partition_expr': 'ts', 'iceberg/partition_by': ['day(ts)']}
    """
    given: dict[str, Any] = {name: value for name, value in keys.items() if value is not None}
    arguments = {name.removeprefix(PREFIX): name for name in output_keys()}
    metadata = {name: _plain(given.pop(argument)) for argument, name in arguments.items() if argument in given}
    if given:
        raise TypeError(f"metadata_for_table() got an unexpected keyword argument {next(iter(given))!r}")
    parse_write_options(metadata, subject="the asset")
    read_metadata(TableAddress, metadata, subject="the asset")
    return metadata


def _plain(value: Any) -> Any:
    """Return the value as you would write it by hand: the UI can show dicts and lists."""
    if isinstance(value, Mapping):
        return dict(value)
    return value if isinstance(value, str | int) else list(value)

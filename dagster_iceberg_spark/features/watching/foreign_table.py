"""Declares a table that others write as an external asset."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from dagster_iceberg_spark.plan.metadata_key import read_metadata
from dagster_iceberg_spark.plan.options import PARTITION_EXPR, TABLE, TableAddress


def foreign_table(
    key: dg.AssetKey | str | Sequence[str],
    *,
    table: str,
    partition_expr: str | Mapping[str, str] | None = None,
    io_manager_key: str = "iceberg",
    metadata: Mapping[str, Any] | None = None,
    **fields: Any,
) -> dg.AssetSpec:
    """Declare an Iceberg table that something else writes, such as Airbyte, Flink or another team's Spark job.

    Downstream assets load it as any other asset, `build_table_sensor` records when it is written, and
    `build_maintenance` maintains it.

    Args:
        key: The key of the asset.
        table: The name of the table: `namespace.table`.
        partition_expr: The column that holds the partition, or `{dimension: column}`. With it, each partition is
            recorded on its own.
        io_manager_key: The IO manager that loads the table.
        metadata: More metadata.
        fields: Other fields of `dagster.AssetSpec`, such as `partitions_def`, `description` and `owners`.

    Raises:
        MetadataKeyError: The name of the table is invalid.

    Example:
        >>> from dagster_iceberg_spark import foreign_table
        >>> foreign_table("sensors", table="raw.sensors").metadata["iceberg/table"]
        'raw.sensors'
    """
    addressed = {TABLE: table, **({} if partition_expr is None else {PARTITION_EXPR: partition_expr})}
    spec = dg.AssetSpec(key, **{"kinds": {"iceberg"}, **fields}, metadata={**(metadata or {}), **addressed})
    read_metadata(TableAddress, addressed, subject=spec.key.to_user_string())
    return spec.with_io_manager_key(io_manager_key)

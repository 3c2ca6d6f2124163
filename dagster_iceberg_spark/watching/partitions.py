"""Which partitions of an asset the files of snapshots belong to."""

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Final
from zoneinfo import ZoneInfo

import dagster as dg

from dagster_iceberg_spark.addressing import partition_columns, plain_metadata, spec_scope
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import changed_files
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.plan.binding import bind_scope
from dagster_iceberg_spark.plan.overwrite_filter import DataFile
from dagster_iceberg_spark.plan.partition_files import partition_files
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

MAXIMUM_PARTITIONS: Final = 5_000
"""With more candidates, an event without a partition is recorded."""


def partitions_of(
    spec: dg.AssetSpec,
    state: TableState,
    snapshots: Iterable[Snapshot],
    *,
    catalog: CatalogDescription,
    instance: dg.DagsterInstance,
) -> Sequence[str] | None:
    """Return the partitions that the snapshots may have changed, or None if these cannot be told.

    They are told by the bounds of the partition columns in the files that were added and removed.
    """
    subject = "/".join(spec.key.path)
    try:
        columns = partition_columns(spec.partitions_def, plain_metadata(spec.metadata), subject=subject)
    except IcebergSparkError:
        return None
    if not columns:
        return None
    snapshot_ids = [snapshot.snapshot_id for snapshot in snapshots]
    files = changed_files(catalog, state.identifier, snapshot_ids, columns)
    keys = _candidates(spec.partitions_def, columns[0], files, instance)
    if keys is None or len(keys) > MAXIMUM_PARTITIONS:
        return None
    bound = [bind_scope(spec_scope(spec, [key]), state.schema, subject=subject) for key in keys]
    return [key for key, places in zip(keys, partition_files(bound, files), strict=True) if places]


def _candidates(
    partitions_def: dg.PartitionsDefinition | None, column: str, files: Sequence[DataFile], instance: dg.DagsterInstance
) -> Sequence[str] | None:
    """Return the partitions that the files may be in."""
    if partitions_def is None:
        return None
    if not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return partitions_def.get_partition_keys(dynamic_partitions_store=instance)
    edges = [edge for file in files for edge in (file.bounds[column].lower, file.bounds[column].upper)]
    zone = ZoneInfo(partitions_def.timezone)
    instants = [_instant(edge, zone) for edge in edges if isinstance(edge, dt.date)]
    if len(instants) < max(len(edges), 1):  # a file without bounds, or of another type
        return None
    day = dt.timedelta(days=1)
    window = dg.TimeWindow(min(instants) - day, max(instants) + 2 * day)
    keys = partitions_def.get_partition_keys_in_time_window(window)
    return [key for key in keys if partitions_def.has_partition_key(key)]


def _instant(edge: dt.date, zone: ZoneInfo) -> dt.datetime:
    instant = edge if isinstance(edge, dt.datetime) else dt.datetime.combine(edge, dt.time())
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=zone)

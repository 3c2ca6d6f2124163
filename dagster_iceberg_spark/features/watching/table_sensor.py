"""Declares tables that others write, and builds the sensor that records when they have written."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.assets.address import plain_metadata
from dagster_iceberg_spark.assets.commit_metadata import column_schema
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.watching.plan import Seen, TableEvent, event_of, stray_snapshot
from dagster_iceberg_spark.features.watching.watched_tables import (
    WatchedTable,
    look_again,
    look_at_each,
    partitions_of,
    watched_table,
)
from dagster_iceberg_spark.plan.options.metadata_key import read_metadata
from dagster_iceberg_spark.plan.options.output_options import PARTITION_EXPR, TABLE, TableAddress, parse_key
from dagster_iceberg_spark.resource import IcebergSparkResource
from dagster_iceberg_spark.table.lineage import SNAPSHOT_ID
from dagster_iceberg_spark.table.snapshot import TableState

_DATA_VERSION_TAG: Final = "dagster/data_version"
_WRITERS: Final = {"engine-name": "iceberg/engine", "spark.app.id": "iceberg/app_id", "flink.job-id": "iceberg/app_id"}
"""Keys of a snapshot's summary that name its writer, and those of the metadata."""


def build_table_sensor(
    specs: Sequence[dg.AssetSpec],
    resource: IcebergSparkResource | str,
    *,
    name: str = "iceberg_tables",
    minimum_interval_seconds: int = 60,
    reports_first_look: bool = False,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Build a sensor that records a materialization whenever others have written a table.

    A materialization moves freshness policies and automation conditions, which an observation does not. It is recorded
    for each partition that the new files belong to, as far as these show. Compaction, the end of a retention, and what
    this Dagster instance has recorded itself are no events. The first rows of a table or branch that did not exist are.
    The error of a table does not keep the sensor from looking at the others.

    A tick reads the metadata file of each table, or only its location if a SQL catalog shows that the table has not
    changed. It starts no Spark session.

    Args:
        specs: The tables, such as those of `foreign_table`: assets with `iceberg/table` in their metadata.
        resource: The resource with the catalog, or its key among the resources of the code location.
        name: The name of the sensor.
        minimum_interval_seconds: The time between two ticks, in seconds.
        reports_first_look: Whether the first tick records a materialization of each table. By default, it only
            remembers the state of the table.
        default_status: Initial status of the sensor.

    Raises:
        ConfigurationError: An asset has no `iceberg/table`.

    Example:
        >>> import dagster as dg
        >>> from dagster_iceberg_spark import build_table_sensor, foreign_table
        >>> build_table_sensor([foreign_table("sensors", table="raw.sensors")], "spark").name
        'iceberg_tables'
    """
    tables = [_watched_table(spec) for spec in specs]
    keys = {resource} if isinstance(resource, str) else set[str]()

    @dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        required_resource_keys=keys,
        description="Records when others have written Iceberg tables.",
    )
    def watch(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        with _open(resource, context) as spark:
            tick = _Tick(context, spark.catalog_description, reports_first_look)
            found, cursor = look_at_each(context, tables, tick.look_at)
        events = [event for each in found for event in each]
        skip = (
            None
            if events
            else f"No other writer has written {'the table' if len(tables) == 1 else 'one of the tables'}."
        )
        return dg.SensorResult(asset_events=events, cursor=cursor, skip_reason=skip)

    return watch


@dataclass(frozen=True, slots=True)
class _Tick:
    context: dg.SensorEvaluationContext
    catalog: CatalogDescription
    reports_first_look: bool

    def look_at(self, table: WatchedTable, recorded: Any) -> tuple[list[dg.AssetMaterialization], Seen | None]:
        """Return the events of a table, and what is to be remembered of it. None keeps what is remembered."""
        found = look_again(self.catalog, table, recorded)
        if found is None:
            return [], None
        state, seen = found.state, found.before
        if state is None:
            return [], found.now
        stray = stray_snapshot(state)
        if stray is not None:
            self.context.log.warning(
                f"The newest snapshot of {table.identifier}, {stray.snapshot_id}, belongs to no branch or tag: its "
                "writer has not moved `main`, so no reader sees its rows."
            )
        if seen is None and not self.reports_first_look:
            return [], found.now
        known = self.context.instance.has_run
        event = event_of(state, seen or Seen(state.uuid, None), table.branch, is_known_run=known)
        return ([] if event is None else self._events(table, state, event)), found.now

    def _events(self, table: WatchedTable, state: TableState, event: TableEvent) -> list[dg.AssetMaterialization]:
        if event.kind != "written":
            self.context.log.warning(f"{table.identifier}: {event.kind}. All of its rows may have changed.")
        keys: Sequence[str | None] | None = None
        if event.kind == "written":
            keys = partitions_of(
                table.spec, state, event.snapshots, catalog=self.catalog, instance=self.context.instance
            )
        metadata = _metadata(state, event, self.catalog)
        return [
            dg.AssetMaterialization(
                table.spec.key,
                partition=key,
                description=_sentence(event),
                metadata=metadata,
                tags={_DATA_VERSION_TAG: str(event.head.snapshot_id)},
            )
            for key in ((None,) if keys is None else keys)
        ]


def _metadata(state: TableState, event: TableEvent, catalog: CatalogDescription) -> Mapping[str, Any]:
    head, snapshots = event.head, event.snapshots
    counts = {
        "iceberg/added_rows": "added-records",
        "iceberg/deleted_rows": "deleted-records",
        "iceberg/added_files": "added-data-files",
        "iceberg/deleted_files": "deleted-data-files",
    }
    writers = {key: head.summary[name] for name, key in _WRITERS.items() if name in head.summary}
    is_counted = head.count("total-delete-files") == 0 and "total-records" in head.summary
    before = snapshots[0].parent_snapshot_id if snapshots else None
    return {
        "dagster/column_schema": column_schema(state.schema, {}),
        "dagster/table_name": f"{catalog.name}.{state.identifier}",
        "dagster/uri": state.location,
        "dagster/storage_kind": "iceberg",
        SNAPSHOT_ID: str(head.snapshot_id),
        "iceberg/operation": head.operation,
        "iceberg/event": event.kind,
        "iceberg/snapshots": len(snapshots),
        **{key: sum(snapshot.count(name) for snapshot in snapshots) for key, name in counts.items()},
        **({"dagster/row_count": head.count("total-records")} if is_counted else {}),
        **({} if before is None else {"iceberg/parent_snapshot_id": str(before)}),
        **writers,
    }


def _sentence(event: TableEvent) -> str:
    match event.kind:
        case "written":
            return "Written by others."
        case "rolled back":
            return "Rolled back."
        case "recreated":
            return "Created again."
        case _:
            return "Written by others. The snapshots in between have expired."


def _watched_table(spec: dg.AssetSpec) -> WatchedTable:
    metadata, subject = plain_metadata(spec.metadata), "/".join(spec.key.path)
    identifier = parse_key(TABLE, metadata, subject=subject)
    if identifier is None:
        raise ConfigurationError.refusing(
            "watch", subject, expected=f"the name of its table in its metadata, as `{TABLE}`", found="none"
        )
    return watched_table(spec, identifier)


@contextmanager
def _open(resource: IcebergSparkResource | str, context: dg.SensorEvaluationContext) -> Iterator[IcebergSparkResource]:
    """Yield the resource with the values of environment variables."""
    if isinstance(resource, str):
        yield getattr(context.resources, resource)
        return
    with dg.build_resources({"spark": resource}, instance=context.instance) as made:
        yield made.spark


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

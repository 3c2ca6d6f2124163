"""Builds the sensor that requests the partitions of an asset whose upstream rows have changed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from dagster_iceberg_spark.assets.address import plain_metadata
from dagster_iceberg_spark.assets.dagster_private.partitions import downstream_partitions
from dagster_iceberg_spark.assets.stored_tables import stored_assets_in
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.watching.plan import Seen, event_of, has_read
from dagster_iceberg_spark.features.watching.watched_tables import (
    WatchedTable,
    look_again,
    look_at_each,
    partitions_of,
    watched_table,
)
from dagster_iceberg_spark.plan.options.output_options import PARTITION_EXPR, TABLE
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState


def build_changed_partitions_sensor(
    downstream: dg.AssetsDefinition,
    *,
    name: str | None = None,
    minimum_interval_seconds: int = 60,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Build a sensor that requests exactly the partitions of an asset whose upstream rows have changed.

    It looks at the tables of the asset's inputs, whatever writes them, and at the files that their new snapshots have
    added and removed. These show the upstream partitions, and the partition mapping shows those of the asset. An
    upstream table without Dagster partitions is divided by the partitions of the asset. Late rows therefore request the
    partition that they belong to, and no other one. What a partition was already derived from is not requested again,
    and compaction is no change.

    The first tick remembers the state of the tables and requests nothing. A tick starts no Spark session.

    Args:
        downstream: An asset with partitions that an `IcebergPySparkIOManager` stores. The same IO manager loads its
            inputs.
        name: The name of the sensor. Default: the name of the asset, with `_changed_partitions`.
        minimum_interval_seconds: The time between two ticks, in seconds.
        default_status: Initial status of the sensor.

    Raises:
        ConfigurationError: The asset has no partitions.

    Example:
        >>> import dagster as dg
        >>> from dagster_iceberg_spark import build_changed_partitions_sensor
        >>> days = dg.DailyPartitionsDefinition("2026-01-01")
        >>> @dg.asset(io_manager_key="iceberg", partitions_def=days, metadata={"partition_expr": "day"})
        ... def daily_means(sensors): ...
        >>> build_changed_partitions_sensor(daily_means).name
        'daily_means_changed_partitions'
    """
    [stored] = stored_assets_in([downstream])
    spec, io_manager_key = stored.spec, stored.io_manager_key
    subject = "/".join(spec.key.path)
    if spec.partitions_def is None:
        raise ConfigurationError.refusing(
            "watch the inputs of", subject, expected="an asset with partitions", found="none"
        )

    @dg.sensor(
        name=name or f"{'_'.join(spec.key.path)}_changed_partitions",
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        asset_selection=[downstream],
        required_resource_keys={io_manager_key},
        description=f"Requests the partitions of {spec.key.to_user_string()} whose upstream rows have changed.",
    )
    def changed(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        hint = "build it for an asset that it stores."
        io_manager = stored.io_manager(context.resources, action="watch", hint=hint)
        tick = _Tick(context, io_manager, downstream, spec)
        found, cursor = look_at_each(context, tick.inputs(io_manager_key), tick.look_at)
        requested = {key: run_key for each in found for key, run_key in each.items()}
        requests = [
            dg.RunRequest(run_key=run_key, partition_key=key, asset_selection=[spec.key])
            for key, run_key in sorted(requested.items())
        ]
        skip = None if requests else "No rows have changed."
        return dg.SensorResult(run_requests=requests, cursor=cursor, skip_reason=skip)

    return changed


@dataclass(frozen=True, slots=True)
class _Tick:
    context: dg.SensorEvaluationContext
    io_manager: TableIOManager
    downstream: dg.AssetsDefinition
    spec: dg.AssetSpec

    @property
    def catalog(self) -> CatalogDescription:
        return self.io_manager.spark.catalog_description

    def inputs(self, io_manager_key: str) -> Iterator[WatchedTable]:
        """Yield the inputs of the asset that are tables."""
        repository = self.context.repository_def
        if repository is None:
            raise ConfigurationError.refusing(
                "watch the inputs of",
                "/".join(self.spec.key.path),
                expected="a sensor of a code location",
                found="none",
                hint="pass `definitions` to `build_sensor_context`.",
            )
        wanted = {dep.asset_key for dep in self.spec.deps} - {self.spec.key}
        for assets in repository.asset_graph.assets_defs:
            for spec in assets.specs:
                is_stored = plain_metadata(spec.metadata).get(TABLE) is not None or (
                    assets.is_executable and assets.get_io_manager_key_for_asset_key(spec.key) == io_manager_key
                )
                if spec.key in wanted and is_stored:
                    yield watched_table(spec, self.io_manager.table_of(spec))

    def look_at(self, table: WatchedTable, recorded: Any) -> tuple[dict[str, str], Seen | None]:
        """Return the partitions to request with their run keys, and what is to be remembered of an input."""
        from dagster_iceberg_spark.catalog.look import look

        found = look_again(self.catalog, table, recorded)
        if found is None:
            return {}, None
        state, now = found.state, found.now
        if state is None or found.before is None:
            return {}, now
        event = event_of(state, found.before, table.branch)
        if event is None:
            return {}, now
        if event.kind != "written":
            self.context.log.warning(
                f"{table.identifier}: {event.kind}. It does not record which partitions changed; no run is requested."
            )
            return {}, now
        made = look(self.catalog, self.io_manager.table_of(self.spec))
        requested: dict[str, str] = {}
        for snapshot in event.snapshots:
            for key in self._changed_partitions(table, state, snapshot):
                if not has_read(made, "/".join(self.spec.key.path), key, state, snapshot):
                    requested[key] = f"{table.identifier} {snapshot.snapshot_id} {key}"
        return requested, now

    def _changed_partitions(self, table: WatchedTable, state: TableState, snapshot: Snapshot) -> Sequence[str]:
        """Return the partitions of the asset that a snapshot of an input has changed."""
        spec, own = table.spec, self.spec.partitions_def
        is_divided = spec.partitions_def is None
        if is_divided:
            metadata = plain_metadata(spec.metadata)
            column = metadata.get(PARTITION_EXPR) or plain_metadata(self.spec.metadata).get(PARTITION_EXPR)
            spec = dg.AssetSpec(spec.key, partitions_def=own, metadata={**metadata, PARTITION_EXPR: column})
        keys = partitions_of(spec, state, [snapshot], catalog=self.catalog, instance=self.context.instance)
        if keys is None:
            self.context.log.warning(
                f"Snapshot {snapshot.snapshot_id} of {table.identifier} does not record which partitions changed; no "
                "run is requested."
            )
            return ()
        if is_divided:
            return keys
        return downstream_partitions(self.downstream, spec, keys, self.context.instance)

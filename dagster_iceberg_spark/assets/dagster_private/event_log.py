"""Events that runs have recorded."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import dagster as dg
from dagster._core.events import DagsterEvent

from dagster_iceberg_spark.table.lineage import SNAPSHOT_ID

PAGE: Final = 1000
"""Events that are fetched at a time."""


def engine_events(instance: dg.DagsterInstance, run_id: str) -> Iterator[Mapping[str, str]]:
    """Yield the facts of the run's engine events, oldest first."""
    for event in events_of(instance, run_id, dg.DagsterEventType.ENGINE_EVENT):
        metadata = event.engine_event_data.metadata
        yield {key: value.value for key, value in metadata.items() if isinstance(value, dg.TextMetadataValue)}


def events_of(instance: dg.DagsterInstance, run_id: str, *types: dg.DagsterEventType) -> Iterator[DagsterEvent]:
    """Yield the run's events of these types, oldest first; none for a run that is unknown."""
    if not instance.has_run(run_id):
        return
    for record in instance.get_records_for_run(run_id, of_type=set(types)).records:
        event = record.event_log_entry.dagster_event
        if event is not None:
            yield event


def recorded_evaluations(instance: dg.DagsterInstance, run_id: str) -> dict[dg.AssetCheckKey, dg.AssetCheckEvaluation]:
    """Return the newest evaluation of each asset check that a run has recorded."""
    return {item.asset_check_key: item for item in evaluations_of(instance, run_id)}


def evaluations_of(instance: dg.DagsterInstance, run_id: str) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the evaluations of asset checks that a run has recorded, oldest first."""
    for event in events_of(instance, run_id, dg.DagsterEventType.ASSET_CHECK_EVALUATION):
        yield event.asset_check_evaluation_data


def recorded_snapshots(
    instance: dg.DagsterInstance, run_id: str, asset_key: dg.AssetKey, partition_keys: Sequence[str]
) -> frozenset[int]:
    """Return the snapshots that a run's materializations of the asset, or of these partitions of it, recorded."""
    wanted = frozenset(partition_keys)
    stored = events_of(instance, run_id, dg.DagsterEventType.ASSET_MATERIALIZATION)
    events = (event.step_materialization_data.materialization for event in stored)
    recorded = (
        snapshot_of(event)
        for event in events
        if event.asset_key == asset_key and (not wanted or event.partition in wanted)
    )
    return frozenset(snapshot_id for snapshot_id in recorded if snapshot_id is not None)


def has_failed_blocking_check(instance: dg.DagsterInstance, run_id: str, asset_key: dg.AssetKey) -> bool:
    """Return whether a blocking check of the asset failed in the run."""
    evaluations = evaluations_of(instance, run_id)
    return any(item.asset_key == asset_key and item.blocking and not item.passed for item in evaluations)


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """A materialization or the evaluation of a check, with the run and the step that recorded it."""

    run_id: str
    step_key: str | None
    event: dg.AssetMaterialization | dg.AssetCheckEvaluation


def recorded_events(instance: dg.DagsterInstance, run_ids: Iterable[str]) -> Iterator[RecordedEvent]:
    """Yield the materializations and the evaluations of checks that the runs have recorded, in the order of events."""
    types = (dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    for run_id in run_ids:
        for event in events_of(instance, run_id, *types):
            if event.is_step_materialization:
                yield RecordedEvent(run_id, event.step_key, event.step_materialization_data.materialization)
            else:
                yield RecordedEvent(run_id, event.step_key, event.asset_check_evaluation_data)


def newest_runs(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[str]:
    """Return the runs that have materialized an asset, or each of its newest partitions, last."""
    newest: dict[str | None, str] = {}
    for record in instance.fetch_materializations(key, limit=PAGE).records:
        newest.setdefault(record.partition_key, record.run_id)
    return list(dict.fromkeys(newest.values()))


def snapshot_of(event: dg.AssetMaterialization | dg.AssetCheckEvaluation | None) -> int | None:
    """Return the snapshot that a materialization or a check has recorded, or None if it has recorded none."""
    value = None if event is None else event.metadata.get(SNAPSHOT_ID)
    return int(text) if value is not None and (text := str(value.value)).isdecimal() else None

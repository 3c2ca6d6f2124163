"""Runs: what they re-execute, and which are in progress or have failed."""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import dagster as dg
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from dagster_iceberg_spark.assets.dagster_private.event_log import events_of

RESUME_TAGS: Final = ("dagster/is_resume_retry", "dagster/is_asset_resume_retry")
"""Tags of a run that resumes another run. Parent and root run ids alone do not distinguish it from a new execution."""
PARENT_RUN_TAG: Final = "dagster/parent_run_id"
ROOT_RUN_TAG: Final = "dagster/root_run_id"
RANGE_TAGS: Final = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
"""Tags of a run of a range of partitions: its first and its last key."""


def root_run_of(run: dg.DagsterRun) -> str:
    """Return the id of the first of the runs that re-execute the same run, or of the run itself."""
    return run.tags.get(ROOT_RUN_TAG, run.run_id)


def runs_of_root(instance: dg.DagsterInstance, run: dg.DagsterRun) -> list[str]:
    """Return the runs from the root run to this one, each of which executes the one before again."""
    return [run.run_id, *(parent for parent, _ in parents_of(instance, run.tags))][::-1]


@contextmanager
def copied_instance(
    instance: dg.DagsterInstance | None, run_id: str, partitions: Mapping[str, Sequence[str]]
) -> Iterator[dg.DagsterInstance]:
    """Yield an instance for a run that leaves no trace. It knows what a run has read, and these dynamic partitions.

    It has the storage directory of the instance, so that an embedded catalog and pickled inputs are found.
    """
    with dg.DagsterInstance.ephemeral(None if instance is None else instance.root_directory) as copy:
        run = None if instance is None else instance.get_run_by_id(run_id)
        if instance is not None and run is not None:
            copy.add_run(dg.DagsterRun(run.job_name, run_id, status=run.status, tags=run.tags))
            for record in instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT).records:
                copy.store_event(record.event_log_entry)
        for name, keys in partitions.items():
            copy.add_dynamic_partitions(name, keys)
        yield copy


def parents_of(instance: dg.DagsterInstance, tags: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the runs that a run with these tags re-executes, nearest first, each with the tags that name it."""
    found = set[str]()
    while (parent := tags.get(PARENT_RUN_TAG)) is not None and parent not in found:
        found.add(parent)
        yield parent, tags
        run = instance.get_run_by_id(parent)
        tags = {} if run is None else run.tags


@dataclass(frozen=True, slots=True)
class RecentRun:
    """A run that is in progress or has failed.

    Args:
        status: The status, in lower case.
        began_at: When the run was created, in seconds since 1970.
        planned: The assets that it plans to materialize.
    """

    run_id: str
    status: str
    began_at: float
    planned: frozenset[dg.AssetKey]


_ENDED_EARLY: Final = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


def runs_in_progress(instance: dg.DagsterInstance) -> list[RecentRun]:
    """Return the runs that are queued or in progress and plan to materialize assets."""
    records = instance.get_run_records(dg.RunsFilter(statuses=NOT_FINISHED_STATUSES))
    return [run for run in (_recent(instance, record) for record in records) if run.planned]


def oldest_run_in_progress(instance: dg.DagsterInstance, *, besides: str | None = None) -> float | None:
    """Return when the oldest run that is queued or in progress was created, in seconds since 1970, or None."""
    filters = dg.RunsFilter(statuses=NOT_FINISHED_STATUSES)
    records = instance.get_run_records(filters, limit=2, ascending=True)
    found = [record.create_timestamp.timestamp() for record in records if record.dagster_run.run_id != besides]
    return found[0] if found else None


def resumable_runs(instance: dg.DagsterInstance, since: dt.datetime) -> list[RecentRun]:
    """Return the runs that have ended early since, and that no other run has re-executed."""
    failed = instance.get_run_records(dg.RunsFilter(statuses=_ENDED_EARLY, updated_after=since))
    later = instance.get_run_records(dg.RunsFilter(updated_after=since))
    repeated = {record.dagster_run.tags.get(PARENT_RUN_TAG) for record in later}
    left = [record for record in failed if record.dagster_run.run_id not in repeated]
    return [run for run in (_recent(instance, record) for record in left) if run.planned]


def has_ended(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Return whether the instance knows a run, and that it has ended."""
    run = instance.get_run_by_id(run_id)
    return run is not None and run.is_finished


def _recent(instance: dg.DagsterInstance, record: dg.RunRecord) -> RecentRun:
    run = record.dagster_run
    planned = events_of(instance, run.run_id, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    keys = frozenset(event.asset_key for event in planned if event.asset_key is not None)
    return RecentRun(run.run_id, run.status.value.lower(), record.create_timestamp.timestamp(), keys)


def run_started_at_ms(instance: dg.DagsterInstance, run_id: str) -> int | None:
    """Return when the run was created, in milliseconds since 1970."""
    record = instance.get_run_record_by_id(run_id)
    return None if record is None else int(record.create_timestamp.timestamp() * 1000)

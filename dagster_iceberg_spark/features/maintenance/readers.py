"""Who still reads which snapshots, by the tables of a catalog and the runs of a Dagster instance."""

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import dagster as dg

from dagster_iceberg_spark.assets.dagster_private.event_log import newest_runs
from dagster_iceberg_spark.assets.dagster_private.runs import (
    RecentRun,
    oldest_run_in_progress,
    resumable_runs,
    runs_in_progress,
)
from dagster_iceberg_spark.assets.read_log import incremental_reads
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.features.maintenance.options import MaintenancePolicy
from dagster_iceberg_spark.features.maintenance.plan.actions import OrphanGuards, orphan_obstacle
from dagster_iceberg_spark.features.maintenance.plan.health import milliseconds
from dagster_iceberg_spark.features.maintenance.plan.pins import Need, RunNeed, needs_of_readers, needs_of_table
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import OWNER_PROPERTY
from dagster_iceberg_spark.table.snapshot import TableState


@dataclass(frozen=True)  # without slots, because the states are cached
class Readers:
    """The readers of the tables of a catalog.

    Args:
        catalog: The catalog.
        instance: The Dagster instance whose runs count, or None for none.
        own_run_id: The run that maintains the tables. It does not count.
        downstream: The assets of the code location that depend on each of its assets.
        warn: Called with a sentence about each table that could not be read.
    """

    catalog: CatalogDescription
    instance: dg.DagsterInstance | None
    own_run_id: str | None = None
    downstream: Mapping[dg.AssetKey, Collection[dg.AssetKey]] = field(default_factory=dict)
    warn: Callable[[str], None] = field(default=print, compare=False)
    _needs: dict[dt.timedelta, Mapping[str, Sequence[Need]]] = field(default_factory=dict, init=False, compare=False)

    @property
    def states(self) -> Mapping[TableIdentifier, TableState]:
        """The tables of the catalog that could be read."""
        return self._found[0]

    @property
    def unread(self) -> Sequence[str]:
        """The tables of the catalog that could not be read."""
        return self._found[1]

    @cached_property
    def _found(self) -> tuple[dict[TableIdentifier, TableState], list[str]]:
        from dagster_iceberg_spark.catalog.tables import readable_tables

        return readable_tables(self.catalog, {}, self.warn)

    @cached_property
    def in_progress(self) -> Sequence[RecentRun]:
        """The runs that are in progress."""
        if self.instance is None:
            return ()
        return [run for run in runs_in_progress(self.instance) if run.run_id != self.own_run_id]

    @cached_property
    def _oldest_run_ms(self) -> int | None:
        if self.instance is None:
            return None
        created = oldest_run_in_progress(self.instance, besides=self.own_run_id)
        return None if created is None else int(created * 1000)

    @cached_property
    def manages_files(self) -> bool:
        """Whether the catalog itself expires snapshots and deletes files."""
        from dagster_iceberg_spark.catalog.tables import manages_files

        return manages_files(self.catalog)

    def blocking_runs(self, keys: Sequence[dg.AssetKey]) -> list[str]:
        """Return the runs in progress that materialize one of the assets."""
        return [run.run_id for run in self.in_progress if not run.planned.isdisjoint(keys)]

    def needs(
        self, state: TableState, policy: MaintenancePolicy, now: dt.datetime, *, keys: Sequence[dg.AssetKey] = ()
    ) -> list[Need]:
        """Return the snapshots of a table that are needed. The keys are the assets that write it."""
        of_readers = self._needs.get(policy.replayable_for)
        if of_readers is None:
            of_readers = needs_of_readers(self.states.values(), policy, milliseconds(now))
            self._needs[policy.replayable_for] = of_readers
        runs = [_need_of(run, f"is {run.status}") for run in self.in_progress]
        if self.instance is not None:
            failed = resumable_runs(self.instance, now - policy.resumable_for)
            runs += [_need_of(run, "may be re-executed from its failure") for run in failed]
        recorded = () if self.instance is None else self._recorded_positions(self.instance, state, keys)
        return [*of_readers.get(str(state.identifier), ()), *recorded, *needs_of_table(state, runs)]

    def _recorded_positions(
        self, instance: dg.DagsterInstance, state: TableState, keys: Sequence[dg.AssetKey]
    ) -> Iterator[Need]:
        """Yield how far downstream assets have read, if only the event log shows it: other IO managers store them."""
        stored = {state.properties.get(OWNER_PROPERTY) for state in self.states.values()}
        children = {child for key in keys for child in self.downstream.get(key, ())}
        for child in sorted(children):
            name = "/".join(child.path)
            for run_id in newest_runs(instance, child) if name not in stored else ():
                for read in incremental_reads(instance, run_id):
                    if read.table == str(state.identifier) and read.snapshot_id is not None:
                        by = f"{name}, run {run_id}, which continues to read {read.kind} after it"
                        yield Need(read.snapshot_id, by, keeps_later=True)

    def orphan_guards(self, state: TableState) -> OrphanGuards:
        """Return what protects files that belong to no snapshot of a table."""
        return OrphanGuards(orphan_obstacle(state, self.states.values(), self.unread), self._oldest_run_ms)


def _need_of(run: RecentRun, why: str) -> RunNeed:
    return RunNeed(int(run.began_at * 1000), f"run {run.run_id}, which {why}")

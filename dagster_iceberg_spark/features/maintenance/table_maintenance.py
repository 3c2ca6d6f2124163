"""Maintains one table: plans, claims, pins what others need, and does the actions that are due."""

import datetime as dt
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.assets.branch_changes import change_tags, report_moved
from dagster_iceberg_spark.assets.dagster_private.graph import children_in
from dagster_iceberg_spark.assets.dagster_private.runs import has_ended
from dagster_iceberg_spark.assets.stored_tables import stored_members, tables_of_assets
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.errors import CommitConflictError, IcebergSparkError, in_words
from dagster_iceberg_spark.features.maintenance.health_reports import maintenance_of, policy_of, table_files
from dagster_iceberg_spark.features.maintenance.options import MaintenancePolicy
from dagster_iceberg_spark.features.maintenance.plan.actions import (
    Action,
    DeleteRows,
    MaintenancePlan,
    plan_maintenance,
)
from dagster_iceberg_spark.features.maintenance.plan.health import TableHealth, milliseconds, table_health
from dagster_iceberg_spark.features.maintenance.plan.pins import Need
from dagster_iceberg_spark.features.maintenance.readers import Readers
from dagster_iceberg_spark.features.maintenance.retention import Retention, retention_of
from dagster_iceberg_spark.table.claims import MAINTENANCE, Claim
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import MAINTAINED_PROPERTY
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, TableState
from dagster_iceberg_spark.table.updates import DropTag, SetProperties


@dataclass(frozen=True, slots=True)
class TableSize:
    """How large a table is.

    Args:
        files: The number of data files of the current snapshot.
        bytes: The size of these files and their delete files, in bytes.
        snapshots: The number of snapshots.
    """

    files: int
    bytes: int
    snapshots: int

    @classmethod
    def of(cls, state: TableState) -> "TableSize":
        """Return the size in the newest snapshot's summary."""
        head = state.head()
        return cls(
            files=0 if head is None else head.count("total-data-files"),
            bytes=0 if head is None else head.count("total-files-size"),
            snapshots=len(state.snapshots),
        )


@dataclass(frozen=True, slots=True)
class DoneAction:
    """An action that was done, or skipped.

    Args:
        outcome: What the procedure reported, or why the action was skipped.
        before: The size of the table before.
        after: The size afterwards.
        new_snapshots: The ids of the snapshots that it has made.
    """

    action: str
    outcome: str
    seconds: float
    before: TableSize
    after: TableSize
    new_snapshots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Maintained:
    """The maintenance of a table.

    Args:
        plan: What was planned, or None if there was nothing to plan.
        done: What was done. Empty in a dry run.
        before: The health of the table before.
        after: The health afterwards, or None if nothing was done.
        waits_for: Why the table was left alone, or None.
        error: Why its maintenance failed, or None.
    """

    table: TableIdentifier
    plan: MaintenancePlan | None = None
    done: tuple[DoneAction, ...] = ()
    before: TableHealth | None = None
    after: TableHealth | None = None
    waits_for: str | None = None
    error: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the maintenance for JSON."""
        return {
            "table": str(self.table),
            "waits_for": self.waits_for,
            "error": self.error,
            "plan": None if self.plan is None else self.plan.document(),
            "done": [
                {
                    "action": item.action,
                    "outcome": item.outcome,
                    "seconds": item.seconds,
                    "before": asdict(item.before),
                    "after": asdict(item.after),
                    "new_snapshots": [str(snapshot_id) for snapshot_id in item.new_snapshots],
                }
                for item in self.done
            ],
            "before": None if self.before is None else self.before.figures(),
            "after": None if self.after is None else self.after.figures(),
        }


@dataclass(frozen=True, slots=True)
class TableMaintenance:
    """The maintenance of one table by one run.

    Args:
        io_manager: The IO manager that stores the table.
        specs: The assets that write it.
        identifier: The table.
        policy: What is kept, and the thresholds.
        readers: Who reads the tables of the catalog.
        run_id: The run, or a name of the process outside of Dagster.
        report: Writes a line about progress.
    """

    io_manager: TableIOManager
    specs: tuple[dg.AssetSpec, ...]
    identifier: TableIdentifier
    policy: MaintenancePolicy
    readers: Readers
    run_id: str
    report: Callable[[str], None]

    def plan(self, now: dt.datetime) -> Maintained:
        """Plan the maintenance, and change nothing."""
        state = self._look()
        if state is None or state.head() is None:
            return Maintained(self.identifier, waits_for="it has no rows yet")
        if self.io_manager.environment:
            return Maintained(self.identifier, waits_for="an environment does not maintain the tables of production")
        if self.readers.manages_files:
            return Maintained(self.identifier, waits_for=f"the {self.readers.catalog} maintains its tables itself")
        files = table_files(self.readers.catalog, self.identifier)
        keys = [spec.key for spec in self.specs]
        needs = self.readers.needs(state, self.policy, now, keys=keys)
        observed, unread = self._needs_of_observers()
        plan = plan_maintenance(
            state,
            files,
            [*needs, *observed],
            self.policy,
            now,
            not_retained=[
                DeleteRows(item.asset, item.name)
                for item in self._not_retained(now)
                if item.has_rows(self.readers.catalog, state)
            ],
            unread=[*self.readers.unread, *unread],
            orphan_guards=self.readers.orphan_guards(state),
        )
        runs = self.readers.blocking_runs(keys)
        waits_for = f"the run {runs[0]} writes it" if runs else None
        return Maintained(
            self.identifier, plan, before=table_health(state, files, self.policy, now), waits_for=waits_for
        )

    def maintain(self, *, dry_run: bool = False, now: dt.datetime | None = None) -> Maintained:
        """Do what is due, or only plan it in a dry run. An action that conflicts with a writer is skipped.

        `now` is when the plan was made, if it is applied later.
        """
        now = now or dt.datetime.now(dt.timezone.utc)
        planned = self.plan(now)
        if planned.plan is None or planned.waits_for is not None or dry_run:
            return planned
        with self._claimed(milliseconds(now)):
            if planned.plan.pins.changes:
                change_tags(self.io_manager, self.identifier, planned.plan.pins.changes)
            done = tuple(self._done(planned.plan.actions, now))
        # Also if nothing was done: a view needs a metadata file that Iceberg keeps.
        report_moved([(self.io_manager, spec) for spec in self.specs], report=self.report, warn=self.report)
        state = self._look()
        files = table_files(self.readers.catalog, self.identifier)
        after = None if state is None else table_health(state, files, self.policy, dt.datetime.now(dt.timezone.utc))
        return Maintained(self.identifier, planned.plan, done, planned.before, after)

    def _needs_of_observers(self) -> tuple[list[Need], list[str]]:
        """Return the snapshots that observers need, and the assets whose observers could not determine them."""
        needs, unread = list[Need](), list[str]()
        for spec in self.specs:
            table = self.io_manager.observed_table(spec)
            for observer in self.io_manager.observers():
                try:
                    needs += [Need(snapshot_id, by) for snapshot_id, by in observer.needed(table).items()]
                except IcebergSparkError as error:
                    self.report(f"No snapshot is expired. {error}")
                    unread.append(f"a mirror of {table.subject}")
        return needs, unread

    def _done(self, actions: Sequence[Action], now: dt.datetime) -> Iterator[DoneAction]:
        """Do the actions in order. The look after an action is the one before the next."""
        before = self._look()
        for action in actions:
            if before is None:
                self.report(f"{self.identifier} was dropped: {action} is skipped.")
                return
            began = time.monotonic()
            outcome = self._outcome(before, action, now)
            after = self._look()
            made = () if after is None else _made(before, after)
            sizes = TableSize.of(before), TableSize(0, 0, 0) if after is None else TableSize.of(after)
            seconds = round(time.monotonic() - began, 2)
            self.report(f"{self.identifier}: {action} ({seconds:.1f} s). {outcome.rstrip('.') or 'Nothing to do'}.")
            yield DoneAction(str(action), outcome, seconds, *sizes, made)
            before = after

    def _outcome(self, state: TableState, action: Action, now: dt.datetime) -> str:
        """Do an action, and return what it reports, or why it is skipped."""
        from dagster_iceberg_spark.features.maintenance.spark import perform

        try:
            if isinstance(action, DeleteRows):
                reported = self._delete(action, now)
            else:
                reported = perform(self.io_manager.spark.iceberg_session, state, action, run_id=self.run_id)
        except CommitConflictError as error:
            return f"skipped, and left for the next time. {error}"
        return ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in reported.items() if value)

    def _not_retained(self, now: dt.datetime) -> list[Retention]:
        """Return what is not retained any longer of each asset."""
        retained = [(spec, maintenance_of(spec).retain) for spec in self.specs]
        found = [retention_of(spec, retain, now) for spec, retain in retained if retain is not None]
        return [item for item in found if item is not None]

    def _delete(self, action: DeleteRows, now: dt.datetime) -> Mapping[str, Any]:
        from dagster_iceberg_spark.features.maintenance.spark import delete_rows

        wanted = (action.asset, action.partitions)
        [rows] = [item for item in self._not_retained(now) if (item.asset, item.name) == wanted]
        request = rows.request(self.io_manager, self.run_id, self.report)
        commit = delete_rows(self.io_manager.spark.iceberg_session, request)
        return {"deleted_rows": commit.snapshot.count("deleted-records")}

    @contextmanager
    def _claimed(self, now_ms: int) -> Iterator[None]:
        """Claim the maintenance of the table inside the block. Afterwards, the table says when it was maintained."""
        claim, state = Claim(MAINTENANCE, self.run_id, now_ms), self._look()
        if state is None:
            raise self._conflict("none: it was dropped")
        others, left = claim.rivals_in(state, self._has_ended)
        if others:
            raise self._conflict(f"the run {others[0].run_id}")
        own = claim.update(state, state.refs[MAIN_BRANCH])
        change_tags(self.io_manager, self.identifier, [*(DropTag(other.tag) for other in left), own])
        maintained_at = SetProperties(
            {MAINTAINED_PROPERTY: dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")}
        )
        is_done = False
        try:
            others = claim.others_in(self._look() or state, but=left)
            if others:
                raise self._conflict(f"the run {others[0].run_id}")
            yield
            is_done = True
        finally:
            change_tags(self.io_manager, self.identifier, [DropTag(claim.tag), *([maintained_at] if is_done else [])])

    def _look(self) -> TableState | None:
        return look(self.readers.catalog, self.identifier)

    def _has_ended(self, run_id: str) -> bool:
        if is_process(run_id):
            return has_process_ended(run_id)
        return self.readers.instance is not None and has_ended(self.readers.instance, run_id)

    def _conflict(self, found: str) -> CommitConflictError:
        return CommitConflictError.refusing(
            "maintain",
            str(self.identifier),
            expected="a table that no other run maintains",
            found=found,
            hint="wait until it has ended.",
        )


def _made(before: TableState, after: TableState) -> tuple[int, ...]:
    """Return the snapshots of compactions that are new."""
    new = after.snapshots.keys() - before.snapshots.keys()
    return tuple(sorted(snapshot_id for snapshot_id in new if after.snapshots[snapshot_id].is_compaction))


def table_maintenance(
    io_manager: TableIOManager,
    specs: Sequence[dg.AssetSpec],
    policy: MaintenancePolicy,
    readers: Readers,
    *,
    run_id: str,
    report: Callable[[str], None],
) -> TableMaintenance | None:
    """Return the maintenance of the table of assets, or None if one of them excludes it."""
    chosen = policy_of(specs, policy)
    if chosen is None:
        return None
    return TableMaintenance(io_manager, tuple(specs), io_manager.table_of(specs[0]), chosen, readers, run_id, report)


def maintain_location(
    definitions: dg.Definitions,
    tables: Collection[str] = (),
    *,
    dry_run: bool,
    instance: dg.DagsterInstance | None,
    report: Callable[[str], None],
    policy: MaintenancePolicy | None = None,
    now: dt.datetime | None = None,
) -> Iterator[Maintained]:
    """Maintain the tables of a code location's assets, or those with these names, one after the other.

    Args:
        definitions: The code location.
        tables: The names of the tables, or none for all.
        dry_run: Whether to plan only, and to change nothing.
        instance: The Dagster instance whose runs count, or None for none.
        report: Writes a line about progress.
        policy: What is kept, and the thresholds.
        now: When the plan was made, or None for now.

    An error of a table does not stop the others: it is in what was done.
    """
    run_id = process_name()
    with stored_members(definitions, action="maintain the tables of") as members:
        readers: dict[object, Readers] = {}
        downstream = children_in(definitions.resolve_asset_graph())
        for table in tables_of_assets(members, tables):
            catalog = table.io_manager.spark.catalog_description
            known = readers.setdefault(catalog.identity, Readers(catalog, instance, downstream=downstream, warn=report))
            try:
                maintenance = table_maintenance(
                    table.io_manager, table.specs, policy or MaintenancePolicy(), known, run_id=run_id, report=report
                )
                if maintenance is not None:
                    yield maintenance.maintain(dry_run=dry_run, now=now)
            except Exception as error:  # noqa: BLE001 - whatever it is, the other tables are maintained
                yield Maintained(table.identifier, error=in_words(error))


_CLI: Final = "cli"


def process_name() -> str:
    """Return the name under which this process takes claims outside of Dagster: the host and the process id."""
    return f"{_CLI}-{socket.gethostname()}-{os.getpid()}"


def is_process(name: str) -> bool:
    """Return whether a lock was taken by a process outside of Dagster."""
    return name.startswith(f"{_CLI}-")


def has_process_ended(name: str) -> bool:
    """Return whether a process has ended. Those of other hosts are not known to have."""
    host, _, number = name.removeprefix(f"{_CLI}-").rpartition("-")
    if host != socket.gethostname() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:  # another writer's process
        return False
    return False

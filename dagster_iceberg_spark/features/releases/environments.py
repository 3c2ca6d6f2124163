"""Lists, compares, promotes and drops the environments of a code location."""

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import dagster as dg
import pyarrow as pa

from dagster_iceberg_spark.arrow.scan import PlannedScan
from dagster_iceberg_spark.assets.branch_changes import advance, drop_branch, report_moved, written_partitions
from dagster_iceberg_spark.assets.stored_tables import stored_tables
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import DifferingFiles, PartitionFile, differing_files
from dagster_iceberg_spark.catalog.look import known_table, translated_answers
from dagster_iceberg_spark.catalog.publication import Release, publish
from dagster_iceberg_spark.errors import ConfigurationError, UpstreamMissingError
from dagster_iceberg_spark.features.releases.plan.branch_diff import (
    KeyChanges,
    TableDiff,
    compared_rows,
    own_snapshots,
    refuse_expired_start,
    refuse_rolled_back,
)
from dagster_iceberg_spark.features.serving.plan import Point, snapshots_at
from dagster_iceberg_spark.plan.publication.branch import Environment, branch_start, is_environment_branch
from dagster_iceberg_spark.plan.publication.staged_rows import Member, StagedRows, passed_snapshots, rows_of_scope
from dagster_iceberg_spark.plan.read.read_options import ReadOptions
from dagster_iceberg_spark.plan.read.read_plan import plan_read
from dagster_iceberg_spark.plan.write.write_request import Staging, is_staged_branch
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.identifier import NotationError, TableIdentifier
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, Snapshot, TableState

PROMOTED_FROM: Final = "iceberg/promoted_from"


def rows_of_files(
    description: CatalogDescription, state: TableState, snapshot_id: int, paths: Collection[str] | None
) -> pa.Table:
    """Return the rows of these data files in a snapshot, or of all, without the rows that delete files remove."""
    table = known_table(description, state.identifier, action="read")
    plan = plan_read(state, PartitionScope(), ReadOptions(snapshot_id=snapshot_id))
    scan = PlannedScan(table, plan)
    with translated_answers(description, action=f"read {state.identifier} in"):
        planned = scan.planned_files()
        files = tuple(task for task in planned if paths is None or task.file.file_path in paths)
        return replace(scan, files=files).table()


@dataclass(frozen=True, slots=True)
class EnvironmentBranch:
    """The branch of an environment in a table.

    Args:
        snapshots: The number of snapshots that `main` does not have.
        written_at: When the newest of them was committed, or None if there is none.
    """

    branch: str
    table: TableIdentifier
    snapshots: int
    written_at: dt.datetime | None

    def document(self) -> dict[str, str | int | None]:
        """Return the branch for JSON."""
        written_at = None if self.written_at is None else self.written_at.isoformat(timespec="seconds")
        return {"branch": self.branch, "table": str(self.table), "snapshots": self.snapshots, "written_at": written_at}


@dataclass(frozen=True)  # without slots, because `own` is cached
class _Table:
    """A table that has a branch of the environment, with the first of its assets."""

    io_manager: TableIOManager
    spec: dg.AssetSpec
    state: TableState
    branch: str

    @cached_property
    def own(self) -> tuple[Snapshot, ...]:
        return own_snapshots(self.state, self.branch)

    def describe(self) -> EnvironmentBranch:
        own = self.own
        return EnvironmentBranch(self.branch, self.state.identifier, len(own), own[-1].committed_at if own else None)

    def diff(self, *, by_key: bool) -> TableDiff:
        own = self.own
        if not own:
            return TableDiff(self.state.identifier)
        refuse_expired_start(self.state, self.branch)
        return self.diff_between(branch_start(self.state, self.branch), own[-1].snapshot_id, by_key=by_key)

    def diff_between(self, before: int | None, after: int, *, by_key: bool) -> TableDiff:
        catalog, identifier = self.io_manager.spark.catalog_description, self.state.identifier
        files = differing_files(catalog, identifier, before, after)
        names = sorted({file.partition for file in (*files.added, *files.removed)})
        partitions = {name: (_rows_in(files.added, name), _rows_in(files.removed, name)) for name in names}
        keys = self._changes(before, after, files) if by_key else None
        return TableDiff(identifier, partitions, keys, has_deletes=files.has_deletes)

    def _changes(self, before: int | None, after: int, files: DifferingFiles) -> KeyChanges:
        """Compare the rows of the files that differ, or all rows if delete files may have removed some."""
        options = self.io_manager.definition_of(self.spec).request.options
        old, new = (
            []
            if snapshot_id is None or not (differing or files.has_deletes)
            else self._rows(snapshot_id, None if files.has_deletes else {file.path for file in differing})
            for snapshot_id, differing in ((before, files.removed), (after, files.added))
        )
        names = self.state.schema.names
        exact = {name.lower(): name for name in names}
        keys = [exact.get(key.lower(), key) for key in options.merge_keys or self.state.identifier_fields]
        return compared_rows(old, new, keys if set(keys) <= set(names) else (), names)

    def _rows(self, snapshot_id: int, paths: Collection[str] | None) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = rows_of_files(
            self.io_manager.spark.catalog_description, self.state, snapshot_id, paths
        ).to_pylist()
        return rows

    def member(self) -> Member:
        options = self.io_manager.definition_of(self.spec).request.options
        own, state = self.own, self.state
        refuse_rolled_back(state, self.branch, own)
        scope = rows_of_scope(state, options, written_partitions(self.spec, own))
        rows = scope.without(options.merge.validity)
        return Member(str(state.identifier), state, StagedRows(Staging(self.branch, MAIN_BRANCH), own, rows, scope))


def environment_branches(definitions: dg.Definitions) -> Iterator[EnvironmentBranch]:
    """Yield the branches of environments in the tables of a code location's assets."""
    with stored_tables(definitions, action="list the environments of") as tables:
        for table in tables:
            for branch in sorted(filter(is_environment_branch, table.state.branches)):
                yield _Table(table.io_manager, table.spec, table.state, branch).describe()


def environment_diff(definitions: dg.Definitions, name: str, *, by_key: bool = False) -> list[TableDiff]:
    """Return what an environment changes in each table, in comparison with where its branch began.

    Args:
        definitions: The code location.
        name: The name of the environment.
        by_key: Whether the rows of the files that differ are read and compared: by the merge keys or the identifier
            fields of the table, or else as a whole. These rows must fit in memory.
    """
    with _tables(definitions, name) as tables:
        return [table.diff(by_key=by_key) for table in tables]


def points_diff(definitions: dg.Definitions, before: str, after: str, *, by_key: bool = False) -> list[TableDiff]:
    """Return what differs between two points in each table that the second one has.

    Args:
        definitions: The code location.
        before: A point, such as `release/2026-10`.
        after: Another one.
        by_key: Whether rows are read and compared, as for `environment_diff`.
    """
    with stored_tables(definitions, action="compare") as tables:
        states = {table.state.identifier: table.state for table in tables}
        try:
            old, new = (snapshots_at(Point.parse(point), states, action="compare") for point in (before, after))
        except NotationError as error:
            raise ConfigurationError.refusing(
                "compare", "points", expected=error.expected, found=error.found
            ) from error
        return [
            _Table(table.io_manager, table.spec, table.state, MAIN_BRANCH).diff_between(
                old.get(table.state.identifier), new[table.state.identifier], by_key=by_key
            )
            for table in tables
            if table.state.identifier in new
        ]


@dataclass(frozen=True, slots=True)
class Promotion:
    """What a promotion publishes in a table.

    Args:
        snapshots: The snapshots of the branch that `main` does not have, oldest first. Without them, the branch is
            dropped.
        state: The table, as it was looked at.
    """

    branch: str
    snapshots: tuple[int, ...]
    state: TableState

    def document(self) -> dict[str, Any]:
        """Return the table for JSON."""
        head = self.state.head()
        return {
            "table": str(self.state.identifier),
            "branch": self.branch,
            "snapshots": [str(snapshot_id) for snapshot_id in self.snapshots],
            "main": None if head is None else str(head.snapshot_id),
        }


def plan_promotion(definitions: dg.Definitions, name: str) -> list[Promotion]:
    """Return what `promote_environment` would publish, and reject what it would reject. This changes nothing."""
    planned = []
    with _tables(definitions, name) as tables:
        for table in tables:
            if table.own:
                table.member()
            snapshots = tuple(snapshot.snapshot_id for snapshot in table.own)
            planned.append(Promotion(table.branch, snapshots, table.state))
    return planned


def promote_environment(
    definitions: dg.Definitions,
    name: str,
    *,
    instance: dg.DagsterInstance | None = None,
    report: Callable[[str], None] = print,
) -> list[Release]:
    """Publish what an environment has written to `main`, and drop its branches: a release for each catalog.

    Args:
        definitions: The code location.
        name: The name of the environment.
        instance: The instance that records a materialization of each asset and partition, or None to record none.
        report: Called with a sentence about what was done.
    """
    with _tables(definitions, name) as tables:
        written = _with_rows(tables)
        releases = _published(written, _Table.member, report)
        report_moved([(table.io_manager, table.spec) for table in written], report=report, warn=report)
        if instance is not None:
            heads = {item.member.asset: item.published.snapshot_id for each in releases for item in each.members}
            for table in written:
                _record(instance, table, name, heads[str(table.state.identifier)])
        return releases


def _with_rows(tables: Sequence[_Table]) -> list[_Table]:
    """Return the tables that the environment has written. Drop its branches of the others."""
    for table in tables:
        if not table.own:
            drop_branch(table.io_manager, table.state.identifier, table.branch)
    return [table for table in tables if table.own]


def _published(
    tables: Sequence[_Table], member_of: Callable[[_Table], Member], report: Callable[[str], None]
) -> list[Release]:
    """Publish the members of the tables, those of each catalog together."""
    by_catalog: dict[object, list[_Table]] = {}
    for table in tables:
        by_catalog.setdefault(table.io_manager.spark.catalog_description.identity, []).append(table)
    return [
        publish(
            together[0].io_manager.spark.catalog_description,
            [member_of(table) for table in together],
            partial(advance, together[0].io_manager),
            report=report,
        )
        for together in by_catalog.values()
    ]


def _record(instance: dg.DagsterInstance, table: _Table, name: str, snapshot_id: int) -> None:
    """Record a materialization of what an environment has written to a table: of its partitions, if they are known."""
    keys = written_partitions(table.spec, table.own).keys
    metadata = {lineage.SNAPSHOT_ID: str(snapshot_id), PROMOTED_FROM: name}
    for key in sorted(keys) if table.spec.partitions_def is not None else (None,):
        event = dg.AssetMaterialization(
            table.spec.key, partition=key, metadata=metadata, description=f"Promoted from the environment {name}."
        )
        instance.report_runless_asset_event(event)


def update_environment(
    definitions: dg.Definitions, name: str, *, report: Callable[[str], None] = print
) -> list[Release]:
    """Add what an environment has written to the newest snapshot of `main`: a commit for each catalog that can.

    So its branches also have what others have written to `main` since, except for the partitions that it has written
    itself. A branch without rows of its own is dropped: the next write begins it again.

    Raises:
        CommitConflictError: Others have written the same partitions to `main`. Nothing of that catalog is changed.
    """
    with _tables(definitions, name) as tables:
        behind = [table for table in _with_rows(tables) if passed_snapshots(table.state, table.member().rows)]
        # Each of them is rebased or a conflict: no engine fast-forwards a branch that `main` has left behind.
        return _published(behind, lambda table: replace(table.member(), is_kept=True), report)


def drop_environment(definitions: dg.Definitions, name: str) -> list[EnvironmentBranch]:
    """Drop the branches of an environment, and return them."""
    with _tables(definitions, name) as tables:
        for table in tables:
            drop_branch(table.io_manager, table.state.identifier, table.branch)
        return [table.describe() for table in tables]


@contextmanager
def _tables(definitions: dg.Definitions, name: str) -> Iterator[list[_Table]]:
    """Yield the tables that have a branch of the environment. Their IO managers are open until the end of the block."""
    branch = Environment(name).branch
    with stored_tables(definitions, action=f"look for the environment {name!r} in") as tables:
        found = [
            _Table(table.io_manager, table.spec, table.state, branch)
            for table in tables
            if branch in table.state.branches
        ]
        if not found:
            raise UpstreamMissingError.refusing(
                "find",
                f"the environment {name!r}",
                expected=f"a table with the branch {branch!r}",
                found="none",
                hint="list the environments with `dagster-iceberg-spark env list`.",
            )
        yield found


def _rows_in(files: Sequence[PartitionFile], partition: str) -> int:
    return sum(file.rows for file in files if file.partition == partition)


@dataclass(frozen=True, slots=True)
class StagedBranch:
    """A staged branch of a table, and what its newest snapshot records of the run that staged it.

    Args:
        staged_at: When the rows were staged, or None if the branch holds none.
        rows: The number of rows that the snapshot added.
    """

    table: TableIdentifier
    name: str
    asset: str | None = None
    run_id: str | None = None
    partitions: str | None = None
    staged_at: dt.datetime | None = None
    rows: int = 0

    def document(self) -> dict[str, str | int | None]:
        """Return the branch for JSON."""
        return {
            "table": str(self.table),
            "branch": self.name,
            "asset": self.asset,
            "run_id": self.run_id,
            "partitions": self.partitions,
            "staged_at": None if self.staged_at is None else self.staged_at.isoformat(timespec="seconds"),
            "rows": self.rows,
        }


def staged_branches(definitions: dg.Definitions, *, drop: Collection[str] = ()) -> Iterator[StagedBranch]:
    """Yield the staged branches of the tables of a code location's assets. Drop those of the names in `drop`."""
    with stored_tables(definitions, action="list the staged branches of") as tables:
        for table in tables:
            for branch in _staged_in(table.state):
                yield branch
                if branch.name in drop:
                    drop_branch(table.io_manager, table.state.identifier, branch.name)


def _staged_in(state: TableState) -> Iterator[StagedBranch]:
    others = {snapshot_id for ref, snapshot_id in state.refs.items() if not is_staged_branch(ref)}
    for name in sorted(filter(is_staged_branch, state.branches)):
        head = state.head(name)
        if head is None or head.snapshot_id in others or lineage.COMMIT_TOKEN not in head.summary:
            yield StagedBranch(state.identifier, name)
            continue
        yield StagedBranch(
            table=state.identifier,
            name=name,
            asset=head.summary.get(lineage.ASSET_KEY),
            run_id=head.summary.get(lineage.RUN_ID),
            partitions=head.summary.get(lineage.PARTITION_KEYS),
            staged_at=head.committed_at,
            rows=head.count("added-records"),
        )

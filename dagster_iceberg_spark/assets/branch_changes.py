"""Moves, creates and drops branches of the tables of assets, without a session where pyiceberg can."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import dagster as dg

from dagster_iceberg_spark.assets.address import known_scope
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.plan.publication.staged_rows import StagedRows
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import ASSET_KEY, PARTITION_KEYS
from dagster_iceberg_spark.table.scope import PartitionScope, listed_keys
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState
from dagster_iceberg_spark.table.updates import BranchUpdate, CreateBranch, DropBranch, SetProperties, TagUpdate


def report_moved(
    members: Iterable[tuple[TableIOManager, dg.AssetSpec]],
    *,
    report: Callable[[str], None],
    warn: Callable[[str], None],
) -> dict[str, dict[str, Any]]:
    """Tell the observers of assets' tables that `main` has moved. Return what they report, by metadata key and table.

    Raises:
        IcebergSparkError: An observer has failed that is configured to fail the step. The others were told
            nevertheless.
    """
    reported, failures = dict[str, dict[str, Any]](), list[IcebergSparkError]()
    for io_manager, spec in members:
        table = io_manager.observed_table(spec)
        try:
            found = io_manager.moved(table, report=report, warn=warn)
        except IcebergSparkError as error:
            failures.append(error)
            continue
        for key, value in found.items():
            reported.setdefault(key, {})[str(table.identifier)] = value
    if failures:
        raise failures[0]
    return reported


def create_branch(
    io_manager: TableIOManager, identifier: TableIdentifier, branch: str, snapshot_id: int, *, retention_days: int
) -> None:
    """Create a branch at a snapshot. A session is started only if pyiceberg cannot commit to the table."""
    _change_branch(io_manager, identifier, CreateBranch(branch, snapshot_id, retention_days, keeps_snapshots=True))


def drop_branch(io_manager: TableIOManager, identifier: TableIdentifier, branch: str) -> None:
    """Drop a branch. A session is started only if pyiceberg cannot commit to the table."""
    _change_branch(io_manager, identifier, DropBranch(branch))


def _change_branch(io_manager: TableIOManager, identifier: TableIdentifier, change: BranchUpdate) -> None:
    from dagster_iceberg_spark.catalog.branches import change_branch

    if not change_branch(io_manager.spark.catalog_description, identifier, change):
        from dagster_iceberg_spark.spark.tables import change_branches

        change_branches(io_manager.spark.iceberg_session, identifier, [change])


def written_partitions(spec: dg.AssetSpec, snapshots: Iterable[Snapshot]) -> PartitionScope:
    """Return the partitions that an asset has written in these snapshots, or the whole table if they are not known."""
    name, keys = "/".join(spec.key.path), set[str]()
    for snapshot in snapshots:
        described = snapshot.summary.get(PARTITION_KEYS)
        listed = None if described is None else listed_keys(described)
        if not listed or snapshot.summary.get(ASSET_KEY) != name:
            return PartitionScope()
        keys |= listed
    return known_scope(spec, keys) or PartitionScope()


def advance(io_manager: TableIOManager, state: TableState, rows: StagedRows) -> bool:
    """Fast-forward a table that only an engine can commit to. Return false if the target has moved."""
    from dagster_iceberg_spark.spark.write.engine import fast_forward

    if not fast_forward(io_manager.spark.iceberg_session, state, rows):
        return False
    if rows.staging.tag is not None:
        change_tags(io_manager, state.identifier, [rows.staging.tag.at(state.refs[rows.staging.branch])])
    return True


def change_tags(
    io_manager: TableIOManager, identifier: TableIdentifier, changes: Sequence[TagUpdate | SetProperties]
) -> None:
    """Set and drop tags, and set properties. A session is started only if pyiceberg cannot commit to the table."""
    from dagster_iceberg_spark.catalog import branches

    if not branches.change_tags(io_manager.spark.catalog_description, identifier, changes):
        from dagster_iceberg_spark.spark import tables

        tables.change_tags(io_manager.spark.iceberg_session, identifier, changes)

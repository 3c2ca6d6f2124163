"""Undoes runs: the tables of a run go back to what they were before it."""

import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from dagster_iceberg_spark.asset_tables import (
    StoredTable,
    existing_tables,
    mirror_tables,
    stored_assets_in,
    stored_tables,
    written_partitions,
)
from dagster_iceberg_spark.catalog.undo import undo_snapshots
from dagster_iceberg_spark.dagster_private import recorded_events
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.final_errors import final_errors
from dagster_iceberg_spark.plan.binding import EVERYTHING, BoundScope
from dagster_iceberg_spark.plan.publication import rows_of_scope
from dagster_iceberg_spark.plan.undo import TableUndo, plan_undo
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import ASSET_KEY, PARTITION_KEYS, RUN_ID, SNAPSHOT_ID, UNDOES
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState


@dataclass(frozen=True, slots=True)
class UndoneTable:
    """What an undo does in a table.

    Args:
        how: `rollback` if `main` moves back, `revert` if a new snapshot takes the files back, and `restore` if `main`
            moves forward again.
        undone: The snapshots that are undone, newest first.
        runs: The runs that made them.
        partitions: Their partitions, as the snapshots describe them.
        snapshot_id: The newest snapshot of `main` afterwards, or None in a dry run that reverts.
    """

    table: TableIdentifier
    how: str
    undone: tuple[int, ...]
    runs: tuple[str, ...]
    partitions: tuple[str, ...]
    snapshot_id: int | None

    def document(self) -> dict[str, Any]:
        """Return the table for JSON."""
        return {
            "table": str(self.table),
            "how": self.how,
            "undone": [str(snapshot_id) for snapshot_id in self.undone],
            "runs": list(self.runs),
            "partitions": list(self.partitions),
            "snapshot_id": None if self.snapshot_id is None else str(self.snapshot_id),
        }


@dataclass(frozen=True, slots=True)
class Undo:
    """An undo. `by` is its id: undoing that undoes the undo. `is_atomic` is None for a dry run."""

    by: str
    tables: tuple[UndoneTable, ...]
    is_atomic: bool | None = None


def undo_run(
    definitions: dg.Definitions,
    run_id: str,
    *,
    dry_run: bool = False,
    cascade: bool = False,
    instance: dg.DagsterInstance | None = None,
    report: Callable[[str], None] = print,
) -> Undo:
    """Take all tables of a code location back to what they were before a run.

    Args:
        definitions: The code location.
        run_id: The run, or the id of an undo.
        dry_run: Whether to change nothing.
        cascade: Whether to undo as well what was made from the run's rows, or has replaced them.
        instance: The Dagster instance that records the restored snapshots, or None to record nothing.
        report: Writes a line about progress.

    Raises:
        UpstreamMissingError: No table has a snapshot of the run.
        CommitConflictError: Others have made snapshots from the run's rows, or have changed the same partitions.
        ConfigurationError: A commit of metadata cannot undo the run in a table.
    """
    with stored_tables(definitions, action="undo a run in") as tables:
        by = f"undo-{uuid.uuid4()}"
        return _undone(tables, run_id, by, dry_run=dry_run, cascade=cascade, instance=instance, report=report)


def build_undo_op(assets: Iterable[dg.AssetsDefinition], *, name: str = "undo_run") -> dg.OpDefinition:
    """Build an op that takes the tables of assets back to what they were before a run.

    The config of the op has the keys `run_id`, `cascade` and `dry_run`, as `undo_run` explains them.

    Args:
        assets: Assets that an `IcebergPySparkIOManager` stores.
        name: The name of the op.

    Example:
        >>> import dagster as dg
        >>> from dagster_iceberg_spark import build_undo_op
        >>> @dg.asset(io_manager_key="iceberg")
        ... def flights(): ...
        >>> build_undo_op([flights]).name
        'undo_run'
    """
    members = stored_assets_in(assets)

    @dg.op(
        name=name,
        required_resource_keys={member.io_manager_key for member in members},
        config_schema={
            "run_id": dg.Field(str, description="The run to undo, or the id of an undo."),
            "cascade": dg.Field(bool, default_value=False, description="Undo also what was made from its rows."),
            "dry_run": dg.Field(bool, default_value=False, description="Change nothing."),
        },
        description="Takes the tables of assets back to what they were before a run.",
    )
    def undo(context: dg.OpExecutionContext) -> None:
        with final_errors():
            config = context.op_config
            hint = "build it for assets that it stores only."
            stored = [
                (member.io_manager(context.resources, action="undo runs in", hint=hint), member.spec)
                for member in members
            ]
            done = _undone(
                existing_tables(stored),
                config["run_id"],
                context.run_id,
                dry_run=config["dry_run"],
                cascade=config["cascade"],
                instance=context.instance,
                report=context.log.info,
            )
        context.add_output_metadata({"iceberg/undone": [table.document() for table in done.tables]})

    return undo


def _undone(
    tables: Sequence[StoredTable],
    run_id: str,
    by: str,
    *,
    dry_run: bool,
    cascade: bool,
    instance: dg.DagsterInstance | None,
    report: Callable[[str], None],
) -> Undo:
    catalogs = {table.io_manager.spark.catalog_description.identity: table.io_manager for table in tables}
    if len(catalogs) > 1:
        names = sorted(str(io_manager.spark.catalog_description) for io_manager in catalogs.values())
        raise ConfigurationError.refusing(
            "undo", f"the run {run_id}", expected="tables in one catalog", found=", ".join(names)
        )
    by_table = {table.state.identifier: table for table in tables}
    undos = plan_undo([table.state for table in tables], run_id, cascade=cascade)
    if dry_run:
        return Undo(by, tuple(_described(undo, undo.target_id) for undo in undos))
    heads, is_atomic = undo_snapshots(
        tables[0].io_manager.spark.catalog_description,
        [(undo, _rows_of(by_table[undo.state.identifier], undo)) for undo in undos],
        run_id=run_id,
        by=by,
        report=report,
    )
    done = tuple(_described(undo, heads[undo.state.identifier]) for undo in undos)
    if instance is not None:
        _tell(instance, undos, heads, by)
    undone = [by_table[undo.state.identifier] for undo in undos]
    mirror_tables([(table.io_manager, table.spec) for table in undone], report=report, warn=report)
    return Undo(by, done, is_atomic)


def _described(undo: TableUndo, head: int | None) -> UndoneTable:
    summaries = [snapshot.summary for snapshot in undo.snapshots]
    return UndoneTable(
        table=undo.state.identifier,
        how=undo.how,
        undone=tuple(snapshot.snapshot_id for snapshot in undo.snapshots),
        runs=tuple(dict.fromkeys(summary.get(RUN_ID, "") for summary in summaries)),
        partitions=tuple(dict.fromkeys(summary[PARTITION_KEYS] for summary in summaries if PARTITION_KEYS in summary)),
        snapshot_id=head,
    )


def _rows_of(table: StoredTable, undo: TableUndo) -> BoundScope:
    """Return the rows of the partitions that the snapshots wrote."""
    if not undo.snapshots:
        return EVERYTHING
    options = table.io_manager.definition_of(table.spec).request.options
    scope = written_partitions(table.spec, undo.snapshots)
    return rows_of_scope(undo.state, options, scope).without(options.merge.validity)


def _tell(instance: dg.DagsterInstance, undos: Sequence[TableUndo], heads: dict[TableIdentifier, int], by: str) -> None:
    """Record a materialization of each partition that the undone runs have materialized and that has rows again.

    A partition that the undone run was the first to write has none.
    """
    for undo in undos:
        current = undo.restored() if undo.snapshots else undo.state.snapshots.get(undo.target_id or 0)
        if current is None:
            continue
        runs = [run for snapshot in (*undo.snapshots, current) for run in _runs_of(snapshot, undo.state)]
        assets = {snapshot.summary.get(ASSET_KEY) for snapshot in (*undo.snapshots, current)}
        events = [item.event for item in recorded_events(instance, dict.fromkeys(runs))]
        partitions = dict.fromkeys(
            (event.asset_key, event.partition)
            for event in events
            if isinstance(event, dg.AssetMaterialization) and "/".join(event.asset_key.path) in assets
        )
        for key, partition in partitions:
            metadata = {SNAPSHOT_ID: str(heads[undo.state.identifier]), "iceberg/undone_by": by}
            instance.report_runless_asset_event(
                dg.AssetMaterialization(key, partition=partition, metadata=metadata, description="Undone.")
            )


def _runs_of(snapshot: Snapshot, state: TableState) -> list[str]:
    """Return the run that made a snapshot or, of a revert, also those whose snapshots it has undone."""
    undone = (state.snapshots.get(item) for item in json.loads(snapshot.summary.get(UNDOES, "[]")))
    found = [snapshot, *(item for item in undone if item is not None)]
    return [item.summary[RUN_ID] for item in found if RUN_ID in item.summary]

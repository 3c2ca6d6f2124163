"""The rows that `iceberg/retain` no longer keeps: those of partitions whose time window ended long ago."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dagster as dg

from dagster_iceberg_spark.assets.address import spec_scope
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import data_files
from dagster_iceberg_spark.distribution import PACKAGE_VERSION
from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.features.maintenance.options import RETAIN
from dagster_iceberg_spark.plan.options.metadata_key import duration_text
from dagster_iceberg_spark.plan.partitions.binding import Intervals, bind_scope
from dagster_iceberg_spark.plan.read.incremental import may_have_rows
from dagster_iceberg_spark.plan.write.table_owner import others_on
from dagster_iceberg_spark.plan.write.write_request import RemoteAttempt, RetryLimits, WriteRequest
from dagster_iceberg_spark.table.lineage import RETENTION, Materialization, commit_token
from dagster_iceberg_spark.table.scope import PartitionScope, PartitionSlice, TimeWindow
from dagster_iceberg_spark.table.snapshot import TableState


@dataclass(frozen=True, slots=True)
class Retention:
    """The partitions of an asset that are not retained, as one."""

    spec: dg.AssetSpec
    scope: PartitionScope

    @property
    def name(self) -> str:
        """The partitions in words."""
        return self.scope.describe()

    @property
    def asset(self) -> str:
        """The asset, with slashes between the parts of its key."""
        return "/".join(self.spec.key.path)

    def has_rows(self, catalog: CatalogDescription, state: TableState) -> bool:
        """Return whether a data file of `main` may have rows of these partitions.

        Raises:
            MetadataKeyError: The partition column is neither a date nor a timestamp, or other assets write the table.
        """
        refused = partial(MetadataKeyError.of_value, RETAIN, self.asset)
        others = others_on(state, self.asset)
        if others:
            raise refused(
                expected="a table that no other asset writes, because their rows would be deleted too",
                found=f"{state.identifier}, which {', '.join(others)} writes",
                hint="delete old rows in an asset of your own.",
            )
        head = state.head()
        bound = bind_scope(self.scope, state.schema, subject=str(state.identifier))
        if not all(isinstance(item, Intervals) for box in bound.boxes for item in box):
            raise refused(
                expected="a partition column that holds dates or timestamps",
                found=f"the column {self.scope.dimensions[0].column!r} of another type",
            )
        if head is None:
            return False
        files = data_files(catalog, state.identifier, head.snapshot_id, bound.columns)
        return may_have_rows(bound, files)

    def request(self, io_manager: TableIOManager, run_id: str, report: Callable[[str], None]) -> WriteRequest:
        """Return the write that replaces the rows of these partitions by none."""
        table = io_manager.definition_of(self.spec).request
        changes: dict[str, Any] = {
            "write_disposition": "replace",
            "schema_evolution": "strict",
            "partition_evolution": "error",
            "partition_by": None,
            "renames": {},
            "audits": (),
            "publish": "step",
            "concurrent_writes": "last_wins",
        }
        options = table.options.model_copy(update=changes)
        token = commit_token(run_id=run_id, output=self.asset, scope=self.scope, branch=options.branch)
        return WriteRequest(
            table=replace(table, options=options),
            materialization=Materialization(
                asset_key=self.asset,
                run_id=run_id,
                job=None,
                step_key=None,
                scope=self.scope,
                code_version=None,
                upstream=(),
                write_disposition=RETENTION,
                commit_token=token,
                package_version=PACKAGE_VERSION,
            ),
            candidates=(),
            record_of=lambda _: "none",
            limits=RetryLimits(),
            report=report,
            announce=_not_announced,
            earlier_attempts=tuple,
        )


def retention_of(spec: dg.AssetSpec, retain: dt.timedelta, now: dt.datetime) -> Retention | None:
    """Return the partitions of an asset whose time window ended longer ago, or None if there is none yet.

    Raises:
        MetadataKeyError: The asset has no time partitions.
    """
    asset, windows = "/".join(spec.key.path), _time_windows(spec.partitions_def)
    if windows is None:
        raise MetadataKeyError.of_value(
            RETAIN, asset, expected="an asset with time partitions", found=f"{spec.partitions_def}"
        )
    first, last = windows.get_first_partition_window(), windows.get_prev_partition_window(now - retain)
    if first is None or last is None:
        return None
    dimensions = tuple(item for item in spec_scope(spec, []).dimensions if item.calendar is not None)
    key = f"until {last.end.isoformat()} ({RETAIN}: {duration_text(retain)})"
    slices = (PartitionSlice(key, TimeWindow(first.start, last.end)),)
    return Retention(spec, PartitionScope(dimensions, (slices,), (key,)))


def _time_windows(partitions_def: dg.PartitionsDefinition | None) -> dg.TimeWindowPartitionsDefinition | None:
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        found = [item.partitions_def for item in partitions_def.partitions_defs]
        return next((item for item in found if isinstance(item, dg.TimeWindowPartitionsDefinition)), None)
    return partitions_def if isinstance(partitions_def, dg.TimeWindowPartitionsDefinition) else None


def _not_announced(_: RemoteAttempt) -> None:
    """Record nothing: the rows are deleted again if the run is re-executed."""

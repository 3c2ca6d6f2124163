"""The plan of one write, as values: what is changed in the table, which rows are written, and how."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from dagster_iceberg_spark.plan.partitions.binding import EVERYTHING, BoundScope
from dagster_iceberg_spark.plan.write.merging import MergeRules
from dagster_iceberg_spark.plan.write.overwrite_filter import Coverage
from dagster_iceberg_spark.plan.write.placement import TableCreation
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import Materialization
from dagster_iceberg_spark.table.partitioning import PartitionSpec, SortField
from dagster_iceberg_spark.table.predicate import Predicate
from dagster_iceberg_spark.table.schema import Field, IcebergType, Schema
from dagster_iceberg_spark.table.updates import BranchUpdate, TableUpdate


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Create the table if it does not exist, at the location that the definition sets, else as `creation` says."""

    schema: Schema
    spec: PartitionSpec
    properties: Mapping[str, str]
    location: str | None
    sort_by: tuple[SortField, ...] = ()
    identifier_fields: tuple[str, ...] = ()
    creation: TableCreation = field(default_factory=TableCreation)


@dataclass(frozen=True, slots=True)
class Guard:
    """The guard against rows that the run does not own.

    Args:
        columns: The columns of the predicate, whose values the message shows.
        drops: Whether other rows are dropped and counted, or fail the write (`iceberg/rows_outside_partition`).
        partitions: The run's partitions in words, for the message.
    """

    owned: Predicate
    columns: tuple[str, ...]
    drops: bool
    partitions: str


@dataclass(frozen=True, slots=True)
class Append:
    """Add the rows."""


@dataclass(frozen=True, slots=True)
class AppendAlone:
    """Add the rows, unless the table has another snapshot than the base by now.

    If two runs read the same changes, only one may write.
    """

    base_snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Remove the rows that the coverage's filter matches, then add the DataFrame's rows and those carried over.

    The carried rows are read from the base snapshot, and the commit validates against it.

    Args:
        is_by_partition: Whether the filter matches the table's partitions that the DataFrame's rows fall in.
    """

    coverage: Coverage
    base_snapshot_id: int | None
    is_by_partition: bool = False


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge the rows of a batch with those of the scope by key.

    Args:
        scope: The rows that may be updated or deleted.
        marker: The batch's column that marks keys to delete. It is not stored.
        base_snapshot_id: The snapshot that the batch is compared with, or None if there is none.
        materialization: The materialization, which determines whether commits of other writers conflict.
        boundary: When new versions of a history begin, if the batch's rows have no start of their own.
    """

    keys: tuple[str, ...]
    scope: Predicate
    rules: MergeRules
    marker: str | None
    updated: tuple[str, ...]
    base_snapshot_id: int | None
    materialization: Materialization
    boundary: dt.datetime | None = None


WriteAction: TypeAlias = Append | AppendAlone | Overwrite | Merge


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The plan of one write.

    Args:
        completions: Columns whose structs lack fields of the table, with the complete type.
        defaults: Columns that the DataFrame lacks, and whose values in new rows the table knows, by name.
        checked: Columns whose values must be checked, because Spark lacks the table's type, with that type.
        required: Columns that the definition requires although the table does not.
        counted_partitions: Partitions whose rows are counted while they are written.
        listed_partitions: Partitions whose row counts are in the new files' metadata: each file belongs to one.
        owned: The rows that the write replaces, updates or deletes.
        staging: What creates the staged branch, after the changes. Other writers' commits do not conflict with it.
        is_sampled: Whether Spark evaluates the rows twice, first to find the ranges in which it distributes them.
    """

    identifier: TableIdentifier
    branch: str
    create: CreateTable | None
    changes: tuple[TableUpdate, ...]
    completions: Mapping[str, IcebergType]
    defaults: Mapping[str, Field]
    checked: Mapping[str, IcebergType]
    required: tuple[str, ...]
    action: WriteAction
    guard: Guard | None
    write_options: Mapping[str, str]
    snapshot_properties: Mapping[str, str]
    counted_partitions: tuple[tuple[str, Predicate], ...] = ()
    listed_partitions: tuple[tuple[str, BoundScope], ...] = ()
    advice: str | None = None
    owned: BoundScope = EVERYTHING
    staging: tuple[BranchUpdate, ...] = ()
    is_sampled: bool = False

    @property
    def carries_over(self) -> bool:
        """Whether rows of other partitions are carried over."""
        return carries_over_rows(self.action)


def carries_over_rows(action: WriteAction) -> bool:
    """Return whether the action writes rows of other partitions again."""
    return isinstance(action, Overwrite) and action.coverage.carries_over

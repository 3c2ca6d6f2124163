"""Loads an input as the type that it is annotated with, and names partitions that Dagster has not recorded."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.arrow import reader as arrow_reader
from dagster_iceberg_spark.assets.dagster_private.context import instance_of, newest_materializations
from dagster_iceberg_spark.assets.dagster_private.event_log import snapshot_of
from dagster_iceberg_spark.assets.dagster_private.partitions import written_partitions
from dagster_iceberg_spark.assets.observers import ObservedTable, Observer
from dagster_iceberg_spark.assets.read_log import record_read, recorded_read
from dagster_iceberg_spark.assets.read_position import StepOutput, read_position, step_outputs, with_changes
from dagster_iceberg_spark.assets.read_requests import ReadRequest
from dagster_iceberg_spark.catalog.expressions import expression_of
from dagster_iceberg_spark.catalog.files import data_files
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.errors import ChangesUnknownError, ConfigurationError, UpstreamMissingError
from dagster_iceberg_spark.plan.read.incremental import Changes, OutputTable, Position
from dagster_iceberg_spark.plan.read.read_options import AS_OF_RUN, MISSING
from dagster_iceberg_spark.plan.read.read_plan import (
    ReadPlan,
    by_partition,
    partitions_without_files,
    plan_read,
    read_of_run,
)
from dagster_iceberg_spark.plan.write.overwrite_filter import hull
from dagster_iceberg_spark.resource import IcebergSparkResource
from dagster_iceberg_spark.table.lineage import COMMIT_TOKEN, STAGED_TOKEN, UpstreamRead
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, TableState

SPARK_FRAME: Final = "pyspark.sql.DataFrame"
_WHOLE: Final = ""
"""The name of the only read of an input that is not a dict by partition key."""


@dataclass(frozen=True)
class InputLoader:
    """Loads one input.

    Args:
        default_type: The dotted name of the type of an input that has no annotation.
        observers: What is told how long the scan takes to plan.
    """

    spark: IcebergSparkResource
    context: dg.InputContext
    request: ReadRequest
    default_type: str
    observers: Sequence[Observer] = ()

    def load(self) -> Any:
        """Load the input from one snapshot, and record the read."""
        request, kind, asked_at = self.request, self.request.options.kind, time.time()
        position: Position = request.upstream_read
        heads: tuple[tuple[str, int | None], ...] = ()
        if kind is not None:  # load this before the upstream table, which then has every snapshot that was read
            position = read_position(self.context, request, self._outputs, self._look)
            heads = tuple((table.asset, table.head) for table in self._tables)
        state = self._look()
        if state is None:
            snapshot_id = None if isinstance(position, str) else position.since
            changes = None if kind is None else Changes(kind, snapshot_id, scan="nothing")
            columns: tuple[str, ...] = ()
            value = self._without_table()
        else:
            plan = self._plan(state, position)
            snapshot_id, changes, columns = plan.snapshot_id, plan.changes, plan.columns
            value = self._value(state, plan)
        read = replace(
            request.upstream_read,
            snapshot_id=snapshot_id,
            output_heads=heads,
            snapshot=None if state is None else state.snapshots.get(snapshot_id or 0),
            columns=columns,
            asked_at=asked_at,
            is_staged=state is not None and request.staged_branch in state.refs,
        )
        record_read(self.context, read, changes)
        return value

    @cached_property
    def _outputs(self) -> list[StepOutput]:
        return step_outputs(self.context, self.request)

    @property
    def _tables(self) -> list[OutputTable]:
        return [output.stored[0] for output in self._outputs if output.stored is not None]

    def _look(self) -> TableState | None:
        return look(self.spark.catalog_description, self.request.identifier)

    def _plan(self, state: TableState, position: Position) -> ReadPlan:
        request, kind, run_id = self.request, self.request.options.kind, self.request.options.as_of_run
        earlier = None if run_id is None else self._earlier_read(run_id)
        plan = plan_read(state, request.read_scope, request.options_in(state), earlier)
        if kind is None:
            return plan
        position = position if earlier is None else self._repeated_range(position, earlier)
        catalog, warn = self.spark.catalog_description, self.context.log.warning
        return with_changes(state, plan, position, kind, request=request, catalog=catalog, warn=warn)

    def _value(self, state: TableState, plan: ReadPlan) -> Any:
        """Return the rows as the annotated type."""
        request, annotation = self.request, self.request.annotation
        missing = self._missing_partitions(state, plan)
        is_nothing = (
            request.scope.is_empty or plan.snapshot_id is None or set(missing) == set(request.scope.keys) != set()
        )
        if is_nothing and annotation.is_optional and not annotation.is_by_partition:
            return None
        may_miss = request.options.missing == "empty" or (annotation.is_by_partition and annotation.is_optional)
        if missing and not may_miss:
            none = "none published" if request.is_released else "none recorded by Dagster"
            raise self._missing(
                f"a materialization of the partitions {PartitionScope(keys=missing).describe()} of {request.asset}",
                f"{none}, and no rows of them in the table",
            )
        if plan.snapshot_id is None and request.is_released and not may_miss and not request.scope.is_empty:
            raise self._missing(f"published rows of {request.asset}", "none: its rows wait for a release")
        if not annotation.is_by_partition:
            return self._rows({_WHOLE: plan})[_WHOLE]
        plans = by_partition(state, plan, request.scope)
        written = {key: each for key, each in plans.items() if not (annotation.is_optional and key in missing)}
        rows = self._rows(written) if written else {}
        return {key: rows.get(key) for key in plans}

    def _repeated_range(self, position: Position, earlier: UpstreamRead) -> Position:
        """Return the range of the earlier run, if the asset's position is the one that the run started from."""
        if isinstance(position, UpstreamRead) and position.since == earlier.since:
            return replace(self.request.upstream_read, since=earlier.since, snapshot_id=earlier.snapshot_id)
        raise ChangesUnknownError.refusing(
            "read the changes of",
            str(self.request.identifier),
            expected=f"an asset that has read up to snapshot {earlier.since or 'none'}, as before the run "
            f"{self.request.options.as_of_run} (`{AS_OF_RUN}`)",
            found=position if isinstance(position, str) else f"one that has read up to {position.since or 'none'}",
            hint="roll the asset's table back to its state before that run. An asset that this IO manager does not "
            "store cannot read changes again.",
        )

    def _earlier_read(self, run_id: str) -> UpstreamRead:
        """Return a run's read from its event log or, if another instance has it, the lineage of the step's tables."""
        request, earlier = self.request, recorded_read(self.context, self.request, run_id)
        if earlier is None:
            states = (table.state for table in self._tables if table.state is not None)
            reads = (read_of_run(state, run_id, request.step_key, request.upstream_read) for state in states)
            earlier = next((read for read in reads if read is not None), None)
        if earlier is None:
            raise UpstreamMissingError.refusing(
                "read",
                str(request.identifier),
                expected=f"a record of what this step read of {request.asset} in the run {run_id}",
                found="none in the event log or in the snapshots of the tables that the step writes",
                hint=f"set `{AS_OF_RUN}` to the id of a run that loaded this input, or `iceberg/as_of` to an instant.",
            )
        return earlier

    def _missing_partitions(self, state: TableState, plan: ReadPlan) -> tuple[str, ...]:
        """Return the partitions that have no published materialization in Dagster and no file in the table."""
        unrecorded = unrecorded_partitions(self.context, self.request)
        unrecorded |= unpublished_partitions(self.context, self.request, state)
        if not unrecorded:
            return ()
        files = (
            ()
            if plan.snapshot_id is None
            else data_files(
                self.spark.catalog_description,
                plan.identifier,
                plan.snapshot_id,
                plan.scope.columns,
                schema_id=plan.schema.schema_id,
                rows=expression_of(hull(plan.scope).predicate()),
            )
        )
        return partitions_without_files(plan, self.request.scope, unrecorded, files)

    def _without_table(self) -> Any:
        """Return the value that represents a missing table.

        An input that asks for no partition is one case, such as the first day of an asset that reads the day before.
        """
        request, annotation = self.request, self.request.annotation
        if annotation.is_optional_whole or (annotation.is_optional and not annotation.is_by_partition):
            return None
        if annotation.is_by_partition and (annotation.is_optional or request.scope.is_empty):
            return dict.fromkeys(request.scope.keys)
        may_be_empty = request.scope.is_empty or request.options.missing == "empty"
        input_type = self._input_type
        if not may_be_empty or (input_type is not None and input_type.needs_columns):
            raise self._missing(f"the table of {request.asset} in the {self.spark.catalog_description}", "none")
        if input_type is not None:
            no_rows = partial(arrow_reader.no_rows, input_type, subject=str(request.identifier))
        else:
            self._require_frame_annotation()
            from dagster_iceberg_spark.spark.read import frames

            no_rows = partial(frames.no_rows, self.spark.iceberg_session)
        return {key: no_rows() for key in request.scope.keys} if annotation.is_by_partition else no_rows()

    def _missing(self, expected: str, found: str) -> UpstreamMissingError:
        return UpstreamMissingError.refusing(
            "read",
            str(self.request.identifier),
            expected=expected,
            found=found,
            hint="materialize it first. If another tool writes it, check `schema` and `iceberg/table`. If it may be "
            f'missing, set the metadata {{"{MISSING}": "empty"}} on the input or annotate it as Optional.',
        )

    def _rows(self, plans: Mapping[str, ReadPlan]) -> dict[str, Any]:
        if self._annotation is ReadPlan:
            return dict(plans)
        if self._input_type is not None:
            return arrow_reader.read(
                self.spark.catalog_description, plans, self._input_type, self._arrow, self._on_planned
            )
        self._require_frame_annotation()
        return {name: self._frame(plan) for name, plan in plans.items()}

    def _on_planned(self, seconds: float) -> None:
        request = self.request
        table = ObservedTable(self.spark.catalog_description, request.identifier, {}, str(request.identifier))
        for observer in self.observers:
            observer.read(table, planning_seconds=seconds)

    def _arrow(self, plan: ReadPlan) -> Any:
        from dagster_iceberg_spark.spark.versions import version_of

        frame = self._frame(plan)
        return version_of(frame.sparkSession).arrow_of(frame)

    def _frame(self, plan: ReadPlan) -> Any:
        from dagster_iceberg_spark.spark.read import frames

        return frames.read(self.spark.iceberg_session, plan)

    @property
    def _annotation(self) -> object:
        annotation = self.request.annotation.type
        is_annotated = annotation not in (None, Any, object)
        return annotation if is_annotated or self.default_type == SPARK_FRAME else self.default_type

    @property
    def _input_type(self) -> arrow_reader.InputType | None:
        """The type to load without a JVM, or None for a Spark DataFrame."""
        return arrow_reader.input_type_of(self._annotation)

    def _require_frame_annotation(self) -> None:
        from dagster_iceberg_spark.spark.read.frames import is_frame_annotation

        if is_frame_annotation(self._annotation):
            return
        known = ", ".join([SPARK_FRAME, *(known.path for known in arrow_reader.INPUT_TYPES)])
        raise ConfigurationError.refusing(
            "load",
            str(self.request.identifier),
            expected=f"an input annotated as one of {known}, as Optional of one, or as dict[str, ...] by partition key",
            found=str(self._annotation),
            hint="annotate the input with one of these types, or not at all to use the IO manager's `input_type`.",
        )


def unrecorded_partitions(context: dg.InputContext, request: ReadRequest) -> frozenset[str]:
    """Return the keys of the input's partitions that have no materialization in Dagster.

    There are none if the input asks for all partitions of the asset, or reads the table as of another time. Partitions
    that the step itself writes are left out: a run of several days may read the day before each day.
    """
    instance = instance_of(context)
    if instance is None or not request.is_of_now or not context.has_asset_partitions or not context.has_asset_key:
        return frozenset()
    requested = frozenset(str(key) for key in context.asset_partition_keys)
    unrecorded = requested - written_partitions(context)
    if unrecorded:
        unrecorded -= set(instance.get_materialized_partitions(context.asset_key))
    every = context.asset_partitions_def.get_partition_keys(dynamic_partitions_store=instance) if unrecorded else ()
    return frozenset() if requested >= set(every) else unrecorded


def unpublished_partitions(context: dg.InputContext, request: ReadRequest, state: TableState) -> frozenset[str]:
    """Return the keys of the input's partitions whose newest materialization waits for a release.

    Partitions that the step itself writes are left out, and so are those whose staged snapshot has expired: its
    published snapshot may have expired too.
    """
    if not request.is_released or not request.is_of_now or request.scope.is_whole_table:
        return frozenset()
    if request.staged_branch in state.refs:  # this run has staged them
        return frozenset()
    keys = frozenset(request.scope.keys) - written_partitions(context)
    tokens = {
        key: str(event.metadata[STAGED_TOKEN].value)
        for key, event in newest_materializations(context, sorted(keys))
        if STAGED_TOKEN in event.metadata and snapshot_of(event) in state.snapshots
    }
    if not tokens:
        return frozenset()
    line = state.ancestors(request.options_in(state).ref or MAIN_BRANCH)
    published = {snapshot.summary.get(COMMIT_TOKEN) for snapshot in line}
    return frozenset(key for key, token in tokens.items() if token not in published)

"""Loading an input: what is there, as the type that it is annotated with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.arrow.expressions import expression_of
from dagster_iceberg_spark.catalog.files import data_files
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.errors import ChangesUnknownError, ConfigurationError, UpstreamMissingError
from dagster_iceberg_spark.inputs.changes import ChangeFinder
from dagster_iceberg_spark.inputs.output_tables import output_tables, step_outputs
from dagster_iceberg_spark.inputs.read_log import recorded_read
from dagster_iceberg_spark.inputs.read_position import read_position
from dagster_iceberg_spark.inputs.read_request import ReadRequest
from dagster_iceberg_spark.inputs.unrecorded_partitions import unrecorded_partitions
from dagster_iceberg_spark.plan.incremental import (
    Changes,
    ReadPosition,
)
from dagster_iceberg_spark.plan.overwrite_filter import hull
from dagster_iceberg_spark.plan.read import (
    EarlierRead,
    ReadPlan,
    by_partition,
    partitions_without_files,
    plan_read,
    read_of_run,
)
from dagster_iceberg_spark.plan.read_options import AS_OF_RUN, MISSING
from dagster_iceberg_spark.resource import IcebergSparkResource
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import TableState

SPARK_FRAME: Final = "pyspark.sql.DataFrame"
_WHOLE: Final = ""
"""The name of the only read of an input that is not taken by partition."""


@dataclass(frozen=True, slots=True)
class LoadedInput:
    """What an input is.

    Args:
        value: What the user's function gets.
        snapshot_id: The snapshot that it was read from; None: there is none yet.
        changes: Which changes until then it is; None: the snapshot's rows.
        output_heads: Where changes were asked for, the snapshot that each table of the step had, by its asset.
    """

    value: Any
    snapshot_id: int | None
    changes: Changes | None = None
    output_heads: tuple[tuple[str, int | None], ...] = ()


@dataclass(frozen=True, slots=True)
class InputLoader:
    """Loads one input.

    Args:
        spark: Catalog and session.
        context: Dagster's.
        request: What the input asks for.
        default_type: The dotted name of the type that an input without annotation is loaded as.
    """

    spark: IcebergSparkResource
    context: dg.InputContext
    request: ReadRequest
    default_type: str

    def load(self) -> LoadedInput:
        """Load it, from one snapshot.

        Raises:
            UpstreamMissingError: The table, the snapshot, or a partition is not there.
            ChangesUnknownError: What is new was asked for, and the changes cannot be determined.
            ConfigurationError: The annotation or the metadata asks for what there is not.
            CatalogUnavailableError: The catalog or the store does not answer.
        """
        kind, position, outputs = self.request.options.kind, ReadPosition(), []
        if kind is not None:  # before the upstream table is looked at, which then has what anybody has read of it
            outputs = step_outputs(self.context, self.request)
            position = read_position(self.context, self.request, outputs, self._look)
        heads = tuple((table.asset, table.head) for table in output_tables(outputs))
        state = self._look()
        if state is None:
            nothing = None if kind is None else Changes(kind, position.since, scan="nothing")
            return LoadedInput(self._without_table(), position.since, nothing, heads)
        plan = self._plan(state, position)
        return LoadedInput(self._value(state, plan), plan.snapshot_id, plan.changes, heads)

    def _look(self) -> TableState | None:
        return look(self.spark.catalog_description, self.request.identifier)

    def _plan(self, state: TableState, position: ReadPosition) -> ReadPlan:
        request, earlier = self.request, self._earlier_read()
        plan = plan_read(state, request.read_scope, request.options, earlier)
        if request.options.kind is None:
            return plan
        finder = ChangeFinder(self.spark.catalog_description, request, self.context.log.warning)
        return finder.with_changes(state, plan, self._repeated(position, earlier))

    def _value(self, state: TableState, plan: ReadPlan) -> Any:
        """Return the rows as the input is annotated.

        Raises:
            UpstreamMissingError: A partition is not there.
        """
        request, annotation = self.request, self.request.annotation
        missing = self._missing_partitions(plan)
        is_nothing = (
            request.scope.is_empty or plan.snapshot_id is None or set(missing) == set(request.scope.keys) != set()
        )
        if is_nothing and annotation.is_optional and not annotation.is_by_partition:
            return None
        may_miss = request.options.missing == "empty" or (annotation.is_by_partition and annotation.is_optional)
        if missing and not may_miss:
            raise self._missing(
                f"a materialization of the partitions {PartitionScope(keys=missing).describe()} of {request.asset}",
                "none recorded by Dagster, and no row of them in the table",
            )
        if not annotation.is_by_partition:
            return self._rows({_WHOLE: plan})[_WHOLE]
        plans = by_partition(state, plan, request.scope)
        there = {key: each for key, each in plans.items() if not (annotation.is_optional and key in missing)}
        rows = self._rows(there) if there else {}
        return {key: rows.get(key) for key in plans}

    def _repeated(self, position: ReadPosition, earlier: EarlierRead | None) -> ReadPosition:
        """Return how far the asset has read the table, or an earlier run had, whose read is to be repeated."""
        if earlier is None:
            return position
        if position.unclear is not None or position.since != earlier.since:
            raise ChangesUnknownError.refusing(
                "read what is new in",
                str(self.request.identifier),
                expected=f"an asset that has read until snapshot {earlier.since or 'none'}, as when the run "
                f"{earlier.run_id} read on from there (`{AS_OF_RUN}`)",
                found=position.unclear or f"one that has read until {position.since or 'none'}",
                hint="roll the asset's own table back to what it was before that run; what is stored elsewhere "
                "cannot read changes again.",
            )
        return ReadPosition(earlier.since, earlier.snapshot_id)

    def _earlier_read(self) -> EarlierRead | None:
        run_id = self.request.options.as_of_run
        if run_id is None:
            return None
        earlier = recorded_read(self.context, self.request, run_id) or self._earlier_read_of_lineage(run_id)
        if earlier is None:
            raise UpstreamMissingError.refusing(
                "read",
                str(self.request.identifier),
                expected=f"a record of what the run {run_id} has read of {self.request.asset} in this step",
                found="none in its event log, and none in the snapshots of the tables that the step writes",
                hint=f"`{AS_OF_RUN}` takes the id of a run that has loaded this input; `iceberg/as_of` an instant.",
            )
        return earlier

    def _earlier_read_of_lineage(self, run_id: str) -> EarlierRead | None:
        """Ask the tables that the step writes: they know of runs that this Dagster instance does not."""
        request = self.request
        for table in output_tables(step_outputs(self.context, request)):
            found = (
                None
                if table.state is None
                else read_of_run(
                    table.state,
                    run_id,
                    step_key=request.step_key,
                    asset=request.asset,
                    table=str(request.identifier),
                    scope=request.described_scope,
                    input_name=self.context.name,
                )
            )
            if found is not None:
                return found
        return None

    def _missing_partitions(self, plan: ReadPlan) -> tuple[str, ...]:
        """Return the partitions that Dagster has no materialization of and the table no file."""
        unrecorded = unrecorded_partitions(self.context, self.request)
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
        """Return what stands for no rows: where none is asked for, as on the first day of what reads the day before."""
        request, annotation = self.request, self.request.annotation
        if annotation.is_optional_whole or (annotation.is_optional and not annotation.is_by_partition):
            return None
        if annotation.is_by_partition and (annotation.is_optional or request.scope.is_empty):
            return dict.fromkeys(request.scope.keys)
        may_be_empty = request.scope.is_empty or request.options.missing == "empty"
        from dagster_iceberg_spark.arrow import reader as arrow_reader

        input_type = arrow_reader.input_type_of(self._annotation)
        if not may_be_empty or (input_type is not None and input_type.needs_columns):
            raise self._missing(f"the table of {request.asset} in the {self.spark.catalog_description}", "none")
        if input_type is not None:
            return self._each(lambda: arrow_reader.no_rows(input_type, subject=str(request.identifier)))
        self._require_frame_annotation()
        from dagster_iceberg_spark.spark import reader

        return self._each(lambda: reader.no_rows(self.spark.iceberg_session))

    def _each(self, make: Callable[[], Any]) -> Any:
        """Return what is made, or that for each partition."""
        return {key: make() for key in self.request.scope.keys} if self.request.annotation.is_by_partition else make()

    def _missing(self, expected: str, found: str) -> UpstreamMissingError:
        return UpstreamMissingError.refusing(
            "read",
            str(self.request.identifier),
            expected=expected,
            found=found,
            hint="materialize it first; where another tool writes it, check `schema` and `iceberg/table`; where "
            f'nothing is fine, give the input the metadata {{"{MISSING}": "empty"}}, or annotate it as Optional.',
        )

    def _rows(self, plans: Mapping[str, ReadPlan]) -> dict[str, Any]:
        from dagster_iceberg_spark.arrow import reader as arrow_reader

        input_type = arrow_reader.input_type_of(self._annotation)
        if input_type is not None:
            return arrow_reader.read(
                self.spark.catalog_description, plans, input_type, lambda plan: self._frame(plan).toArrow()
            )
        self._require_frame_annotation()
        return {name: self._frame(plan) for name, plan in plans.items()}

    def _frame(self, plan: ReadPlan) -> Any:
        from dagster_iceberg_spark.spark import reader

        return reader.read(self.spark.iceberg_session, plan)

    @property
    def _annotation(self) -> object:
        annotation = self.request.annotation.type
        is_annotated = annotation not in (None, Any, object)
        return annotation if is_annotated or self.default_type == SPARK_FRAME else self.default_type

    def _require_frame_annotation(self) -> None:
        from dagster_iceberg_spark.arrow.reader import INPUT_TYPES
        from dagster_iceberg_spark.spark.frames import is_frame_annotation

        if is_frame_annotation(self._annotation):
            return
        known = ", ".join([SPARK_FRAME, *(known.path for known in INPUT_TYPES)])
        raise ConfigurationError.refusing(
            "load",
            str(self.request.identifier),
            expected=f"an input annotated as one of {known}, as Optional of one, or as dict[str, ...] by partition",
            found=str(self._annotation),
            hint="annotate the input with one of these types, or not at all for the IO manager's `input_type`.",
        )

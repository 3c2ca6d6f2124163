"""Loading an input: what is there, as the type that it is annotated with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.arrow.expressions import expression_of
from dagster_iceberg_spark.catalog.files import data_files, removed_files
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.consumption import ReadSoFar, StoresTables, own_tables, read_so_far
from dagster_iceberg_spark.errors import ChangesUnknownError, ConfigurationError, UpstreamMissingError
from dagster_iceberg_spark.input_context import ReadQuestion, recorded_read, unrecorded_partitions
from dagster_iceberg_spark.plan.incremental import (
    Changes,
    Consumption,
    deletes_of,
    has_delete_files,
    may_delete,
    refuse_unclear,
    scan_of,
)
from dagster_iceberg_spark.plan.overwrite_filter import hull
from dagster_iceberg_spark.plan.read import (
    EarlierRead,
    ReadPlan,
    at_snapshot,
    by_partition,
    new_snapshots,
    partitions_without_files,
    plan_read,
    read_of_run,
    schemas_at,
)
from dagster_iceberg_spark.plan.read_options import AS_OF_RUN, CHANGES_FALLBACK, MISSING
from dagster_iceberg_spark.resource import IcebergSparkResource
from dagster_iceberg_spark.table.lineage import RUN_ID, ReadKind
from dagster_iceberg_spark.table.schema import is_orderable
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

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
        upon: Where changes were asked for, the snapshot that each table of the step had, by its asset.
    """

    value: Any
    snapshot_id: int | None
    changes: Changes | None = None
    upon: tuple[tuple[str, int | None], ...] = ()


@dataclass(frozen=True, slots=True)
class InputLoader:
    """Loads one input.

    Args:
        spark: Catalog and session.
        context: Dagster's.
        question: What the input asks for.
        default_type: The dotted name of the type that an input without annotation is loaded as.
        as_ours: Returns an IO manager of this package as what it is; None of any other.
    """

    spark: IcebergSparkResource
    context: dg.InputContext
    question: ReadQuestion
    default_type: str
    as_ours: Callable[[Any], StoresTables | None]

    def load(self) -> LoadedInput:
        """Load it, from one snapshot.

        Raises:
            UpstreamMissingError: The table, the snapshot, or a partition is not there.
            ChangesUnknownError: What is new was asked for, and cannot be told.
            ConfigurationError: The annotation or the metadata asks for what there is not.
            CatalogUnavailableError: The catalog or the store does not answer.
        """
        question, wanted = self.question, self.question.wanted
        kind, so_far = question.options.kind, ReadSoFar(Consumption())
        if kind is not None:  # before the upstream table is looked at, which then has what anybody has read of it
            so_far = read_so_far(self.context, question, as_ours=self.as_ours, upstream=self._look)
        state = self._look()
        if state is None:
            since = so_far.consumption.since
            nothing = None if kind is None else Changes(kind, since, scan="nothing")
            return LoadedInput(self._without_table(), since, nothing, so_far.upon)
        earlier = self._earlier_read()
        plan = plan_read(state, question.read_scope, question.options, earlier)
        if kind is not None:
            plan = self._with_changes(state, plan, self._consumption(so_far, earlier))
        missing = self._missing_partitions(plan)
        is_nothing = (
            question.scope.is_empty or plan.snapshot_id is None or set(missing) == set(question.scope.keys) != set()
        )
        if is_nothing and wanted.is_optional and not wanted.is_by_partition:
            return LoadedInput(None, plan.snapshot_id, plan.changes, so_far.upon)
        may_miss = question.options.missing == "empty" or (wanted.is_by_partition and wanted.is_optional)
        if missing and not may_miss:
            raise self._missing(
                f"a materialization of the partitions {PartitionScope(keys=missing).describe()} of {question.asset}",
                "none recorded by Dagster, and no row of them in the table",
            )
        if not wanted.is_by_partition:
            return LoadedInput(self._rows({_WHOLE: plan})[_WHOLE], plan.snapshot_id, plan.changes, so_far.upon)
        plans = by_partition(state, plan, question.scope)
        there = {key: each for key, each in plans.items() if not (wanted.is_optional and key in missing)}
        rows = self._rows(there) if there else {}
        return LoadedInput({key: rows.get(key) for key in plans}, plan.snapshot_id, plan.changes, so_far.upon)

    def _look(self) -> TableState | None:
        return look(self.spark.catalog_description, self.question.identifier)

    def _consumption(self, so_far: ReadSoFar, earlier: EarlierRead | None) -> Consumption:
        """Return how far the asset has read the table, or an earlier run had, whose read is to be repeated."""
        if earlier is None:
            return so_far.consumption
        if so_far.consumption.unclear is not None or so_far.consumption.since != earlier.since:
            raise ChangesUnknownError.refusing(
                "read what is new in",
                str(self.question.identifier),
                expected=f"an asset that has read until snapshot {earlier.since or 'none'}, as when the run "
                f"{earlier.run_id} read on from there (`{AS_OF_RUN}`)",
                found=so_far.consumption.unclear or f"one that has read until {so_far.consumption.since or 'none'}",
                hint="roll the asset's own table back to what it was before that run; what is stored elsewhere "
                "cannot read changes again.",
            )
        return Consumption(earlier.since, earlier.snapshot_id)

    def _with_changes(self, state: TableState, plan: ReadPlan, consumption: Consumption) -> ReadPlan:
        """Return the read of what is new."""
        options, kind, since = self.question.options, self.question.options.kind, consumption.since
        if kind is None:
            return plan
        if kind == "changelog":
            self._require_orderable(state, plan)
        plan = plan if consumption.until is None else at_snapshot(state, plan, consumption.until)
        told: Changes | str
        if consumption.unclear is not None:
            told = consumption.unclear
        elif since is None:
            told = Changes(kind, None, is_repeated=consumption.is_repeated)
        else:
            told = self._changes_since(state, plan, kind, since)
        if isinstance(told, Changes):
            return replace(plan, changes=told)
        refuse_unclear(plan.identifier, self.question.asset, options, told)
        self.context.log.warning(
            f"Reading all rows of {plan.identifier}, as `{CHANGES_FALLBACK}` asks, because of {told}."
        )
        return replace(plan, changes=Changes(kind, None, is_repeated=True))

    def _changes_since(self, state: TableState, plan: ReadPlan, kind: ReadKind, since: int) -> Changes | str:
        """Return what has changed since a snapshot, or what makes that it cannot be told."""
        snapshots = new_snapshots(state, plan, since, is_head=self.question.options.is_head)
        if snapshots is None:
            return (
                f"a history without snapshot {since}, which was read last: it has expired, was rolled back, or is of a "
                "branch"
            )
        hidden = self._what_hides_changes(plan, kind, snapshots)
        if hidden is not None:
            return hidden
        scan = scan_of(kind, snapshots)
        stored = schemas_at(state, snapshots) if scan == "files" else ()
        return Changes(kind, since, tuple(snapshot.snapshot_id for snapshot in snapshots), stored, scan)

    def _require_orderable(self, state: TableState, plan: ReadPlan) -> None:
        """Refuse what Iceberg cannot tell of a commit's rows that are as they were: it sorts them."""
        maps = [field.name for field in plan.schema if not is_orderable(field.type)]
        if maps and not state.identifier_fields:
            raise ConfigurationError.refusing(
                "read every change of",
                str(plan.identifier),
                expected="columns that can be sorted, or identifier fields",
                found=f"the column {maps[0]!r}, which has a map or a variant in it",
                hint="read `changes`, or set identifier fields: `merge_keys` of an asset that merges does.",
            )

    def _what_hides_changes(self, plan: ReadPlan, kind: ReadKind, snapshots: Sequence[Snapshot]) -> str | None:
        """Return which snapshot makes that the changes cannot be told; None: none does."""
        if kind == "changelog":
            hiding = next((item for item in snapshots if has_delete_files(item)), None)
            what = "has delete files, of which Iceberg's changelog cannot tell the rows"
        else:
            hiding = next((item for item in snapshots if may_delete(item) and self._deletes(plan, item)), None)
            what = "has removed rows of what is read, or written them anew"
        if hiding is None:
            return None
        run_id = hiding.summary.get(RUN_ID)
        return (
            f"snapshot {hiding.snapshot_id} ({hiding.operation}{f' of run {run_id}' if run_id else ''}), which {what}"
        )

    def _deletes(self, plan: ReadPlan, snapshot: Snapshot) -> bool:
        if plan.scope.is_whole_table:
            return True
        files = removed_files(
            self.spark.catalog_description,
            plan.identifier,
            snapshot.snapshot_id,
            plan.scope.columns,
            schema_id=plan.schema.schema_id,
        )
        return deletes_of(plan.scope, files)

    def _earlier_read(self) -> EarlierRead | None:
        run_id = self.question.options.as_of_run
        if run_id is None:
            return None
        earlier = recorded_read(self.context, self.question, run_id) or self._earlier_read_of_lineage(run_id)
        if earlier is None:
            raise UpstreamMissingError.refusing(
                "read",
                str(self.question.identifier),
                expected=f"a record of what the run {run_id} has read of {self.question.asset} in this step",
                found="none in its event log, and none in the snapshots of the tables that the step writes",
                hint=f"`{AS_OF_RUN}` takes the id of a run that has loaded this input; `iceberg/as_of` an instant.",
            )
        return earlier

    def _earlier_read_of_lineage(self, run_id: str) -> EarlierRead | None:
        """Ask the tables that the step writes: they know of runs that this Dagster instance does not."""
        question = self.question
        for table in own_tables(self.context, question, as_ours=self.as_ours):
            found = (
                None
                if table.state is None
                else read_of_run(
                    table.state,
                    run_id,
                    step_key=question.step_key,
                    asset=question.asset,
                    table=str(question.identifier),
                    scope=question.described_scope,
                    input_name=self.context.name,
                )
            )
            if found is not None:
                return found
        return None

    def _missing_partitions(self, plan: ReadPlan) -> tuple[str, ...]:
        """Return the partitions that Dagster has no materialization of and the table no file."""
        unrecorded = unrecorded_partitions(self.context, self.question)
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
        return partitions_without_files(plan, self.question.scope, unrecorded, files)

    def _without_table(self) -> Any:
        """Return what stands for no rows: where none is asked for, as on the first day of what reads the day before."""
        question, wanted = self.question, self.question.wanted
        if wanted.is_optional_whole or (wanted.is_optional and not wanted.is_by_partition):
            return None
        if wanted.is_by_partition and (wanted.is_optional or question.scope.is_empty):
            return dict.fromkeys(question.scope.keys)
        may_be_empty = question.scope.is_empty or question.options.missing == "empty"
        from dagster_iceberg_spark.arrow import reader as arrow_reader

        input_type = arrow_reader.input_type_of(self._annotation)
        if not may_be_empty or (input_type is not None and input_type.needs_columns):
            raise self._missing(f"the table of {question.asset} in the {self.spark.catalog_description}", "none")
        if input_type is not None:
            return self._each(lambda: arrow_reader.no_rows(input_type, subject=str(question.identifier)))
        self._require_frame_annotation()
        from dagster_iceberg_spark.spark import reader

        return self._each(lambda: reader.no_rows(self.spark.iceberg_session))

    def _each(self, make: Callable[[], Any]) -> Any:
        """Return what is made, or that for each partition."""
        return {key: make() for key in self.question.scope.keys} if self.question.wanted.is_by_partition else make()

    def _missing(self, expected: str, found: str) -> UpstreamMissingError:
        return UpstreamMissingError.refusing(
            "read",
            str(self.question.identifier),
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
        annotation = self.question.wanted.annotation
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
            str(self.question.identifier),
            expected=f"an input annotated as one of {known}, as Optional of one, or as dict[str, ...] by partition",
            found=str(self._annotation),
            hint="annotate the input with one of these types, or not at all for the IO manager's `input_type`.",
        )

"""Executing a plan: one lazy frame, one commit."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession

from dagster_iceberg_spark.errors import MergeKeyError
from dagster_iceberg_spark.plan.write import Guard, Merge, Overwrite, WritePlan
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import (
    column_of,
    functions_of,
    has_same_name,
    named_column,
    observation_for,
    reshaped,
    schema_of,
    with_all_fields,
)
from dagster_iceberg_spark.spark.execution import TaggedWork
from dagster_iceberg_spark.spark.failures import MICROSECONDS, NULL_MARKER, OUTSIDE_END, OUTSIDE_MARKER
from dagster_iceberg_spark.spark.session import IcebergSession, active
from dagster_iceberg_spark.table.schema import Schema

_ROWS: Final = "rows"
_DROPPED: Final = "dropped"
_SOURCE: Final = "source"
_EXAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class RowCounts:
    """What the write counted on its way, at no pass of its own.

    Args:
        rows: Rows of the frame that were written; None where nothing asked for it.
        dropped: Rows that were left out because the run does not own them.
        by_partition: Rows by partition key.
    """

    rows: int | None = None
    dropped: int = 0
    by_partition: Mapping[str, int] = field(default_factory=dict)


def write(session: IcebergSession, plan: WritePlan, frame: DataFrame, work: TaggedWork) -> RowCounts:
    """Write the frame as the plan says: exactly one snapshot, or none and an error.

    Args:
        session: The session of the frame.
        plan: What to do.
        frame: The rows.
        work: What gives sessions beside that one the attempt's tag.

    Raises:
        MergeKeyError: The batch repeats a key, or holds NULL in one.
        PySparkException, Py4JError: What the engine says, untranslated.
    """
    given = schema_of(frame, subject=str(plan.identifier)) if plan.completions else Schema(())
    if not isinstance(plan.action, Merge):
        frame = with_all_fields(frame, given, plan.completions)
    for column in plan.required:
        frame = frame.where(sql.refusal_of_nulls(column, f"{NULL_MARKER}{column!r}"))
    if isinstance(plan.action, Merge):
        return _merge(session, plan, plan.action, frame, given, work)
    counters = _Counters(session.spark, plan)
    guarded = counters.observed(frame) if plan.guard is None else _guarded(plan.guard, frame, counters)
    if isinstance(plan.action, Overwrite):
        _overwrite(session, plan, plan.action, guarded)
    else:
        _append(session, plan, guarded)
    return counters.counts()


def _overwrite(session: IcebergSession, plan: WritePlan, action: Overwrite, frame: DataFrame) -> None:
    functions = functions_of(session.spark)
    complete, extra = frame, {}
    if action.coverage.carries_over:
        complete = frame.unionByName(_carried_rows(session, plan, action), allowMissingColumns=True)
        extra = {"validate-from-snapshot-id": str(action.base_snapshot_id), "isolation-level": "serializable"}
    writer = complete.writeTo(_target(session, plan))
    for key, value in {**_options(plan), **extra}.items():
        writer = writer.option(key, value)
    writer.overwrite(column_of(functions, action.coverage.filter))


def _append(session: IcebergSession, plan: WritePlan, frame: DataFrame) -> None:
    writer = frame.writeTo(_target(session, plan))
    for key, value in _options(plan).items():
        writer = writer.option(key, value)
    writer.append()


def _carried_rows(session: IcebergSession, plan: WritePlan, action: Overwrite) -> DataFrame:
    """Return the rows of straddling files that the run does not own, under the table's columns as they are now.

    A read of the base snapshot itself would have the columns of its time. That these rows are still the base's is
    validated with the commit.
    """
    functions = functions_of(session.spark)
    stored = session.spark.table(_target(session, plan))
    owned = functions.coalesce(column_of(functions, action.coverage.owned), functions.lit(False))  # noqa: FBT003
    return stored.where(column_of(functions, action.coverage.filter)).where(~owned)


def _merge(
    session: IcebergSession, plan: WritePlan, action: Merge, frame: DataFrame, given: Schema, work: TaggedWork
) -> RowCounts:
    """Run one MERGE over a staged copy of the batch, and return how many rows were dropped.

    What the batch lacks keeps its stored values: columns, and fields of structs.

    The copy makes the batch one thing: a MERGE reads its source twice, Spark refuses one that is not deterministic,
    and the check of the keys must see the very rows that are merged.
    """
    guard = plan.guard
    with active(session.spark):
        complete = (frame if guard is None or guard.drops else frame.where(_refusing(frame, guard))).localCheckpoint()
    staged, dropped = complete, 0
    if guard is not None and guard.drops:
        # Spark Connect does not hand over what was observed in a checkpoint: the staged rows are counted.
        staged = complete.where(sql.predicate(guard.owned))
        dropped = complete.count() - staged.count()
    counts = RowCounts(dropped=dropped)
    if not _check_keys(session.spark, plan, action, staged):
        _append(session, plan, with_all_fields(staged, given, plan.completions))
        return counts
    functions = functions_of(session.spark)
    target = _target(session, plan)
    alias = plan.identifier.name if plan.branch == "main" else f"branch_{plan.branch}"
    condition = functions.expr(sql.merge_condition(action.keys, target=alias, source=_SOURCE)) & column_of(
        functions, action.scope, qualifier=alias
    )
    with _handed_over(session, staged, plan.snapshot_properties, work) as source:
        # Column by column: `updateAll` refuses a batch that lacks one of the table's.
        new = {sql.quote(column): named_column(functions, column, _SOURCE) for column in source.columns}
        updated, inserted = dict(new), dict(new)
        for field in given:
            if (whole := plan.completions.get(field.name)) is not None:
                name = sql.quote(field.name)
                rebuilt = partial(reshaped, functions, new[name], field.type, whole, is_same=has_same_name)
                updated[name] = rebuilt(stored=named_column(functions, field.name, alias))
                inserted[name] = rebuilt()
        merged = source.alias(_SOURCE).mergeInto(target, condition)
        merged.whenMatched().update(updated).whenNotMatched().insert(inserted).merge()
    return counts


@contextmanager
def _handed_over(
    session: IcebergSession, staged: DataFrame, snapshot_properties: Mapping[str, str], work: TaggedWork
) -> Iterator[DataFrame]:
    """Yield the frame in a session of its own, whose commits carry the properties: views cross over, frames do not."""
    view = f"iceberg_batch_{uuid.uuid4().hex}"
    staged.createGlobalTempView(view)
    try:
        with session.isolated(snapshot_properties) as beside, work.within(beside):
            yield beside.table(f"global_temp.{view}")
    finally:
        session.spark.catalog.dropGlobalTempView(view)


def _check_keys(spark: SparkSession, plan: WritePlan, action: Merge, staged: DataFrame) -> int:
    """Return how many rows the batch has.

    Raises:
        MergeKeyError: A key is NULL or stands for two rows.
    """
    functions = functions_of(spark)
    keys = [named_column(functions, key) for key in action.keys]
    count = functions.count(functions.lit(1))
    has_null = functions.lit(False)  # noqa: FBT003
    for key in keys:
        has_null = has_null | key.isNull()
    groups = staged.groupBy(*(key.alias(f"k{index}") for index, key in enumerate(keys))).agg(
        count.alias(_ROWS), functions.max(has_null).alias("has_null")
    )
    total, worst, nulls = groups.agg(
        functions.coalesce(functions.sum(_ROWS), functions.lit(0)),
        functions.coalesce(functions.max(_ROWS), functions.lit(0)),
        functions.max("has_null"),
    ).collect()[0]
    if worst > 1 or nulls:
        bad = groups.where((functions.col(_ROWS) > 1) | functions.col("has_null")).limit(_EXAMPLES).collect()
        raise _key_error(plan, action, [list(row) for row in bad])
    return int(total)


def _key_error(plan: WritePlan, action: Merge, groups: list[list[Any]]) -> MergeKeyError:
    examples = "; ".join(
        f"({', '.join(f'{key}={value!r}' for key, value in zip(action.keys, group, strict=False))}) "
        f"in {group[-2]} row(s)"
        for group in groups
    )
    return MergeKeyError.refusing(
        "merge into",
        str(plan.identifier),
        expected=f"one row for each value of {', '.join(action.keys)}, and no NULL in it",
        found=examples.replace("None", "NULL"),
        hint="drop the extra rows in the asset (`dropDuplicates`, or a window that keeps the newest), or add a column "
        "to `iceberg/merge_keys`.",
    )


def _guarded(guard: Guard, frame: DataFrame, counters: "_Counters") -> DataFrame:
    if guard.drops:
        return counters.observed(frame).where(sql.predicate(guard.owned))
    return counters.observed(frame.where(_refusing(frame, guard)))


def _refusing(frame: DataFrame, guard: Guard) -> str:
    """Return the filter that refuses rows of others; it is compiled with the rest of the stage."""
    types = {field.name.casefold(): field.dataType.typeName() for field in frame.schema.fields}
    message: list[str] = []
    label = f"{OUTSIDE_MARKER}{guard.partitions}: "
    for column in guard.columns:
        is_instant = types.get(column.casefold()) == "timestamp"
        message += [sql.constant_text(f"{label}{column}="), sql.shown_value(column, is_instant=is_instant)]
        label = f"{MICROSECONDS if is_instant else ''}, "
    return sql.refusal_of_others(guard.owned, [*message, sql.constant_text(f"{label[:-2]}{OUTSIDE_END}")])


class _Counters:
    """Counts that ride along with the write, where the snapshot's own summary will not tell."""

    def __init__(self, spark: SparkSession, plan: WritePlan) -> None:
        self._functions = functions_of(spark)
        self._plan = plan
        self._aggregates = self._wanted()
        self._observation = observation_for(spark, f"iceberg_{uuid.uuid4().hex}") if self._aggregates else None

    def observed(self, frame: DataFrame) -> DataFrame:
        return frame.observe(self._observation, *self._aggregates) if self._observation is not None else frame

    def counts(self) -> RowCounts:
        """Return the counts; call it only after the write succeeded, for a failed one leaves half of them."""
        if self._observation is None:
            return RowCounts()
        values = self._observation.get
        if _ROWS not in values:
            return RowCounts()  # the rows are committed: that nothing was observed is no reason to fail
        by_partition = {
            key: int(values[f"p{index}"] or 0) for index, (key, _) in enumerate(self._plan.counted_partitions)
        }
        dropped = int(values.get(_DROPPED) or 0)
        return RowCounts(rows=int(values[_ROWS]) - dropped, dropped=dropped, by_partition=by_partition)

    def _wanted(self) -> list[Column]:
        plan, functions = self._plan, self._functions
        drops = plan.guard is not None and plan.guard.drops
        if not (plan.counted_partitions or plan.carries_over or drops):
            return []
        aggregates = [functions.count(functions.lit(1)).alias(_ROWS)]
        if plan.guard is not None and drops:
            owned = functions.coalesce(column_of(functions, plan.guard.owned), functions.lit(False))  # noqa: FBT003
            aggregates.append(functions.count_if(~owned).alias(_DROPPED))
        for index, (_, predicate) in enumerate(plan.counted_partitions):
            aggregates.append(functions.count_if(column_of(functions, predicate)).alias(f"p{index}"))
        return aggregates


def _target(session: IcebergSession, plan: WritePlan) -> str:
    return sql.table_name(session.catalog.name, plan.identifier, plan.branch)


def _options(plan: WritePlan) -> dict[str, str]:
    properties = {f"snapshot-property.{key}": value for key, value in plan.snapshot_properties.items()}
    return {**plan.write_options, **properties}

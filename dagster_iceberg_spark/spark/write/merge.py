"""Merges a batch into the table. It first determines what changes, and writes nothing else.

A MERGE rewrites every file with a matching row, even if no clause applies to the row. The batch is therefore first
compared with the stored rows. If each of those files has a row that changes, one MERGE of the batch rewrites no other
file. Otherwise unchanged rows are removed from the batch, and one MERGE applies the rest.
"""

import datetime as dt
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from pyspark.sql import Column, DataFrame

from dagster_iceberg_spark.catalog.expressions import expression_of
from dagster_iceberg_spark.catalog.files import data_files
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.errors import CommitConflictError
from dagster_iceberg_spark.plan.write.adoption import leaves_merge_alone
from dagster_iceberg_spark.plan.write.merging import MAXIMUM_LISTED_FILES, SHUFFLE_PARTITIONS, MergeSize, merge_settings
from dagster_iceberg_spark.plan.write.write_plan import Merge, WritePlan
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import (
    Functions,
    column_of,
    has_same_name,
    named_column,
    reshape,
    schema_of,
    written_value,
)
from dagster_iceberg_spark.spark.failures import MOVED_MARKER
from dagster_iceberg_spark.spark.session.session import IcebergSession, temporary_settings
from dagster_iceberg_spark.spark.tables import append, append_alone, target
from dagster_iceberg_spark.spark.versions import version_of
from dagster_iceberg_spark.spark.versions.spark_4_1 import MergeWriter
from dagster_iceberg_spark.spark.write.batch import Batch, mark_condition, stage
from dagster_iceberg_spark.spark.write.execution import TaggedWork
from dagster_iceberg_spark.spark.write.merge_diff import (
    BEFORE,
    CHANGE,
    CLOSE,
    DELETE,
    FIRST,
    IN_BATCH,
    IN_TABLE,
    INSERT,
    SOURCE,
    TARGET,
    UPDATE,
    ColumnOf,
    MergeDiff,
    MetFiles,
    fingerprint,
)
from dagster_iceberg_spark.table.lineage import COUNTED_ROWS
from dagster_iceberg_spark.table.predicate import EVERY_ROW, all_of
from dagster_iceberg_spark.table.schema import Field, Schema
from dagster_iceberg_spark.table.snapshot import RowCounts, Snapshot
from dagster_iceberg_spark.table.sql_text import constant_text, literal, quote

_OWN: Final = (CHANGE, BEFORE)
_BATCH: Final = "__dagster_batch_of_"


def merge(session: IcebergSession, plan: WritePlan, action: Merge, frame: DataFrame, work: TaggedWork) -> RowCounts:
    """Merge the DataFrame into the table in one snapshot. If nothing changes, the snapshot adds nothing.

    Columns and fields of structs that the batch lacks keep their stored values.
    """
    batch = stage(session, plan, action, frame)
    diff_of = VersionDiff if action.rules.strategy == "scd2" else MergeDiff
    diff = diff_of(session, plan, action, batch)
    met = diff.met_files() if batch.rows else None
    is_stored = met is not None and met.is_all_of(batch)
    if met is not None and not is_stored and met.changed_files == met.files:
        inserted = batch.rows - batch.marked - met.updated - met.unchanged
        properties = _properties(session, plan, inserted=inserted, updated=met.updated)
        size = _size(diff, _require_unmoved(session, plan, action))
        _merge_batch(diff, met, size, properties, work)
        return RowCounts(dropped=batch.dropped, unchanged=met.unchanged)
    changes, tally = (batch.frame, {}) if is_stored else diff.changes()
    base = _require_unmoved(session, plan, action)
    if not tally:
        nothing = diff.stored.limit(0)
        if action.materialization.reads_changes:
            append_alone(session, plan, nothing, action.base_snapshot_id)
        else:
            append(session, plan, nothing)
        return RowCounts(dropped=batch.dropped, unchanged=batch.rows - batch.marked)
    inserts, updates = tally.get(INSERT, 0) + tally.get(FIRST, 0), tally.get(UPDATE, 0)
    properties = _properties(session, plan, inserted=inserts, updated=updates + tally.get(CLOSE, 0))
    _merge_changes(diff, changes, tally, _size(diff, base), properties, work)
    # A row that marks a key to be deleted changes nothing if the table lacks the key.
    return RowCounts(dropped=batch.dropped, unchanged=batch.rows - batch.marked - inserts - updates)


def _properties(session: IcebergSession, plan: WritePlan, *, inserted: int, updated: int) -> dict[str, str]:
    """Return the properties of the snapshot of a MERGE, with its row counts unless Spark adds them: from 4.1 on.

    Spark counts rows twice that it samples before it distributes them by ranges.
    """
    is_counted = version_of(session.spark).counts_merged_rows and not plan.is_sampled
    counts = {COUNTED_ROWS.format("inserted"): str(inserted), COUNTED_ROWS.format("updated"): str(updated)}
    return {**plan.snapshot_properties, **({} if is_counted else counts)}


def _require_unmoved(session: IcebergSession, plan: WritePlan, action: Merge) -> Snapshot | None:
    """Return the table's snapshot. Reject a table that is no longer what the batch was compared with.

    Iceberg rejects commits of other writers after the MERGE has started to read, by its filter. The MERGE handles
    commits before that, by its clauses or by fingerprints of the rows to change.
    """
    base_id = action.base_snapshot_id
    state = look(session.catalog, plan.identifier, back_to=lambda item: item.snapshot_id == base_id)
    leaves = partial(leaves_merge_alone, scope=action.scope, materialization=action.materialization)
    if state is None and base_id is None:
        return None
    if state is not None and state.has_only_since(base_id, plan.branch, leaves):
        return None if base_id is None else state.base(plan.branch)
    raise CommitConflictError.to_plan_again(
        "merge into",
        plan.identifier,
        expected=f"the table as of snapshot {action.base_snapshot_id}, which the batch was compared with",
        found="that others have written since",
    )


def _size(diff: MergeDiff, base: Snapshot | None) -> MergeSize | None:
    """Return the size of a MERGE into the snapshot by the metadata of its files, or None if there are too many."""
    batch, action, columns = diff.batch, diff.action, diff.columns
    if base is None or base.count("total-data-files") > MAXIMUM_LISTED_FILES:
        return None
    near = EVERY_ROW if action.rules.changes_absent_keys else batch.near(columns)
    rows = expression_of(all_of((action.scope, near)))
    files = data_files(diff.session.catalog, diff.plan.identifier, base.snapshot_id, columns=(), rows=rows)
    return MergeSize(
        files=len(files),
        stored_rows=sum(file.rows for file in files),
        batch_rows=batch.rows,
        batch_bytes=batch.size_bytes,
        column_ratio=len(columns.fields) / len(diff.given.fields),
    )


def _merge_batch(
    diff: MergeDiff, met: MetFiles, size: MergeSize | None, properties: Mapping[str, str], work: TaggedWork
) -> None:
    """Merge the whole batch, which changes a row of each file with a matching row."""
    session, plan, action, functions = diff.session, diff.plan, diff.action, diff.functions
    alias, source_alias = _aliases(plan)
    condition = _condition(functions, action, diff.batch, diff.columns, alias, source_alias)
    given, stored = (partial(named_column, functions, qualifier=side) for side in (source_alias, alias))
    own = tuple(field for field in diff.given if field.name != action.marker)
    with (
        _handed_over(session, diff.batch.frame, properties, work) as source,
        _suited_to(source, size, met.changed_files),
    ):
        assigned, added = _assignments(functions, plan, action, own, alias, source_alias)
        writer = _merge_into(session, plan, source.alias(source_alias), condition, properties)
        is_live = None
        if action.marker is not None:
            is_marked = functions.expr(mark_condition(action, diff.given, source_alias))
            writer, is_live = writer.whenMatched(is_marked).delete(), ~is_marked
        is_changed = ~diff.is_same(given, stored, action.updated) if met.unchanged else None
        writer = writer.whenMatched(is_changed).update(assigned)
        writer.whenNotMatched(is_live).insert(added).merge()


def _merge_changes(
    diff: MergeDiff,
    changes: DataFrame,
    tally: Mapping[str, int],
    size: MergeSize | None,
    properties: Mapping[str, str],
    work: TaggedWork,
) -> None:
    session, plan, action, functions = diff.session, diff.plan, diff.action, diff.functions
    given = schema_of(changes, subject=str(plan.identifier))
    alias, source_alias = _aliases(plan)
    rules, change = action.rules, named_column(functions, CHANGE, source_alias)
    condition = _condition(functions, action, diff.batch, diff.columns, alias, source_alias)
    own = tuple(field for field in given if field.name not in _OWN)
    with _handed_over(session, changes, properties, work) as source, _suited_to(source, size):
        assigned, added = _assignments(functions, plan, action, own, alias, source_alias)
        refused = functions.expr(f"raise_error({constant_text(MOVED_MARKER)})").cast("boolean")
        key = named_column(functions, action.keys[0], source_alias)
        moved = {quote(action.keys[0]): functions.when(refused, key)}  # of its type
        writer = _merge_into(session, plan, source.alias(source_alias), condition, properties)
        # Without a clause for matching rows, Iceberg appends, and neither counts nor validates.
        if rules.is_by_row or DELETE in tally or not assigned or rules.strategy != "upsert":
            writer = writer.whenMatched(change == functions.lit(DELETE)).delete()
        if rules.is_by_row:
            if assigned:
                writer = writer.whenMatched(change.isin(UPDATE, CLOSE)).update(assigned)
            writer = writer.whenMatched(change == functions.lit(FIRST)).update(moved)
            writer = writer.whenNotMatched(change.isin(INSERT, FIRST)).insert(added)
            writer = writer.whenNotMatched().insert({**added, **moved})
        elif rules.strategy == "upsert":
            # Inserts and deletes of other writers since the comparison can turn an insert into an update or back.
            stays = change.isin(INSERT, UPDATE) if DELETE in tally else None
            if assigned:
                writer = writer.whenMatched(stays).update(assigned)
            writer = writer.whenNotMatched(stays).insert(added)
        else:
            writer = writer.whenNotMatched(change == functions.lit(INSERT)).insert(added)
        writer.merge()


def _merge_into(
    session: IcebergSession, plan: WritePlan, source: DataFrame, condition: Column, properties: Mapping[str, str]
) -> MergeWriter:
    return version_of(session.spark).merge_into(source, target(session, plan), condition, properties)


def _aliases(plan: WritePlan) -> tuple[str, str]:
    """Return the aliases of the table and the batch in a MERGE. The batch never has the table's name."""
    alias = plan.identifier.name if plan.branch == "main" else f"branch_{plan.branch}"
    return alias, f"{_BATCH}{alias}"


def _assignments(
    functions: Functions, plan: WritePlan, action: Merge, fields: Sequence[Field], alias: str, source_alias: str
) -> tuple[dict[str, Column], dict[str, Column]]:
    """Return the assignments of an update and an insert by column. `updateAll` rejects a batch that lacks a column."""
    updated, inserted = {}, {}
    for field in fields:
        new = named_column(functions, field.name, source_alias)
        updated[field.name] = inserted[field.name] = new
        if (whole := plan.completions.get(field.name)) is not None:
            stored = named_column(functions, field.name, alias)
            complete = partial(reshape, functions, new, field.type, whole, is_same=has_same_name)
            updated[field.name], inserted[field.name] = complete(stored=stored), complete()
    assigned = {quote(name): value for name, value in updated.items() if name in action.updated}
    return assigned, {quote(name): value for name, value in inserted.items()}


def _condition(
    functions: Functions, action: Merge, batch: Batch, stored: Schema, alias: str, source_alias: str
) -> Column:
    """Return the condition that joins the changes with the rows to change."""
    rules, change = action.rules, named_column(functions, CHANGE, source_alias)
    # Stored rows whose keys the batch lacks may have NULL in a key.
    null_keys = "match" if rules.changes_absent_keys else rules.null_keys
    condition = functions.expr(
        sql.merge_condition(action.keys, target=alias, source=source_alias, null_keys=null_keys)
    ) & column_of(functions, action.scope, qualifier=alias)
    if not rules.changes_absent_keys:
        condition = condition & functions.expr(batch.place(alias))
    if rules.strategy == "delete_insert":
        return condition & (change == functions.lit(DELETE))
    if rules.is_by_row:
        found = fingerprint(functions, stored, partial(named_column, functions, qualifier=alias))
        is_meant = (change != functions.lit(INSERT)) & named_column(functions, BEFORE, source_alias).eqNullSafe(found)
        return condition & ((change == functions.lit(FIRST)) | is_meant)
    return condition


@contextmanager
def _suited_to(source: DataFrame, size: MergeSize | None, changed_files: int = 0) -> Iterator[None]:
    """Apply the settings for the MERGE to the session of the batch while the block runs."""
    session = source.sparkSession
    settings = {}
    if size is not None:
        given = session.conf.get(SHUFFLE_PARTITIONS) or ""
        partitions = int(given) if given.isdecimal() else 0  # some platforms use `auto`, which is kept
        settings = merge_settings(size, changed_files=changed_files, shuffle_partitions=partitions)
    with temporary_settings(session, settings):
        yield


@contextmanager
def _handed_over(
    session: IcebergSession, staged: DataFrame, snapshot_properties: Mapping[str, str], work: TaggedWork
) -> Iterator[DataFrame]:
    """Yield the DataFrame in a separate session, whose commits carry the properties. Only views can be shared."""
    view = f"iceberg_batch_{uuid.uuid4().hex}"
    staged.createGlobalTempView(view)
    try:
        with session.sibling(snapshot_properties) as beside, work.within(beside):
            yield beside.table(f"global_temp.{view}")
    finally:
        session.spark.catalog.dropGlobalTempView(view)


_EARLIEST: Final = dt.datetime(1, 1, 1, tzinfo=dt.timezone.utc)


class VersionDiff(MergeDiff):
    """The batch beside the versions that the table has of its keys."""

    def _changes(self) -> DataFrame:
        """Return the changes of the versions of the batch's keys: ended versions, new versions and corrected versions.

        If a row differs from the version that covers its boundary, it ends that version at the boundary and begins a
        new one. The new version ends where the old one would have ended, or where the next one begins. A version that
        begins exactly at the boundary was written by an earlier run with the same boundary, and is corrected.

        A row with its own start always begins a version. Late rows can therefore be added in any order. This would not
        be possible if rows without a change left no trace.
        """
        functions, rules = self.functions, self.action.rules
        groups = self._by_key()
        present = functions.expr("s IS NOT NULL AND NOT s.gone")
        covered, starts = functions.expr("c IS NOT NULL"), functions.expr("coalesce(c.f = b, FALSE)")
        compared = [item.name for item in self.given if item.name not in (self.action.marker, rules.valid_from)]
        is_covered = self.is_same(self._part("s", self.given), self._part("c", self.columns), compared)
        is_ended = (
            functions.expr("c IS NULL AND e IS NOT NULL")
            & functions.lit(not self._rows_say_when)
            & self.is_same(self._part("s", self.given), self._part("e", self.columns), compared)
        )
        corrected = present & covered & starts & ~is_covered
        goes_on = is_covered & functions.lit(not self._rows_say_when)
        ended = covered & ~starts & (~present | ~goes_on)
        reopened = present & functions.coalesce(is_ended, functions.lit(False))  # noqa: FBT003
        begun = present & ((covered & ~starts & ~goes_on) | (~covered & ~reopened))
        before = (
            functions.when(corrected | reopened, functions.lit(UPDATE))
            .when(ended, functions.lit(CLOSE))
            .when(~present & covered & starts, functions.lit(DELETE))
        )
        is_new = functions.expr("is_new")
        end = functions.when(is_new & covered, functions.expr("c.u")).when(is_new | reopened, functions.expr("n"))
        end = end.when(ended, functions.expr("b")).otherwise(functions.expr("c.u"))
        columns = []
        for index, column in enumerate(self.columns):
            old = functions.expr(f"coalesce(c, e).c{index}")
            field = self.given.field(column.name)
            if column.name == rules.valid_from:
                value = functions.when(is_new, functions.expr("b")).otherwise(old)
            elif column.name == rules.valid_to:
                value = end
            elif column.name == rules.is_current:
                value = end.isNull()
            elif field is None:
                value, added = old, self.plan.defaults.get(column.name)
                if added is not None:
                    has_none = functions.expr("coalesce(c, e) IS NULL")
                    value = functions.when(has_none, written_value(functions, added)).otherwise(old)
            else:
                new = self._part("s", self.given)(field.name)
                new = reshape(functions, new, field.type, column.type, is_same=self.is_alike, stored=old)
                value = functions.when(is_new | corrected, new).otherwise(old)
            columns.append(value.alias(column.name))
        has_versions = functions.expr("has_versions")
        new = functions.when(has_versions, functions.lit(INSERT)).otherwise(functions.lit(FIRST))
        change = functions.when(is_new & begun, new).when(~is_new, before)
        columns.append(functions.when(~is_new, functions.expr("coalesce(c.h, e.h)")).alias(BEFORE))
        sides = groups.selectExpr("*", "explode(array(FALSE, TRUE)) AS is_new")
        return sides.select(*columns, change.alias(CHANGE)).where(f"{CHANGE} IS NOT NULL")

    @property
    def _rows_say_when(self) -> bool:
        return self.given.field(self.action.rules.valid_from) is not None

    def _by_key(self) -> DataFrame:
        """Return a row for each key.

        Its columns are `s`, the row of the batch; `b`, the boundary; `c`, the version that covers the boundary; `e`, a
        version that ends there; `n`, when the next version begins; `has_versions`, whether there is any version. A
        version has `f`, its start; `u`, its end; and `h`, its fingerprint.
        """
        functions, rules, keys = self.functions, self.action.rules, self.action.keys
        source, stored = self._marked_as(self.batch.frame, IN_BATCH), self._marked_as(self._near(), IN_TABLE)
        how = "full" if rules.changes_absent_keys else "left"
        joined = source.alias(SOURCE).join(stored.alias(TARGET), functions.expr(self._meets), how)
        given, columns = (partial(named_column, functions, qualifier=side) for side in (SOURCE, TARGET))
        parts = [given(field.name).alias(f"c{index}") for index, field in enumerate(self.given)]
        gone = functions.expr(mark_condition(self.action, self.given, SOURCE)).alias("gone")
        version = [columns(field.name).alias(f"c{index}") for index, field in enumerate(self.columns)]
        # A row from before the table had versions has no start: it is valid since ever.
        start = functions.coalesce(columns(rules.valid_from), functions.expr(literal(_EARLIEST)))
        version += [start.alias("f"), columns(rules.valid_to).alias("u")]
        version.append(fingerprint(functions, self.columns, columns).alias("h"))
        at = self.action.boundary
        boundary = functions.lit(None) if at is None else functions.expr(literal(at))
        if self._rows_say_when:
            boundary = functions.coalesce(given(rules.valid_from), boundary)
        pairs = joined.select(
            *(functions.coalesce(given(key), columns(key)).alias(f"k{index}") for index, key in enumerate(keys)),
            functions.when(given(IN_BATCH).isNotNull(), functions.struct(*parts, gone)).alias("s"),
            functions.when(columns(IN_TABLE).isNotNull(), functions.struct(*version)).alias("t"),
            boundary.alias("b"),
        )
        aggregates = {
            "s": "any_value(s, true)",
            "b": "any_value(b, true)",
            "c": "max_by(t, t.f) FILTER (WHERE t.f <= b AND (t.u IS NULL OR t.u > b))",
            "e": "max_by(t, t.f) FILTER (WHERE t.f < b AND t.u = b)",
            "n": "min(t.f) FILTER (WHERE t.f > b)",
            "has_versions": "bool_or(t IS NOT NULL)",
        }
        named = (functions.expr(aggregate).alias(name) for name, aggregate in aggregates.items())
        return pairs.groupBy(*(functions.col(f"k{index}") for index in range(len(keys)))).agg(*named)

    def _part(self, struct: str, schema: Schema) -> ColumnOf:
        """Return a function that finds a column in a struct of `_by_key`."""
        places = {field.name: index for index, field in enumerate(schema)}
        return lambda name: self.functions.expr(f"{struct}.c{places[name]}")

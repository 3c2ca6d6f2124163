"""Compares the batch of a merge with the stored rows of its keys, and determines what changes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from operator import xor
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame

from dagster_iceberg_spark.plan.write.write_plan import Merge, WritePlan
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import (
    Functions,
    column_of,
    comparable,
    functions_of,
    named_column,
    names_alike,
    reshape,
    schema_of,
    written_value,
)
from dagster_iceberg_spark.spark.session.session import IcebergSession, active
from dagster_iceberg_spark.spark.tables import stored_rows
from dagster_iceberg_spark.spark.versions import version_of
from dagster_iceberg_spark.spark.write.batch import Batch, digest_of_key, mark_condition
from dagster_iceberg_spark.table.schema import Field, Schema
from dagster_iceberg_spark.table.sql_text import quote

SOURCE: Final = "source"
TARGET: Final = "target"
CHANGE: Final = "__dagster_change"
INSERT: Final = "insert"
UPDATE: Final = "update"
FIRST: Final = "first"
"""The fingerprint of a row to insert, whose key the table must not have."""
CLOSE: Final = "close"
DELETE: Final = "delete"
BEFORE: Final = "__dagster_before"
"""The column with the fingerprint of the stored row that a change applies to."""
IN_BATCH: Final = "__dagster_in_batch"
IN_TABLE: Final = "__dagster_in_table"
_IS_SAME: Final = "__dagster_is_same"
_IS_MARKED: Final = "__dagster_is_marked"
_FILE: Final = "__dagster_file"

ColumnOf: TypeAlias = Callable[[str], Column]


def fingerprint(functions: Functions, columns: Schema, stored: ColumnOf) -> Column:
    """Return a hash of the comparable values of a row of the table."""
    values = (comparable(functions, stored(field.name), field.type) for field in columns)
    return functions.xxhash64(*(value for value in values if value is not None))


@dataclass(frozen=True, slots=True)
class MetFiles:
    """The matches of the batch in the table, by files.

    `files` are those that have a row with a key of the batch, and `changed_files` those of them that have a row that
    changes. `unchanged` rows have a key of the batch, and `updated` rows are updated by it. `digest` is a hash of the
    keys of the batch that do not change, without keys that the table has twice.
    """

    files: int
    changed_files: int
    unchanged: int
    updated: int
    digest: int

    def is_all_of(self, batch: Batch) -> bool:
        """Return whether the table has each row of the batch once, and no row that the batch deletes."""
        is_same = (self.unchanged, self.digest) == (batch.rows - batch.marked, batch.digest)
        return not self.changed_files and is_same


class MergeDiff:
    """The comparison of the batch with the stored rows of its keys."""

    def __init__(self, session: IcebergSession, plan: WritePlan, action: Merge, batch: Batch) -> None:
        self.session, self.plan, self.action, self.batch = session, plan, action, batch
        self.functions: Functions = functions_of(session.spark)
        self.stored = stored_rows(session, plan, action.base_snapshot_id)
        self.given = self._schema_of(batch.frame)
        self.columns = self._schema_of(self.stored)
        self.is_alike = names_alike(is_case_sensitive=session.is_case_sensitive)

    def _schema_of(self, frame: DataFrame) -> Schema:
        schema = schema_of(frame, subject=str(self.plan.identifier))
        return replace(schema, is_case_sensitive=self.session.is_case_sensitive)

    def changes(self) -> tuple[DataFrame, Mapping[str, int]]:
        """Return the rows that change the table, each with its kind of change, and the number of each kind."""
        if not self.batch.rows and not self.action.rules.changes_absent_keys:
            return self.batch.frame, {}
        with active(self.session.spark):
            changes = version_of(self.session.spark).checkpoint(self._changes())
        return changes, {row[0]: int(row[1]) for row in changes.groupBy(CHANGE).count().collect()}

    def _changes(self) -> DataFrame:
        """Return the rows that change something, each with its change."""
        rules = self.action.rules
        if self.action.base_snapshot_id is None:
            changes = self._label(self._live(), FIRST if rules.is_by_row else INSERT)
            return changes.withColumn(BEFORE, self.functions.lit(None).cast("bigint")) if rules.is_by_row else changes
        ways = {"delete_insert": self._replacements, "insert_only": self._insertions}
        return ways.get(rules.strategy, self._updates)()

    def met_files(self) -> MetFiles | None:
        """Return the matches of the batch, or None if they do not determine what the merge does."""
        if not self._is_decided_by_files:
            return None
        digest = digest_of_key([quote(key) for key in self.action.keys])
        sums = self._met.groupBy(_FILE).agg(
            self.functions.expr(f"count_if({_IS_SAME}) AS unchanged"),
            self.functions.expr(f"count_if(NOT {_IS_SAME}) AS changed"),
            self.functions.expr(f"count_if(NOT {_IS_SAME} AND NOT {_IS_MARKED}) AS updated"),
            self.functions.expr(f"bit_xor(IF({_IS_SAME}, {digest}, 0L)) AS digest"),
        )
        rows = sums.drop(_FILE).collect()
        return MetFiles(
            files=len(rows),
            changed_files=sum(row["changed"] > 0 for row in rows),
            unchanged=sum(row["unchanged"] for row in rows),
            updated=sum(row["updated"] for row in rows),
            digest=reduce(xor, (row["digest"] for row in rows), 0),
        )

    @property
    def _is_decided_by_files(self) -> bool:
        """Whether the files with matching rows determine if the whole batch is merged."""
        action, rules = self.action, self.action.rules
        is_plain_upsert = rules.strategy == "upsert" and not rules.is_by_row and not rules.changes_absent_keys
        return is_plain_upsert and bool(action.updated) and action.base_snapshot_id is not None

    @property
    def _meets(self) -> str:
        null_keys = self.action.rules.null_keys
        return sql.merge_condition(self.action.keys, target=TARGET, source=SOURCE, null_keys=null_keys)

    def _live(self) -> DataFrame:
        """Return the rows of the batch that do not mark a key to delete."""
        frame = self.batch.frame
        if self.action.marker is None:
            return frame
        return frame.where(f"NOT {mark_condition(self.action, self.given)}").drop(self.action.marker)

    def _label(self, frame: DataFrame, change: str) -> DataFrame:
        return frame.withColumn(CHANGE, self.functions.lit(change))

    def _near(self) -> DataFrame:
        """Return the rows of the scope that may have keys of the batch."""
        scoped = self.stored.where(column_of(self.functions, self.action.scope))
        return scoped if self.action.rules.changes_absent_keys else scoped.where(self.batch.place())

    def _updates(self) -> DataFrame:
        functions, action, rules = self.functions, self.action, self.action.rules
        source = self._marked_as(self.batch.frame, IN_BATCH)
        other = self._near() if rules.is_by_row else self._met_keys()
        how = "full" if rules.is_by_row and rules.sync else "left"
        stored = self._marked_as(other, IN_TABLE)
        joined = source.alias(SOURCE).join(stored.alias(TARGET), functions.expr(self._meets), how)
        columns = [self._value(field).alias(field.name) for field in self.given if field.name != action.marker]
        columns.append(self._change().alias(CHANGE))
        if rules.is_by_row:
            before = fingerprint(functions, self.columns, partial(named_column, functions, qualifier=TARGET))
            columns.append(functions.when(named_column(functions, IN_TABLE, TARGET), before).alias(BEFORE))
        changes = joined.select(*columns).where(f"{CHANGE} IS NOT NULL")
        if rules.is_by_row:
            # A key may have several rows in a table that other tools have written.
            return changes.dropDuplicates([*action.keys, BEFORE])
        return changes.unionByName(self._absentees(), allowMissingColumns=True) if rules.sync else changes

    def _marked_as(self, frame: DataFrame, name: str) -> DataFrame:
        return frame.withColumn(name, self.functions.lit(True))  # noqa: FBT003

    @cached_property
    def _met(self) -> DataFrame:
        """The stored rows with a key of the batch: key, hash of the file, whether the row stays, whether it is deleted.

        A small batch is copied to each task, so no stored row is shuffled. The matches of a larger batch are cached,
        because they are needed twice if rows change in some files only.
        """
        functions, action = self.functions, self.action
        given, stored = (partial(named_column, functions, qualifier=side) for side in (SOURCE, TARGET))
        is_marked = functions.expr(mark_condition(action, self.given, SOURCE))
        is_same = self.is_same(given, stored, action.updated) & ~is_marked
        near = self._near().withColumn(_FILE, functions.xxhash64(functions.col("_file")))
        batch = self.batch.broadcast(self.batch.frame)
        joined = batch.alias(SOURCE).join(near.alias(TARGET), functions.expr(self._meets))
        keys = (given(key).alias(key) for key in action.keys)
        named = (stored(_FILE).alias(_FILE), is_same.alias(_IS_SAME), is_marked.alias(_IS_MARKED))
        met = joined.select(*keys, *named)
        if self.batch.is_small or not self._is_decided_by_files:  # joined cheaply, or only once
            return met
        with active(self.session.spark):
            return version_of(self.session.spark).checkpoint(met)

    def _met_keys(self) -> DataFrame:
        """Return the keys of the batch that the table has, each with whether none of its rows changes."""
        keys = (named_column(self.functions, key) for key in self.action.keys)
        is_same = self.functions.expr(f"bool_and({_IS_SAME}) AS {_IS_SAME}")
        return self.batch.broadcast(self._met.groupBy(*keys).agg(is_same))

    def _insertions(self) -> DataFrame:
        """Return the rows of the batch whose keys the table lacks."""
        stored = self._met_keys() if self.batch.is_small else self._near()
        rows = self._live().alias(SOURCE).join(stored.alias(TARGET), self.functions.expr(self._meets), "left_anti")
        return self._label(rows, INSERT)

    def _absentees(self) -> DataFrame:
        """Return the keys of the scope that the batch lacks."""
        keys = [named_column(self.functions, key) for key in self.action.keys]
        batch = self.batch.broadcast(self.batch.frame.select(*keys)).alias(SOURCE)
        lacking = self._near().alias(TARGET).join(batch, self.functions.expr(self._meets), "left_anti")
        return self._label(lacking.select(*keys).distinct(), DELETE)

    def _value(self, field: Field) -> Column:
        """Return a column of the batch. For a row that the batch lacks, the key is the table's."""
        value = named_column(self.functions, field.name, SOURCE)
        rules = self.action.rules
        if not (rules.is_by_row and rules.sync) or field.name not in self.action.keys:
            return value
        return self.functions.coalesce(value, named_column(self.functions, field.name, TARGET))

    def _change(self) -> Column:
        """Return the change that a row of the batch makes to the stored row, or NULL for none."""
        functions, action, rules = self.functions, self.action, self.action.rules
        is_marked = functions.expr(mark_condition(action, self.given, SOURCE))
        in_batch = named_column(functions, IN_BATCH, SOURCE).isNotNull()
        in_table = named_column(functions, IN_TABLE, TARGET).isNotNull()
        wins = functions.expr(f"coalesce(({rules.when_matched or 'TRUE'}), FALSE)")
        met = in_batch & in_table & wins
        is_same = named_column(functions, _IS_SAME, TARGET)
        if rules.is_by_row:
            given, stored = (partial(named_column, functions, qualifier=side) for side in (SOURCE, TARGET))
            is_same = self.is_same(given, stored, action.updated)
        return (
            functions.when(~in_batch, functions.lit(DELETE))
            .when(in_batch & ~in_table & ~is_marked, functions.lit(FIRST if rules.is_by_row else INSERT))
            .when(met & is_marked, functions.lit(DELETE))
            .when(met & ~is_marked & ~is_same, functions.lit(UPDATE))
        )

    def is_same(self, given: ColumnOf, stored: ColumnOf, names: Sequence[str]) -> Column:
        """Return whether a row of the batch and a stored row have the same values in these columns, except keys."""
        functions = self.functions
        ours, theirs = [], []
        for name in names:
            if name in self.action.keys:
                continue
            field, column = self.given.field(name), self.columns.field(name)
            if field is None or column is None:
                return functions.lit(False)  # noqa: FBT003
            before = stored(column.name)
            value = reshape(functions, given(name), field.type, column.type, is_same=self.is_alike, stored=before)
            our, their = (comparable(functions, item, column.type) for item in (value, before))
            if our is None or their is None:
                return functions.lit(False)  # noqa: FBT003
            ours.append(our)
            theirs.append(their)
        if not ours:
            return functions.lit(True)  # noqa: FBT003
        # Compare whole rows: thousands of nested comparisons would overflow the engine's stack.
        return functions.struct(*ours).eqNullSafe(functions.struct(*theirs))

    def _replacements(self) -> DataFrame:
        """Return all rows of the keys whose rows differ from the table's, and these keys."""
        functions, action = self.functions, self.action
        live, keys = self._live(), list(action.keys)
        condition = functions.expr(self._meets)
        all_keys = self.batch.frame.select(*(named_column(functions, key) for key in keys)).distinct()
        stored = self._near().alias(TARGET).join(all_keys.alias(SOURCE), condition, "left_semi")
        ours, theirs = self._canonical(live, self._schema_of(live), 1), self._canonical(stored, self.columns, -1)
        changed = all_keys
        if ours is not None and theirs is not None:
            named = [named_column(functions, f"k{index}").alias(key) for index, key in enumerate(keys)]
            rows = ours.union(theirs)
            sums = rows.groupBy(*(name for name in rows.columns if name != "side")).sum("side")
            changed = sums.where("`sum(side)` <> 0").select(*named).distinct()
        met = live.alias(SOURCE).join(changed.alias(TARGET), condition, "left_semi")
        return self._label(met, INSERT).unionByName(self._label(changed, DELETE), allowMissingColumns=True)

    def _canonical(self, frame: DataFrame, held: Schema, side: int) -> DataFrame | None:
        """Return rows as comparable values of the table's columns in order, or None if some cannot be compared."""
        functions = self.functions
        columns = [functions.lit(side).alias("side")]
        columns += [named_column(functions, key).alias(f"k{index}") for index, key in enumerate(self.action.keys)]
        for index, stored in enumerate(self.columns):
            field = held.field(stored.name)
            value = functions.lit(None).cast(sql.type_name(stored.type))
            if field is None and stored.name in self.plan.defaults:
                value = written_value(functions, self.plan.defaults[stored.name])
            elif field is not None:
                value = named_column(functions, field.name)
                value = reshape(functions, value, field.type, stored.type, is_same=self.is_alike)
            compared = comparable(functions, value, stored.type)
            if compared is None:
                return None
            columns.append(compared.alias(f"c{index}"))
        return frame.select(*columns)

"""The versions of a slowly changing dimension of type 2: which of them a batch ends, begins, reopens and corrects."""

import datetime as dt
from functools import partial
from typing import Final

from pyspark.sql import DataFrame

from dagster_iceberg_spark.spark import expressions
from dagster_iceberg_spark.spark.batch import marked
from dagster_iceberg_spark.spark.columns import named_column, reshaped, written_value
from dagster_iceberg_spark.spark.merge_diff import (
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
    fingerprint,
)
from dagster_iceberg_spark.table.schema import Schema

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
                new = reshaped(functions, new, field.type, column.type, is_same=self.is_alike, stored=old)
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
        how = "full" if rules.has_absentees else "left"
        joined = source.alias(SOURCE).join(stored.alias(TARGET), functions.expr(self._meets), how)
        given, columns = (partial(named_column, functions, qualifier=side) for side in (SOURCE, TARGET))
        parts = [given(field.name).alias(f"c{index}") for index, field in enumerate(self.given)]
        gone = functions.expr(marked(self.action, self.given, SOURCE)).alias("gone")
        version = [columns(field.name).alias(f"c{index}") for index, field in enumerate(self.columns)]
        # A row from before the table had versions has no start: it is valid since ever.
        start = functions.coalesce(columns(rules.valid_from), functions.expr(expressions.literal(_EARLIEST)))
        version += [start.alias("f"), columns(rules.valid_to).alias("u")]
        version.append(fingerprint(functions, self.columns, columns).alias("h"))
        at = self.action.boundary
        boundary = functions.lit(None) if at is None else functions.expr(expressions.literal(at))
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

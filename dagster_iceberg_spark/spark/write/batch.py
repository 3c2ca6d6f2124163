"""The batch of a merge: computed once, with checked keys and the range of the table in which they can be."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame

from dagster_iceberg_spark.plan.write.merging import MAXIMUM_LISTED_KEYS, key_error
from dagster_iceberg_spark.plan.write.write_plan import Merge, WritePlan
from dagster_iceberg_spark.spark import expressions, sql
from dagster_iceberg_spark.spark.columns import functions_of, named_column, schema_of
from dagster_iceberg_spark.spark.expressions import refusal
from dagster_iceberg_spark.spark.failures import NULL_MARKER
from dagster_iceberg_spark.spark.session.session import IcebergSession, active
from dagster_iceberg_spark.spark.versions import version_of
from dagster_iceberg_spark.table import schema as vocabulary
from dagster_iceberg_spark.table.predicate import Comparison, Predicate, all_of
from dagster_iceberg_spark.table.sql_text import column_name, condition, literal, quote

MAXIMUM_COPIED_BYTES: Final = 32 * 1024 * 1024
"""A larger batch is not copied to each task."""
_ROW_BYTES: Final = 64
_FIELD_BYTES: Final = 16

_AS_NUMBERS: Final[Mapping[vocabulary.IcebergType, tuple[str, str]]] = {
    vocabulary.TIMESTAMPTZ: ("unix_micros", "timestamp_micros"),
    vocabulary.DATE: ("unix_date", "date_from_unix_date"),
}
_LIMITED: Final[frozenset[vocabulary.IcebergType]] = frozenset({vocabulary.STRING, *vocabulary.INTEGERS})
"""Types between which a value of the batch equals the same value in the table's column, unchanged."""
_ROWS: Final = "rows"
_RANK: Final = "__dagster_rank"
_EXAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """The values of a key column in the batch, as `_as_ordered` has them.

    The least and the greatest value are None if they are unknown. `listed` has all values if there are few.
    """

    name: str
    kind: vocabulary.IcebergType
    low: Any
    high: Any
    listed: Sequence[Any]
    has_null: bool

    def predicate(self, qualifier: str | None = None) -> str | None:
        """Return a condition that holds for every row of the table with a key of the batch, or None."""
        if self.low is None:
            return None
        column = column_name(self.name, qualifier)
        low, high, *listed = (_constant(self.kind, value) for value in (self.low, self.high, *self.listed))
        found = f"{column} IN ({', '.join(listed)})" if listed else f"{column} >= {low} AND {column} <= {high}"
        return f"(({found}) OR {column} IS NULL)" if self.has_null else f"({found})"


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of a merge, computed once, with the column that marks keys to delete.

    `dropped` is the number of rows that were left out because the run does not own them, and `digest` a hash of all
    keys that are not marked. The size of the values is approximate, or None if it is unknown.
    """

    frame: DataFrame
    rows: int
    marked: int
    dropped: int
    keys: tuple[KeyColumn, ...]
    digest: int
    size_bytes: int | None

    @property
    def is_small(self) -> bool:
        """Whether the batch fits in the memory of each task."""
        return self.size_bytes is not None and self.size_bytes <= MAXIMUM_COPIED_BYTES

    def broadcast(self, frame: DataFrame) -> DataFrame:
        """Return the DataFrame with a broadcast hint if the batch, which is at least as large, is small."""
        return frame.hint("broadcast") if self.is_small else frame

    def place(self, qualifier: str | None = None) -> str:
        """Return a condition that holds for every row of the table with a key of the batch."""
        known = [predicate for key in self.keys if (predicate := key.predicate(qualifier))]
        return " AND ".join(known) or "TRUE"

    def near(self, columns: vocabulary.Schema) -> Predicate:
        """Return a predicate that holds for every row of the table with a key of the batch, for texts and integers."""
        terms: list[Predicate] = []
        for key in self.keys:
            field = columns.field(key.name)
            is_known = key.low is not None and not key.has_null
            if is_known and field is not None and {key.kind, field.type} <= _LIMITED:
                terms += [Comparison(field.name, ">=", key.low), Comparison(field.name, "<=", key.high)]
        return all_of(terms)


def stage(session: IcebergSession, plan: WritePlan, action: Merge, frame: DataFrame) -> Batch:
    """Compute the batch and check its keys. The engine's errors are not translated.

    The batch must be computed once: a MERGE reads its source twice, Spark rejects a source that is not deterministic,
    and the check of the keys must see the rows that are merged.
    """
    guard, schema = plan.guard, schema_of(frame, subject=str(plan.identifier))
    is_marked = mark_condition(action, schema)
    start = schema.field(action.rules.valid_from) if action.rules.validity else None
    for column in plan.required if start is None else (*plan.required, start.name):
        refused = expressions.refusal_of_nulls(column, f"{NULL_MARKER}{column!r}")
        is_exempt = is_marked if start is None or column != start.name else "FALSE"
        frame = frame.where(f"CASE WHEN {is_exempt} THEN TRUE ELSE {refused} END")
    with active(session.spark):
        guarded = frame if guard is None or guard.drops else frame.where(refusal(frame, guard))
        complete = version_of(session.spark).checkpoint(guarded)
    staged, dropped = complete, 0
    if guard is not None and guard.drops:
        # Spark Connect does not return observations of a checkpoint, so the staged rows are counted.
        staged = complete.where(condition(guard.owned))
        dropped = complete.count() - staged.count()
    if action.rules.dedup_sort is not None:
        # Rows that tie for the first place of their key are all kept, and the check rejects them.
        keys, order = ", ".join(map(quote, action.keys)), sql.sort_field(action.rules.dedup_sort)
        ranked = staged.selectExpr("*", f"rank() OVER (PARTITION BY {keys} ORDER BY {order}) AS {_RANK}")
        with active(session.spark):
            staged = version_of(session.spark).checkpoint(ranked.where(f"{_RANK} = 1").drop(_RANK))
    return _check(session, plan, action, staged, is_marked, dropped)


def mark_condition(action: Merge, frame: vocabulary.Schema, qualifier: str | None = None) -> str:
    """Return the expression that is true for a row of the batch that marks its key to be deleted."""
    if action.marker is None:
        return "FALSE"
    field = frame.field(action.marker)
    column = column_name(action.marker, qualifier)
    return f"coalesce({column}, FALSE)" if field and field.type == vocabulary.BOOLEAN else f"({column} IS NOT NULL)"


def digest_of_key(columns: Sequence[str]) -> str:
    """Return a hash of a key as an expression. The `bit_xor` of all of them is a hash of the batch."""
    # Spark's hashes skip NULL: (NULL, 'a') would equal ('a', NULL).
    return f"xxhash64({', '.join(f'{column}, {column} IS NULL' for column in columns)})"


def _check(
    session: IcebergSession, plan: WritePlan, action: Merge, staged: DataFrame, is_marked: str, dropped: int
) -> Batch:
    functions = functions_of(session.spark)
    schema = schema_of(staged, subject=str(plan.identifier))
    aliases = {f"k{index}": key for index, key in enumerate(action.keys)}
    kinds = {alias: field.type for alias, key in aliases.items() if (field := schema.field(key))}
    has_null = " OR ".join(f"{quote(key)} IS NULL" for key in action.keys)
    groups = staged.groupBy(*(named_column(functions, key).alias(alias) for alias, key in aliases.items())).agg(
        functions.count(functions.lit(1)).alias(_ROWS),
        functions.count_if(functions.expr(is_marked)).alias("marked"),
        functions.max(functions.expr(has_null)).alias("has_null"),
        functions.sum(functions.expr(_size_of_row(schema))).alias("size"),
    )
    ordered = {
        alias: column
        for alias, key in aliases.items()
        if key not in plan.checked
        and (column := _as_ordered(kinds[alias], alias))  # sorted in the order of the table's type
    }
    found = groups.agg(*_summary(session, aliases, ordered)).collect()[0].asDict()
    is_repeated = found["worst"] > 1 and action.rules.strategy != "delete_insert"
    is_null = found["nulls"] and action.rules.null_keys == "error"
    if is_repeated or is_null:
        condition = "rows > 1" if not is_null else "has_null" if not is_repeated else "rows > 1 OR has_null"
        version = version_of(session.spark)
        shown = (f"{version.valid_utf8(f'CAST({alias} AS STRING)')} AS {alias}" for alias in aliases)
        bad = groups.where(condition).limit(_EXAMPLES).selectExpr(*shown, _ROWS).collect()
        raise key_error(
            str(plan.identifier),
            action.keys,
            action.rules,
            [list(row)[: len(aliases)] for row in bad],
            [row[_ROWS] for row in bad],
        )
    ordered = {alias: column for alias, column in ordered.items() if found[f"low_{alias}"] is not None}
    listed = _list_keys(groups, ordered) if 0 < found[_ROWS] <= MAXIMUM_LISTED_KEYS else {}

    return Batch(
        frame=staged,
        rows=int(found[_ROWS]),
        marked=int(found["marked"]),
        dropped=dropped,
        digest=int(found["digest"]),
        size_bytes=None if found["size"] is None else int(found["size"]),
        keys=tuple(
            KeyColumn(
                key,
                kinds[alias],
                low=found.get(f"low_{alias}"),
                high=found.get(f"high_{alias}"),
                listed=listed.get(alias, ()),
                has_null=bool(found[f"nulls_{alias}"]),
            )
            for alias, key in aliases.items()
        ),
    )


def _summary(session: IcebergSession, aliases: Mapping[str, str], ordered: Mapping[str, str]) -> Iterator[Column]:
    functions, version = functions_of(session.spark), version_of(session.spark)
    for name, aggregate in ((_ROWS, "sum(rows)"), ("worst", "max(rows)"), ("marked", "sum(marked)")):
        yield functions.expr(f"coalesce({aggregate}, 0)").alias(name)
    yield functions.max("has_null").alias("nulls")
    yield functions.expr("sum(size)").alias("size")
    yield functions.expr(f"coalesce(bit_xor(IF(marked = 0, {digest_of_key(list(aliases))}, 0L)), 0L)").alias("digest")
    for alias in aliases:
        yield functions.expr(f"coalesce(bool_or({alias} IS NULL), FALSE)").alias(f"nulls_{alias}")
    for alias, column in ordered.items():
        # A text that is not valid UTF-8 does not arrive unchanged.
        is_whole = f"bool_and(coalesce({version.is_valid_utf8(alias)}, TRUE))" if column == alias else "TRUE"
        yield functions.expr(f"IF({is_whole}, min({column}), NULL)").alias(f"low_{alias}")
        yield functions.expr(f"IF({is_whole}, max({column}), NULL)").alias(f"high_{alias}")


def _size_of_row(schema: vocabulary.Schema) -> str:
    """Return the approximate size of a row in bytes, as an expression. It is NULL if nested types have any length."""
    nested = (vocabulary.StructType, vocabulary.ListType, vocabulary.MapType)
    if any(isinstance(field.type, nested) or str(field.type) == "variant" for field in schema):
        return "CAST(NULL AS BIGINT)"
    texts = (quote(field.name) for field in schema if field.type in (vocabulary.STRING, vocabulary.BINARY))
    lengths = (f"coalesce(octet_length({name}), 0)" for name in texts)
    return " + ".join([f"{_ROW_BYTES + _FIELD_BYTES * len(schema.fields)}L", *lengths])


def _as_ordered(kind: vocabulary.IcebergType, alias: str) -> str | None:
    """Return a key of the type as a value that is the same in Python and in the engine, or None for other types.

    Instants and dates are numbers, because time zones do not change numbers and Python has fewer years. Floating-point
    numbers are excluded because of NaN.
    """
    if kind in _AS_NUMBERS:
        return f"{_AS_NUMBERS[kind][0]}({alias})"
    return alias if kind in _LIMITED or isinstance(kind, vocabulary.DecimalType) else None


def _constant(kind: vocabulary.IcebergType, value: Any) -> str:
    return f"{_AS_NUMBERS[kind][1]}({value})" if kind in _AS_NUMBERS else literal(value)


def _list_keys(groups: DataFrame, ordered: Mapping[str, str]) -> Mapping[str, Sequence[Any]]:
    if not ordered:
        return {}
    rows = groups.selectExpr(*(f"{column} AS {alias}" for alias, column in ordered.items())).collect()
    return {alias: sorted({row[alias] for row in rows if row[alias] is not None}) for alias in ordered}

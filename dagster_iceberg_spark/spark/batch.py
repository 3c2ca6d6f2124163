"""The batch of a merge: made one thing, its keys checked, and where in the table they can be."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame

from dagster_iceberg_spark.errors import MergeKeyError
from dagster_iceberg_spark.plan.write import Merge, WritePlan
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import Functions, functions_of, named_column, schema_of
from dagster_iceberg_spark.spark.failures import NULL_MARKER
from dagster_iceberg_spark.spark.guard import refusal
from dagster_iceberg_spark.spark.session import IcebergSession, active
from dagster_iceberg_spark.table.ordering import SortField
from dagster_iceberg_spark.table.predicate import Comparison, LiteralValue, Predicate, all_of
from dagster_iceberg_spark.table.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    INTEGERS,
    STRING,
    TIMESTAMPTZ,
    DecimalType,
    IcebergType,
    ListType,
    MapType,
    Schema,
    StructType,
)

MAXIMUM_LISTED_KEYS: Final = 100
"""A batch of more rows is looked for between its least and its greatest keys. Iceberg prunes by lists of up to 200
values (`ManifestEvaluator` and its like, `IN_PREDICATE_LIMIT`)."""

MAXIMUM_COPIED_BYTES: Final = 32 * 1024 * 1024
"""A batch of more is not copied to each task."""
_ROW_BYTES: Final = 64
_FIELD_BYTES: Final = 16

_AS_NUMBERS: Final[Mapping[IcebergType, tuple[str, str]]] = {
    TIMESTAMPTZ: ("unix_micros", "timestamp_micros"),
    DATE: ("unix_date", "date_from_unix_date"),
}
_LIMITED: Final[frozenset[IcebergType]] = frozenset({STRING, *INTEGERS})
"""Of these, a value of the batch is one of the table's column as it is, where that is one of them too."""
_ROWS: Final = "rows"
_RANK: Final = "__dagster_rank"
_EXAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """Where a column of the key can have the batch's values.

    Args:
        name: The column.
        low: The least value, as a constant expression; None: nothing is known.
        high: The greatest value.
        listed: All values, if they are few.
        has_null: Whether NULL is one.
        limits: The least and the greatest value of a text or an integer; None: it is neither, or no value is known.
    """

    name: str
    low: str | None
    high: str | None
    listed: tuple[str, ...]
    has_null: bool
    limits: tuple[LiteralValue, LiteralValue] | None = None

    def predicate(self, qualifier: str | None = None) -> str | None:
        """Return what holds of every row of the table with a key of the batch; None: nothing does."""
        if self.low is None or self.high is None:
            return None
        column = sql.quote(self.name) if qualifier is None else sql.dotted(qualifier, self.name)
        found = f"{column} >= {self.low} AND {column} <= {self.high}"
        if self.listed:
            found = f"{column} IN ({', '.join(self.listed)})"
        return f"(({found}) OR {column} IS NULL)" if self.has_null else f"({found})"


@dataclass(frozen=True, slots=True)
class Batch:
    """What is merged.

    Args:
        frame: The rows, computed once, with the column that marks keys to delete.
        rows: How many.
        marked: How many of them mark a key to delete.
        dropped: Rows that were left out because the run does not own them.
        keys: The columns of the key.
        digest: A hash of all keys that are not marked.
        size_bytes: How many its values take, about; None: that is not known.
    """

    frame: DataFrame
    rows: int
    marked: int
    dropped: int
    keys: tuple[KeyColumn, ...]
    digest: int
    size_bytes: int | None = None

    @property
    def is_small(self) -> bool:
        """Whether it fits into the memory of each task."""
        return self.size_bytes is not None and self.size_bytes <= MAXIMUM_COPIED_BYTES

    def copied(self, frame: DataFrame) -> DataFrame:
        """Let a join hand the frame, which holds no more than the batch, to each task, where that is small."""
        return frame.hint("broadcast") if self.is_small else frame

    def place(self, qualifier: str | None = None) -> str:
        """Return what holds of every row of the table with a key of the batch."""
        known = [predicate for key in self.keys if (predicate := key.predicate(qualifier))]
        return " AND ".join(known) or "TRUE"

    def near(self, columns: Schema) -> Predicate:
        """Return what holds of every row of the table with a key of the batch, as far as `limits` tell it.

        Args:
            columns: The table's.
        """
        terms: list[Predicate] = []
        for key in self.keys:
            field = columns.field(key.name)
            if key.limits is not None and field is not None and not key.has_null and field.type in _LIMITED:
                low, high = key.limits
                terms += [Comparison(field.name, ">=", low), Comparison(field.name, "<=", high)]
        return all_of(terms)


def stage(session: IcebergSession, plan: WritePlan, action: Merge, frame: DataFrame) -> Batch:
    """Compute the batch, and check its keys.

    The copy makes the batch one thing: a MERGE reads its source twice, Spark refuses one that is not deterministic,
    and the check of the keys must see the very rows that are merged.

    Raises:
        MergeKeyError: A key is NULL or stands for two rows, where that is refused.
        PySparkException, Py4JError: What the engine says, untranslated.
    """
    guard, schema = plan.guard, schema_of(frame, subject=str(plan.identifier))
    is_marked = marked(action, schema)
    for column in plan.required:
        refused = sql.refusal_of_nulls(column, f"{NULL_MARKER}{column!r}")
        frame = frame.where(f"CASE WHEN {is_marked} THEN TRUE ELSE {refused} END")
    with active(session.spark):
        complete = (frame if guard is None or guard.drops else frame.where(refusal(frame, guard))).localCheckpoint()
    staged, dropped = complete, 0
    if guard is not None and guard.drops:
        # Spark Connect does not hand over what was observed in a checkpoint: the staged rows are counted.
        staged = complete.where(sql.predicate(guard.owned))
        dropped = complete.count() - staged.count()
    if action.rules.dedup_sort is not None:
        with active(session.spark):
            staged = _deduplicated(action, staged, action.rules.dedup_sort).localCheckpoint()
    return _checked(session, plan, action, staged, is_marked, dropped)


def marked(action: Merge, frame: Schema, qualifier: str | None = None) -> str:
    """Return the expression that says of a row of the batch whether it marks its key to be deleted."""
    if action.marker is None:
        return "FALSE"
    field = frame.field(action.marker)
    column = sql.quote(action.marker) if qualifier is None else sql.dotted(qualifier, action.marker)
    if field is not None and field.type == BOOLEAN:
        return f"coalesce({column}, FALSE)"
    return f"({column} IS NOT NULL)"


def digest_of_key(columns: Sequence[str]) -> str:
    """Return a hash of a key, as an expression; `bit_xor` of all of them makes one of the batch."""
    # Spark's hashes leave NULL out: (NULL, 'a') would be ('a', NULL).
    return f"xxhash64({', '.join(f'{column}, {column} IS NULL' for column in columns)})"


def _deduplicated(action: Merge, frame: DataFrame, order: SortField) -> DataFrame:
    """Keep the rows of each key that come first; of those that come first together, all, which the check refuses."""
    keys = ", ".join(map(sql.quote, action.keys))
    rank = f"rank() OVER (PARTITION BY {keys} ORDER BY {sql.sort_field(order)}) AS {_RANK}"
    return frame.selectExpr("*", rank).where(f"{_RANK} = 1").drop(_RANK)


def _checked(
    session: IcebergSession, plan: WritePlan, action: Merge, staged: DataFrame, is_marked: str, dropped: int
) -> Batch:
    functions = functions_of(session.spark)
    schema = schema_of(staged, subject=str(plan.identifier))
    aliases = {f"k{index}": key for index, key in enumerate(action.keys)}
    has_null = " OR ".join(f"{sql.quote(key)} IS NULL" for key in action.keys)
    groups = staged.groupBy(*(named_column(functions, key).alias(alias) for alias, key in aliases.items())).agg(
        functions.count(functions.lit(1)).alias(_ROWS),
        functions.count_if(functions.expr(is_marked)).alias("marked"),
        functions.max(functions.expr(has_null)).alias("has_null"),
        functions.sum(functions.expr(_size_of_row(schema))).alias("size"),
    )
    ordered = {
        alias: column
        for alias, key in aliases.items()
        if key not in plan.checked and (column := _as_ordered(schema, key, alias))  # whose order is the table's type's
    }
    found = groups.agg(*_summary(functions, aliases, ordered)).collect()[0].asDict()
    is_repeated = found["worst"] > 1 and action.rules.strategy != "delete_insert"
    is_null = found["nulls"] and action.rules.null_keys == "error"
    if is_repeated or is_null:
        condition = "rows > 1" if not is_null else "has_null" if not is_repeated else "rows > 1 OR has_null"
        shown = (f"make_valid_utf8(CAST({alias} AS STRING)) AS {alias}" for alias in aliases)
        bad = groups.where(condition).limit(_EXAMPLES).selectExpr(*shown, _ROWS).collect()
        raise _key_error(plan, action, [list(row)[: len(aliases)] for row in bad], [row[_ROWS] for row in bad])
    ordered = {alias: column for alias, column in ordered.items() if found[f"low_{alias}"] is not None}
    listed = _listed(groups, ordered) if 0 < found[_ROWS] <= MAXIMUM_LISTED_KEYS else {}
    return Batch(
        frame=staged,
        rows=int(found[_ROWS]),
        marked=int(found["marked"]),
        dropped=dropped,
        digest=int(found["digest"]),
        size_bytes=None if found["size"] is None else int(found["size"]),
        keys=tuple(
            KeyColumn(
                name=key,
                low=_constant(schema, key, found.get(f"low_{alias}")),
                high=_constant(schema, key, found.get(f"high_{alias}")),
                listed=tuple(text for value in listed.get(alias, ()) if (text := _constant(schema, key, value))),
                has_null=bool(found[f"nulls_{alias}"]),
                limits=_limits(schema, key, found.get(f"low_{alias}"), found.get(f"high_{alias}")),
            )
            for alias, key in aliases.items()
        ),
    )


def _summary(functions: Functions, aliases: Mapping[str, str], ordered: Mapping[str, str]) -> Iterator[Column]:
    for name, aggregate in ((_ROWS, "sum(rows)"), ("worst", "max(rows)"), ("marked", "sum(marked)")):
        yield functions.expr(f"coalesce({aggregate}, 0)").alias(name)
    yield functions.max("has_null").alias("nulls")
    yield functions.expr("sum(size)").alias("size")
    yield functions.expr(f"coalesce(bit_xor(IF(marked = 0, {digest_of_key(list(aliases))}, 0L)), 0L)").alias("digest")
    for alias in aliases:
        yield functions.expr(f"coalesce(bool_or({alias} IS NULL), FALSE)").alias(f"nulls_{alias}")
    for alias, column in ordered.items():
        # What is no UTF-8 does not arrive as it is.
        is_whole = f"bool_and(coalesce(is_valid_utf8({alias}), TRUE))" if column == alias else "TRUE"
        yield functions.expr(f"IF({is_whole}, min({column}), NULL)").alias(f"low_{alias}")
        yield functions.expr(f"IF({is_whole}, max({column}), NULL)").alias(f"high_{alias}")


def _size_of_row(schema: Schema) -> str:
    """Return about how many bytes a row takes, as an expression; NULL where there are types of any length inside."""
    if any(isinstance(field.type, StructType | ListType | MapType) or str(field.type) == "variant" for field in schema):
        return "CAST(NULL AS BIGINT)"
    texts = (sql.quote(field.name) for field in schema if field.type in (STRING, BINARY))
    lengths = (f"coalesce(octet_length({name}), 0)" for name in texts)
    return " + ".join([f"{_ROW_BYTES + _FIELD_BYTES * len(schema.fields)}L", *lengths])


def _as_ordered(schema: Schema, key: str, alias: str) -> str | None:
    """Return the key as a value that is the same here as in the engine; None for types of which it may not be.

    Instants and dates come as numbers: no time zone moves them, and Python has fewer years. Floating-point numbers have
    NaN.
    """
    field = schema.field(key)
    if field is None:
        return None
    if field.type in _AS_NUMBERS:
        return f"{_AS_NUMBERS[field.type][0]}({alias})"
    is_exact = field.type in INTEGERS or field.type == STRING or isinstance(field.type, DecimalType)
    return alias if is_exact else None


def _constant(schema: Schema, key: str, value: Any) -> str | None:
    field = schema.field(key)
    if value is None or field is None:
        return None
    return f"{_AS_NUMBERS[field.type][1]}({value})" if field.type in _AS_NUMBERS else sql.literal(value)


def _limits(schema: Schema, key: str, low: Any, high: Any) -> tuple[LiteralValue, LiteralValue] | None:
    field = schema.field(key)
    return None if field is None or field.type not in _LIMITED or low is None else (low, high)


def _listed(groups: DataFrame, ordered: Mapping[str, str]) -> Mapping[str, Sequence[Any]]:
    if not ordered:
        return {}
    rows = groups.selectExpr(*(f"{column} AS {alias}" for alias, column in ordered.items())).collect()
    return {alias: sorted({row[alias] for row in rows if row[alias] is not None}) for alias in ordered}


def _key_error(plan: WritePlan, action: Merge, keys: Sequence[Sequence[Any]], counts: Sequence[int]) -> MergeKeyError:
    named = (", ".join(map("{}={}".format, action.keys, key)) for key in keys)
    examples = "; ".join(map("({}) in {} row(s)".format, named, counts))
    rules = action.rules
    wanted = [] if rules.strategy == "delete_insert" else [f"one row for each value of {', '.join(action.keys)}"]
    if rules.null_keys == "error":
        wanted.append(f"no NULL in {'it' if wanted else ', '.join(action.keys)}")
    ways = "let `dedup_sort` of `iceberg/merge` choose one" if rules.dedup_sort is None else "sort by more"
    return MergeKeyError.refusing(
        "merge into",
        str(plan.identifier),
        expected=", and ".join(wanted),
        found=examples.replace("None", "NULL"),
        hint="drop the extra rows in the asset (`dropDuplicates`, or a window that keeps the newest), "
        f"{ways}, or add a column to `iceberg/merge_keys`.",
    )

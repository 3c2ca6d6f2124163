"""Evaluates audits by the metadata of data files, where that determines the result. No row is read.

The number of rows, and the number of NULLs in a column, are exact (Iceberg spec, "Manifests", `data_file`). Bounds may
be wider than the values: Iceberg truncates those of texts, and leaves NaN out. Here, only the bounds of other types
count as minimum and maximum, and those of floating-point numbers only in files that are known to hold no NaN.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import sqlglot
from sqlglot import expressions as syntax
from sqlglot.errors import SqlglotError

from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.plan.options.output_options import AUDITS
from dagster_iceberg_spark.plan.read.row_filter import SPARK_SQL, row_filter
from dagster_iceberg_spark.table.audit import Audit, AuditResult, Condition, NotNull, Unique, nulls_in
from dagster_iceberg_spark.table.predicate import (
    EVERY_ROW,
    And,
    Comparison,
    In,
    IsNull,
    LiteralValue,
    Not,
    Or,
    Order,
    Predicate,
)
from dagster_iceberg_spark.table.schema import (
    DATE,
    DOUBLE,
    FLOAT,
    INTEGERS,
    LONG,
    TIMESTAMP,
    TIMESTAMPTZ,
    DecimalType,
    Field,
    IcebergType,
    Schema,
)

_COMPARE: Final[Mapping[Order, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EXACT: Final[frozenset[IcebergType]] = frozenset({*INTEGERS, DOUBLE, DATE, TIMESTAMP, TIMESTAMPTZ})
"""The types whose bounds are values of the column, beside decimals. FLOAT is none of them: Spark compares it with a
constant as DOUBLE, and `row_filter` rounds the constant."""


@dataclass(frozen=True, slots=True)
class ColumnMetrics:
    """The metrics of a column in one data file. What is not recorded is None.

    Args:
        is_exact: Whether the bounds are values of the column, if its type allows that. Otherwise, they may be wider.
    """

    lower: LiteralValue | None = None
    upper: LiteralValue | None = None
    nulls: int | None = None
    nans: int | None = None
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class FileMetrics:
    """The metrics of one data file: its rows, and its columns by name."""

    rows: int
    columns: Mapping[str, ColumnMetrics] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Aggregate:
    """An aggregate in a condition: `count`, `min` or `max`, of a column or of all rows."""

    sql: str = field(compare=False)
    function: str
    column: Field | None

    @property
    def type(self) -> IcebergType:
        return LONG if self.function == "count" or self.column is None else self.column.type


@dataclass(frozen=True, slots=True)
class MetricsAudit:
    """An audit that the metadata of data files may determine.

    Args:
        condition: What must hold for the aggregates by name, or for each row.
        aggregates: The aggregates by name. Without any, the condition is one of each row.
    """

    audit: Audit
    condition: Predicate
    aggregates: Mapping[str, _Aggregate]
    columns: tuple[Field, ...]

    def result(self, files: Sequence[FileMetrics]) -> AuditResult | None:
        """Return the result, or None if the metadata does not determine it. These files hold all rows and no others."""
        if isinstance(self.audit.rule, NotNull):
            return self._nulls(files)
        if not self.aggregates:
            passes = all(_holds_in(self.condition, file, self.columns) for file in files)
            return AuditResult(self.audit, passed=True, source="metadata") if passes else None
        values: dict[str, LiteralValue | None] = {}
        for name, aggregate in self.aggregates.items():
            try:
                values[name] = _value(aggregate, files)
            except LookupError:
                return None
        passed = _truth(self.condition, values) is not False
        found = {self.aggregates[name].sql: value for name, value in values.items()}
        return AuditResult(self.audit, passed=passed, found=found, source="metadata")

    def _nulls(self, files: Sequence[FileMetrics]) -> AuditResult | None:
        found: dict[str, int] = {}
        for column in self.columns:
            nulls = [file.columns[column.name].nulls for file in files if file.rows]
            known = [count for count in nulls if count is not None]
            if len(known) < len(nulls):
                return None
            found[nulls_in(column.name)] = sum(known)
        if any(found.values()):
            return None  # a scan shows the rows
        return AuditResult(self.audit, passed=True, found=found, source="metadata")


def metrics_audit(audit: Audit, schema: Schema, *, subject: str) -> MetricsAudit | None:
    """Return the audit in a form that the metadata of data files may determine, or None if only a scan can."""
    rule = audit.rule
    if isinstance(rule, Unique):
        return None
    if isinstance(rule, NotNull):
        fields = [schema.field(name) for name in rule.columns]
        known = tuple(item for item in fields if item is not None)
        return MetricsAudit(audit, EVERY_ROW, {}, known) if len(known) == len(fields) else None
    parsed = _parse(rule)
    if parsed is None:
        return None
    aggregates: dict[str, _Aggregate] = {}
    try:
        if _has_aggregates(parsed):
            parsed = parsed.transform(_with_names, schema, aggregates)
            schema = Schema(tuple(Field(name, item.type) for name, item in aggregates.items()))
        condition = row_filter(parsed.sql(dialect=SPARK_SQL), schema, key=AUDITS, subject=subject)
    except (MetadataKeyError, SqlglotError, RecursionError):
        return None
    if aggregates:
        columns = [item.column for item in aggregates.values() if item.column is not None]
    else:
        columns = [item for name in columns_of(rule) if (item := schema.field(name)) is not None]
    return MetricsAudit(audit, condition, aggregates, tuple(dict.fromkeys(columns)))


def _parse(rule: Condition) -> syntax.Expr | None:
    """Return the syntax tree of a condition, or None if this package cannot parse it, although Spark may."""
    try:
        return sqlglot.parse_one(rule.sql, dialect=SPARK_SQL)
    except (SqlglotError, RecursionError):
        return None


_Node = TypeVar("_Node", bound=syntax.Expr)


def _has_aggregates(parsed: syntax.Expr) -> bool:
    """Return whether a condition has aggregates, as far as the parser knows the functions."""
    return next(_outside_of_queries(parsed, syntax.AggFunc), None) is not None


def _outside_of_queries(parsed: syntax.Expr, kind: type[_Node]) -> Iterator[_Node]:
    """Yield the nodes of a kind. Those inside of a subquery belong to its own tables."""
    return (item for item in parsed.find_all(kind) if item.find_ancestor(syntax.Query) is None)


def aggregates_of(rule: Condition) -> tuple[str, ...]:
    """Return the aggregates in a condition, in SQL, each once."""
    parsed = _parse(rule)
    found = () if parsed is None else _outside_of_queries(parsed, syntax.AggFunc)
    whole = (
        item.parent if isinstance(item.parent, syntax.Filter) else item
        for item in found
        if item.find_ancestor(syntax.AggFunc, syntax.Window) is None
    )
    return tuple(dict.fromkeys(map(_sql, whole)))


def columns_of(rule: Condition) -> tuple[str, ...]:
    """Return the columns that a condition names, each once. A field of a struct is named by its column."""
    parsed = _parse(rule)
    found = () if parsed is None else _outside_of_queries(parsed, syntax.Column)
    return tuple(dict.fromkeys(item.parts[0].name for item in found))


def _sql(node: syntax.Expr) -> str:
    return node.sql(dialect=SPARK_SQL, comments=False, normalize_functions="lower")


def _with_names(node: syntax.Expr, schema: Schema, aggregates: dict[str, _Aggregate]) -> syntax.Expr:
    """Replace each known aggregate by a column with a name of its own."""
    if not isinstance(node, syntax.Count | syntax.Min | syntax.Max):
        return node
    argument, function = node.this, type(node).__name__.lower()
    others = {name for name, part in node.args.items() if part} - {"this", "big_int"}
    column = schema.field(argument.name) if isinstance(argument, syntax.Column) and not argument.table else None
    is_of_rows = function == "count" and isinstance(argument, syntax.Star) and not any(argument.args.values())
    if others or (column is None and not is_of_rows):
        return node
    aggregate = _Aggregate(_sql(node), function, column)
    name = next((name for name, known in aggregates.items() if known == aggregate), f"aggregate {len(aggregates)}")
    aggregates.setdefault(name, aggregate)
    return syntax.column(syntax.to_identifier(name, quoted=True))


def _value(aggregate: _Aggregate, files: Sequence[FileMetrics]) -> LiteralValue | None:
    """Return the value of an aggregate. Raise a `LookupError` if the metadata does not determine it."""
    column = aggregate.column
    if column is None:
        return sum(file.rows for file in files)
    metrics = [(file.rows, file.columns[column.name]) for file in files if file.rows]
    if aggregate.function == "count":
        nulls = [item.nulls for _, item in metrics]
        if any(count is None for count in nulls):
            raise LookupError
        return sum(rows - (item.nulls or 0) for rows, item in metrics)
    filled = [item for rows, item in metrics if item.nulls != rows]
    bounds = [item.lower if aggregate.function == "min" else item.upper for item in filled]
    is_exact = column.type in _EXACT or isinstance(column.type, DecimalType)
    is_exact &= all(item.is_exact for item in filled)
    may_hold_nan = column.type == DOUBLE and any(item.nans != 0 for item in filled)
    known = [bound for bound in bounds if bound is not None]
    if not is_exact or may_hold_nan or len(known) < len(bounds):
        raise LookupError
    choose: Callable[..., Any] = min if aggregate.function == "min" else max
    value: LiteralValue | None = choose(known, default=None)
    return value


def _truth(condition: Predicate, values: Mapping[str, LiteralValue | None]) -> bool | None:  # noqa: PLR0911
    """Return the value of a condition over aggregates: true, false, or None for NULL."""
    match condition:
        case Comparison(str() as name, order, constant):
            value = values[name]
            return None if value is None else _COMPARE[order](value, constant)
        case In(str() as name, constants):
            value = values[name]
            return None if value is None else value in constants
        case IsNull(str() as name):
            return values[name] is None
        case Not(term):
            truth = _truth(term, values)
            return None if truth is None else not truth
        case And(terms):
            truths = [_truth(term, values) for term in terms]
            return False if False in truths else None if None in truths else True
        case Or(terms):
            truths = [_truth(term, values) for term in terms]
            return True if True in truths else None if None in truths else False
        case _:
            return condition == EVERY_ROW


def _holds_in(condition: Predicate, file: FileMetrics, columns: Sequence[Field]) -> bool:
    """Return whether the condition is known to be false for no row of a file. Bounds may be wider than the values."""
    match condition:
        case And(terms):
            return all(_holds_in(term, file, columns) for term in terms)
        case Not(IsNull(str() as name)):
            return not file.rows or file.columns[name].nulls == 0
        case Comparison(str() as name, order, constant):
            metrics, column = file.columns[name], next(item for item in columns if item.name == name)
            if not file.rows or metrics.nulls == file.rows:
                return True
            if column.type == FLOAT or (column.type == DOUBLE and metrics.nans != 0):
                return False
            bound = metrics.upper if order in ("<", "<=") else metrics.lower
            return bound is not None and _COMPARE[order](bound, constant)
        case _:
            return condition == EVERY_ROW

"""A polars LazyFrame that pushes projections and filters down to the scan.

With comparisons of columns with constants, Iceberg's metadata prunes files and Arrow's readers prune row groups. polars
filters the rows that are read in any case. The predicate of a scan may therefore match more rows than the filter, but
never fewer.

A filter is read from the JSON of `Expr.meta.serialize`, because polars 2.1 has no stable way to inspect an expression
(https://github.com/pola-rs/polars/issues/26814). `register_io_source` passes a `polars.Expr` unchanged; `scan_iceberg`
also translates filters, but in a form that is private to polars.
"""

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from dagster_iceberg_spark.arrow.scan import PlannedScan
from dagster_iceberg_spark.table import schema
from dagster_iceberg_spark.table.predicate import (
    EVERY_ROW,
    Comparison,
    In,
    IsNull,
    LiteralValue,
    Not,
    Order,
    Predicate,
    StartsWith,
    all_of,
    any_of,
)


def lazy_frame(planned: PlannedScan) -> Any:
    """Return a `polars.LazyFrame` of the rows. Nothing is read before it is collected."""
    import polars as pl
    from polars.io.plugins import register_io_source

    def read(columns: list[str] | None, filter_: Any, rows: int | None, _: int | None) -> Iterator[Any]:
        # A number of rows applies before the filter, as does the limit of an input. Neither allows pruning.
        may_prune = filter_ is not None and rows is None and planned.plan.limit is None
        wanted = pruning(filter_, planned.plan.schema) if may_prune else EVERY_ROW
        scan = planned.narrowed(columns, wanted, rows)
        for batch in scan.batches():
            frame = pl.DataFrame(pl.from_arrow(batch))
            yield frame if filter_ is None else frame.filter(filter_)

    schema = pl.DataFrame(pl.from_arrow(pa.Table.from_batches([], planned.schema))).schema
    return register_io_source(read, schema=schema, is_pure=True)


_ORDERS: Final[dict[str, Order]] = {"Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_TURNED: Final[dict[str, str]] = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq", "Eq": "Eq"}
_BITS: Final[dict[schema.IcebergType, int]] = {schema.INT: 31, schema.LONG: 63}
_PLAIN: Final = (schema.PrimitiveType, schema.DecimalType)


def pruning(filter_: Any, columns: schema.Schema) -> Predicate:
    """Return a predicate that matches all rows for which a `polars.Expr` is true, and possibly more.

    The JSON may change with a version of polars. An unknown part of it matches every row.
    """
    try:
        node = json.loads(filter_.meta.serialize(format="json"))
    except Exception:  # noqa: BLE001 - such as an expression with a Python function, of which there is no document
        return EVERY_ROW
    return _Reader({field.name: field.type for field in columns}).predicate(node, filter_)


class _Reader:
    """Translates a filter on columns of these types."""

    def __init__(self, types: Mapping[str, schema.IcebergType]) -> None:
        self._types = types

    def predicate(self, node: Any, expression: Any) -> Predicate:
        """Return the predicate of a node. `expression` is the same node as an expression that can be evaluated."""
        match node:
            case {"BinaryExpr": {"op": "And" | "LogicalAnd"}}:
                return all_of(self._parts(node["BinaryExpr"], expression))
            case {"BinaryExpr": {"op": "Or" | "LogicalOr"}}:
                return any_of(self._parts(node["BinaryExpr"], expression))
            case {"BinaryExpr": {"left": {"Column": str(column)}, "op": str(operator)}}:
                return self._comparison(column, operator, expression.meta.pop()[0])
            case {"BinaryExpr": {"op": str(operator), "right": {"Column": str(column)}}} if operator in _TURNED:
                return self._comparison(column, _TURNED[operator], expression.meta.pop()[1])
            case {"Function": {"input": [{"Column": str(column)}, *_], "function": Mapping() as function}}:
                return self._function(column, function, expression)
            case _:
                return EVERY_ROW

    def _parts(self, node: Mapping[str, Any], expression: Any) -> list[Predicate]:
        right, left = expression.meta.pop()
        return [self.predicate(node["left"], left), self.predicate(node["right"], right)]

    def _comparison(self, column: str, operator: str, constant: Any) -> Predicate:
        values = self._fitting(column, _constants(constant))
        if not values:
            return EVERY_ROW
        if operator == "Eq":
            return In(column, values)
        return Comparison(column, _ORDERS[operator], values[0]) if operator in _ORDERS else EVERY_ROW

    def _function(self, column: str, function: Mapping[str, Any], expression: Any) -> Predicate:
        match function:
            case {"Boolean": "IsNull" | "IsNotNull" as name} if isinstance(self._types.get(column), _PLAIN):
                return IsNull(column) if name == "IsNull" else Not(IsNull(column))
            case {"Boolean": {"IsIn": _}}:
                listed = _constants(expression.meta.pop()[0])
                values = self._fitting(column, listed[0] if listed and isinstance(listed[0], list) else ())
                return In(column, values) if values else EVERY_ROW
            case {"Boolean": {"IsBetween": _}}:
                high, low = (self._fitting(column, _constants(item)) for item in expression.meta.pop()[:2])
                if low and high:
                    return all_of([Comparison(column, ">=", low[0]), Comparison(column, "<=", high[0])])
            case {"StringExpr": "StartsWith"}:
                prefixes = self._fitting(column, _constants(expression.meta.pop()[0]))
                return StartsWith(column, str(prefixes[0])) if prefixes else EVERY_ROW
        return EVERY_ROW

    def _fitting(self, column: str, values: Sequence[Any]) -> tuple[LiteralValue, ...]:
        """Return the values in the column's type, or none if one of them is not a value of that type."""
        found = tuple(_value(self._types.get(column), value) for value in values)
        return tuple(value for value in found if value is not None) if None not in found else ()


def _value(kind: schema.IcebergType | None, value: Any) -> LiteralValue | None:
    """Return the value if a column of this type can be compared with it unchanged."""
    # Not floating-point numbers: Arrow skips rows by statistics of files, which do not account for NaN.
    match value:
        case bool():
            fits = kind == schema.BOOLEAN
        case int():
            fits = kind in _BITS and abs(value) < 2 ** _BITS[kind]
        case str():
            fits = kind == schema.STRING
        case dt.datetime():
            fits = kind == (schema.TIMESTAMP if value.tzinfo is None else schema.TIMESTAMPTZ)
        case dt.date():
            fits = kind == schema.DATE
        case Decimal() if isinstance(kind, schema.DecimalType):
            return kind.exact(value)
        case _:
            fits = False
    return value if fits else None


def _constants(expression: Any) -> tuple[Any, ...]:
    """Return the value of an expression without columns, as a Python value."""
    import polars as pl

    if expression.meta.root_names():
        return ()
    return tuple(pl.select(expression).to_series().to_list())

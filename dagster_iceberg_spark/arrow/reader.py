"""Loads a read plan as Arrow, pandas, polars, DuckDB, ibis or pyiceberg objects."""

import datetime as dt
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyiceberg.table import Table

from dagster_iceberg_spark.arrow.scan import PlannedScan, planned_scans
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import known_table, translated_answers
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.read.incremental import CHANGE_COLUMNS
from dagster_iceberg_spark.plan.read.read_plan import ReadPlan
from dagster_iceberg_spark.pyiceberg_fixes.unknown_types import unknown_columns
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


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows in memory."""

    rows: pa.Table

    def table(self) -> pa.Table:
        """Return all rows."""
        return self.rows

    def batches(self) -> pa.RecordBatchReader:
        """Return the rows batch by batch."""
        return self.rows.to_reader()


Rows: TypeAlias = HeldRows | PlannedScan


@dataclass(frozen=True, slots=True)
class InputType:
    """A Python type that an input can be annotated with.

    `module` is where users import it from, and `extra` installs it, if it is not a dependency.
    """

    module: str
    name: str
    load: Callable[[Any], Any]
    extra: str | None = None
    needs_columns: bool = False
    is_whole_table: bool = False  # which cannot be filtered
    is_of_rows: bool = True  # derived from rows that are read here: only such types support incremental reads

    @property
    def path(self) -> str:
        """The dotted name."""
        return f"{self.module}.{self.name}"

    def is_annotated_by(self, annotation: object) -> bool:
        """Return whether the annotation is this type, without importing its module."""
        module = sys.modules.get(self.module)
        return module is not None and getattr(module, self.name, None) is annotation


def _pandas(rows: Rows) -> Any:
    """Return a DataFrame with exact integers. By default, pandas converts integers with NULLs to floats."""
    import pandas as pd

    table = rows.table()
    exact = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}
    frame = table.to_pandas()
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count and column.type in exact:
            frame[name] = column.to_pandas(types_mapper=exact.get)
        elif pa.types.is_nested(column.type):
            frame[name] = column.to_pandas(integer_object_nulls=True)
    return frame


def _given_to(module: str, function: str) -> Callable[[Rows], Any]:
    """Return a function that gives all rows to a function of a module, which it imports first."""
    return lambda rows: getattr(importlib.import_module(module), function)(rows.table())


_polars: Final = _given_to("polars", "from_arrow")


def _lazy_polars(rows: Rows) -> Any:
    return lazy_frame(rows) if isinstance(rows, PlannedScan) else _polars(rows).lazy()


INPUT_TYPES: Final = (
    InputType("pyarrow", "Table", lambda rows: rows.table()),
    InputType("pyarrow", "RecordBatchReader", lambda rows: rows.batches()),
    InputType("pandas", "DataFrame", _pandas, extra="pandas"),
    InputType("polars", "DataFrame", _polars, extra="polars"),
    InputType("polars", "LazyFrame", _lazy_polars, extra="polars"),
    InputType("duckdb", "DuckDBPyRelation", _given_to("duckdb", "from_arrow"), extra="duckdb", needs_columns=True),
    InputType("ibis", "Table", _given_to("ibis", "memtable"), extra="ibis", needs_columns=True),
    InputType("pyiceberg.table", "DataScan", lambda planned: planned.scan(), needs_columns=True, is_of_rows=False),
    InputType(
        "pyiceberg.table",
        "Table",
        lambda planned: planned.source,
        needs_columns=True,
        is_whole_table=True,
        is_of_rows=False,
    ),
)
"""The types that an input can load as without a JVM."""


def input_type_of(annotation: object) -> InputType | None:
    """Return the input type of the annotation, a type or its dotted name, if it loads without a JVM."""
    return next((known for known in INPUT_TYPES if known.path == annotation or known.is_annotated_by(annotation)), None)


def read(
    description: CatalogDescription,
    plans: Mapping[str, ReadPlan],
    input_type: InputType,
    read_changelog: Callable[[ReadPlan], pa.Table],
    on_planned: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Return the rows of each plan as the input type. All plans read the same snapshot of the same table.

    `on_planned` is called with the seconds that planning the files of a scan has taken.
    """
    plan = next(iter(plans.values()))
    _refuse_misfits(plan, input_type, is_single=len(plans) == 1)
    table = known_table(description, plan.identifier, action="read", snapshot_id=plan.snapshot_id)
    with translated_answers(description, action=f"read {plan.identifier} from"):
        return {
            name: _load(input_type, _rows_of(planned, read_changelog), subject=str(plan.identifier))
            for name, planned in _scans(table, plans, input_type, on_planned).items()
        }


def _refuse_misfits(plan: ReadPlan, input_type: InputType, *, is_single: bool) -> None:
    refused = partial(ConfigurationError.refusing, "load", str(plan.identifier))
    if plan.changes is not None and not input_type.is_of_rows:
        raise refused(
            expected="a type of rows, for what is new",
            found=input_type.path,
            hint="annotate it as pyarrow.Table or pyspark.sql.DataFrame, for instance.",
        )
    unknown = unknown_columns([field for field in plan.schema if field.name in plan.columns])
    if unknown:
        kinds = {field.name: field.type for field in plan.schema}
        others = [name for name in plan.columns if name not in unknown]
        or_others = f', or ask for the other columns: the input\'s metadata {{"columns": {json.dumps(others)}}}'
        raise refused(
            expected="columns of types that pyiceberg has",
            found=f"the column {', '.join(f'{name!r} of type {kinds[name]}' for name in unknown)}",
            hint=f"load it as a pyspark.sql.DataFrame{or_others if others else ''}.",
        )
    if input_type.is_whole_table and plan.is_filtered:
        raise refused(
            expected=f"no `columns`, row filter or limit for an input of type {input_type.path}",
            found="one of them",
            hint="annotate the input as pyiceberg.table.DataScan, or leave them out.",
        )
    if input_type.is_whole_table and not is_single:
        raise refused(
            expected="a type of rows for an input of each partition by its key",
            found=f"{input_type.path}, which is the whole table",
            hint="annotate it as dict[str, pyiceberg.table.DataScan].",
        )


def _scans(
    table: Table, plans: Mapping[str, ReadPlan], input_type: InputType, on_planned: Callable[[float], None] | None
) -> Mapping[str, PlannedScan]:
    if len(plans) > 1 and input_type.is_of_rows and not any(map(_is_changelog, plans.values())):
        return planned_scans(table, plans, on_planned)
    return {name: PlannedScan(table, plan, on_planned=on_planned) for name, plan in plans.items()}


def _rows_of(planned: PlannedScan, read_changelog: Callable[[ReadPlan], pa.Table]) -> Rows:
    if not _is_changelog(planned.plan):
        return planned
    changelog = read_changelog(planned.plan)  # the columns in their order, then those of a changelog
    change_fields = [changelog.schema.field(name) for name in CHANGE_COLUMNS]
    return HeldRows(changelog.cast(pa.schema([*planned.schema, *change_fields])))  # in the types of other reads


def _is_changelog(plan: ReadPlan) -> bool:
    return plan.changes is not None and plan.changes.kind == "changelog"


def no_rows(input_type: InputType, *, subject: str) -> Any:
    """Return an object of the input type without rows and columns. The type must not need columns."""
    return _load(input_type, HeldRows(pa.table({})), subject=subject)


def _load(input_type: InputType, rows: Rows, *, subject: str) -> Any:
    try:
        return input_type.load(rows)
    except ImportError as error:
        raise ConfigurationError.missing_package(
            "load",
            subject,
            package=f"for {input_type.path}",
            found=str(error),
            install=input_type.extra and f"dagster-iceberg-spark[{input_type.extra}]",
        ) from error


def lazy_frame(planned: PlannedScan) -> Any:
    """Return a `polars.LazyFrame` of the rows. Nothing is read before it is collected.

    With comparisons of columns with constants, Iceberg's metadata prunes files and Arrow's readers prune row groups.
    polars filters the rows that are read in any case. The predicate of a scan may therefore match more rows than the
    filter, but never fewer.

    `register_io_source` passes a `polars.Expr` unchanged; `scan_iceberg` also translates filters, but in a form that is
    private to polars.
    """
    import polars as pl
    from polars.io.plugins import register_io_source

    def read(columns: list[str] | None, filter_: Any, rows: int | None, _: int | None) -> Iterator[Any]:
        # A number of rows applies before the filter, as does the limit of an input. Neither allows pruning.
        may_prune = filter_ is not None and rows is None and planned.plan.limit is None
        wanted = pruning(filter_, planned.plan.schema) if may_prune else EVERY_ROW
        scan = planned.narrow(columns, wanted, rows)
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

    The filter is read from its JSON, because polars 2.1 has no stable way to inspect an expression
    (https://github.com/pola-rs/polars/issues/26814). The JSON may change with a version of polars. An unknown part of
    it matches every row.
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

"""The columns of tables that each column of a DataFrame is derived from, from its analyzed plan.

Each operator is evaluated once, after the operators below it. An operator that is not known gives columns that are not
known, and so does an expression that refers to one of them. Nothing is inferred from names.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dagster_iceberg_spark.features.lineage.plan.column_origins import (
    NO_ORIGINS,
    UNKNOWN_ROWS,
    Column,
    Evaluation,
    Operator,
    Origins,
    Rows,
    SourceColumn,
    attributes,
    digest_of,
    lists_in,
    split_brackets,
    split_list,
    union,
)
from dagster_iceberg_spark.plan.read.incremental import CHANGE_COLUMNS
from dagster_iceberg_spark.table.identifier import NotationError, quote_part

_METADATA_COLUMNS: Final = frozenset(
    (*CHANGE_COLUMNS, "_deleted", "_file", "_last_updated_sequence_number", "_partition", "_pos", "_row_id", "_spec_id")
)
"""Iceberg's metadata columns (`MetadataColumns.java`), which are no columns of the table."""
_TABLE: Final = re.compile(r"(?:`(?:[^`]|``)*`|[^\s`])+")
"""The name of a table. Spark may print the name again, or a version, after a space."""
_VIEW: Final = re.compile(r"\(`([^`]*)`, (\[.*\])\)", re.DOTALL)
"""What follows the name of the operator: the name of a view, and its columns."""
_NEXT_COLUMN: Final = re.compile(r"(#\d+L?),(?! )")
"""Where the columns of a view are separated as Spark 3.5 prints them, without a space."""
_STRUCTS: Final = re.compile(r"array\(((?:named_)?struct\(.*\))\)", re.DOTALL)
"""An array of structs, each with the names and values of its fields."""
_BOTH_SIDES: Final = frozenset(("Inner", "Cross", "LeftOuter", "RightOuter", "FullOuter"))
_LEFT_SIDE: Final = frozenset(("LeftSemi", "LeftAnti"))


@dataclass(frozen=True, slots=True)
class ColumnLineage:
    """The origins of a DataFrame's columns.

    Args:
        columns: The origins of each column, in the DataFrame's order. They are None if they are not known.
        row_columns: The columns that decide which rows there are, or None if not all of them are known.
        copied: The column of a table that each column has the value of, unchanged, or NULL; or None. Columns of a table
            that is read more than once are left out: their values may be those of several rows.
        digests: A digest of the expression of each column, or none if the columns are not known.
        row_digest: A digest of what decides which rows there are.
    """

    columns: tuple[frozenset[SourceColumn] | None, ...]
    row_columns: frozenset[SourceColumn] | None
    copied: tuple[SourceColumn | None, ...] = ()
    digests: tuple[str, ...] = ()
    row_digest: str = ""


def column_lineage(plan: Operator, names: Sequence[str]) -> ColumnLineage:
    """Return the origins of a DataFrame's columns.

    Args:
        plan: The analyzed plan of the DataFrame.
        names: The names of the DataFrame's columns.
    """
    rows = _evaluate(plan)
    is_same = rows.is_complete and len(rows.columns) == len(names)
    # The printed name of an alias is ambiguous if it has ` AS ` in it.
    if not is_same or not all(name.endswith(column.name) for name, column in zip(names, rows.columns, strict=True)):
        return ColumnLineage((None,) * len(names), None, (None,) * len(names), row_digest=rows.digest)
    row_columns = _sources(rows.deciding) if rows.has_all_deciding else None
    copied = (column.copied for column in rows.columns)
    return ColumnLineage(
        tuple(_sources(column.origins) for column in rows.columns),
        row_columns,
        tuple(None if source is None or source.table in rows.repeated else source for source in copied),
        tuple(column.digest for column in rows.columns),
        rows.digest,
    )


def with_tables(plan: Operator, views: Mapping[str, str]) -> Operator:
    """Return a plan in which views stand for tables.

    Args:
        plan: The analyzed plan.
        views: The names of the tables by those of the views.
    """
    found = _VIEW.fullmatch(plan.arguments) if plan.name == "View" else None
    if found is not None and found[1] in views:
        columns = _NEXT_COLUMN.sub(r"\1, ", found[2])
        return Operator("RelationV2", f"{columns} {quote_part(views[found[1]])}")
    return replace(
        plan,
        subqueries=[with_tables(query, views) for query in plan.subqueries],
        children=[with_tables(child, views) for child in plan.children],
    )


def tables_read(plan: Operator) -> frozenset[str]:
    """Return the tables that a plan reads, with the names that it gives them."""
    found, waiting = set[str](), [plan]
    while waiting:
        operator = waiting.pop()
        if operator.name == "RelationV2":
            found |= _rows_of(operator, Evaluation(operator.arguments, ())).tables
        waiting += [*operator.subqueries, *operator.children]
    return frozenset(found)


def _sources(origins: Origins | None) -> frozenset[SourceColumn] | None:
    found = frozenset(origin for origin in origins or () if isinstance(origin, SourceColumn))
    return None if origins is None or len(found) < len(origins) else found


def _evaluate(plan: Operator) -> Rows:
    """Return the rows of the operator at the top. Plans may be deeper than Python's stack."""
    definitions = _definitions(plan)
    done: dict[int, Rows] = {}
    waiting: list[tuple[Operator, bool]] = [(plan, False)]
    while waiting:
        operator, is_ready = waiting.pop()
        if id(operator) in done:
            continue
        children = _children(operator, definitions)
        if is_ready:
            below = [done[id(child)] for child in children]
            subqueries = [done[id(query)] for query in operator.subqueries]
            done[id(operator)] = _rows_of(operator, Evaluation(operator.arguments, below, subqueries))
        else:
            waiting.append((operator, True))
            waiting += [(needed, False) for needed in (*operator.subqueries, *children)]
    return done[id(plan)]


def _definitions(plan: Operator) -> Mapping[str, Operator]:
    """Return the definitions of common table expressions by id."""
    found, waiting = {}, [plan]
    while waiting:
        operator = waiting.pop()
        if operator.name == "CTERelationDef":
            found[_identity(operator)] = operator
        waiting += [*operator.subqueries, *operator.children]
    return found


def _identity(operator: Operator) -> str:
    return operator.arguments.partition(",")[0]


def _children(operator: Operator, definitions: Mapping[str, Operator]) -> Sequence[Operator]:
    """Return the operators whose rows an operator takes. A definition has an effect where something refers to it."""
    if operator.name == "WithCTE":
        return operator.children[-1:]
    if operator.name == "CTERelationRef":
        definition = definitions.get(_identity(operator))
        return () if definition is None else (definition,)
    return operator.children


def _rows_of(operator: Operator, evaluation: Evaluation) -> Rows:
    rows_of = _OPERATORS.get(operator.name)
    try:
        rows = UNKNOWN_ROWS if rows_of is None else rows_of(evaluation)
    except NotationError:
        rows = UNKNOWN_ROWS
    return _with_digests(operator, evaluation, rows)


def _with_digests(operator: Operator, evaluation: Evaluation, rows: Rows) -> Rows:
    """Return rows with the digests of the columns that the operator makes, and of what decides about the rows."""
    below = [each.digest for each in (*evaluation.below, *evaluation.subqueries)]
    made = digest_of(operator.name, evaluation.described(operator.arguments), *below)
    columns = (
        column if column.digest else replace(column, digest=digest_of(made, str(place)))
        for place, column in enumerate(rows.columns)
    )
    return replace(rows, columns=tuple(columns), digest=_digest_of_rows(operator, evaluation, rows, below))


def _digest_of_rows(operator: Operator, evaluation: Evaluation, rows: Rows, below: Sequence[str]) -> str:
    arguments, values = operator.arguments, tuple[str, ...]()
    if operator.name in _KEEPING_ROWS:
        arguments = ""
        if len(below) == 1:
            return below[0]
    elif operator.name == "Aggregate" and rows.is_complete:  # the keys alone
        arguments = arguments.removesuffix(f"[{lists_in(arguments)[-1]}]")
    elif operator.name == "RelationV2":  # columns that are added to a table add no rows
        arguments = " ".join(rows.tables)
    elif operator.name in _BY_VALUES:
        values = tuple(column.digest for column in evaluation.columns)
    return digest_of(operator.name, evaluation.described(arguments), *below, *values)


def _same(evaluation: Evaluation) -> Rows:
    return evaluation.rows(evaluation.columns, is_complete=evaluation.is_complete)


def _filter(evaluation: Evaluation) -> Rows:
    evaluation.decide(evaluation.arguments)
    return _same(evaluation)


def _order(evaluation: Evaluation) -> Rows:
    keys, _ = split_brackets(evaluation.arguments)
    evaluation.decide(keys)
    return _same(evaluation)


def _distinct(evaluation: Evaluation) -> Rows:
    evaluation.decide_by(_all_columns(evaluation))
    return _same(evaluation)


def _project(evaluation: Evaluation) -> Rows:
    outputs = ", ".join(lists_in(evaluation.arguments)[:1])
    return evaluation.rows(evaluation.outputs(outputs))


def _aggregate(evaluation: Evaluation) -> Rows:
    *keys, outputs = lists_in(evaluation.arguments)  # Spark prints no empty list of keys
    evaluation.decide(", ".join(keys))
    return evaluation.rows(evaluation.outputs(outputs))


def _window(evaluation: Evaluation) -> Rows:
    outputs, *_ = lists_in(evaluation.arguments)
    columns = [*evaluation.columns, *evaluation.outputs(outputs)]
    return evaluation.rows(columns, is_complete=evaluation.is_complete)


def _join(evaluation: Evaluation) -> Rows:
    kind, _, condition = evaluation.arguments.partition(", ")
    evaluation.decide(condition)
    if kind in _BOTH_SIDES:
        return _same(evaluation)
    if kind not in _LEFT_SIDE:
        raise NotationError("a known kind of join", f"{kind!r}")
    left = evaluation.below[0]
    return evaluation.rows(left.columns, is_complete=left.is_complete)


def _lateral_join(evaluation: Evaluation) -> Rows:
    query = evaluation.next_subquery()
    _, bracket, rest = evaluation.arguments.partition("[")
    _, condition = split_brackets(bracket + rest)
    evaluation.decide(condition)
    is_complete = evaluation.is_complete and query.is_complete
    return evaluation.rows([*evaluation.columns, *query.columns], is_complete=is_complete)


def _generate(evaluation: Evaluation) -> Rows:
    generator, *others = split_list(evaluation.arguments)
    columns, generated = evaluation.columns, _split_columns(others[-1])
    rows = _written_rows(generator, len(generated))
    if rows is None:
        origins = evaluation.origins(generator)
        evaluation.decide_by_origins(origins)
        generated = [replace(column, origins=origins) for column in generated]
    else:
        values = zip(*[[evaluation.origins(value) for value in row] for row in rows], strict=True)
        generated = [replace(column, origins=union(*each)) for column, each in zip(generated, values, strict=True)]
    if others[0].startswith("[") and len(others) > 1:  # the places of columns that nothing above uses
        left_out = set(split_list(split_brackets(others[0])[0]))
        columns = [column for place, column in enumerate(_all_columns(evaluation)) if str(place) not in left_out]
    return evaluation.rows([*columns, *generated], is_complete=evaluation.is_complete)


def _written_rows(generator: str, width: int) -> list[list[str]] | None:
    """Return the values of the rows that `stack` or `inline` makes, or None if the expression does not list them."""
    name, bracket, rest = generator.partition("(")
    if name not in ("stack", "inline"):
        return None
    arguments = split_list(split_brackets(bracket + rest)[0])
    if name == "stack":
        number, *values = arguments
        is_full = number.isdecimal() and len(values) == int(number) * width
        return [values[first : first + width] for first in range(0, len(values), width)] if is_full else None
    array = _STRUCTS.fullmatch(arguments[0])
    rows = (
        [split_list(split_brackets(item[item.index("(") :])[0])[1::2] for item in split_list(array[1])] if array else []
    )
    return rows if rows and all(len(row) == width for row in rows) else None


def _expand(evaluation: Evaluation) -> Rows:
    rows, columns = lists_in(evaluation.arguments)
    outputs = attributes(columns)
    values = [[evaluation.origins(value) for value in split_list(split_brackets(row)[0])] for row in split_list(rows)]
    if any(len(row) != len(outputs) for row in values):
        raise NotationError(f"{len(outputs)} values", f"{rows!r}")
    by_place = zip(*values, strict=True)
    return evaluation.rows(
        replace(column, origins=union(*origins)) for column, origins in zip(outputs, by_place, strict=True)
    )


def _union(evaluation: Evaluation) -> Rows:
    _all_columns(evaluation)
    first, *others = (rows.columns for rows in evaluation.below)
    if any(len(columns) != len(first) for columns in others):
        raise NotationError(f"{len(first)} columns", "others")
    return evaluation.rows(
        replace(
            columns[0],
            origins=union(*(column.origins for column in columns)),
            digest=digest_of(*(column.digest for column in columns)),
            copied=columns[0].copied if len({column.copied for column in columns}) == 1 else None,
        )
        for columns in zip(first, *others, strict=True)
    )


def _set_operation(evaluation: Evaluation) -> Rows:
    evaluation.decide_by(_all_columns(evaluation))
    return evaluation.rows(evaluation.below[0].columns)


def _reference(evaluation: Evaluation) -> Rows:
    """Return the rows of a common table expression, whose columns have new ids."""
    defined = _all_columns(evaluation)
    _, bracket, rest = evaluation.arguments.partition("[")
    columns = _split_columns(bracket + rest)
    if len(columns) != len(defined):
        raise NotationError(f"{len(defined)} columns", f"{rest!r}")
    return evaluation.rows(
        replace(column, origins=origin.origins, copied=origin.copied, digest=origin.digest)
        for column, origin in zip(columns, defined, strict=True)
    )


def _table(evaluation: Evaluation) -> Rows:
    columns, name = split_brackets(evaluation.arguments)
    table = _TABLE.match(name.strip())
    if table is None:
        raise NotationError("the name of a table", f"{name!r}")
    read = attributes(columns)
    rows = evaluation.rows(_column_of(table[0], column) for column in read)
    return replace(rows, tables=frozenset({table[0]}))


def _column_of(table: str, column: Column) -> Column:
    digest = digest_of(table, column.name)
    if column.name in _METADATA_COLUMNS:
        return replace(column, origins=NO_ORIGINS, digest=digest)
    source = SourceColumn(table, column.name)
    return replace(column, origins=frozenset({source}), copied=source, digest=digest)


def _outside_source(evaluation: Evaluation) -> Rows:
    """Return the rows of files, or of a table of another kind, which no asset of the package writes."""
    _, bracket, rest = evaluation.arguments.partition("[")
    return evaluation.rows(replace(column, origins=NO_ORIGINS) for column in _split_columns(bracket + rest))


def _from_driver(evaluation: Evaluation) -> Rows:
    """Return rows that Python code made, maybe of what it has read before."""
    columns = _split_columns(evaluation.arguments.removeprefix("<empty>, "))
    return replace(evaluation.rows(columns), has_all_deciding=False)


def _range(evaluation: Evaluation) -> Rows:
    """Return rows whose only column Spark does not print."""
    return evaluation.rows((), is_complete=False)


def _single_row(evaluation: Evaluation) -> Rows:
    return evaluation.rows(())


def _split_columns(text: str) -> list[Column]:
    """Return the columns of a list in brackets."""
    return attributes(split_brackets(text)[0])


def _all_columns(evaluation: Evaluation) -> list[Column]:
    """Return all columns of the children.

    Raises:
        NotationError: Some of them are not known.
    """
    if not evaluation.is_complete:
        raise NotationError("all columns", "some of them")
    return evaluation.columns


_KEEPING_ROWS: Final = frozenset(
    (
        *("CTERelationDef", "CTERelationRef", "CollectMetrics", "EventTimeWatermark", "Project", "RebalancePartitions"),
        *("Repartition", "RepartitionByExpression", "ResolvedHint", "SubqueryAlias", "View", "Window", "WithCTE"),
    )
)
"""Operators that have the rows of their child, whatever their columns are."""
_BY_VALUES: Final = frozenset(("Distinct", "Except", "Intersect"))
"""Operators that compare rows by the values of all columns."""
_OPERATORS: Final[Mapping[str, Callable[[Evaluation], Rows]]] = {
    "Aggregate": _aggregate,
    "CTERelationRef": _reference,
    "Deduplicate": _order,
    "Distinct": _distinct,
    "Except": _set_operation,
    "Expand": _expand,
    "Filter": _filter,
    "Generate": _generate,
    "Intersect": _set_operation,
    "Join": _join,
    "LateralJoin": _lateral_join,
    "LocalRelation": _from_driver,
    "LogicalRDD": _from_driver,
    "OneRowRelation": _single_row,
    "Project": _project,
    "Range": _range,
    "Relation": _outside_source,
    "RelationV2": _table,
    "Sort": _order,
    "Union": _union,
    "Window": _window,
    **dict.fromkeys(
        (
            "CTERelationDef",
            "CollectMetrics",
            "EventTimeWatermark",
            "GlobalLimit",
            "LocalLimit",
            "Offset",
            "RebalancePartitions",
            "Repartition",
            "RepartitionByExpression",
            "ResolvedHint",
            "Sample",
            "SubqueryAlias",
            "Tail",
            "View",
            "WithCTE",
        ),
        _same,
    ),
}
"""What Spark's operators (`basicLogicalOperators.scala`) do to columns. Others are not known."""

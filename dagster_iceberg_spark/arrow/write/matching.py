"""Filters rows by predicates, also by those on the values of partition transforms."""

import operator
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform

from dagster_iceberg_spark.catalog.expressions import expression_of
from dagster_iceberg_spark.table.identifier import free_name
from dagster_iceberg_spark.table.predicate import And, InPartitions, Or, Predicate


class RowFilter:
    """A predicate on rows that have the columns of a table."""

    def __init__(self, predicate: Predicate, schema: Schema) -> None:
        """Convert the predicate. Conditions on transforms become columns, which are computed for the rows."""
        self._schema = schema
        self._in_partitions = dict[str, InPartitions]()
        self._matching = self._expression(predicate)

    def matching(self, rows: pa.Table) -> pa.Table:
        """Return the rows for which the predicate is true."""
        return self._filtered(rows, self._matching)

    def others(self, rows: pa.Table) -> pa.Table:
        """Return the rows for which the predicate is false or NULL."""
        return self._filtered(rows, ~pc.coalesce(self._matching, pc.scalar(False)))  # noqa: FBT003

    def _filtered(self, rows: pa.Table, expression: pc.Expression) -> pa.Table:
        computed = rows
        for name, condition in self._in_partitions.items():
            computed = computed.append_column(name, _is_in(condition, rows, self._schema))
        return computed.filter(expression).select(rows.column_names)

    def _expression(self, rows: Predicate) -> pc.Expression:
        match rows:
            case And(terms):
                return reduce(operator.and_, map(self._expression, terms))
            case Or(terms):
                return reduce(operator.or_, map(self._expression, terms))
            case InPartitions():
                name = free_name("in_partitions", {*self._schema.column_names, *self._in_partitions})
                self._in_partitions[name] = rows
                return pc.field(name)
            case _:
                return expression_to_pyarrow(bind(self._schema, expression_of(rows), case_sensitive=True), self._schema)


def _is_in(condition: InPartitions, rows: pa.Table, schema: Schema) -> Any:
    transform = parse_transform(str(condition.transform)).pyarrow_transform(schema.find_type(condition.column))
    values = transform(rows.column(condition.column))
    return pc.is_in(values, value_set=pa.array(condition.values, values.type))

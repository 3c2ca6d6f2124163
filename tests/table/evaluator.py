"""What a predicate means, in the plainest Python: the oracle that engines and plans are compared with."""

from collections.abc import Mapping
from typing import Any

from dagster_iceberg_spark.table.predicate import EVERY_ROW, Always, And, Comparison, In, IsNull, Or, Predicate


def matches(predicate: Predicate, row: Mapping[str, Any]) -> bool:
    """Say whether a filter with that predicate keeps the row: NULL is kept by no comparison."""
    match predicate:
        case Always():
            return predicate == EVERY_ROW
        case Comparison(column, operator, value):
            found = row[column]
            return found is not None and bool(found < value if operator == "<" else found >= value)
        case In(column, values):
            return row[column] is not None and row[column] in values
        case IsNull(column):
            return row[column] is None
        case And(terms):
            return all(matches(term, row) for term in terms)
        case Or(terms):
            return any(matches(term, row) for term in terms)

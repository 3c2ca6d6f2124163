"""The rows of an input that rows were made of, by the key of the input: one row for each key."""

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from dagster_iceberg_spark.table.predicate import In, LiteralValue, Predicate, all_of, any_of
from dagster_iceberg_spark.table.schema import TIMESTAMP, TIMESTAMPTZ, IcebergType, Schema


def rows_by_key(
    keys: Sequence[str], copied: Mapping[str, str], rows: Sequence[Mapping[str, Any]], schema: Schema
) -> Predicate | None:
    """Return the rows of a table with the keys that rows have copied, or None if these do not tell.

    Args:
        keys: The columns that identify a row of the table.
        copied: The columns of the table by the columns that have their values.
        rows: The rows that were made of it.
        schema: The columns of the table.
    """
    names = {source: name for name, source in copied.items()}
    if not keys or not names.keys() >= set(keys):
        return None
    found = []
    for row in rows:
        terms = [_term(key, row.get(names[key]), schema) for key in keys]
        known = [term for term in terms if term is not None]
        if len(known) < len(terms):
            return None
        found.append(all_of(known))
    return any_of(dict.fromkeys(found)) if found else None


def _term(key: str, value: Any, schema: Schema) -> Predicate | None:
    field = schema.field(key)
    return In(key, (value,)) if field is not None and _is_literal(value, field.type) else None


def _is_literal(value: LiteralValue | None, column: IcebergType) -> bool:
    """Return whether a value stands for itself in a predicate. An instant needs its zone, and a wall clock has none."""
    if isinstance(value, dt.datetime):
        return column == (TIMESTAMP if value.tzinfo is None else TIMESTAMPTZ)
    return isinstance(value, str | bytes | int | Decimal | dt.date)

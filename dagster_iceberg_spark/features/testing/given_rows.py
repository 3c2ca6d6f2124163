"""Turns rows of a test into Arrow tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pydantic import ValidationError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from dagster_iceberg_spark.catalog.description import first_line
from dagster_iceberg_spark.errors import ConfigurationError


def table_of(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, subject: str) -> pa.Table:
    """Return rows as a table. A column that a row does not have is NULL in it.

    Args:
        rows: The rows.
        columns: Types in Iceberg's notation. Other columns have the types of their values.
        subject: What the rows are, for messages.

    Raises:
        ConfigurationError: A type is unknown, or a column has none, or a value does not fit.
    """
    types = {name: _type_of(name, kind, subject) for name, kind in columns.items()}
    names = list(dict.fromkeys((*(name for row in rows for name in row), *types)))
    if not names:
        raise ConfigurationError.refusing(
            "store",
            subject,
            expected="rows or `columns`",
            found="neither",
            hint='name the types of the columns: `columns={"at": "timestamptz", "celsius": "double"}`.',
        )
    arrays = [_array(name, [row.get(name) for row in rows], types.get(name), subject) for name in names]
    return pa.table(arrays, names=names)


def _type_of(name: str, kind: str, subject: str) -> pa.DataType:
    try:
        field = NestedField(1, name, kind, required=False)
    except (ValidationError, ValueError) as error:
        raise ConfigurationError.refusing(
            "store", subject, expected="types of Iceberg, such as `timestamptz`", found=f"`{kind}` for {name}"
        ) from error
    return schema_to_pyarrow(Schema(field)).field(0).type


def _array(name: str, values: list[Any], kind: pa.DataType | None, subject: str) -> pa.Array:
    try:
        array = _array_of(values, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise ConfigurationError.refusing(
            "store", subject, expected=f"values of {kind or 'one type'} in {name}", found=first_line(error)
        ) from error
    if pa.types.is_null(array.type):
        raise ConfigurationError.refusing(
            "store",
            subject,
            expected=f"a type for {name}, which has no value",
            found="none",
            hint=f'name it: `columns={{"{name}": "double"}}`.',
        )
    return array


def _array_of(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    try:
        return pa.array(values, type=kind)
    except pa.ArrowException:
        if kind is None:
            raise
        return pa.array(values).cast(kind)  # such as a text that holds a decimal

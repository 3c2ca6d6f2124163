"""The columns of a DuckLake table that shows an Iceberg schema, with the field ids of Iceberg as column ids.

DuckLake reads a column of a Parquet file by its field id (DuckLake specification, "Field IDs"), as Iceberg does.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.mirror.plan import Column, quoted_name, text_literal

_TYPES: Final[Mapping[type[IcebergType], str]] = {
    BinaryType: "blob",
    BooleanType: "boolean",
    DateType: "date",
    DoubleType: "float64",
    FixedType: "blob",
    FloatType: "float32",
    IntegerType: "int32",
    ListType: "list",
    LongType: "int64",
    MapType: "map",
    StringType: "varchar",
    StructType: "struct",
    TimeType: "time",
    TimestampType: "timestamp",
    TimestamptzType: "timestamptz",
    UUIDType: "uuid",
}
"""DuckLake specification, "Data Types"."""
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the text gets the zone


def mirror_columns(schema: Schema, *, table: str) -> tuple[Column, ...]:
    """Return the columns that show a schema, each before the fields inside of it."""
    _refuse_equal_names(schema.fields, table)
    return tuple(_columns(schema.fields, None, table))


def _columns(fields: Iterable[NestedField], parent_id: int | None, table: str) -> Iterator[Column]:
    for field in fields:
        default = field.initial_default
        yield Column(
            column_id=field.field_id,
            name=field.name,
            type=_type_name(field, table),
            parent_id=parent_id,
            is_nullable=not field.required,
            initial_default=None if default is None else str(default),
        )
        yield from _columns(parts_of(field.field_type), field.field_id, table)


def parts_of(kind: IcebergType) -> tuple[NestedField, ...]:
    """Return the fields of a struct, the element of a list or the parts of a map, with DuckLake's names."""
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return (NestedField(kind.element_id, "element", kind.element_type, required=kind.element_required),)
    if isinstance(kind, MapType):
        return (
            NestedField(kind.key_id, "key", kind.key_type, required=True),
            NestedField(kind.value_id, "value", kind.value_type, required=kind.value_required),
        )
    return ()


def _type_name(field: NestedField, table: str) -> str:
    kind = field.field_type
    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, StructType):
        _refuse_equal_names(kind.fields, table)
    name = _TYPES.get(type(kind))
    if name is None:
        raise ConfigurationError.refusing(
            "mirror",
            table,
            expected="columns whose types DuckLake has",
            found=f"{field.name!r} of the type {kind}",
            hint='use the mode "view", if DuckDB can read the type.',
        )
    return name


def _refuse_equal_names(fields: Iterable[NestedField], table: str) -> None:
    known: dict[str, str] = {}
    for field in fields:
        other = known.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise ConfigurationError.refusing(
                "mirror",
                table,
                expected="names of columns that differ by more than case, which DuckDB ignores",
                found=f"{other!r} and {field.name!r}",
                hint="rename one of them.",
            )


def bound_text(value: Any, kind: IcebergType) -> str | None:
    """Return a bound of a column as a text that DuckDB casts to its type, or None if there is no such text."""
    if isinstance(value, bytes) or (isinstance(value, str) and "\0" in value):
        return None
    try:
        return _TEXTS.get(type(kind), str)(value)
    except OverflowError:  # beyond the years of Python
        return None


def _timestamp(microseconds: int) -> str:
    return str(_EPOCH + dt.timedelta(microseconds=microseconds))


_TEXTS: Final[Mapping[type[IcebergType], Callable[[Any], str]]] = {
    BooleanType: lambda value: "1" if value else "0",
    DateType: lambda days: str((_EPOCH + dt.timedelta(days=days)).date()),
    DecimalType: lambda value: f"{value:f}",
    TimeType: lambda microseconds: str((_EPOCH + dt.timedelta(microseconds=microseconds)).time()),
    TimestampType: _timestamp,
    TimestamptzType: lambda microseconds: f"{_timestamp(microseconds)}+00",
}
"""How DuckLake writes values. The others are as in Python."""


def field_ids(fields: Iterable[NestedField]) -> str:
    """Return the field ids of columns as DuckDB's option `FIELD_IDS` of a Parquet file takes them."""
    return f"{{{', '.join(f'{text_literal(field.name)}: {_field_id(field)}' for field in fields)}}}"


def _field_id(field: NestedField) -> str:
    parts = parts_of(field.field_type)
    if not parts:
        return str(field.field_id)
    return f"{{__duckdb_field_id: {field.field_id}, {field_ids(parts)[1:]}"


def statistics_paths(fields: Iterable[NestedField], prefix: str = "") -> Iterator[tuple[str, NestedField]]:
    """Yield the columns without parts, each by the name that DuckDB gives it in the statistics of a file."""
    for field in fields:
        path = f"{prefix}{quoted_name(field.name)}"
        parts = parts_of(field.field_type)
        yield from statistics_paths(parts, f"{path}.") if parts else [(path, field)]

"""Decides which default values of columns a table gets (Iceberg spec, "Default values")."""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final

from dagster_iceberg_spark.errors import SchemaMismatchError
from dagster_iceberg_spark.plan.options.output_options import DEFAULTS, FORMAT_VERSION, WriteOptions
from dagster_iceberg_spark.table.schema import DecimalType, DefaultValue, Field, IcebergType, Schema
from dagster_iceberg_spark.table.snapshot import ROW_LINEAGE_VERSION, TableState
from dagster_iceberg_spark.table.updates import AddColumn, SetDefault, TableUpdate


def _date(value: str) -> str:
    return dt.date.fromisoformat(value).isoformat()


def _timestamp(value: str) -> str:
    at = dt.datetime.fromisoformat(value)
    if at.tzinfo is not None:
        raise ValueError(value)
    return at.isoformat(timespec="microseconds")


def _instant(value: str) -> str:
    at = dt.datetime.fromisoformat(value)
    if at.tzinfo is None:
        raise ValueError(value)
    return at.astimezone(dt.timezone.utc).isoformat(timespec="microseconds")


_TEXTS: Final[Mapping[str, Callable[[str], DefaultValue]]] = {
    "string": str,
    "date": _date,
    "timestamp": _timestamp,
    "timestamptz": _instant,
}
"""The JSON form of texts, by type (Iceberg spec, appendix D)."""


def json_default(kind: IcebergType, value: Any) -> DefaultValue:
    """Return a default value in the JSON form of the Iceberg spec (appendix D).

    Raises:
        ValueError: The type does not have the value, or no default.
    """
    name = str(kind)
    if isinstance(value, bool):
        fits: DefaultValue = value if name == "boolean" else None
    elif isinstance(kind, DecimalType):
        fits = _decimal(kind, value)
    elif isinstance(value, str):
        fits = _TEXTS[name](value) if name in _TEXTS else None
    elif name in ("int", "long"):
        fits = value if isinstance(value, int) and abs(value) < 2 ** (31 if name == "int" else 63) else None
    else:
        fits = float(value) if name in ("float", "double") else None
    if fits is None:
        raise ValueError(value)
    return fits


def _decimal(kind: DecimalType, value: Any) -> str | None:
    try:
        number = Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale))
    except InvalidOperation:
        return None
    return str(number) if number == Decimal(str(value)) and len(number.as_tuple().digits) <= kind.precision else None


def with_defaults(
    changes: Sequence[TableUpdate], options: WriteOptions, frame: Schema, state: TableState | None, *, subject: str
) -> tuple[TableUpdate, ...]:
    """Return the changes of a table's columns with the default values that the asset asks for.

    Raises:
        SchemaMismatchError: A column is not there, its type does not have the value, or the format has no defaults.
    """
    if not options.defaults:
        return tuple(changes)
    refused = partial(SchemaMismatchError.refusing, "write", subject)
    if options.version_of(state) < ROW_LINEAGE_VERSION:
        raise refused(
            expected=f"a table of format version 3, which has default values (`{DEFAULTS}`)",
            found="an older one",
            hint=f"set `{FORMAT_VERSION}` to 3. This cannot be undone.",
        )
    stored = Schema(()) if state is None else state.schema
    wanted = dict[str, DefaultValue]()
    for name, value in options.defaults.items():
        field = stored.field(name) or frame.field(name)
        if field is None:
            raise refused(expected=f"the column {name!r} of `{DEFAULTS}`", found="none in the rows or the table")
        try:
            wanted[name] = json_default(field.type, value)
        except ValueError:
            raise refused(
                expected=f"a default value of type {field.type} for the column {name!r}", found=repr(value)
            ) from None
    return (*(_added(change, wanted) for change in changes), *_set(wanted, stored, frame if state is None else None))


def _added(change: TableUpdate, wanted: Mapping[str, DefaultValue]) -> TableUpdate:
    if isinstance(change, AddColumn) and len(change.path) == 1 and change.path[0] in wanted:
        return replace(change, default=wanted[change.path[0]])
    return change


def _set(wanted: Mapping[str, DefaultValue], stored: Schema, created: Schema | None) -> Iterator[SetDefault]:
    """Yield the defaults of columns that are there, or that the table is created with."""
    for name, value in wanted.items():
        known: Field | None = stored.field(name) if created is None else created.field(name)
        if known is not None and known.write_default != value:
            yield SetDefault(known.name, value)

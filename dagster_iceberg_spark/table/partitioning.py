"""Partition transforms and specs (Iceberg spec, "Partition Transforms")."""

import datetime as dt
import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from dagster_iceberg_spark.table.identifier import NotationError, nearest_of, quote_part
from dagster_iceberg_spark.table.schema import (
    BINARY,
    DATE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    DecimalType,
    IcebergType,
    PrimitiveType,
)

TransformName: TypeAlias = Literal["identity", "year", "month", "day", "hour", "bucket", "truncate", "void"]
TimeTransform: TypeAlias = Literal["year", "month", "day", "hour"]

TIME_TRANSFORMS: Final[tuple[TimeTransform, ...]] = get_args(TimeTransform)
PARAMETRIC_TRANSFORMS: Final = ("bucket", "truncate")

_SPELLINGS: Final[dict[str, TransformName]] = {
    "identity": "identity",
    "bucket": "bucket",
    "truncate": "truncate",
    **{name: name for name in TIME_TRANSFORMS},
    **{f"{name}s": name for name in TIME_TRANSFORMS},
}
TRANSFORM_SPELLINGS: Final = tuple(_SPELLINGS)

_ALIAS = re.compile(r"^(?P<field>.*\S)\s+as\s+(?P<name>`(?:[^`]|``)+`|\w+)$", re.IGNORECASE | re.DOTALL)
_CALL = re.compile(r"^(?P<transform>\w+)\s*\((?P<arguments>.*)\)$", re.DOTALL)
_EPOCH_YEAR = 1970


@dataclass(frozen=True, slots=True)
class Transform:
    """A partition transform. The argument is the number of buckets, or the width in characters or units."""

    name: TransformName
    argument: int | None = None

    def __str__(self) -> str:
        return self.name if self.argument is None else f"{self.name}[{self.argument}]"

    @property
    def kind(self) -> str:
        """The kind of value that the transform produces: `time`, or the name of the transform."""
        return "time" if self.name in TIME_TRANSFORMS else self.name

    def accepts(self, column_type: IcebergType) -> bool:
        """Return whether the transform accepts a column of this type (spec, "Partition Transforms")."""
        if self.kind == "time":
            return column_type in (TIMESTAMP, TIMESTAMPTZ) or (column_type == DATE and self.name != "hour")
        if isinstance(column_type, DecimalType):
            return True
        if self.name == "truncate":
            return column_type in (INT, LONG, STRING, BINARY)
        unfit = ("boolean", "float", "double") if self.name == "bucket" else ()
        return isinstance(column_type, PrimitiveType) and column_type.name not in (*unfit, "variant", "unknown")


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A field of a partition spec: a column, or the dotted path of a nested field, with a transform.

    Without a name, the engine derives one.
    """

    column: str
    transform: Transform
    name: str | None = None

    def __str__(self) -> str:
        call, argument = quote_part(self.column), self.transform.argument
        if self.transform.name != "identity":
            call = f"{self.transform.name}({call if argument is None else f'{argument}, {call}'})"
        return f"{call} as {quote_part(self.name)}" if self.name else call

    @property
    def derived_name(self) -> str:
        """The name that Iceberg gives to the field of a new table."""
        if self.transform.name == "identity":
            return self.column
        return f"{self.column}_{'trunc' if self.transform.name == 'truncate' else self.transform.name}"

    def same_partitioning_as(self, other: "PartitionField") -> bool:
        """Return whether both fields partition rows in the same way, whatever their names."""
        return (self.column, self.transform) == (other.column, other.transform)


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """The fields that a table is partitioned by. A spec without fields is unpartitioned."""

    fields: tuple[PartitionField, ...] = ()
    spec_id: int | None = None

    def __str__(self) -> str:
        return ", ".join(str(field) for field in self.live_fields) or "unpartitioned"

    @property
    def live_fields(self) -> tuple[PartitionField, ...]:
        """The fields that partition rows. Format version 1 keeps a removed field as `void`."""
        return tuple(field for field in self.fields if field.transform.name != "void")

    def on(self, column: str) -> tuple[PartitionField, ...]:
        """Return the fields whose source is this column."""
        return tuple(field for field in self.live_fields if field.column == column)


def parse_partition_field(text: str) -> PartitionField:
    """Parse one entry of `iceberg/partition_by`, such as `day(ts)` or `bucket(8, id) as shard`."""
    stripped = text.strip()
    alias = _ALIAS.match(stripped)
    name = _unquote(alias["name"]) if alias else None
    expression = alias["field"].strip() if alias else stripped
    call = None if expression.startswith("`") else _CALL.match(expression)
    if call is None:
        if not expression:
            raise NotationError("a column or a transform of one", "an empty text")
        return PartitionField(_unquote(expression), Transform("identity"), name)
    transform_name = _SPELLINGS.get(call["transform"].lower())
    if transform_name is None:
        nearest = nearest_of(call["transform"], TRANSFORM_SPELLINGS)
        expected = f"one of {', '.join(TRANSFORM_SPELLINGS)}"
        raise NotationError(expected, f"unknown transform {call['transform']!r}", nearest)
    return _parse_call(transform_name, call["arguments"].strip(), name)


def parse_transform(text: str) -> Transform:
    """Parse the spec's JSON form of a transform, such as `bucket[8]`."""
    parametric = re.fullmatch(r"(\w+)\[(\d+)\]", text)
    name, argument = (parametric[1], int(parametric[2])) if parametric else (text, None)
    return Transform(_SPELLINGS.get(name, "void"), argument)


def granule_floor(transform: TimeTransform, value: dt.datetime) -> dt.datetime:
    """Return the start of the year, month, day or hour that contains the instant (in UTC) or the wall clock."""
    if transform == "hour":
        return value.replace(minute=0, second=0, microsecond=0)
    midnight = value.replace(hour=0, minute=0, second=0, microsecond=0)
    if transform == "day":
        return midnight
    return midnight.replace(day=1) if transform == "month" else midnight.replace(month=1, day=1)


def granule_start(transform: TimeTransform, ordinal: int) -> dt.datetime:
    """Return the start of the partition with this value, as a wall clock (spec: years to hours since 1970)."""
    epoch = dt.datetime(_EPOCH_YEAR, 1, 1)  # noqa: DTZ001 - a wall clock by design
    match transform:
        case "hour":
            return epoch + dt.timedelta(hours=ordinal)
        case "day":
            return epoch + dt.timedelta(days=ordinal)
        case "month":
            years, month = divmod(ordinal, 12)
            return epoch.replace(year=_EPOCH_YEAR + years, month=month + 1)
        case _:
            return epoch.replace(year=_EPOCH_YEAR + ordinal)


def _parse_call(transform: TransformName, arguments: str, name: str | None) -> PartitionField:
    if transform not in PARAMETRIC_TRANSFORMS:
        if not arguments:
            raise NotationError(f"a column in {transform}(column)", "none")
        return PartitionField(_unquote(arguments), Transform(transform), name)
    what = "number of buckets" if transform == "bucket" else "width"
    leading = re.match(r"^(?P<number>\d+)\s*,\s*(?P<column>.*\S)$", arguments, re.DOTALL)
    parts = leading or re.match(r"^(?P<column>.*\S)\s*,\s*(?P<number>\d+)$", arguments, re.DOTALL)
    if parts is None:
        raise NotationError(f"a {what} and a column in {transform}(n, column)", f"{transform}({arguments})")
    number, column = parts["number"], parts["column"]
    if int(number) < 1:
        raise NotationError(f"a {what} of at least 1", f"{number}")
    return PartitionField(_unquote(column), Transform(transform, int(number)), name)


def _unquote(name: str) -> str:
    quoted = len(name) > 1 and name.startswith("`") and name.endswith("`")
    return name[1:-1].replace("``", "`") if quoted else name


@dataclass(frozen=True, slots=True)
class SortField:
    """One field of a sort order. Without `nulls`, Spark's default: NULL first if ascending, last if descending."""

    column: str
    direction: Literal["asc", "desc"] = "asc"
    nulls: Literal["first", "last"] | None = None
    transform: str = "identity"

    def same_order_as(self, other: "SortField") -> bool:
        """Return whether both fields sort rows in the same order."""
        return _order(self) == _order(other)


def _order(field: SortField) -> tuple[str, str, str, str]:
    nulls = field.nulls or ("first" if field.direction == "asc" else "last")
    return field.column, field.transform, field.direction, nulls

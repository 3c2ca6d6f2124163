"""Schemas and values that are drawn: nested types, what a DataFrame may make of them, and which values they have.

Nothing here is an engine's: a value of the model is what a row ought to hold, in Python's types, structs as dicts by
the table's names. `sql_of` writes values for Spark so that no setting of the session changes them.
"""

import datetime as dt
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Any, TypeAlias
from uuid import UUID

UTC = dt.timezone.utc
Row = dict[str, Any]

NAMES = ("a", "B", "long name", "it's", "ß", "a-b", "1", "group", "q", "é", "x.y", "$v", "_x", "SELECT", "İ")
"""Of columns and fields; no two are the same in any case."""


@dataclass(frozen=True)
class Leaf:
    """A type without parts, as Spark writes it."""

    sql: str


@dataclass(frozen=True)
class Struct:
    """Fields by name, in order."""

    fields: tuple[tuple[str, "Kind"], ...]

    @property
    def by_name(self) -> dict[str, "Kind"]:
        return dict(self.fields)


@dataclass(frozen=True)
class List:
    element: "Kind"


@dataclass(frozen=True)
class Map:
    key: "Kind"
    value: "Kind"


Kind: TypeAlias = Leaf | Struct | List | Map


def single(value: float) -> float:
    """The nearest number of single precision."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


INTS = (0, 1, -1, 7, 2**31 - 1)
SINGLES = tuple(map(single, (0.1, 19.9, 0.0, -0.0, -2.5, math.nan, math.inf)))
TEXTS = ("", "a", "A", "b", "O'Brien", "back\\slash", "${x}", "Straße", "STRASSE", "keys", 'a "q"')
DAYS = (dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31))
MOMENTS = (
    dt.datetime(1883, 11, 18, 12, 3, 57, 999_999),  # noqa: DTZ001 - a wall clock
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001 - a wall clock
    dt.datetime(2024, 3, 10, 2, 30),  # noqa: DTZ001 - a wall clock
    dt.datetime(2024, 11, 3, 1, 30, 0, 1),  # noqa: DTZ001 - a wall clock
)
VALUES: Mapping[str, tuple[Any, ...]] = {
    "BOOLEAN": (True, False),
    "INT": INTS,
    "BIGINT": (*INTS, 2**40, -(2**62)),
    "FLOAT": SINGLES,
    "DOUBLE": (*SINGLES, 0.1, 19.9, 1e300),
    "DECIMAL(4, 1)": tuple(map(Decimal, ("0.0", "1.5", "-999.9"))),
    "DECIMAL(5, 2)": tuple(map(Decimal, ("0.00", "1.50", "1.55", "-999.99"))),
    "DECIMAL(9, 2)": tuple(map(Decimal, ("0.00", "1.50", "1234567.89"))),
    "STRING": TEXTS,
    "STRING COLLATE UTF8_LCASE": TEXTS,
    "BINARY": (b"", b"\x00\xff", b"a"),
    "DATE": DAYS,
    "TIMESTAMP_LTZ": tuple(moment.replace(tzinfo=UTC) for moment in MOMENTS),
    "TIMESTAMP_NTZ": MOMENTS,
    "UUID": ("f79c3e09-677c-4bbd-a479-3f349cb785e7", "00000000-0000-0000-0000-000000000000"),
    "FIXED(2)": (b"\x00\xff", b"ab"),
}
STAND_INS: Mapping[str, str] = {"UUID": "STRING", "FIXED(2)": "BINARY"}
"""What Spark has for types that it lacks: only other engines make them."""
LEAVES = tuple(Leaf(name) for name in VALUES if name not in STAND_INS)
NARROWER: Mapping[str, tuple[str, ...]] = {
    "BIGINT": ("INT",),
    "DOUBLE": ("FLOAT", "INT"),
    "DECIMAL(9, 2)": ("DECIMAL(5, 2)", "DECIMAL(4, 1)"),
    "DECIMAL(5, 2)": ("DECIMAL(4, 1)",),
    "STRING": ("STRING COLLATE UTF8_LCASE",),
}
"""What a frame may have where the table has the wider type (docs/reference.md, "Types")."""
WIDER: Mapping[str, str] = {"INT": "BIGINT", "FLOAT": "DOUBLE", "DECIMAL(5, 2)": "DECIMAL(9, 2)"}
"""What a table's column becomes where the frame has it (Iceberg spec, "Schema Evolution")."""
KEYS = tuple(map(Leaf, ("INT", "STRING", "DATE", "DECIMAL(9, 2)")))


# ------------------------------------------------------------------------------------------------------------- drawing


def draw_kind(random: Random, depth: int = 3, *, is_field: bool = False) -> Kind:
    """A type, nested so deep at most; no map with structs as keys inside of a struct's field.

    From a file whose struct has such a map, Iceberg 1.12 cannot read a field alone that the struct got later ("is not
    in the store").
    """
    shape = random.choice(("leaf", "struct", "list", "map")) if depth else "leaf"
    match shape:
        case "struct":
            names = random.sample(NAMES, random.randint(1, 3))
            return Struct(tuple((name, draw_kind(random, depth - 1, is_field=True)) for name in names))
        case "list":
            return List(draw_kind(random, depth - 1, is_field=is_field))
        case "map":
            is_plain = random.random() < 0.7 or is_field
            key = random.choice(KEYS) if is_plain else Struct((("a", random.choice(KEYS)), ("B", random.choice(KEYS))))
            return Map(key, draw_kind(random, depth - 1, is_field=is_field))
        case _:
            return random.choice(LEAVES)


def draw_value(random: Random, kind: Kind, *, is_key: bool = False) -> Any:
    """A value of the type, NULL now and then."""
    if not is_key and random.random() < 0.15:
        return None
    match kind:
        case Leaf():
            return random.choice(VALUES[kind.sql])
        case Struct():
            return {name: draw_value(random, inner, is_key=is_key) for name, inner in kind.fields}
        case List():
            return [draw_value(random, kind.element) for _ in range(random.randint(0, 2))]
        case Map():
            keys = [draw_value(random, kind.key, is_key=True) for _ in range(random.randint(0, 2))]
            distinct = {repr(key).lower(): key for key in keys}  # a collation takes no more
            return [(key, draw_value(random, kind.value)) for key in distinct.values()]


@dataclass(frozen=True)
class Latitude:
    """What a frame may make of the table's types.

    Args:
        leaves_out: Whether structs may lack fields.
        leaves_out_inside: Whether those inside of lists and maps may.
        adds: Whether structs may have more fields.
        swaps_case: Whether names may be in another case.
    """

    leaves_out: bool = True
    leaves_out_inside: bool = True
    adds: bool = True
    swaps_case: bool = False


def draw_variant(random: Random, kind: Kind, latitude: Latitude, *, is_key: bool = False) -> Kind:
    """The type that a frame has where the table has that one: narrower or wider, fields in another order, or others."""
    match kind:
        case Leaf():
            wider = [] if is_key or kind.sql not in WIDER else [WIDER[kind.sql]]
            return Leaf(random.choice([kind.sql, kind.sql, *NARROWER.get(kind.sql, ()), *wider]))
        case Struct():
            kept = [item for item in kind.fields if is_key or not latitude.leaves_out or random.random() < 0.8]
            kept = kept or [kind.fields[0]]
            fields = [
                (draw_case(random, name, latitude), draw_variant(random, inner, latitude, is_key=is_key))
                for name, inner in random.sample(kept, len(kept))
            ]
            if latitude.adds and not is_key and random.random() < 0.2:
                name = random.choice(NAMES)
                if name not in kind.by_name:
                    fields.append((name, draw_kind(random, 1, is_field=True)))
            return Struct(tuple(fields))
        case List():
            return List(draw_variant(random, kind.element, _inside(latitude)))
        case Map():
            key = draw_variant(random, kind.key, _inside(latitude), is_key=True)
            return Map(key, draw_variant(random, kind.value, _inside(latitude)))


def _inside(latitude: Latitude) -> Latitude:
    return replace(latitude, leaves_out=latitude.leaves_out and latitude.leaves_out_inside)


def draw_case(random: Random, name: str, latitude: Latitude) -> str:
    return name.swapcase() if latitude.swaps_case and name.isascii() and random.random() < 0.2 else name


# ------------------------------------------------------------------------------------------ what a table makes of it


def known_as(fields: Mapping[str, Kind], name: str) -> str:
    """What the table calls a frame's column or field: names that differ in case alone are one, for all of `NAMES`."""
    return next((known for known in fields if known.lower() == name.lower()), name)


def evolved(table: Kind, frame: Kind, *, drops: bool = False) -> Kind:
    """The table's type after a frame of the other type was written.

    Args:
        table: The type before.
        frame: The frame's.
        drops: Whether fields that the frame lacks go (`full`); they take the frame's order then.
    """
    match table, frame:
        case Struct(), Struct():
            return Struct(tuple(evolved_fields(table.by_name, frame.by_name, drops=drops).items()))
        case List(), List():
            return List(evolved(table.element, frame.element, drops=drops))
        case Map(), Map():
            return Map(table.key, evolved(table.value, frame.value, drops=drops))
        case Leaf(), Leaf():
            return frame if WIDER.get(table.sql) == frame.sql else table
    raise AssertionError((table, frame))


def evolved_fields(table: Mapping[str, Kind], frame: Mapping[str, Kind], *, drops: bool = False) -> dict[str, Kind]:
    """The table's columns, or a struct's fields, after a write."""
    given = {known_as(table, name): kind for name, kind in frame.items()}
    held = {
        name: evolved(kind, given[name], drops=drops) if name in given else kind
        for name, kind in table.items()
        if name in given or not drops
    }
    added = {name: stored(kind) for name, kind in given.items() if name not in table}
    return {name: (held | added)[name] for name in given} if drops else held | added


def stored(kind: Kind) -> Kind:
    """What a table makes of a new column: it knows no collations."""
    match kind:
        case Leaf():
            return Leaf("STRING") if kind.sql.startswith("STRING") else kind
        case Struct():
            return Struct(tuple((name, stored(inner)) for name, inner in kind.fields))
        case List():
            return List(stored(kind.element))
        case Map():
            return Map(stored(kind.key), stored(kind.value))


def fitted(value: Any, frame: Kind, table: Kind) -> Any:
    """A frame's value under the table's names; fields that the frame lacks are left out."""
    if value is None:
        return None
    match frame, table:
        case Struct(), Struct():
            names = {name: known_as(table.by_name, name) for name, _ in frame.fields}
            return {names[name]: fitted(value[name], kind, table.by_name[names[name]]) for name, kind in frame.fields}
        case List(), List():
            return [fitted(item, frame.element, table.element) for item in value]
        case Map(), Map():
            return [(fitted(key, frame.key, table.key), fitted(item, frame.value, table.value)) for key, item in value]
    return float(value) if table == Leaf("DOUBLE") else value


def merged(new: Any, old: Any) -> Any:
    """A value that a merge writes over another: fields that a struct lacks keep theirs."""
    if isinstance(new, dict) and isinstance(old, dict):
        return {**old, **{name: merged(value, old.get(name)) for name, value in new.items()}}
    return new


def pruned(value: Any, kind: Kind) -> Any:
    """A value without the fields that its type has no more."""
    if value is None:
        return None
    match kind:
        case Struct():
            return {name: pruned(value[name], inner) for name, inner in kind.fields if name in value}
        case List():
            return [pruned(item, kind.element) for item in value]
        case Map():
            return [(pruned(key, kind.key), pruned(item, kind.value)) for key, item in value]
    return value


def canonical(value: Any, kind: Kind) -> Any:  # noqa: PLR0911 - one for each type
    """A value as it is compared: NaN is NaN, the two zeros are one, maps have no order."""
    if value is None:
        return None
    match kind:
        case Struct():
            return tuple((name, canonical(value.get(name), inner)) for name, inner in kind.fields)
        case List():
            return tuple(canonical(item, kind.element) for item in value)
        case Map():
            items = value.items() if isinstance(value, dict) else value
            return tuple(
                sorted(((canonical(key, kind.key), canonical(item, kind.value)) for key, item in items), key=repr)
            )
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, Decimal):
        return value.normalize() + 0
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return str(value) if isinstance(value, UUID) else value


# --------------------------------------------------------------------------------------------------------------- Spark


def type_name(kind: Kind) -> str:
    """The type as Spark writes it."""
    match kind:
        case Leaf():
            return STAND_INS.get(kind.sql, kind.sql)
        case Struct():
            return f"STRUCT<{', '.join(f'{quoted(name)}: {type_name(inner)}' for name, inner in kind.fields)}>"
        case List():
            return f"ARRAY<{type_name(kind.element)}>"
        case Map():
            return f"MAP<{type_name(kind.key)}, {type_name(kind.value)}>"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def sql_of(value: Any, kind: Kind) -> str:
    """A value as an expression that means the same whatever the session's settings are."""
    return f"CAST({_bare(value, kind)} AS {type_name(kind)})"


def _bare(value: Any, kind: Kind) -> str:  # noqa: C901, PLR0911 - one for each type
    if value is None:
        return "NULL"
    match kind:
        case Struct():
            return f"struct({', '.join(sql_of(value[name], inner) for name, inner in kind.fields)})"
        case List():
            return f"array({', '.join(sql_of(item, kind.element) for item in value)})"
        case Map():
            parts = (f"{sql_of(key, kind.key)}, {sql_of(item, kind.value)}" for key, item in value)
            return f"map({', '.join(parts)})"
    match value:
        case bool():
            return str(value)
        case str():
            return f"decode(unhex('{value.encode().hex()}'), 'UTF-8')"
        case bytes():
            return f"unhex('{value.hex()}')"
        case dt.datetime() if value.tzinfo is not None:
            return f"timestamp_micros({(value - dt.datetime(1970, 1, 1, tzinfo=UTC)) // dt.timedelta(microseconds=1)})"
        case dt.datetime():
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
    return f"'{value}'"

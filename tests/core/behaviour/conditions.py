"""Conditions that are drawn, and what they say of a row by SQL's own rules: true, false, or NULL."""

import datetime as dt
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.core.behaviour import schemas
from tests.core.behaviour.schemas import Kind, Leaf, Row, Struct


@dataclass(frozen=True)
class Condition:
    """A condition in SQL, and what it says of a row: true, false, or NULL."""

    sql: str
    holds: Callable[[Row], bool | None]


CONSTANTS: Mapping[str, tuple[str, ...]] = {
    "BOOLEAN": ("true", "false"),
    "INT": ("0", "1", "-1", "7", "2147483647"),
    "BIGINT": ("0", "1", "-1", "1099511627776"),
    "FLOAT": ("0.1", "19.9", "0.0", "-2.5"),
    "DOUBLE": ("0.1", "19.9", "0.0", "-2.5"),
    "DECIMAL(4, 1)": ("0.0", "1.5"),
    "DECIMAL(5, 2)": ("0.00", "1.5", "-999.99"),
    "DECIMAL(9, 2)": ("0", "1.50", "1234567.89"),
    "STRING": schemas.TEXTS,
    "DATE": tuple(str(day) for day in schemas.DAYS),
    "TIMESTAMP_LTZ": tuple(f"{moment.isoformat()}+00:00" for moment in schemas.MOMENTS),
    "TIMESTAMP_NTZ": tuple(moment.isoformat() for moment in schemas.MOMENTS),
}


REPLACEABLE = set(CONSTANTS) - {"FLOAT", "DOUBLE"}


def draw_condition(draw: random.Random, columns: Mapping[str, Kind], depth: int = 2) -> Condition | None:
    """A condition over columns, or fields of structs, that can be compared; None where there are none."""
    shape = draw.choice(("leaf", "and", "or", "not")) if depth else "leaf"
    if shape == "leaf":
        return _draw_comparison(draw, columns)
    one, other = (draw_condition(draw, columns, depth - 1) for _ in range(2))
    if one is None or other is None:
        return None
    if shape == "not":
        return Condition(f"NOT ({one.sql})", lambda row: _negated(one.holds(row)))
    decisive = shape == "or"

    def both(row: Row) -> bool | None:
        sides = (one.holds(row), other.holds(row))
        return decisive if decisive in sides else None if None in sides else not decisive

    return Condition(f"({one.sql}) {shape} ({other.sql})", both)


def draw_where(draw: random.Random, columns: Mapping[str, Kind]) -> Condition:
    """A condition by which rows can be replaced: of ordered columns, without NOT and floating-point numbers."""
    known = {name: kind for name, kind in columns.items() if isinstance(kind, Leaf) and kind.sql in REPLACEABLE}
    while True:
        found = draw_condition(draw, known, depth=1)
        if found is not None and not any(word in found.sql for word in ("NOT", "<>", "startswith", "9999")):
            return found


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def _leaves(columns: Mapping[str, Kind], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, kind in columns.items():
        if isinstance(kind, Leaf) and kind.sql in CONSTANTS:
            yield (*path, name), kind.sql
        elif isinstance(kind, Struct):
            yield from _leaves(kind.by_name, (*path, name))


def _draw_comparison(draw: random.Random, columns: Mapping[str, Kind]) -> Condition | None:
    known = list(_leaves(columns))
    if not known:
        return None
    path, kind = draw.choice(known)
    column = ".".join(map(schemas.quoted, path))

    def value(row: Row) -> Any:
        found: Any = row
        for name in path:
            found = None if found is None else found.get(name)
        return found

    def compared(row: Row, decide: Callable[[Any], bool]) -> bool | None:
        found = value(row)
        return None if found is None else decide(_ordered(found))

    texts = draw.sample(CONSTANTS[kind], min(2, len(CONSTANTS[kind])))
    constants = [_ordered(_constant(kind, text)) for text in texts]
    literals = [_literal(kind, text) for text in texts]
    first, last = constants[0], constants[-1]
    shapes: list[Condition] = [
        Condition(f"{column} IS NULL", lambda row: value(row) is None),
        Condition(f"{column} = {literals[0]}", lambda row: compared(row, lambda found: found == first)),
        Condition(f"{column} <> {literals[0]}", lambda row: compared(row, lambda found: found != first)),
        Condition(f"{column} IN ({', '.join(literals)})", lambda row: compared(row, lambda found: found in constants)),
    ]
    if kind != "BOOLEAN":
        low, high = literals[0], literals[-1]
        shapes += [
            Condition(f"{column} < {low}", lambda row: compared(row, lambda found: found < first)),
            Condition(f"{column} <= {low}", lambda row: compared(row, lambda found: found <= first)),
            Condition(f"{column} > {low}", lambda row: compared(row, lambda found: found > first)),
            Condition(f"{low} <= {column}", lambda row: compared(row, lambda found: found >= first)),
            Condition(
                f"{column} BETWEEN {low} AND {high}", lambda row: compared(row, lambda found: first <= found <= last)
            ),
        ]
    if kind in ("FLOAT", "DOUBLE"):
        shapes.append(
            Condition(f"isnan({column})", lambda row: (found := value(row)) is not None and math.isnan(found))
        )
    if kind == "STRING":
        shapes.append(
            Condition(f"startswith({column}, 'a')", lambda row: compared(row, lambda found: found[1][:1] == b"a"))
        )
    return draw.choice(shapes)


def _ordered(value: Any) -> Any:
    """A value in Spark's order: NaN above all numbers, texts by their bytes."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return (False, value.encode() if isinstance(value, str) else value)


def _constant(kind: str, text: str) -> Any:  # noqa: PLR0911 - one for each type
    match kind:
        case "BOOLEAN":
            return text == "true"
        case "INT" | "BIGINT":
            return int(text)
        case "FLOAT":
            return schemas.single(float(text))
        case "DOUBLE":
            return float(text)
        case "STRING":
            return text
        case "DATE":
            return dt.date.fromisoformat(text)
        case "TIMESTAMP_LTZ" | "TIMESTAMP_NTZ":
            return dt.datetime.fromisoformat(text)
    return Decimal(text)


def _literal(kind: str, text: str) -> str:
    if kind in ("STRING", "DATE", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"):
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    return text

"""Compares rows, and shows how they differ as a table that a person reads. No engine is imported."""

import datetime as dt
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

Row: TypeAlias = Mapping[str, Any]

_SHOWN_ROWS: Final = 20
"""Rows that differ and are shown. More of them do not explain more."""
_SHOWN_CHARACTERS: Final = 40
"""Characters of a value that are shown."""
_SIMILAR: Final = 0.25
"""Share of equal values from which two rows are shown as one row that differs."""
_NUMBERS: Final = (int, float, Decimal)
_GAP: Final = "  "


@dataclass(frozen=True, slots=True)
class RowComparison:
    """How rows are compared.

    Args:
        ignore_order: Whether the order of the rows does not matter.
        tolerance: The largest difference between two numbers, or in seconds between two times, that counts as none.
        partial: Whether only the columns of the expected rows are compared.
    """

    ignore_order: bool = True
    tolerance: float = 0.0
    partial: bool = False

    def difference(self, actual: Sequence[Row], expected: Sequence[Row]) -> str | None:
        """Return how the actual rows differ from the expected rows, or None if they do not.

        A column that an expected row does not have is NULL in it.
        """
        wanted, found = _columns(expected), _columns(actual)
        lines = []
        if expected and actual:
            missing = [name for name in wanted if name not in found]
            unexpected = [] if self.partial else [name for name in found if name not in wanted]
            lines += [f"missing column: {name}" for name in missing]
            lines += [f"unexpected column: {name}" for name in unexpected]
        columns = wanted if self.partial and expected else list(dict.fromkeys((*wanted, *found)))
        pairs, lost, extra, equal = self._matched(
            [tuple(row.get(name) for name in columns) for row in actual],
            [tuple(row.get(name) for name in columns) for row in expected],
        )
        if not (lines or pairs or lost or extra):
            return None
        if not (pairs or lost or extra):
            return "\n".join(["The columns differ.", *lines])
        numbers = {"equal": equal, "different": len(pairs), "missing": len(lost), "unexpected": len(extra)}
        head = f"The rows differ: {', '.join(f'{number} {word}' for word, number in numbers.items() if number)}."
        return "\n".join([head, *lines, *_table(columns, self, pairs, lost, extra)])

    def equals(self, one: Any, other: Any) -> bool:
        """Return whether two values are equal. NaN equals NaN, and numbers of different types are equal by value."""
        if _identity(one) == _identity(other):
            return True
        if not self.tolerance:
            return False
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            return one.keys() == other.keys() and all(self.equals(value, other[name]) for name, value in one.items())
        if isinstance(one, list | tuple) and isinstance(other, list | tuple):
            return len(one) == len(other) and all(map(self.equals, one, other))
        return _distance(one, other) <= self.tolerance

    def _matched(
        self, actual: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]
    ) -> tuple[list[tuple[Any, Any]], list[Any], list[Any], int]:
        """Return the pairs of rows that differ, the rows without a counterpart, and the number of equal rows."""
        if not self.ignore_order:
            together = list(zip(expected, actual, strict=False))
            pairs = [pair for pair in together if not self.equals(*pair)]
            return pairs, expected[len(actual) :], actual[len(expected) :], len(together) - len(pairs)
        lost, extra = _without_equal(expected, actual)
        if self.tolerance:
            lost, extra = self._without_close(sorted(lost, key=_order), sorted(extra, key=_order))
        equal = len(expected) - len(lost)
        pairs = []
        for row in list(lost)[:_SHOWN_ROWS]:
            likeness = [self._similarity(row, other) for other in extra]
            if likeness and max(likeness) >= _SIMILAR:
                similar = extra[likeness.index(max(likeness))]
                pairs.append((row, similar))
                lost.remove(row)
                extra.remove(similar)
        return pairs, lost, extra, equal

    def _without_close(self, lost: list[Any], extra: list[Any]) -> tuple[list[Any], list[Any]]:
        left = []
        for row in lost:
            place = next((number for number, other in enumerate(extra) if self.equals(row, other)), None)
            if place is None:
                left.append(row)
            else:
                del extra[place]
        return left, extra

    def _similarity(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> float:
        return sum(map(self.equals, one, other)) / len(one) if one else 0.0


def _table(
    columns: list[str], comparison: RowComparison, pairs: list[Any], lost: list[Any], extra: list[Any]
) -> list[str]:
    """Return a line for each row, with marks below the values that differ."""
    rows: list[tuple[str, tuple[Any, ...], tuple[Any, ...] | None]] = []
    for expected, actual in pairs:
        rows += [("expected", expected, actual), ("found", actual, expected)]
    rows += [("missing", row, None) for row in lost] + [("unexpected", row, None) for row in extra]
    shown, left = rows[: 2 * _SHOWN_ROWS], len(rows[2 * _SHOWN_ROWS :])
    cells = [
        [_shown(value, None if other is None else other[place]) for place, value in enumerate(row)]
        for _, row, other in shown
    ]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    lines = ["", _line("", columns, widths)]
    for (word, row, other), values in zip(shown, cells, strict=True):
        lines.append(_line(word, values, widths))
        if word == "found" and other is not None:
            marks = [
                "" if comparison.equals(value, other[place]) else "^" * max(1, len(values[place]))
                for place, value in enumerate(row)
            ]
            lines.append(_line("", marks, widths))
    return [*lines, f"... and {left} rows more"] if left else lines


def _columns(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _without_equal(expected: list[Any], actual: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the rows of each side that the other does not have as often, in their order."""
    left: dict[Hashable, list[int]] = {}
    for place, row in enumerate(actual):
        left.setdefault(_identity(row), []).append(place)
    lost = []
    for row in expected:
        places = left.get(_identity(row))
        if places:
            places.pop(0)
        else:
            lost.append(row)
    kept = sorted(place for places in left.values() for place in places)
    return lost, [actual[place] for place in kept]


def _identity(value: Any) -> Hashable:
    """Return what equal values have in common."""
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, _NUMBERS):
        return ("number", "nan") if value != value else ("number", value)  # noqa: PLR0124 - NaN
    if isinstance(value, Mapping):
        return "mapping", frozenset((name, _identity(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return "list", tuple(map(_identity, value))
    if isinstance(value, dt.datetime):
        return "datetime", _is_naive(value), value
    return type(value).__name__, value if isinstance(value, Hashable) else repr(value)


def _distance(one: Any, other: Any) -> float:
    """Return the distance of two numbers, or of two times in seconds; infinity for other values."""
    if isinstance(one, _NUMBERS) and isinstance(other, _NUMBERS) and not isinstance(one, bool):
        distance = abs(float(one) - float(other))
        return math.inf if math.isnan(distance) else distance
    if isinstance(one, dt.datetime) and isinstance(other, dt.datetime) and _is_naive(one) == _is_naive(other):
        return abs((one - other).total_seconds())
    return math.inf


def _is_naive(instant: dt.datetime) -> bool:
    return instant.tzinfo is None


def _order(row: tuple[Any, ...]) -> list[tuple[bool, float, str]]:
    """Return what rows are sorted by, whatever the types of their values."""
    numbers = [float(value) if isinstance(value, _NUMBERS) else math.nan for value in row]
    return [
        (math.isnan(number), 0.0 if math.isnan(number) else number, repr(value))
        for number, value in zip(numbers, row, strict=True)
    ]


def _shown(value: Any, differs_from: Any) -> str:
    """Return a value as a text. Where the text is that of the value it differs from, it has Python's notation."""
    text = "NULL" if value is None else str(value)
    is_same_text = type(differs_from) is not type(value) and str(differs_from) == text
    if value is not None and (is_same_text or _is_unclear(value)):
        text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."


def _is_unclear(value: Any) -> bool:
    """Return whether a text cannot be read as it is."""
    return isinstance(value, str) and (value != value.strip() or not value.isprintable() or value in ("", "NULL"))


def _line(word: str, cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"{_GAP}{word.ljust(10)}{_GAP}{_GAP.join(padded)}".rstrip()

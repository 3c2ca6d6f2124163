"""Parsers of plain metadata values. They raise a `ValueError` or `TypeError` that names what was found."""

import datetime as dt
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from dagster_iceberg_spark.table.identifier import quote_part, split_parts
from dagster_iceberg_spark.table.ordering import SortField


def text(value: Any) -> str:
    """Parse a text that is not empty."""
    if not isinstance(value, str) or not value:
        message = f"{value!r}"
        raise TypeError(message)
    return value


def list_of_text(value: Any) -> list[str]:
    """Parse a list of texts. A single text is a list of one."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list | tuple):
        message = f"{value!r}, which is not a list"
        raise TypeError(message)
    return [text(item) for item in value]


def names(value: Any) -> tuple[str, ...]:
    """Parse names of columns."""
    return tuple(list_of_text(value))


def boolean(value: Any) -> bool:
    """Parse a boolean."""
    if not isinstance(value, bool):
        message = f"{value!r}, which is not true or false"
        raise TypeError(message)
    return value


def instant(value: Any) -> dt.datetime:
    """Parse an instant with its zone: a `datetime`, or a text in ISO 8601."""
    try:
        given = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(value.replace("Z", "+00:00"))
    except (AttributeError, ValueError) as error:
        message = f"{value!r}"
        raise ValueError(message) from error
    if given.tzinfo is None:
        message = f"{value!r}, which has no zone"
        raise ValueError(message)
    return given


def string_map(value: Any) -> dict[str, str]:
    """Parse a dict of texts. Numbers and booleans are converted to texts."""
    if not isinstance(value, Mapping):
        message = f"{value!r}, which is not a dict"
        raise TypeError(message)
    return {text(key): _property_text(item) for key, item in value.items()}


def sort_field(notation: str) -> SortField:
    """Parse `column`, optionally followed by `asc` or `desc` and `nulls first` or `nulls last`."""
    column, nulls = _strip_suffix(notation.strip(), {"nulls first": "first", "nulls last": "last"})
    column, direction = _strip_suffix(column, {"asc": "asc", "desc": "desc"})
    (name,) = split_parts(column if column.startswith("`") else quote_part(column))
    return SortField(name, direction or "asc", nulls)  # type: ignore[arg-type]


def nearest_of(word: str, known: Sequence[str]) -> str | None:
    """Return the known word that is most similar to the given word, if any is similar."""
    matches = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return matches[0] if matches else None


def _strip_suffix(notation: str, suffixes: Mapping[str, str]) -> tuple[str, str | None]:
    for suffix, meaning in suffixes.items():
        if notation.lower().endswith(f" {suffix}"):
            return notation[: -len(suffix)].strip(), meaning
    return notation, None


def _property_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        message = f"{value!r}, which is no text or number"
        raise TypeError(message)
    return str(value)

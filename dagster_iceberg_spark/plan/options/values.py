"""Parsers of plain metadata values. They raise a `ValueError` or `TypeError` that names what was found."""

import datetime as dt
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from dagster_iceberg_spark.table.identifier import NotationError, nearest_of, quote_part, split_parts
from dagster_iceberg_spark.table.partitioning import SortField

_DURATION: Final = re.compile(r"(?P<number>\d{1,9}) *(?P<unit>minute|hour|day|week)s?", re.IGNORECASE)
_UNITS: Final = {"day": 86_400, "hour": 3_600, "minute": 60}


def text(value: Any) -> str:
    """Parse a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r}")
    return value


def list_of_text(value: Any) -> list[str]:
    """Parse a list of texts. A single text is a list of one."""
    if isinstance(value, str):
        return [text(value)]
    if not isinstance(value, list | tuple):
        raise TypeError(f"{value!r}, which is not a list")
    return [text(item) for item in value]


def names(value: Any) -> tuple[str, ...]:
    """Parse names of columns."""
    return tuple(list_of_text(value))


def boolean(value: Any) -> bool:
    """Parse a boolean."""
    if not isinstance(value, bool):
        raise NotationError("true or false", repr(value))
    return value


def instant(value: Any) -> dt.datetime:
    """Parse an instant with its zone: a `datetime`, or a text in ISO 8601."""
    try:
        given = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(value.replace("Z", "+00:00"))
    except (AttributeError, ValueError) as error:
        raise ValueError(f"{value!r}") from error
    if given.tzinfo is None:
        raise ValueError(f"{value!r}, which has no zone")
    return given


def duration(value: Any) -> dt.timedelta:
    """Parse a duration: a `timedelta`, or a text such as `12 hours` or `7 days`."""
    if isinstance(value, dt.timedelta):
        found = value
    else:
        parts = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
        if parts is None:
            raise NotationError("a duration, such as `12 hours` or `7 days`", repr(value))
        found = dt.timedelta(**{f"{parts['unit'].lower()}s": int(parts["number"])})
    if found < dt.timedelta():
        raise NotationError("a duration that is not negative", repr(value))
    return found


def duration_text(value: dt.timedelta) -> str:
    """Return a duration in the notation that `duration` parses."""
    seconds = int(value.total_seconds())
    unit, size = next((item for item in _UNITS.items() if seconds % item[1] == 0), ("second", 1))
    number = seconds // size
    return f"{number} {unit}{'' if number == 1 else 's'}"


def string_map(value: Any) -> dict[str, str]:
    """Parse a dict of texts. Numbers and booleans are converted to texts."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r}, which is not a dict")
    return {text(key): _property_text(item) for key, item in value.items()}


def settings(value: Mapping[Any, Any], parsers: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """Parse a dict of settings with the parser of each. None counts as no value."""
    for name in value:
        if name not in parsers:
            nearest = nearest_of(str(name), tuple(parsers))
            raise NotationError(f"settings out of {', '.join(parsers)}", repr(name), nearest)
    return {name: _setting(name, item, parsers[name]) for name, item in value.items() if item is not None}


def _setting(name: str, value: Any, parse: Callable[[Any], Any]) -> Any:
    try:
        return parse(value)
    except NotationError as error:
        raise NotationError(f"{error.expected} in {name!r}", error.found, error.nearest) from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{error} in {name!r}") from error


def one_of(choices: tuple[str, ...]) -> Callable[[Any], Any]:
    """Return a parser that accepts these names only."""

    def parse(value: Any) -> Any:
        if value not in choices:
            raise NotationError(f"one of {', '.join(choices)}", repr(value), nearest_of(str(value), choices))
        return value

    return parse


def sort_field(notation: str) -> SortField:
    """Parse `column`, optionally followed by `asc` or `desc` and `nulls first` or `nulls last`."""
    column, nulls = _strip_suffix(notation.strip(), {"nulls first": "first", "nulls last": "last"})
    column, direction = _strip_suffix(column, {"asc": "asc", "desc": "desc"})
    (name,) = split_parts(column if column.startswith("`") else quote_part(column))
    return SortField(name, direction or "asc", nulls)  # type: ignore[arg-type]


def _strip_suffix(notation: str, suffixes: Mapping[str, str]) -> tuple[str, str | None]:
    for suffix, meaning in suffixes.items():
        if notation.lower().endswith(f" {suffix}"):
            return notation[: -len(suffix)].strip(), meaning
    return notation, None


def _property_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise TypeError(f"{value!r}, which is no text or number")
    return str(value)

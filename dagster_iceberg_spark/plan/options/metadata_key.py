"""Metadata keys: their names, their values, how they are parsed, and their defaults.

Each key is defined once, as a field of the options that it sets. The reference, the defaults and the hints for unknown
keys are derived from that field.
"""

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.table.identifier import NotationError, nearest_of, quote_part, split_parts
from dagster_iceberg_spark.table.partitioning import SortField

PREFIX: Final = "iceberg/"
_KEY: Final = "key"

_OptionsT = TypeVar("_OptionsT")


@dataclass(frozen=True, slots=True)
class MetadataKey:
    """A metadata key.

    Args:
        parse: Parses a value, or raises a `ValueError` or `TypeError` that names what was found.
        expected: The values, as error messages name them.
        default: The default, in words. None if the default of the field is descriptive enough.
        is_addressing: Whether it locates the rows or names their owner. Only the definition may set such keys, because
            readers never see run metadata.
        is_configurable: Whether the IO manager has a field of that name.
        is_of_run: Whether a run's tags and configuration may set it too.
    """

    name: str
    option: str
    values: str
    parse: Callable[[Any], Any]
    expected: str
    default: str | None
    is_addressing: bool
    is_configurable: bool
    is_of_run: bool

    def read(self, value: Any, *, subject: str) -> Any:
        """Parse a value. The subject is the asset or input that the metadata belongs to, for messages."""
        try:
            return self.parse(value)
        except NotationError as error:
            hint = f"did you mean {error.nearest!r}?" if error.nearest else None
            raise MetadataKeyError.of_value(
                self.name, subject, expected=error.expected, found=error.found, hint=hint
            ) from error
        except (ValueError, TypeError) as error:
            raise MetadataKeyError.of_value(self.name, subject, expected=self.expected, found=str(error)) from error


def key(  # noqa: PLR0913 - one argument for each part of a key
    values: str,
    parse: Callable[[Any], Any],
    *,
    default: Any = None,
    name: str | None = None,
    expected: str | None = None,
    default_text: str | None = None,
    is_addressing: bool = False,
    is_configurable: bool = False,
    is_of_run: bool = False,
) -> Any:
    """Return a dataclass field that a metadata key sets. By default, the key is the prefix and the field's name."""

    def of(option: str) -> MetadataKey:
        return MetadataKey(
            name=name or f"{PREFIX}{option}",
            option=option,
            values=values,
            parse=parse,
            expected=expected or values,
            default=default_text,
            is_addressing=is_addressing,
            is_configurable=is_configurable,
            is_of_run=is_of_run,
        )

    how: dict[str, Any] = {"default_factory": default} if callable(default) else {"default": default}
    return field(**how, metadata={_KEY: of})


def keys_of(options: type) -> tuple[MetadataKey, ...]:
    """Return the keys that set the options, in the order of their fields."""
    return tuple(item.metadata[_KEY](item.name) for item in fields(options) if _KEY in item.metadata)


def read_metadata(options: type[_OptionsT], metadata: Mapping[str, Any], *, subject: str) -> _OptionsT:
    """Return the options that the metadata sets, with defaults for the others. None counts as no value."""
    given = {
        item.option: item.read(metadata[item.name], subject=subject)
        for item in keys_of(options)
        if metadata.get(item.name) is not None
    }
    return options(**given)


def unknown_keys(metadata: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each unknown key that has the package's prefix, with a hint."""
    by_option = {name.removeprefix(PREFIX): name for name in known}
    for name in metadata:
        if name.startswith(PREFIX) and name not in known:
            nearest = nearest_of(name.removeprefix(PREFIX), tuple(by_option))
            yield name, f"did you mean `{by_option[nearest]}`?" if nearest else f"the keys are {', '.join(known)}."


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
    return {text(key): property_text(item) for key, item in value.items()}


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


def property_text(value: Any) -> str:
    """Return the text of a property: a number or a truth value is written as in a properties file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise TypeError(f"{value!r}, which is no text or number")
    return str(value)

"""Options that users write, and the metadata keys that set them.

Each option is a field of a model, with its type and its default. A field that a metadata key sets is defined by `key`.
The reference, the defaults and the hints for unknown keys are derived from the fields.
"""

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, core_schema

from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.table.identifier import NotationError, TableIdentifier, nearest_of, quote_part, split_parts
from dagster_iceberg_spark.table.partitioning import SortField

PREFIX: Final = "iceberg/"

_OptionsT = TypeVar("_OptionsT", bound="Options")


class OptionError(NotationError):
    """An option that does not exist, or that has an invalid value.

    Attributes:
        option: Its name, or None if there is no such option, or if several options contradict each other.
    """

    def __init__(self, option: str | None, expected: str, found: str, nearest: str | None = None) -> None:
        super().__init__(expected, found, nearest)
        self.option = option


class Options(BaseModel):
    """Options of one subject, the same in metadata, in YAML and as arguments. None counts as no value.

    Raises:
        OptionError: An option does not exist or has an invalid value, or several contradict each other.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True, hide_input_in_errors=True
    )

    if not TYPE_CHECKING:  # type checkers derive the arguments from the fields

        def __init__(self, **options: Any) -> None:
            """Validate the options."""
            try:
                super().__init__(**{name: value for name, value in options.items() if value is not None})
            except ValidationError as error:
                raise _option_error(error, type(self)) from None  # it says no more


_CHOICE: Final = re.compile(r"'([^']*)'")


def _option_error(error: ValidationError, options: type[Options]) -> OptionError:
    """Return the first of pydantic's errors."""
    first = error.errors(include_url=False)[0]
    option = str(first["loc"][0]) if first["loc"] else None
    context, found = first.get("ctx", {}), repr(first["input"])
    cause = context.get("error")
    if isinstance(cause, NotationError):
        return OptionError(option, cause.expected, cause.found, cause.nearest)
    match first["type"]:
        case "extra_forbidden":
            known = tuple(options.model_fields)
            return OptionError(
                None, f"one of the options {', '.join(known)}", repr(option), nearest_of(str(option), known)
            )
        case "literal_error":
            choices = tuple(_CHOICE.findall(context["expected"]))
            nearest = nearest_of(str(first["input"]), choices)
            return OptionError(option, f"one of {', '.join(choices)}", found, nearest)
        case "missing":
            return OptionError(option, "a value", "none")
        case "bool_type":
            return OptionError(option, "true or false", found)
        case _:
            return OptionError(option, f"a valid value ({first['msg']})", found)


def parse_options(options: type[_OptionsT], value: Any, *, expected: str) -> _OptionsT:
    """Parse options that are the value of another one. `expected` names such a value.

    Raises:
        NotationError: The value is no dict, or its options are invalid.
    """
    if not isinstance(value, Mapping):
        raise NotationError(expected, repr(value))
    try:
        return options(**{str(name): item for name, item in value.items()})
    except OptionError as error:
        if error.option is None:
            raise
        raise NotationError(f"{error.expected} for `{error.option}`", error.found, error.nearest) from error


@dataclass(frozen=True, slots=True)
class MetadataKey:
    """A metadata key. It is part of the metadata of the field that it sets.

    Args:
        values: The values, for the reference.
        parse: Parses a value, or raises a `ValueError` or `TypeError` that names what was found. None if the type of
            the option is enough.
        name: Its name. By default, the prefix and the name of the option.
        expected: The values, as error messages name them. By default, as the reference does.
        default: The default, in words. None if the default of the option is descriptive enough.
        is_addressing: Whether it locates the rows or names their owner. Only the definition may set such keys, because
            readers never see run metadata.
        is_configurable: Whether the IO manager has a field of that name.
        is_of_run: Whether a run's tags and configuration may set it too.
        options: The model of the option. `keys_of` knows it.
        option: The name of the option. `keys_of` knows it.
    """

    values: str
    parse: Callable[[Any], Any] | None
    name: str
    expected: str
    default: str | None
    is_addressing: bool
    is_configurable: bool
    is_of_run: bool
    options: type[Options] = Options
    option: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if self.parse is None:
            return handler(source)
        return core_schema.no_info_plain_validator_function(expecting(self.expected, self.parse))

    def read(self, value: Any, *, subject: str) -> Any:
        """Parse a value. The subject is the asset or input that the metadata belongs to, for messages."""
        return getattr(read_metadata(self.options, {self.name: value}, subject=subject), self.option)


def key(  # noqa: PLR0913 - one argument for each part of a key
    values: str,
    parse: Callable[[Any], Any] | None = None,
    *,
    default: Any = None,
    name: str = "",
    expected: str | None = None,
    default_text: str | None = None,
    is_addressing: bool = False,
    is_configurable: bool = False,
    is_of_run: bool = False,
) -> Any:
    """Return a field of options that a metadata key sets. `MetadataKey` describes the arguments."""
    field: Any = Field(default_factory=default) if callable(default) else Field(default=default)
    field.metadata.append(
        MetadataKey(
            values=values,
            parse=parse,
            name=name,
            expected=expected or values,
            default=default_text,
            is_addressing=is_addressing,
            is_configurable=is_configurable,
            is_of_run=is_of_run,
        )
    )
    return field


def expecting(expected: str, parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a parser whose errors name the expected values, unless they name them already."""

    def read(value: Any) -> Any:
        try:
            return parse(value)
        except NotationError:
            raise
        except (ValueError, TypeError) as error:
            raise NotationError(expected, str(error)) from error

    return read


@cache
def keys_of(options: type[Options]) -> tuple[MetadataKey, ...]:
    """Return the keys that set the options, in the order of their fields."""
    return tuple(
        replace(item, name=item.name or f"{PREFIX}{option}", options=options, option=option)
        for option, field in options.model_fields.items()
        for item in field.metadata
        if isinstance(item, MetadataKey)
    )


def read_metadata(options: type[_OptionsT], metadata: Mapping[str, Any], *, subject: str) -> _OptionsT:
    """Return the options that the metadata sets, with defaults for the others. None counts as no value.

    Raises:
        MetadataKeyError: A value is invalid.
    """
    names = {item.option: item.name for item in keys_of(options)}
    try:
        return options(**{option: metadata[name] for option, name in names.items() if name in metadata})
    except OptionError as error:
        raise MetadataKeyError.of_value(
            names[str(error.option)], subject, expected=error.expected, found=error.found, hint=error.hint
        ) from error


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


def table_identifier(value: Any) -> TableIdentifier:
    """Parse `namespace.table`."""
    return TableIdentifier.parse(text(value))


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


Duration = Annotated[dt.timedelta, BeforeValidator(duration)]
"""A duration: a `timedelta`, or a text such as `7 days`."""
ColumnName = Annotated[str, BeforeValidator(expecting("the name of a column", text))]
ColumnNames = Annotated[tuple[str, ...], BeforeValidator(expecting("a list of columns", names))]

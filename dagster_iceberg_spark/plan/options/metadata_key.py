"""A metadata key: its name, its values, how they are parsed, and its default.

Each key is defined once, as a field of the options that it sets. The reference, the defaults and the hints for unknown
keys are derived from that field.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.table.identifier import NotationError, nearest_of

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

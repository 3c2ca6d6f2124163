"""The part of a foreign error that messages show: its first line, without parsed values."""

from typing import Final

from pydantic import ValidationError

_NAMED_PLACES: Final = 3
_MAXIMUM_LINE: Final = 400


def first_line(error: BaseException) -> str:
    """Return the first line of the error's message, or its class if it has no message, without parsed values."""
    if isinstance(error, ValidationError):
        details = error.errors(include_url=False, include_context=False, include_input=False)
        named = ("".join(f"{part}." for part in item["loc"])[:-1] + f": {item['msg']}" for item in details)
        return f"{error.title}: {'; '.join(item.removeprefix(': ') for item in list(named)[:_NAMED_PLACES])}"
    return next(iter(str(error).splitlines()), "")[:_MAXIMUM_LINE] or type(error).__name__

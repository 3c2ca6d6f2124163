"""The type annotation of an input."""

import types
from dataclasses import dataclass
from typing import Union, get_args, get_origin


@dataclass(frozen=True, slots=True)
class InputAnnotation:
    """The parsed annotation of an input.

    Args:
        type: The type of the rows: the `T` of `dict[str, T]` and `Optional[T]`.
        is_by_partition: Whether the input is a dict by partition key.
        is_optional: Whether None represents rows that have not been written; in a dict, for each partition.
        is_optional_whole: Whether None represents the whole dict if the table does not exist.
    """

    type: object
    is_by_partition: bool = False
    is_optional: bool = False
    is_optional_whole: bool = False


def parse_annotation(annotation: object) -> InputAnnotation:
    """Parse `T`, `dict[str, T]` (by partition key) and `Optional[T]`."""
    inner, is_optional = _without_none(annotation)
    if get_origin(inner) is dict and get_args(inner)[0] is str:
        value, is_value_optional = _without_none(get_args(inner)[1])
        return InputAnnotation(
            value, is_by_partition=True, is_optional=is_value_optional, is_optional_whole=is_optional
        )
    return InputAnnotation(inner, is_optional=is_optional)


def _without_none(annotation: object) -> tuple[object, bool]:
    """Return the T of `Optional[T]`, or any other annotation as it is, and whether it was optional."""
    others = [item for item in get_args(annotation) if item is not type(None)]
    is_optional = get_origin(annotation) in (Union, types.UnionType) and len(others) == 1
    return (others[0], True) if is_optional else (annotation, False)

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
    inner = _without_none(annotation)
    is_optional = inner is not None
    annotation = annotation if inner is None else inner
    if get_origin(annotation) is dict and get_args(annotation)[0] is str:
        value = get_args(annotation)[1]
        inner = _without_none(value)
        return InputAnnotation(
            value if inner is None else inner,
            is_by_partition=True,
            is_optional=inner is not None,
            is_optional_whole=is_optional,
        )
    return InputAnnotation(annotation, is_optional=is_optional)


def _without_none(annotation: object) -> object | None:
    """Return the T of `Optional[T]`, or None for any other annotation."""
    arguments = get_args(annotation)
    if get_origin(annotation) not in (Union, types.UnionType) or type(None) not in arguments or len(arguments) != 2:  # noqa: PLR2004
        return None
    inner: object = next(item for item in arguments if item is not type(None))
    return inner

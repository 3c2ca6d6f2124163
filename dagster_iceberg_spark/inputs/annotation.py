"""What an input's annotation asks for."""

import types
from dataclasses import dataclass
from typing import Union, get_args, get_origin


@dataclass(frozen=True, slots=True)
class InputAnnotation:
    """What an input's annotation says.

    Args:
        type: The type of the rows: of `dict[str, T]` and `Optional[T]` the `T`.
        is_by_partition: Whether each partition is wanted alone, by its key.
        is_optional: Whether None stands for rows that nobody has written; of partitions, for each of them.
        is_optional_whole: Whether None stands for all partitions, where there is no table.
    """

    type: object
    is_by_partition: bool = False
    is_optional: bool = False
    is_optional_whole: bool = False


def parse_annotation(annotation: object) -> InputAnnotation:
    """Take `dict[str, T]`, of each partition, and `Optional[T]` apart."""
    inner = _without_none(annotation)
    is_optional = inner is not None
    annotation = annotation if inner is None else inner
    if get_origin(annotation) is dict and get_args(annotation)[0] is str:
        of_partition = get_args(annotation)[1]
        inner = _without_none(of_partition)
        return InputAnnotation(
            of_partition if inner is None else inner,
            is_by_partition=True,
            is_optional=inner is not None,
            is_optional_whole=is_optional,
        )
    return InputAnnotation(annotation, is_optional=is_optional)


def _without_none(annotation: object) -> object | None:
    """Return the T of `Optional[T]`; None of anything else."""
    arguments = get_args(annotation)
    if get_origin(annotation) not in (Union, types.UnionType) or type(None) not in arguments or len(arguments) != 2:  # noqa: PLR2004
        return None
    inner: object = next(item for item in arguments if item is not type(None))
    return inner

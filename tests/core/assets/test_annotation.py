"""Parsing an input's annotation."""

from typing import Any, Optional, Union

import pytest

from dagster_iceberg_spark.assets.read_requests import InputAnnotation, parse_annotation


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, InputAnnotation(int)),
        (Any, InputAnnotation(Any)),
        (None, InputAnnotation(None)),
        (Optional[int], InputAnnotation(int, is_optional=True)),  # noqa: UP045 - as users write it
        (int | None, InputAnnotation(int, is_optional=True)),
        (Union[None, int], InputAnnotation(int, is_optional=True)),  # noqa: UP007 - as users write it
        (int | str, InputAnnotation(int | str)),
        (dict[str, int], InputAnnotation(int, is_by_partition=True)),
        (dict[str, int | None], InputAnnotation(int, is_by_partition=True, is_optional=True)),
        (dict[str, int] | None, InputAnnotation(int, is_by_partition=True, is_optional_whole=True)),
        (dict[int, int], InputAnnotation(dict[int, int])),
        (dict, InputAnnotation(dict)),
    ],
    ids=str,
)
def test_optional_and_dict_annotations_are_unwrapped(annotation: object, expected: InputAnnotation) -> None:
    assert parse_annotation(annotation) == expected

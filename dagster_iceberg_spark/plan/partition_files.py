"""Matches many data files with many partitions whose rows they may have."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from dagster_iceberg_spark.plan.binding import BoundScope, Intervals, Values
from dagster_iceberg_spark.plan.overwrite_filter import DataFile, within_file


def partition_files(partitions: Sequence[BoundScope], files: Sequence[DataFile]) -> list[list[int]]:
    """Return the positions of the files that may have rows of each partition.

    A file is compared only with partitions that overlap its bounds of the first partition column.
    """
    column = next((box[0].column for scope in partitions for box in scope.boxes if box), "")
    ranges = [(edges, number) for number, scope in enumerate(partitions) for edges in _edges(scope, column)]
    anywhere = {number for edges, number in ranges if edges is None}
    placed = sorted((*edges, number) for edges, number in ranges if edges is not None)
    starts = [start for start, _, _ in placed]
    ends = list(accumulate((end for _, end, _ in placed), max))
    found: list[list[int]] = [[] for _ in partitions]
    for position, file in enumerate(files):
        bounds = file.bounds.get(column)
        near = placed
        if bounds is not None and bounds.lower is not None and bounds.upper is not None:
            near = placed[bisect_left(ends, bounds.lower) : bisect_right(starts, bounds.upper)]
        for number in sorted(anywhere.union(number for _, _, number in near)):
            if within_file(partitions[number], file).boxes:
                found[number].append(position)
    return found


def _edges(scope: BoundScope, column: str) -> Iterator[tuple[Any, Any] | None]:
    """Yield the least and the greatest value of each part of a partition in the column, or None for any value."""
    for box in scope.boxes:
        match next((item for item in box if item.column == column), None):
            case Values(_, values, has_null=False):
                yield from ((value, value) for value in values)
            case Intervals(_, intervals):
                yield from (None if start is None or end is None else (start, end) for start, end in intervals)
            case _:
                yield None

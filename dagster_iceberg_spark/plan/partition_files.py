"""Which data files may have rows of which partition, of many of both."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from dagster_iceberg_spark.plan.binding import BoundScope, Constraint, Intervals, Values
from dagster_iceberg_spark.plan.overwrite_filter import DataFile, within_file


def partition_files(partitions: Sequence[BoundScope], files: Sequence[DataFile]) -> list[list[int]]:
    """Return the files that may have rows of each partition, by their positions.

    Only partitions that lie where a file does, by the first column that tells partitions apart, are compared with it.

    Args:
        partitions: The partitions.
        files: The files, with the bounds of the partitions' columns.
    """
    column = next((box[0].column for scope in partitions for box in scope.boxes if box), "")
    lying = [(edges, number) for number, scope in enumerate(partitions) for edges in _edges(scope, column)]
    anywhere = {number for edges, number in lying if edges is None}
    placed = sorted((*edges, number) for edges, number in lying if edges is not None)
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
    """Yield the least and the greatest value that each part of a partition may have in the column; None: any."""
    for box in scope.boxes:
        yield from _edges_of(next((item for item in box if item.column == column), None))


def _edges_of(constraint: Constraint | None) -> Iterator[tuple[Any, Any] | None]:
    match constraint:
        case Values(has_null=False):
            yield from ((value, value) for value in constraint.values)
        case Intervals():
            for start, end in constraint.intervals:
                yield None if start is None or end is None else (start, end)
        case _:
            yield None

"""The overwrite filter of a replace, which removes the owned rows and no others.

Iceberg deletes whole data files by a row filter, and rejects a filter that matches only some rows of a file. If the
table's spec follows the scope, the filter is the scope and no manifest is read. If it does not, files may straddle the
scope. The filter then grows until no file straddles it, and the same commit carries over the rows of those files that
the run does not own.
"""

import datetime as dt
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import Any, Final

from dagster_iceberg_spark.plan.partitions.binding import (
    BoundBox,
    BoundScope,
    Constraint,
    Interval,
    Intervals,
    Partitions,
    Values,
)
from dagster_iceberg_spark.table.partitioning import (
    TIME_TRANSFORMS,
    PartitionSpec,
    TimeTransform,
    Transform,
    granule_floor,
)
from dagster_iceberg_spark.table.predicate import LiteralValue, Predicate, any_of
from dagster_iceberg_spark.table.schema import GREATEST

_RESOLUTION: Final = dt.timedelta(microseconds=1)
_DIRECTIONS: Final = 2


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The metadata of one column in one data file.

    Args:
        may_hold_null: Whether a row may hold NULL.
        is_null: Whether all rows hold NULL.
        partitions: The partition values of the file under transforms that bounds say nothing about.
    """

    lower: LiteralValue | None
    upper: LiteralValue | None
    may_hold_null: bool
    is_null: bool = False
    partitions: Mapping[Transform, LiteralValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file, with its bounds of a scope's columns. Its partition may show that it holds no owned row."""

    path: str
    bounds: Mapping[str, ColumnBounds]
    rows: int = 0
    may_be_owned: bool = True


@dataclass(frozen=True, slots=True)
class Coverage:
    """The rows to overwrite. The filter matches all or no rows of each file. Some files may straddle the owned rows."""

    filter: Predicate
    owned: Predicate
    straddling_files: int = 0

    @property
    def carries_over(self) -> bool:
        """Whether rows that the run does not own must be carried over."""
        return self.straddling_files > 0


def follows_spec(scope: BoundScope, specs: Iterable[PartitionSpec]) -> bool:
    """Return whether every partition of every spec lies entirely inside or outside the scope."""
    return scope.is_whole_table or all(
        _constraint_follows(constraint, spec) for spec in specs for box in scope.boxes for constraint in box
    )


def cover(scope: BoundScope, files: Sequence[DataFile], specs: Iterable[PartitionSpec] = ()) -> Coverage:
    """Grow the scope until no data file straddles it.

    `files` are all data files that may hold rows of the scope or of the grown scope, and `specs` those of these files.
    """
    known = tuple(specs)
    straddling = straddling_files(scope, files)
    owned = scope.predicate()
    if not straddling:
        return Coverage(filter=owned, owned=owned)
    widened = tuple(tuple(_by_partition(item, straddling, known) for item in box) for box in scope.boxes)
    grown = BoundScope(tuple(_grow(box, files) for box in widened)).predicate()
    # The partitions of these files exclude owned partitions without a file, which other writers may write in parallel.
    whole = grown if widened == scope.boxes else any_of([grown, owned])
    return Coverage(filter=whole, owned=owned, straddling_files=len(straddling))


def straddling_files(scope: BoundScope, files: Iterable[DataFile]) -> list[DataFile]:
    """Return the files that may hold both rows of the scope and other rows."""
    return [file for file in files if file.may_be_owned and any(_straddles(box, file) for box in scope.boxes)]


def file_transform(constraint: Constraint, specs: Sequence[PartitionSpec]) -> Transform | None:
    """Return the transform of the column, such as `bucket`, for which every file has one partition value.

    If a spec also has the column's identity, Iceberg 1.12 confuses its values with the transform's
    (`Identity.project`), so there is none.
    """
    if not isinstance(constraint, Values) or constraint.has_null or not specs:
        return None
    transforms = [{field.transform for field in spec.on(constraint.column)} for spec in specs]
    if any(transform.name == "identity" for each in transforms for transform in each):
        return None
    return next((item for item in set.intersection(*transforms) if item.argument is not None), None)


def _by_partition(constraint: Constraint, files: Iterable[DataFile], specs: Sequence[PartitionSpec]) -> Constraint:
    """Return the partitions of the files instead of the values, which truncated bounds cannot separate."""
    transform = file_transform(constraint, specs)
    if transform is None:
        return constraint
    values = {file.bounds[constraint.column].partitions.get(transform) for file in files}
    known = tuple(sorted(value for value in values if value is not None))
    return Partitions(constraint.column, transform, known) if len(known) == len(values) else constraint


def hull(scope: BoundScope) -> BoundScope:
    """Return a wider scope with few terms: for each column that every box constrains, the union of the constraints."""
    if scope.is_whole_table or not scope.boxes:
        return scope
    by_column = {name: [[item for item in box if item.column == name] for box in scope.boxes] for name in scope.columns}
    outlines = (_outline(name, list(chain(*found))) for name, found in by_column.items() if all(found))
    return BoundScope((tuple(outline for outline in outlines if outline is not None),))


def _outline(column: str, constraints: Sequence[Constraint]) -> Constraint | None:
    """Return one constraint that includes all of the constraints, or None if they are of several kinds."""
    if len({type(item) for item in constraints}) > 1 or isinstance(constraints[0], Partitions):
        return None
    intervals = [pair for item in constraints if isinstance(item, Intervals) for pair in item.intervals]
    listed = [item for item in constraints if isinstance(item, Values)]
    if intervals:
        starts, ends = [start for start, _ in intervals], [end for _, end in intervals]
        return Intervals(column, ((_extreme(min, starts), _extreme(max, ends)),))
    values = dict.fromkeys(value for item in listed for value in item.values)
    return Values(column, tuple(values), has_null=any(item.has_null for item in listed))


def _extreme(choose: Callable[..., Any], edges: Sequence[LiteralValue | None]) -> LiteralValue | None:
    return None if None in edges else choose(edges)


def within_file(scope: BoundScope, file: DataFile) -> BoundScope:
    """Return the scope that remains for the rows of one file: without boxes for none, the whole table for all."""
    boxes = (_box_within(box, file) for box in scope.boxes)
    left = tuple(dict.fromkeys(box for box in boxes if box is not None))
    return BoundScope(((),)) if () in left else BoundScope(left)


def _box_within(box: BoundBox, file: DataFile) -> BoundBox | None:
    kept: list[Constraint] = []
    for constraint in box:
        bounds = file.bounds[constraint.column]
        if not _may_match(constraint, bounds):
            return None
        if not _contains(constraint, bounds):
            kept.append(_overlapping(constraint, bounds))
    return tuple(kept)


def _overlapping(constraint: Constraint, bounds: ColumnBounds) -> Constraint:
    lower, upper = bounds.lower, bounds.upper
    if lower is None or upper is None or isinstance(constraint, Partitions):
        return constraint
    if isinstance(constraint, Values):
        kept = tuple(value for value in constraint.values if lower <= value <= upper)  # type: ignore[operator]
        return Values(constraint.column, kept, has_null=constraint.has_null)
    meeting = (pair for pair in constraint.intervals if _has_begun(pair, upper) and not _has_ended(pair, lower))
    return Intervals(constraint.column, tuple(meeting))


def _has_begun(interval: Interval, value: LiteralValue) -> bool:
    start = interval[0]
    return start is None or start <= value  # type: ignore[operator]


def _has_ended(interval: Interval, value: LiteralValue) -> bool:
    end = interval[1]
    return end is not None and value >= end  # type: ignore[operator]


def rows_by_partition(
    partitions: Sequence[tuple[str, BoundScope]], files: Iterable[DataFile]
) -> Mapping[str, int] | None:
    """Return the number of rows of each partition, or None if a file does not lie in a single partition."""
    counts = dict.fromkeys((key for key, _ in partitions), 0)
    for file in files:
        key = next((key for key, scope in partitions if any(_holds(box, file) for box in scope.boxes)), None)
        if key is None:
            return None
        counts[key] += file.rows
    return counts


def _holds(box: BoundBox, file: DataFile) -> bool:
    return all(_contains(constraint, file.bounds[constraint.column]) for constraint in box)


def _constraint_follows(constraint: Constraint, spec: PartitionSpec) -> bool:
    fields = spec.on(constraint.column)
    has_values = any(field.transform.name == "identity" for field in fields)
    if isinstance(constraint, Partitions):
        # Iceberg confuses the values of both: `file_transform`.
        return not has_values and any(field.transform == constraint.transform for field in fields)
    if has_values:
        return True
    if isinstance(constraint, Values):
        return bool(fields) and not constraint.values  # every transform keeps NULL apart from other values
    granules = [field.transform.name for field in fields if field.transform.name in TIME_TRANSFORMS]
    edges = [edge for interval in constraint.intervals for edge in interval]
    return any(all(_on_granule(granule, edge) for edge in edges) for granule in granules)


def _on_granule(granule: TimeTransform, edge: LiteralValue | None) -> bool:
    if edge is None:
        return True
    if not isinstance(edge, dt.date):
        return False
    moment = edge if isinstance(edge, dt.datetime) else dt.datetime.combine(edge, dt.time())
    return granule_floor(granule, moment) == moment


def _grow(box: BoundBox, files: Sequence[DataFile]) -> BoundBox:
    """Return the smallest union of intervals around the box that no file straddles. It may drop a column.

    The box grows in turns: upwards by the files' lower bounds, then downwards by their upper bounds. One turn follows a
    whole chain of overlapping files. Files that are inside the box stay inside.
    """
    column = next((item.column for item in box if isinstance(item, Intervals)), None)
    left, downwards, unchanged = list(files), False, 0
    while unchanged < _DIRECTIONS:
        if column is not None:
            left.sort(key=partial(_edge, column=column, is_upper=downwards), reverse=downwards)
        outside: list[DataFile] = []
        for file in left:
            if _straddles(box, file):
                widened = (_widen(item, file.bounds[item.column]) for item in box)
                box = tuple(item for item in widened if item is not None)
            else:
                outside.append(file)
        unchanged = unchanged + 1 if len(outside) == len(left) else 0
        left, downwards = outside, not downwards
    return box


def _edge(file: DataFile, *, column: str, is_upper: bool) -> tuple[bool, Any]:
    """Return a bound of the file as a sort key. Unknown bounds sort together."""
    bounds = file.bounds[column]
    edge = bounds.upper if is_upper else bounds.lower
    return edge is not None, 0 if edge is None else edge


def _straddles(box: BoundBox, file: DataFile) -> bool:
    bounds = [(constraint, file.bounds[constraint.column]) for constraint in box]
    return all(_may_match(constraint, bound) for constraint, bound in bounds) and not all(
        _contains(constraint, bound) for constraint, bound in bounds
    )


def _may_match(constraint: Constraint, bounds: ColumnBounds) -> bool:
    lower, upper = bounds.lower, bounds.upper
    if isinstance(constraint, Values) and constraint.has_null and bounds.may_hold_null:
        return True
    if bounds.is_null or (isinstance(constraint, Values) and not constraint.values):
        return False
    if isinstance(constraint, Partitions):
        return bounds.partitions.get(constraint.transform, constraint.values[0]) in constraint.values
    if lower is None or upper is None:
        return True
    if isinstance(constraint, Values):
        return any(lower <= value <= upper for value in constraint.values)  # type: ignore[operator]
    last = _last_begun(constraint, upper)
    return last is not None and not _has_ended(last, lower)


def _contains(constraint: Constraint, bounds: ColumnBounds) -> bool:
    lower, upper = bounds.lower, bounds.upper
    if bounds.is_null:
        return isinstance(constraint, Values) and constraint.has_null
    if isinstance(constraint, Partitions):
        return bounds.partitions.get(constraint.transform) in constraint.values
    if lower is None or upper is None or bounds.may_hold_null:
        return False  # also if NULL is included: Iceberg does not see that values and NULL together are all rows
    if isinstance(constraint, Values):
        return lower == upper and lower in constraint.values
    last = _last_begun(constraint, lower)
    return last is not None and not _has_ended(last, upper)


def _last_begun(constraint: Intervals, value: LiteralValue) -> Interval | None:
    """Return the last interval that starts at or before the value."""
    begun = bisect_right(constraint.intervals, (True, value), key=_by_start)
    return constraint.intervals[begun - 1] if begun else None


def _widen(constraint: Constraint, bounds: ColumnBounds) -> Constraint | None:
    """Return the constraint widened to include the file, or None if the column must be dropped for that."""
    if _contains(constraint, bounds):
        return constraint
    lower, upper = bounds.lower, bounds.upper
    if not isinstance(constraint, Intervals) or bounds.may_hold_null or lower is None or upper is None:
        return None
    # The successor of a type's greatest number is not of that type, and no filter with it can be evaluated.
    is_all_nines = isinstance(upper, Decimal) and set(upper.as_tuple().digits) == {9}
    may_be_greatest = is_all_nines or upper in GREATEST.values()
    beyond = None if may_be_greatest else successor(upper)
    return None if beyond is None else Intervals(constraint.column, union_of((*constraint.intervals, (lower, beyond))))


def successor(value: LiteralValue) -> LiteralValue | None:  # noqa: PLR0911 - one for each type
    """Return the least greater value of the same type, or None if there is none."""
    try:
        match value:
            case dt.datetime():
                return value + _RESOLUTION
            case dt.date():
                return value + dt.timedelta(days=1)
            case int() if not isinstance(value, bool):
                return value + 1
            case str():
                return value + "\0"
            case Decimal():  # whose exponent is the scale of the type
                return value + Decimal(1).scaleb(int(value.as_tuple().exponent))
            case _:
                return None
    except OverflowError:  # the last day of the calendar, which means "never" in many tables
        return None


def union_of(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return the intervals in order, with those joined that touch or overlap."""
    united: list[Interval] = []
    for start, end in sorted(intervals, key=_by_start):
        last = united[-1] if united else None
        if last is None or (last[1] is not None and start is not None and last[1] < start):  # type: ignore[operator]
            united.append((start, end))
        else:
            united[-1] = (last[0], _extreme(max, [last[1], end]))
    return tuple(united)


def _by_start(interval: Interval) -> tuple[bool, Any]:
    start = interval[0]
    return start is not None, 0 if start is None else start

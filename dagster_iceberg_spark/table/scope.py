"""The rows that a run owns: those of its Dagster partitions, by the values of the partition columns."""

import datetime as dt
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Final, Literal, TypeAlias

from dagster_iceberg_spark.table.partitioning import TimeTransform

MAXIMUM_DESCRIBED_KEYS: Final = 20
_FIRST_AND_LAST: Final = re.compile(r"(?P<first>.*)\.\.(?P<last>.*) \((?P<count>\d+)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A half-open window between two aware instants, stored in UTC.

    For two instants in one zone, Python compares the wall clocks. A clock change can repeat an hour of them.
    """

    start: dt.datetime
    end: dt.datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", self.start.astimezone(dt.timezone.utc))
        object.__setattr__(self, "end", self.end.astimezone(dt.timezone.utc))


@dataclass(frozen=True, slots=True)
class TimeCalendar:
    """The calendar of a time dimension: zone and granules of its windows, and the strftime format of its keys."""

    timezone: str
    key_format: str
    granule: TimeTransform


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of a partitions definition. A name belongs to multi-partitions, a calendar to time windows."""

    name: str | None
    column: str
    calendar: "TimeCalendar | None" = None


@dataclass(frozen=True, slots=True)
class PartitionSlice:
    """One partition of one dimension: its key and, in a time dimension, its window."""

    key: str
    window: TimeWindow | None = None


Box: TypeAlias = tuple[tuple[PartitionSlice, ...], ...]
"""A product of slices: every combination of one slice from each dimension, in the dimensions' order."""


@dataclass(frozen=True)
class PartitionScope:
    """The partitions of a run or of an input.

    Args:
        dimensions: The dimensions of the partitions definition, in its order; empty for the whole table.
        partitions: One slice per dimension for each partition, in any order.
        keys: Dagster's key of each partition, in the same order.
    """

    dimensions: tuple[Dimension, ...] = ()
    partitions: tuple[tuple[PartitionSlice, ...], ...] = ()
    keys: tuple[str, ...] = ()

    @property
    def is_whole_table(self) -> bool:
        """Whether the scope is the whole table."""
        return not self.dimensions

    @property
    def is_empty(self) -> bool:
        """Whether the scope has no partitions, though the asset has a partitions definition."""
        return not self.is_whole_table and not self.partitions

    @cached_property
    def digest(self) -> str:
        """A hash of the set of keys, regardless of their order: 32 hexadecimal digits."""
        document = json.dumps(None if self.is_whole_table else sorted(self.keys), ensure_ascii=True)
        return hashlib.sha256(document.encode()).hexdigest()[:32]

    def describe(self) -> str:
        """Return the keys in a bounded form: one key, a JSON list, or the first key, the last key and the count.

        A text that starts with a bracket is always a list.
        """
        ordered = sorted(self.keys)
        if len(ordered) == 1 and not ordered[0].startswith("["):
            return ordered[0]
        if len(ordered) <= MAXIMUM_DESCRIBED_KEYS:
            return json.dumps(ordered, ensure_ascii=False)
        return f"{ordered[0]}..{ordered[-1]} ({len(ordered)})"

    @cached_property
    def boxes(self) -> tuple[Box, ...]:
        """The set of partitions as a union of boxes. Partitions with equal slices share a box.

        A range of a multi-dimensional definition is one box. 1,000 unrelated pairs are at most 1,000 boxes.
        """
        return tuple(_products(sorted(set(self.partitions), key=lambda partition: [item.key for item in partition])))


def listed_keys(described: str) -> frozenset[str] | None:
    """Return the keys that a description lists, or None if it has only their number."""
    if not described.startswith("["):
        return None if _FIRST_AND_LAST.fullmatch(described) else frozenset({described})
    try:
        return frozenset(json.loads(described))
    except ValueError:  # a key that an older version or another writer wrote unchanged
        return None


def first_and_last(described: str) -> tuple[str, str, int] | None:
    """Return the first key, the last key and the number of keys of a description that has no list, or None."""
    ends = _FIRST_AND_LAST.fullmatch(described)
    return None if ends is None else (ends["first"], ends["last"], int(ends["count"]))


def share_of(described: str, keys: Iterable[str]) -> Literal["all", "some", "none"] | None:
    """Return how many of the keys a description covers, or None if that is unknown."""
    wanted, listed = frozenset(keys), listed_keys(described)
    if listed is not None:
        return "all" if wanted <= listed else "some" if wanted & listed else "none"
    ends = _FIRST_AND_LAST.fullmatch(described)
    if ends is None:
        return None
    return None if any(ends["first"] <= key <= ends["last"] for key in wanted) else "none"


def merge_windows(windows: Iterable[TimeWindow]) -> tuple[TimeWindow, ...]:
    """Join windows that touch or overlap, in order of time."""
    merged: list[TimeWindow] = []
    for window in sorted(windows, key=lambda window: (window.start, window.end)):
        if merged and window.start <= merged[-1].end:
            merged[-1] = TimeWindow(merged[-1].start, max(merged[-1].end, window.end))
        else:
            merged.append(window)
    return tuple(merged)


def _products(partitions: Sequence[tuple[PartitionSlice, ...]]) -> list[Box]:
    """Group partitions that share their first slice, then first slices that share the rest."""
    if not partitions:
        return []
    if not partitions[0]:
        return [()]
    firsts_by_rest: dict[tuple[Box, ...], list[PartitionSlice]] = {}
    for first, group in groupby(partitions, key=lambda partition: partition[0]):
        rest = tuple(_products([partition[1:] for partition in group]))
        firsts_by_rest.setdefault(rest, []).append(first)
    return [(tuple(firsts), *box) for rest, firsts in firsts_by_rest.items() for box in rest]

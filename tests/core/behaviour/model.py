"""A plain Python model of a table: which rows each partition owns, and what each disposition does to them.

Nothing here is the package's: windows come from Dagster, wall clocks from `zoneinfo`.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import pyarrow as pa

UTC = dt.timezone.utc
TICK = dt.timedelta(microseconds=1)
MOST_KEYS = 12

MAIN = "main"

Row = dict[str, Any]
Window = tuple[dt.datetime, dt.datetime]


@dataclass(frozen=True)
class Kind:
    """A partitions definition over a column of some type.

    Args:
        name: What tells kinds apart in a test's id.
        definition: The partitions definition; None: the asset has no partitions.
        expr: `partition_expr`.
        types: The Arrow types of the partition columns.
        values: By partition key, values of the partition columns that belong to it, edges included.
        foreign: Values that belong to no partition, or to none of the keys nearby.
        layouts: What `iceberg/partition_by` may say over these columns.
    """

    name: str
    definition: dg.PartitionsDefinition[Any] | None
    expr: Any
    types: Mapping[str, pa.DataType]
    values: Mapping[str, Sequence[Row]]
    foreign: Sequence[Row]
    layouts: Sequence[list[str] | None]
    owner: Callable[[Row], str | None] = field(default=lambda _: None)

    @property
    def keys(self) -> list[str]:
        return list(self.values)

    def key_range(self, first: int, last: int) -> list[str]:
        """The keys of a range, as Dagster counts them: over several dimensions a product."""
        if isinstance(self.definition, dg.MultiPartitionsDefinition):
            dimensions = {
                item.name: item.partitions_def.get_partition_keys() for item in self.definition.partitions_defs
            }
            ends = [self.definition.get_partition_key_from_str(self.keys[at]).keys_by_dimension for at in (first, last)]
            spans = {
                name: keys[keys.index(ends[0][name]) : keys.index(ends[1][name]) + 1]
                for name, keys in dimensions.items()
            }
            return [
                key
                for key in self.keys
                if all(
                    part in spans[name]
                    for name, part in self.definition.get_partition_key_from_str(key).keys_by_dimension.items()
                )
            ]
        return self.keys[first : last + 1] if self.has_ranges else [self.keys[first]]

    @cached_property
    def has_ranges(self) -> bool:
        """Whether Dagster knows what lies between two keys: 1.13 does not where a clock repeats an hour."""
        if not isinstance(self.definition, dg.TimeWindowPartitionsDefinition):
            return True
        starts = [self.definition.time_window_for_partition_key(key).start.replace(tzinfo=None) for key in self.keys]
        return len(set(starts)) == len(starts)


def windows_of(definition: dg.TimeWindowPartitionsDefinition) -> dict[str, Window]:
    """The windows of the last keys, by Dagster."""
    keys = definition.get_partition_keys()[-MOST_KEYS:]
    windows = {key: definition.time_window_for_partition_key(key) for key in keys}
    # In UTC, for arithmetic on zoned times is that of their wall clocks.
    return {key: (window.start.astimezone(UTC), window.end.astimezone(UTC)) for key, window in windows.items()}


def instants(name: str, definition: dg.TimeWindowPartitionsDefinition, layouts: Sequence[list[str] | None]) -> Kind:
    """Time windows over a column of instants."""
    windows = windows_of(definition)
    edges = sorted(edge for window in windows.values() for edge in window)

    def owner(row: Row) -> str | None:
        at = row["p"]
        return next((key for key, (start, end) in windows.items() if at is not None and start <= at < end), None)

    return Kind(
        name,
        definition,
        "p",
        {"p": pa.timestamp("us", "UTC")},
        {
            key: [{"p": value.astimezone(UTC)} for value in (start, start + (end - start) / 3, end - TICK)]
            for key, (start, end) in windows.items()
        },
        [{"p": edges[0].astimezone(UTC) - TICK}, {"p": edges[-1].astimezone(UTC)}, {"p": None}],
        layouts,
        owner,
    )


def wall_clocks(name: str, definition: dg.TimeWindowPartitionsDefinition, layouts: Sequence[list[str] | None]) -> Kind:
    """Time windows over a column of wall clocks of the definition's zone."""
    zone = ZoneInfo(definition.timezone)
    windows = {
        key: tuple(edge.astimezone(zone).replace(tzinfo=None) for edge in window)
        for key, window in windows_of(definition).items()
    }

    def owner(row: Row) -> str | None:
        at = row["p"]
        return next((key for key, (start, end) in windows.items() if at is not None and start <= at < end), None)

    first, last = min(start for start, _ in windows.values()), max(end for _, end in windows.values())
    return Kind(
        name,
        definition,
        "p",
        {"p": pa.timestamp("us")},
        {key: [{"p": start}, {"p": end - TICK}] for key, (start, end) in windows.items()},
        [{"p": first - TICK}, {"p": last}, {"p": None}],
        layouts,
        owner,
    )


def dates(name: str, definition: dg.TimeWindowPartitionsDefinition, layouts: Sequence[list[str] | None]) -> Kind:
    """Windows of whole days over a column of dates."""
    zone = ZoneInfo(definition.timezone)
    windows = {
        key: (start.astimezone(zone).date(), end.astimezone(zone).date())
        for key, (start, end) in windows_of(definition).items()
    }

    def owner(row: Row) -> str | None:
        day = row["p"]
        return next((key for key, (start, end) in windows.items() if day is not None and start <= day < end), None)

    first, last = min(start for start, _ in windows.values()), max(end for _, end in windows.values())
    one = dt.timedelta(days=1)
    return Kind(
        name,
        definition,
        "p",
        {"p": pa.date32()},
        {key: [{"p": start}, {"p": end - one}] for key, (start, end) in windows.items()},
        [{"p": first - one}, {"p": last}, {"p": None}],
        layouts,
        owner,
    )


def keyed(
    name: str,
    data_type: pa.DataType,
    values: Mapping[str, Any],
    foreign: Sequence[Any],
    layouts: Sequence[list[str] | None],
) -> Kind:
    """Static keys over a column of values, one for each key."""
    keys = {value: key for key, value in values.items()}
    return Kind(
        name,
        dg.StaticPartitionsDefinition(list(values)),
        "k",
        {"k": data_type},
        {key: [{"k": value}] for key, value in values.items()},
        [{"k": value} for value in (*foreign, None)],
        layouts,
        lambda row: keys.get(row["k"]),
    )


def names(name: str, keys: Sequence[str], layouts: Sequence[list[str] | None]) -> Kind:
    """Static keys over a column of text."""
    return keyed(name, pa.string(), {key: key for key in keys}, ["another", f"{keys[0]} "], layouts)


def cells(name: str, rows: Kind, columns: Kind, layouts: Sequence[list[str] | None]) -> Kind:
    """Two dimensions."""
    assert rows.definition is not None
    assert columns.definition is not None
    definition = dg.MultiPartitionsDefinition({"a": rows.definition, "b": columns.definition})
    values: dict[str, list[Row]] = {}
    for key in definition.get_partition_keys():
        parts = dg.MultiPartitionKey(
            definition.get_partition_key_from_str(str(key)).keys_by_dimension
        ).keys_by_dimension
        values[str(key)] = [{**one, **other} for one in rows.values[parts["a"]] for other in columns.values[parts["b"]]]

    def owner(row: Row) -> str | None:
        parts = {"a": rows.owner(row), "b": columns.owner(row)}
        if parts["a"] is None or parts["b"] is None:
            return None
        return str(dg.MultiPartitionKey({"a": parts["a"], "b": parts["b"]}))

    some = {**rows.values[rows.keys[0]][0], **columns.values[columns.keys[0]][0]}
    return Kind(
        name,
        definition,
        {"a": rows.expr, "b": columns.expr},
        {**rows.types, **columns.types},
        values,
        [{**some, **outside} for outside in (*rows.foreign, *columns.foreign)],
        layouts,
        owner,
    )


def whole(name: str) -> Kind:
    """No partitions."""
    return Kind(
        name, None, None, {"k": pa.string()}, {"": [{"k": "x"}, {"k": None}]}, [], (None, ["k"], ["bucket(2, id)"])
    )


@dataclass
class Model:
    """What the table should hold.

    Args:
        kind: The partitions.
        columns: Every column in order, with its type.
        branches: By branch every row, with a value for each column.
        branch: The branch that is written.
    """

    kind: Kind
    columns: dict[str, pa.DataType]
    branches: dict[str, list[Row]] = field(default_factory=lambda: {MAIN: []})
    branch: str = MAIN

    @property
    def rows(self) -> list[Row]:
        return self.branches[self.branch]

    def write_to(self, branch: str) -> None:
        """Choose the branch; a new one has what main has."""
        self.branches.setdefault(branch, [dict(row) for row in self.branches[MAIN]])
        self.branch = branch

    def add_column(self, name: str, data_type: pa.DataType) -> None:
        self.columns[name] = data_type
        for row in chain.from_iterable(self.branches.values()):
            row.setdefault(name, None)

    def drop_column(self, name: str) -> None:
        del self.columns[name]
        for row in chain.from_iterable(self.branches.values()):
            row.pop(name, None)

    def complete(self, rows: Iterable[Row]) -> list[Row]:
        return [{name: row.get(name) for name in self.columns} for row in rows]

    def is_owned(self, row: Row, keys: Sequence[str]) -> bool:
        return self.kind.definition is None or self.kind.owner(row) in keys

    def replace(self, keys: Sequence[str], rows: Iterable[Row]) -> None:
        self.rows[:] = [row for row in self.rows if not self.is_owned(row, keys)]
        self.append(rows)

    def append(self, rows: Iterable[Row]) -> None:
        self.rows.extend(self.complete(rows))

    def merge(self, keys: Sequence[str], rows: Sequence[Row]) -> None:
        for new in rows:
            matched = [row for row in self.rows if row["id"] == new["id"] and self.is_owned(row, keys)]
            for row in matched:
                row.update(new)
            if not matched:
                self.append([new])

    def delete(self, predicate: Callable[[Row], bool]) -> None:
        self.rows[:] = [row for row in self.rows if not predicate(row)]

    def sorted_rows(self, branch: str) -> list[tuple[Any, ...]]:
        return sort_rows(self.branches[branch], list(self.columns))


def sort_rows(rows: Iterable[Row], columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows as tuples in an order of their own, NULL first."""
    tuples = [tuple(row[name] for name in columns) for row in rows]
    return sorted(tuples, key=lambda row: [(value is not None, value) for value in row])

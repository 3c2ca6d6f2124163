"""Looks at a watched table, if it may have changed since the last tick."""

import datetime as dt
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final, TypeVar
from zoneinfo import ZoneInfo

import dagster as dg

from dagster_iceberg_spark.assets.address import (
    by_dimension,
    partition_columns,
    partition_scope,
    plain_metadata,
    spec_scope,
)
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import changed_files
from dagster_iceberg_spark.errors import IcebergSparkError, in_words
from dagster_iceberg_spark.features.watching.plan import Seen
from dagster_iceberg_spark.plan.options.output_options import BRANCH, parse_key
from dagster_iceberg_spark.plan.partitions.binding import bind_scope
from dagster_iceberg_spark.plan.read.read_plan import partition_files
from dagster_iceberg_spark.plan.write.overwrite_filter import ColumnBounds
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.scope import PartitionScope, TimeWindow, merge_windows
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, Snapshot, TableState

_FoundT = TypeVar("_FoundT")


@dataclass(frozen=True, slots=True)
class WatchedTable:
    """A table that a sensor watches, and its asset."""

    spec: dg.AssetSpec
    identifier: TableIdentifier
    branch: str

    @property
    def name(self) -> str:
        """The asset, with slashes between the parts of its key."""
        return "/".join(self.spec.key.path)


def watched_table(spec: dg.AssetSpec, identifier: TableIdentifier) -> WatchedTable:
    """Return the table of an asset, with the branch that its metadata names."""
    branch = parse_key(BRANCH, plain_metadata(spec.metadata), subject="/".join(spec.key.path))
    return WatchedTable(spec, identifier, branch or MAIN_BRANCH)


def look_at_each(
    context: dg.SensorEvaluationContext,
    tables: Iterable[WatchedTable],
    look_at: Callable[[WatchedTable, Any], tuple[_FoundT, Seen | None]],
) -> tuple[list[_FoundT], str]:
    """Look at each table, and return what was found and the new cursor. The error of a table does not stop the others.

    `look_at` gets a table with what the cursor has recorded of it. It returns what it has found, and what to remember,
    or None to keep what is remembered.
    """
    cursor: dict[str, Any] = json.loads(context.cursor or "{}")
    results = []
    for table in tables:
        try:
            found, seen = look_at(table, cursor.get(table.name))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other tables are looked at
            context.log.warning(f"The sensor could not look at {table.identifier}. {in_words(error)}")
            continue
        results.append(found)
        cursor |= {} if seen is None else {table.name: seen.document()}
    return results, json.dumps(cursor)


@dataclass(frozen=True, slots=True)
class TableLook:
    """What a sensor sees of a table.

    Args:
        state: The state of the table, or None if there is no table or branch yet.
        before: What it has seen before, or None at the first look.
        now: What there is to see now.
    """

    state: TableState | None
    before: Seen | None
    now: Seen


def look_again(catalog: CatalogDescription, table: WatchedTable, recorded: Any) -> TableLook | None:
    """Return the table, or None if it has not changed since. A table that was dropped has not changed.

    Args:
        catalog: The catalog.
        table: The table.
        recorded: What the cursor has recorded of it, or None at the first look.
    """
    from dagster_iceberg_spark.catalog.look import look, pointer_of

    before = None if recorded is None else Seen.parse(recorded)
    pointer = pointer_of(catalog, table.identifier)
    if before is not None and pointer is not None and pointer == before.pointer:
        return None
    state = look(catalog, table.identifier)
    if state is None or table.branch not in state.refs:
        return None if before is not None else TableLook(None, None, Seen.of(state, table.branch, pointer))
    return TableLook(state, before, Seen.of(state, table.branch, pointer))


MAXIMUM_PARTITIONS: Final = 5_000
"""With more candidates, an event without a partition is recorded."""
_DAY: Final = dt.timedelta(days=1)


def partitions_of(
    spec: dg.AssetSpec,
    state: TableState,
    snapshots: Iterable[Snapshot],
    *,
    catalog: CatalogDescription,
    instance: dg.DagsterInstance,
) -> Sequence[str] | None:
    """Return the partitions that the snapshots may have changed, or None if these cannot be determined.

    They are determined by the bounds of the partition columns in the files that were added and removed.
    """
    subject, partitions_def = "/".join(spec.key.path), spec.partitions_def
    try:
        columns = partition_columns(partitions_def, plain_metadata(spec.metadata), subject=subject)
    except IcebergSparkError:
        return None
    if partitions_def is None:
        return None
    snapshot_ids = [snapshot.snapshot_id for snapshot in snapshots]
    files = changed_files(catalog, state.identifier, snapshot_ids, columns)

    def match(keys: Sequence[str] | None, scope_of: Callable[[str], PartitionScope]) -> Sequence[str] | None:
        if keys is None or len(keys) > MAXIMUM_PARTITIONS:
            return None
        bound = [bind_scope(scope_of(key), state.schema, subject=subject) for key in keys]
        return [key for key, places in zip(keys, partition_files(bound, files), strict=True) if places]

    definitions = by_dimension(partitions_def)
    found: dict[str | None, Sequence[str]] = {}
    for (name, definition), column in zip(definitions.items(), columns, strict=True):
        scope_of = partial(_scope_of_key, definition, column, subject=subject)
        keys = match(_candidates(definition, [file.bounds[column] for file in files], instance), scope_of)
        if keys is None:
            return None
        found[name] = keys
    if None in found:
        return found[None]
    pairs = [
        str(dg.MultiPartitionKey(dict(zip(map(str, found), keys, strict=True)))) for keys in product(*found.values())
    ]
    return match(pairs, lambda key: spec_scope(spec, [key]))


def _scope_of_key(definition: dg.PartitionsDefinition, column: str, key: str, *, subject: str) -> PartitionScope:
    return partition_scope(definition, [key], column, subject=subject)


def _candidates(
    definition: dg.PartitionsDefinition, bounds: Sequence[ColumnBounds], instance: dg.DagsterInstance
) -> Sequence[str] | None:
    """Return the partitions of one dimension that files with these bounds may be in, or None if it is unknown.

    A row whose column is NULL is in no partition of time.
    """
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return definition.get_partition_keys(dynamic_partitions_store=instance)
    edges = [(item.lower, item.upper) for item in bounds if not item.is_null]
    if any(edge is None for pair in edges for edge in pair):
        return None
    dates = [(lower, upper) for lower, upper in edges if isinstance(lower, dt.date) and isinstance(upper, dt.date)]
    if len(dates) < len(edges):  # the windows of texts and numbers follow from the keys
        return definition.get_partition_keys()
    first, last = definition.get_first_partition_window(), definition.get_last_partition_window()
    if first is None or last is None:
        return ()
    zone = ZoneInfo(definition.timezone)
    windows = merge_windows(
        TimeWindow(*(min(max(_instant(edge, zone), first.start), last.end) for edge in pair)) for pair in dates
    )
    keys = (
        key
        for window in windows
        for key in definition.get_partition_keys_in_time_window(
            dg.TimeWindow(window.start - _DAY, window.end + 2 * _DAY)
        )
    )
    return [key for key in dict.fromkeys(keys) if definition.has_partition_key(key)]


def _instant(edge: dt.date, zone: ZoneInfo) -> dt.datetime:
    instant = edge if isinstance(edge, dt.datetime) else dt.datetime.combine(edge, dt.time())
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=zone)

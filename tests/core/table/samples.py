"""Sample schemas, scopes, snapshots and tables, each built in one line."""

import datetime as dt
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from zoneinfo import ZoneInfo

from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.partitioning import PartitionSpec, TimeTransform, parse_partition_field
from dagster_iceberg_spark.table.schema import Field, IcebergType, Schema, parse_type
from dagster_iceberg_spark.table.scope import Dimension, PartitionScope, PartitionSlice, TimeCalendar, TimeWindow
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

TABLE = TableIdentifier(("nyc",), "flights")
NEW_YORK = "America/New_York"


def utc(*parts: int) -> dt.datetime:
    """Return an instant, given in UTC."""
    return dt.datetime(*parts, tzinfo=dt.timezone.utc)  # type: ignore[arg-type, misc]


def wall(*parts: int) -> dt.datetime:
    """Return a local time without a time zone."""
    return dt.datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001 - a wall clock by design


def local(zone: str, *parts: int, fold: int = 0) -> dt.datetime:
    """Return an instant, given in a time zone."""
    return dt.datetime(*parts, tzinfo=ZoneInfo(zone), fold=fold)  # type: ignore[arg-type, misc]


def schema(**columns: str | IcebergType) -> Schema:
    """Return a schema of optional columns. A type that ends with `!` makes the column required."""
    return Schema(tuple(_field(name, column) for name, column in columns.items()))


def _field(name: str, column: str | IcebergType) -> Field:
    if not isinstance(column, str):
        return Field(name, column)
    return Field(name, parse_type(column.rstrip("!")), is_required=column.endswith("!"))


def spec(*fields: str, spec_id: int = 0) -> PartitionSpec:
    """Return a spec with fields as in `iceberg/partition_by`."""
    return PartitionSpec(tuple(parse_partition_field(field) for field in fields), spec_id)


def day(key: str, zone: str = "UTC") -> PartitionSlice:
    """Return the slice of one calendar day."""
    start = dt.datetime.fromisoformat(key)
    end = start + dt.timedelta(days=1)
    return PartitionSlice(key, TimeWindow(start.replace(tzinfo=ZoneInfo(zone)), end.replace(tzinfo=ZoneInfo(zone))))


def calendar(zone: str = "UTC", fmt: str = "%Y-%m-%d", granule: TimeTransform = "day") -> TimeCalendar:
    """Return a calendar, by default daily."""
    return TimeCalendar(zone, fmt, granule)


def daily(*keys: str, column: str = "ts", zone: str = "UTC") -> PartitionScope:
    """Return a scope of calendar days."""
    dimension = Dimension(None, column, calendar(zone))
    return PartitionScope((dimension,), tuple((day(key, zone),) for key in keys), keys)


def keyed(*keys: str, column: str = "carrier") -> PartitionScope:
    """Return a scope of static keys."""
    return PartitionScope((Dimension(None, column),), tuple((PartitionSlice(key),) for key in keys), keys)


def keys_by_day(pairs: Iterable[tuple[str, str]], *, key_column: str = "carrier", column: str = "ts") -> PartitionScope:
    """Return a scope of pairs, each with a static key and a calendar day."""
    pairs = tuple(pairs)
    dimensions = (Dimension("carrier", key_column), Dimension("day", column, calendar()))
    slices = tuple((PartitionSlice(key), day(date)) for key, date in pairs)
    return PartitionScope(dimensions, slices, tuple(f"{key}|{date}" for key, date in pairs))


def snapshot(snapshot_id: int, *, parent: int | None = None, operation: str = "overwrite", **summary: Any) -> Snapshot:
    """Return a snapshot committed `snapshot_id` seconds after 1970. Its summary keys are given without `dagster.`."""
    return Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent,
        committed_at_ms=snapshot_id * 1000,
        operation=operation,
        summary={f"dagster.{key}": value for key, value in summary.items() if value is not None},
    )


EMPTY_START: Final = Snapshot(9, None, 9000, "append", {"total-records": "0", "total-data-files": "0"})
"""What Iceberg adds to the first branch of a table that has no snapshot."""


def chain(*snapshots: Snapshot) -> tuple[Snapshot, ...]:
    """Return the snapshots, each with the previous one as its parent."""
    parents = (None, *(item.snapshot_id for item in snapshots))
    return tuple(
        Snapshot(item.snapshot_id, parent, item.committed_at_ms, item.operation, item.summary, item.schema_id)
        for item, parent in itertools.zip_longest(snapshots, parents[: len(snapshots)])
    )


def table(
    columns: Schema | None = None,
    *,
    specs: Sequence[PartitionSpec] = (PartitionSpec((), 0),),
    properties: Mapping[str, str] | None = None,
    snapshots: Sequence[Snapshot] = (),
    refs: Mapping[str, int] | None = None,
    schemas: Mapping[int, Schema] | None = None,
    branches: Iterable[str] = ("main",),
    snapshot_log: Iterable[tuple[int, int]] = (),
) -> TableState:
    """Return a table's state. `main` is the last snapshot."""
    heads = {"main": snapshots[-1].snapshot_id} if snapshots else {}
    return TableState(
        identifier=TABLE,
        location="file:///lake/nyc/flights",
        format_version=2,
        schema=columns or schema(ts="timestamptz", carrier="string"),
        specs={item.spec_id or 0: item for item in specs},
        default_spec_id=specs[-1].spec_id or 0,
        properties=properties or {},
        snapshots={item.snapshot_id: item for item in snapshots},
        refs=heads if refs is None else refs,
        schemas=schemas or {},
        branches=frozenset(branches),
        snapshot_log=tuple(snapshot_log),
    )

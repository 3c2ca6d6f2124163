"""What an input reads: one snapshot, some rows, some columns."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dagster_iceberg_spark.errors import MetadataKeyError, UpstreamMissingError
from dagster_iceberg_spark.plan.binding import BoundScope, bind_scope
from dagster_iceberg_spark.plan.values import instant, nearest_of
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.predicate import EVERY_ROW, Predicate
from dagster_iceberg_spark.table.schema import Schema, are_same_columns
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, TableState

COLUMNS: Final = "columns"
SNAPSHOT_ID: Final = "iceberg/snapshot_id"
AS_OF: Final = "iceberg/as_of"
REF: Final = "iceberg/ref"

INPUT_KEYS: Final[Mapping[str, str]] = {
    SNAPSHOT_ID: "id of the snapshot to read",
    AS_OF: "instant, with its zone: the newest snapshot of the branch that is not younger is read",
    REF: "branch or tag to read",
}
"""Every `iceberg/` key of an input, and the values that it takes."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What an input's own metadata asks for.

    Args:
        columns: Columns to read, in order; None: all.
        snapshot_id: The snapshot to read.
        as_of: The instant to read the branch at, aware.
        ref: Branch or tag.
    """

    columns: tuple[str, ...] | None = None
    snapshot_id: int | None = None
    as_of: dt.datetime | None = None
    ref: str | None = None


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """One read, decided.

    Args:
        identifier: The table.
        snapshot_id: The snapshot; None: the table has none yet, so there are no rows.
        scope: Which rows.
        columns: Which columns, by the table's own names and in order.
        schema: The columns to read it by: the table's own at the head of a branch, else those of the snapshot.
        stored: The columns that the snapshot has. Which is which, the field ids tell.
        is_whole_row: Whether all columns are read.
    """

    identifier: TableIdentifier
    snapshot_id: int | None
    scope: BoundScope
    columns: tuple[str, ...]
    schema: Schema
    stored: Schema
    is_whole_row: bool

    @property
    def predicate(self) -> Predicate:
        """Which rows, as a predicate."""
        return self.scope.predicate()

    @property
    def is_as_stored(self) -> bool:
        """Whether the snapshot's columns are still the table's."""
        return are_same_columns(self.schema.fields, self.stored.fields)


def parse_read_options(metadata: Mapping[str, Any], *, subject: str) -> ReadOptions:
    """Resolve the metadata of an input (`AssetIn(metadata=...)`, `In(metadata=...)`).

    Raises:
        MetadataKeyError: A key is unknown, or its value is not one that it takes.
    """
    for key in metadata:
        if key.startswith("iceberg/") and key not in INPUT_KEYS:
            nearest = nearest_of(key, tuple(INPUT_KEYS))
            hint = f"did you mean `{nearest}`?" if nearest else f"the keys are {', '.join(INPUT_KEYS)}."
            raise MetadataKeyError.refusing(
                "use", f"the metadata of {subject}", expected="a key of an input", found=f"`{key}`", hint=hint
            )
    chosen = [key for key in INPUT_KEYS if metadata.get(key) is not None]
    if SNAPSHOT_ID in chosen and len(chosen) > 1:
        raise MetadataKeyError.refusing(
            "use", f"the metadata of {subject}", expected=f"`{SNAPSHOT_ID}` alone", found=f"`{'` and `'.join(chosen)}`"
        )
    return ReadOptions(
        columns=_columns(metadata.get(COLUMNS), subject),
        snapshot_id=_snapshot_id(metadata.get(SNAPSHOT_ID), subject),
        as_of=_instant(metadata.get(AS_OF), subject),
        ref=metadata.get(REF),
    )


def plan_read(state: TableState, scope: PartitionScope, options: ReadOptions) -> ReadPlan:
    """Decide one read.

    Args:
        state: A fresh look at the table.
        scope: The partitions to read.
        options: What the input's metadata asks for.

    Raises:
        UpstreamMissingError: The snapshot, ref or column that is asked for is not there.
        PartitioningError: The partitions cannot be told apart by the table's columns.
    """
    subject = str(state.identifier)
    snapshot_id = _resolve_snapshot(state, options)
    is_head = options.snapshot_id is None and options.as_of is None and (options.ref or MAIN_BRANCH) in state.branches
    stored = _schema_at(state, snapshot_id)
    schema = state.schema if is_head else stored
    columns = schema.names if options.columns is None else _exact_names(options.columns, schema, subject)
    bound = bind_scope(scope, schema, subject=subject)
    return ReadPlan(
        identifier=state.identifier,
        snapshot_id=snapshot_id,
        scope=bound,
        columns=columns,
        schema=schema,
        stored=stored,
        is_whole_row=options.columns is None,
    )


def reads_everything(plan: ReadPlan) -> bool:
    """Say whether no row is left out."""
    return plan.predicate == EVERY_ROW


def _resolve_snapshot(state: TableState, options: ReadOptions) -> int | None:
    if options.snapshot_id is not None:
        return _known_snapshot(state, options.snapshot_id)
    if options.ref not in (None, MAIN_BRANCH, *state.refs):
        raise UpstreamMissingError.refusing(
            "read",
            str(state.identifier),
            expected=f"a branch or tag {options.ref!r}",
            found=f"the refs {', '.join(sorted(state.refs)) or 'none'}",
        )
    branch = options.ref or MAIN_BRANCH
    if options.as_of is None:
        return state.refs.get(branch)
    limit_ms = int(options.as_of.timestamp() * 1000)
    for snapshot in state.ancestors(branch):
        if snapshot.committed_at_ms <= limit_ms:
            return snapshot.snapshot_id
    raise UpstreamMissingError.refusing(
        "read",
        str(state.identifier),
        expected=f"a snapshot of {branch!r} not younger than {options.as_of.isoformat()}",
        found="none: the table is younger, its older snapshots have expired, or the catalog shows the newest alone",
    )


def _known_snapshot(state: TableState, snapshot_id: int) -> int:
    if snapshot_id in state.snapshots:
        return snapshot_id
    raise UpstreamMissingError.refusing(
        "read",
        str(state.identifier),
        expected=f"the snapshot {snapshot_id}",
        found=f"{len(state.snapshots)} other snapshots",
        hint="it may have expired, or the catalog shows the newest alone; `iceberg/as_of` takes an instant.",
    )


def _schema_at(state: TableState, snapshot_id: int | None) -> Schema:
    """Return the columns that the engines read: those of the snapshot's own schema."""
    snapshot = None if snapshot_id is None else state.snapshots.get(snapshot_id)
    if snapshot is None or snapshot.schema_id is None:
        return state.schema
    return state.schemas.get(snapshot.schema_id, state.schema)


def _exact_names(names: tuple[str, ...], schema: Schema, subject: str) -> tuple[str, ...]:
    fields = {name: schema.field(name) for name in names}
    missing = [name for name, field in fields.items() if field is None]
    if missing:
        raise UpstreamMissingError.refusing(
            "read",
            subject,
            expected=f"the columns {', '.join(missing)} of `columns`",
            found=f"the columns {', '.join(schema.names)}",
        )
    return tuple(field.name for field in fields.values() if field is not None)


def _columns(value: Any, subject: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise MetadataKeyError.refusing(
        "use", f"`{COLUMNS}` of {subject}", expected="a list of column names, not empty", found=repr(value)
    )


def _snapshot_id(value: Any, subject: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    raise MetadataKeyError.refusing(
        "use", f"`{SNAPSHOT_ID}` of {subject}", expected="a snapshot's id", found=repr(value)
    )


def _instant(value: Any, subject: str) -> dt.datetime | None:
    if value is None:
        return None
    try:
        return instant(value)
    except (ValueError, TypeError) as error:
        raise MetadataKeyError.refusing(
            "use",
            f"`{AS_OF}` of {subject}",
            expected="an instant with its zone, such as 2024-01-31T12:00:00+00:00",
            found=repr(value),
        ) from error

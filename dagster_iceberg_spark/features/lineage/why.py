"""Why a row is as it is: the snapshot that wrote it last, its run, and what that run has read."""

import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from typing import Any, Final, TypeAlias

import dagster as dg
from pyiceberg.table import Table

from dagster_iceberg_spark.arrow.scan import PlannedScan
from dagster_iceberg_spark.assets.dagster_private.event_log import recorded_events
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import data_manifests, entries_in
from dagster_iceberg_spark.catalog.look import known_table, translated_answers
from dagster_iceberg_spark.features.lineage.lineage_catalogs import CatalogTables
from dagster_iceberg_spark.features.lineage.observer import COPIED_COLUMNS
from dagster_iceberg_spark.features.lineage.plan.provenance import Provenance, TableHistory
from dagster_iceberg_spark.plan.read.history import HistoryEntry
from dagster_iceberg_spark.plan.read.read_options import ReadOptions
from dagster_iceberg_spark.plan.read.read_plan import ReadPlan, plan_read
from dagster_iceberg_spark.resource import require_pyspark
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.change import may_take_over_rows
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import UpstreamRead, upstream_reads
from dagster_iceberg_spark.table.predicate import In, LiteralValue, Predicate, all_of, any_of
from dagster_iceberg_spark.table.schema import TIMESTAMP, TIMESTAMPTZ, IcebergType, Schema
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState


def rows_with_snapshots(
    description: CatalogDescription, plan: ReadPlan, *, limit: int
) -> list[tuple[dict[str, Any], int | None]]:
    """Return rows of a plan, each with the snapshot that added its file, or None if that is not known.

    Args:
        description: The catalog.
        plan: The plan of the read.
        limit: The number of rows after which the search ends.
    """
    table = known_table(description, plan.identifier, action="read", snapshot_id=plan.snapshot_id)
    found: list[tuple[dict[str, Any], str]] = []
    with translated_answers(description, action=f"read {plan.identifier} from"):
        for path, batch in PlannedScan(table, plan).by_file():
            found += [(row, path) for row in batch.slice(0, limit - len(found)).to_pylist()]
            if len(found) >= limit:
                break
        added_by = _snapshots_of_files(table, plan.snapshot_id) if found else {}
    return [(row, added_by.get(path)) for row, path in found]


def _snapshots_of_files(table: Table, snapshot_id: int | None) -> Mapping[str, int | None]:
    """Return the snapshot that added each data file of a snapshot."""
    snapshot = None if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    manifests = data_manifests(table, snapshot)
    return dict(entries_in(table, manifests, lambda entry: (entry.data_file.file_path, entry.snapshot_id)))


WHERE: Final = "--where"
_EXACT_INTEGERS: Final = 2**53
"""The largest integer up to which readers of JSON that have floating-point numbers only are exact."""
_EXPIRED: Final = "The snapshot has expired, and no ledger of maintenance contains it."


Copied: TypeAlias = Callable[[HistoryEntry], Mapping[str, Mapping[str, str]]]


def nothing_copied(_: HistoryEntry) -> Mapping[str, Mapping[str, str]]:
    """Return no columns, for want of a record."""
    return {}


@dataclass(frozen=True, slots=True)
class Input:
    """A read of the run that wrote rows, and the snapshots that it found rows of.

    Args:
        sources: The snapshots of the table whose rows the read may have found, newest first, each with its own inputs.
            It is empty unless these were asked for.
    """

    read: UpstreamRead
    sources: "tuple[Origin, ...]" = ()

    def document(self) -> dict[str, Any]:
        """Return the input for JSON."""
        read = self.read
        ids = {"snapshot_id": read.snapshot_id, "since": read.since}
        document = {"asset": read.asset_key, "table": read.table, "partitions": read.scope}
        document |= {name: None if number is None else str(number) for name, number in ids.items()}
        return {**document, "made_of": [source.document() for source in self.sources]}


@dataclass(frozen=True, slots=True)
class Origin:
    """The snapshot that wrote rows.

    Args:
        entry: The snapshot, or None if it is not known.
        rows: The rows. A source has none if only its partitions are known.
        inputs: What its run has read.
        doubt: Why another snapshot may have written the rows before, or None.
    """

    table: str
    entry: HistoryEntry | None
    rows: Sequence[Mapping[str, Any]] = ()
    inputs: tuple[Input, ...] = ()
    doubt: str | None = None

    @property
    def code_version(self) -> str | None:
        """The code version of the asset."""
        return None if self.entry is None else self.entry.snapshot.summary.get(lineage.CODE_VERSION)

    def document(self) -> dict[str, Any]:
        """Return the snapshot, its rows and its inputs for JSON."""
        snapshot = {} if self.entry is None else self.entry.document()
        rows = [{name: _as_json(value) for name, value in row.items()} for row in self.rows]
        document = {"table": self.table, **snapshot, "code_version": self.code_version, "doubt": self.doubt}
        return {**document, **({"rows": rows} if rows else {}), "inputs": [item.document() for item in self.inputs]}


def _as_json(value: Any) -> Any:  # noqa: PLR0911 - one for each kind
    """Return a value for JSON, as the Iceberg spec has it ("JSON single-value serialization").

    Integers that many readers of JSON would round are texts, as ids are, and so is what JSON has no number for.
    """
    match value:
        case bool() | str() | None:
            return value
        case int():
            return value if abs(value) <= _EXACT_INTEGERS else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case bytes() | bytearray():
            return value.hex()
        case Mapping():
            return {str(name): _as_json(item) for name, item in value.items()}
        case list() | tuple():
            return [_as_json(item) for item in value]
        case _:
            return str(value)


@dataclass(frozen=True)
class Explanation:
    """Explains the rows of a table.

    Args:
        tables: The tables of its catalog.
        state: The state of the table.
        is_deep: Whether the inputs are followed to their own inputs: by key, if it is known which columns have copied
            the key of an input, and otherwise by partition.
        copied: Returns the columns that a snapshot has copied, by asset: those of the input by those of the snapshot.
    """

    tables: CatalogTables
    state: TableState
    is_deep: bool = False
    copied: Copied = nothing_copied
    _shown: set[tuple[str, int]] = field(default_factory=set, init=False, compare=False)

    def origins(self, where: str, *, limit: int) -> list[Origin]:
        """Return the snapshots that wrote the matching rows last, newest first.

        Args:
            where: A condition on the columns of the table.
            limit: The number of rows.
        """
        from dagster_iceberg_spark.plan.read.row_filter import row_filter  # loads a parser of SQL

        plan = plan_read(self.state, PartitionScope(), ReadOptions())
        rows = row_filter(where, plan.schema, key=WHERE, subject=str(self.state.identifier))
        if plan.snapshot_id is None:
            return []
        provenance = self.tables.provenance(self.state) if self.is_deep else None
        return self._origins(self.state, replace(plan, row_filter=rows), limit, provenance)

    def _origins(self, state: TableState, plan: ReadPlan, limit: int, provenance: Provenance | None) -> list["Origin"]:
        """Return the snapshots that wrote the rows of a plan last, newest first."""
        by_snapshot: dict[int | None, list[Mapping[str, Any]]] = {}
        history = self.tables.history_of(state)
        for row, snapshot_id in self._rows(state, plan, history, limit):
            by_snapshot.setdefault(snapshot_id, []).append(row)
        found = []
        for snapshot_id, written in by_snapshot.items():
            snapshot = None if snapshot_id is None else history.snapshots.get(snapshot_id)
            if snapshot is None:
                found.append(Origin(history.table, None, written, doubt=_EXPIRED))
                continue
            entry = history.entry(snapshot)
            inputs = tuple(self._inputs(history.table, entry, provenance, written))
            found.append(Origin(history.table, entry, written, inputs, _doubt(snapshot)))
        return sorted(found, key=lambda item: item.entry.snapshot.committed_at_ms if item.entry else 0, reverse=True)

    def _rows(
        self, state: TableState, plan: ReadPlan, history: TableHistory, limit: int
    ) -> Iterator[tuple[Mapping[str, Any], int | None]]:
        catalog = self.tables.spark.catalog_description
        read = None if plan.snapshot_id is None else state.snapshots.get(plan.snapshot_id)
        if read is None or not _has_row_lineage(read):
            yield from rows_with_snapshots(catalog, plan, limit=limit)
            return
        require_pyspark()
        from dagster_iceberg_spark.features.lineage.spark import rows_with_sequence_numbers

        by_number = {item.sequence_number: item.snapshot_id for item in history.snapshots.values()}
        for row, number in rows_with_sequence_numbers(self.tables.spark.iceberg_session, plan, limit=limit):
            yield row, by_number.get(number)

    def _inputs(
        self, table: str, entry: HistoryEntry, provenance: Provenance | None, rows: Sequence[Mapping[str, Any]] = ()
    ) -> Iterator[Input]:
        reads = upstream_reads(entry.snapshot.summary.get(lineage.UPSTREAM, ""))
        copied = self.copied(entry) if provenance is not None and rows and reads else {}
        for read in reads:
            by_key = None
            if provenance is not None and read.table != table:  # a table's own rows may go back for years
                by_key = self._sources_by_key(read, copied.get(read.asset_key, {}), rows, provenance)
            by_partition = () if provenance is None or by_key is not None else self._sources(read, provenance)
            yield Input(read, tuple(by_partition if by_key is None else by_key))

    def _sources_by_key(
        self, read: UpstreamRead, copied: Mapping[str, str], rows: Sequence[Mapping[str, Any]], provenance: Provenance
    ) -> list[Origin] | None:
        """Return the snapshots that wrote the rows of an input with the keys of rows, or None if these are unknown."""
        scope = self.tables.scope_of(read) if copied else None
        state = None if scope is None else self.tables.find(TableIdentifier.parse(read.table))
        if state is None or scope is None or read.snapshot_id not in state.snapshots:
            return None
        plan = plan_read(state, scope, ReadOptions(snapshot_id=read.snapshot_id))
        wanted = rows_by_key(self.tables.keys_of(state), copied, rows, plan.schema)
        if wanted is None:
            return None
        found = self._origins(state, replace(plan, row_filter=wanted), len(rows), provenance)
        if read.since is None:
            return found
        older = {item.snapshot_id for item in self.tables.history_of(state).line(read.since)}
        return [item for item in found if item.entry is None or item.entry.snapshot.snapshot_id not in older]

    def _sources(self, read: UpstreamRead, provenance: Provenance) -> Iterator[Origin]:
        history = provenance.tables.get(read.table)
        if history is None:
            return
        for snapshot in history.sources_of(read):
            entry = history.entry(snapshot)
            place = (read.table, snapshot.snapshot_id)
            inputs = () if place in self._shown else self._inputs(read.table, entry, provenance)
            self._shown.add(place)
            yield Origin(read.table, entry, inputs=tuple(inputs))


def _has_row_lineage(snapshot: Snapshot) -> bool:
    """Return whether the rows of a snapshot have ids, as those of format version 3 have (Iceberg spec, "Row Lineage").

    A table may have been upgraded since.
    """
    return snapshot.first_row_id is not None


def _doubt(snapshot: Snapshot) -> str | None:
    """Return why another snapshot may have written a row before, or None."""
    if _has_row_lineage(snapshot) or not may_take_over_rows(snapshot):
        return None
    if snapshot.is_compaction:
        return "It only wrote rows of older snapshots to new files. Format version 3 would show which."
    return "Its files may also have rows that it took over unchanged. Format version 3 would show which."


def recorded_copies(instance: dg.DagsterInstance) -> Copied:
    """Return a function that returns the copied columns that Dagster has recorded of a snapshot.

    The events of a run are read once.
    """

    @cache
    def by_asset(run_id: str) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
        found = {}
        for recorded in recorded_events(instance, [run_id]):
            value = recorded.event.metadata.get(COPIED_COLUMNS)
            if isinstance(value, dg.JsonMetadataValue) and isinstance(value.value, dict):
                found["/".join(recorded.event.asset_key.path)] = value.value
        return found

    def copied(entry: HistoryEntry) -> Mapping[str, Mapping[str, str]]:
        asset = entry.snapshot.summary.get(lineage.ASSET_KEY, "")
        return by_asset(entry.run_id).get(asset, {}) if entry.run_id else {}

    return copied


def rows_by_key(
    keys: Sequence[str], copied: Mapping[str, str], rows: Sequence[Mapping[str, Any]], schema: Schema
) -> Predicate | None:
    """Return the rows of a table with the keys that rows have copied, or None if these do not show it.

    Args:
        keys: The columns that identify a row of the table.
        copied: The columns of the table by the columns that have their values.
        rows: The rows that were derived from it.
        schema: The columns of the table.
    """
    names = {source: name for name, source in copied.items()}
    if not keys or not names.keys() >= set(keys):
        return None
    found = []
    for row in rows:
        terms = [_term(key, row.get(names[key]), schema) for key in keys]
        known = [term for term in terms if term is not None]
        if len(known) < len(terms):
            return None
        found.append(all_of(known))
    return any_of(dict.fromkeys(found)) if found else None


def _term(key: str, value: Any, schema: Schema) -> Predicate | None:
    field = schema.field(key)
    return In(key, (value,)) if field is not None and _is_literal(value, field.type) else None


def _is_literal(value: LiteralValue | None, column: IcebergType) -> bool:
    """Return whether a value stands for itself in a predicate. An instant needs its zone, and a wall clock has none."""
    if isinstance(value, dt.datetime):
        return column == (TIMESTAMP if value.tzinfo is None else TIMESTAMPTZ)
    return isinstance(value, str | bytes | int | Decimal | dt.date)

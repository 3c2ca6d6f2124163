"""Why a row is as it is: the snapshot that wrote it last, its run, and what that run has read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dagster_iceberg_spark.lineage.catalogs import LakeTables
from dagster_iceberg_spark.plan.history import HistoryEntry
from dagster_iceberg_spark.plan.provenance import Provenance, TableHistory
from dagster_iceberg_spark.plan.read import ReadPlan, plan_read
from dagster_iceberg_spark.plan.read_options import ReadOptions
from dagster_iceberg_spark.resource import require_pyspark
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.lineage import UpstreamRead, upstream_reads
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import TableState

WHERE: Final = "--where"
ROW_LINEAGE_VERSION: Final = 3
"""The format version in which rows have ids (Iceberg spec, "Row Lineage")."""
_EXPIRED: Final = "The snapshot has expired, and no ledger of maintenance tells of it."


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
        rows: The rows. A source has none.
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


def _as_json(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | None) else str(value)


@dataclass(frozen=True)
class Explanation:
    """Explains the rows of a table.

    Args:
        tables: The tables of its catalog.
        state: The state of the table.
        is_deep: Whether the inputs are followed to their own inputs.
    """

    tables: LakeTables
    state: TableState
    is_deep: bool = False
    _shown: set[tuple[str, int]] = field(default_factory=set, init=False, compare=False)

    def origins(self, where: str, *, limit: int) -> list[Origin]:
        """Return the snapshots that wrote the matching rows last, newest first.

        Args:
            where: A condition on the columns of the table.
            limit: The number of rows.

        Raises:
            MetadataKeyError: The condition is invalid for the table.
            CatalogUnavailableError: The catalog or the store does not respond.
        """
        from dagster_iceberg_spark.plan.row_filter import row_filter  # loads a parser of SQL

        plan = plan_read(self.state, PartitionScope(), ReadOptions())
        rows = row_filter(where, plan.schema, key=WHERE, subject=str(self.state.identifier))
        plan = replace(plan, row_filter=rows)
        if plan.snapshot_id is None:
            return []
        by_snapshot: dict[int | None, list[Mapping[str, Any]]] = {}
        history = self.tables.history_of(self.state)
        for row, snapshot_id in self._rows(plan, history, limit):
            by_snapshot.setdefault(snapshot_id, []).append(row)
        provenance = self.tables.provenance(self.state) if self.is_deep else None
        found = []
        for snapshot_id, written in by_snapshot.items():
            snapshot = None if snapshot_id is None else history.snapshots.get(snapshot_id)
            if snapshot is None:
                found.append(Origin(history.table, None, written, doubt=_EXPIRED))
                continue
            entry = history.entry(snapshot)
            inputs = tuple(self._inputs(entry, provenance))
            found.append(Origin(history.table, entry, written, inputs, self._doubt(entry)))
        return sorted(found, key=lambda item: item.entry.snapshot.committed_at_ms if item.entry else 0, reverse=True)

    def _rows(
        self, plan: ReadPlan, history: TableHistory, limit: int
    ) -> Iterator[tuple[Mapping[str, Any], int | None]]:
        catalog = self.tables.spark.catalog_description
        if not self._has_row_lineage:
            from dagster_iceberg_spark.arrow.row_origins import rows_with_snapshots

            yield from rows_with_snapshots(catalog, plan, limit=limit)
            return
        require_pyspark()
        from dagster_iceberg_spark.spark.row_origins import rows_with_sequence_numbers

        by_number = {item.sequence_number: item.snapshot_id for item in history.snapshots.values()}
        for row, number in rows_with_sequence_numbers(self.tables.spark.iceberg_session, plan, limit=limit):
            yield row, by_number.get(number)

    @property
    def _has_row_lineage(self) -> bool:
        return self.state.format_version >= ROW_LINEAGE_VERSION

    def _doubt(self, entry: HistoryEntry) -> str | None:
        if self._has_row_lineage:
            return None
        summary = entry.snapshot.summary
        if entry.snapshot.is_compaction:
            return "It only wrote rows of older snapshots to new files. Format version 3 would tell which."
        if lineage.CARRIES_OVER in summary or summary.get(lineage.WRITE_DISPOSITION) == "merge":
            return "Its files also have rows that it took over unchanged. Format version 3 would tell which."
        return None

    def _inputs(self, entry: HistoryEntry, provenance: Provenance | None) -> Iterator[Input]:
        for read in upstream_reads(entry.snapshot.summary.get(lineage.UPSTREAM, "")):
            yield Input(read, () if provenance is None else tuple(self._sources(read, provenance)))

    def _sources(self, read: UpstreamRead, provenance: Provenance) -> Iterator[Origin]:
        history = provenance.tables.get(read.table)
        if history is None:
            return
        for snapshot in history.sources_of(read):
            entry = history.entry(snapshot)
            place = (read.table, snapshot.snapshot_id)
            inputs = () if place in self._shown else self._inputs(entry, provenance)
            self._shown.add(place)
            yield Origin(read.table, entry, inputs=tuple(inputs))

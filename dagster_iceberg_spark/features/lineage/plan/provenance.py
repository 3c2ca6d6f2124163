"""Which snapshots were derived from which, across tables, by the inputs that each snapshot's summary lists."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dagster_iceberg_spark.plan.read.history import HistoryEntry
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.change import reason_of, with_undone
from dagster_iceberg_spark.table.lineage import UpstreamRead, has_all_reads, upstream_reads
from dagster_iceberg_spark.table.scope import listed_keys, share_of
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, Snapshot, ancestry


@dataclass(frozen=True, slots=True)
class TableHistory:
    """The snapshots of a table, with those that have expired and that the ledger of maintenance contains.

    Args:
        snapshots: The snapshots by id.
        head: The newest snapshot of `main`, or None.
        expired: The ids of those that have expired.
        listed: Returns the partition keys that a summary describes, or None if they are not known.
        refs: The snapshot of each branch and tag.
        once_current: The snapshots that are or were current on `main`.
    """

    table: str
    snapshots: Mapping[int, Snapshot]
    head: int | None
    expired: frozenset[int] = frozenset()
    listed: Callable[[str], frozenset[str] | None] = listed_keys
    refs: Mapping[str, int] = field(default_factory=dict)
    once_current: frozenset[int] = frozenset()

    def line(self, snapshot_id: int | None) -> Iterator[Snapshot]:
        """Return a snapshot and its ancestors, newest first, as far as they are known."""
        return ancestry(self.snapshots, snapshot_id)

    def entry(self, snapshot: Snapshot) -> HistoryEntry:
        """Return a snapshot of the table in words."""
        at = snapshot.snapshot_id
        refs = sorted(name for name, snapshot_id in self.refs.items() if snapshot_id == at and name != MAIN_BRANCH)
        return HistoryEntry(snapshot, is_expired=at in self.expired, refs=tuple(refs))

    def entries(self) -> list[HistoryEntry]:
        """Return the snapshots of `main`, newest first, and among them those that it has lost by a rollback."""
        line = list(self.line(self.head))
        lost = self.once_current - {snapshot.snapshot_id for snapshot in line}
        found = [self.entry(snapshot) for snapshot in line]
        found += [replace(self.entry(self.snapshots[item]), is_lost=True) for item in lost if item in self.snapshots]
        return sorted(found, key=lambda entry: entry.snapshot.committed_at_ms, reverse=True)

    def sources_of(self, read: UpstreamRead) -> tuple[Snapshot, ...]:
        """Return the snapshots whose rows a read may have found, newest first.

        A snapshot that replaces partitions hides what older ones have written to them.
        """
        wanted = None if read.scope is None else self.listed(read.scope)
        found, hidden = list[Snapshot](), set[str]()
        for snapshot, is_undone in with_undone(self.line(read.snapshot_id)):
            if snapshot.snapshot_id == read.since:
                break
            if is_undone or reason_of(snapshot) in ("start", "compaction", "undo"):
                continue
            described = snapshot.summary.get(lineage.PARTITION_KEYS)
            keys = None if described is None else self.listed(described)
            left = None if keys is None else keys - hidden
            if snapshot.count("added-data-files") and _shares(left, wanted, read.scope):
                found.append(snapshot)
            disposition = snapshot.summary.get(lineage.WRITE_DISPOSITION)
            if disposition == "replace" and described is None:
                break
            if disposition in ("replace", lineage.RETENTION):
                hidden |= keys or set()
            if wanted is not None and wanted <= hidden:
                break
        return tuple(found)


def _shares(keys: frozenset[str] | None, wanted: frozenset[str] | None, scope: str | None) -> bool:
    """Return whether a read of partitions may have found rows of these keys."""
    if keys is None:
        return True
    if wanted is not None:
        return not keys.isdisjoint(wanted)
    return bool(keys) and (scope is None or share_of(scope, keys) != "none")


@dataclass(frozen=True, slots=True)
class MadeSnapshot:
    """A snapshot that was derived from another one.

    Args:
        depth: 1 if it was derived from the snapshot in question, 2 if it was derived from one of these, and so on.
        source: The table that it was derived from.
        is_current: Whether `main` may still show its rows.
        is_certain: Whether its summary lists its inputs. Otherwise, it has too many, and may have read the table.
    """

    table: str
    entry: HistoryEntry
    depth: int
    source: str
    is_current: bool
    is_certain: bool = True

    def document(self) -> dict[str, Any]:
        """Return the snapshot for JSON."""
        own = {"table": self.table, "made_of": self.source, "depth": self.depth, "current": self.is_current}
        return {**own, "certain": self.is_certain, **self.entry.document()}


@dataclass(frozen=True)
class Provenance:
    """The histories of tables, by the name of the table."""

    tables: Mapping[str, TableHistory]
    _found: dict[tuple[Any, ...], frozenset[int]] = field(default_factory=dict, init=False, compare=False)

    def made_of(self, table: str, snapshot_id: int) -> tuple[MadeSnapshot, ...]:
        """Return the snapshots that were derived from a snapshot, and of these, down to the last, nearest first."""
        found: dict[tuple[str, int], MadeSnapshot] = {}
        waiting: list[tuple[str, int, int]] = [(table, snapshot_id, 1)]
        for source, source_id, depth in waiting:  # grows while it is read
            for name, reader, is_certain in self._readers(source, source_id):
                place = (name, reader.snapshot_id)
                if place not in found and place != (table, snapshot_id):
                    found[place] = self._made(name, reader, depth, source, is_certain=is_certain)
                    waiting.append((*place, depth + 1))
        return tuple(found.values())

    def _made(self, name: str, snapshot: Snapshot, depth: int, source: str, *, is_certain: bool) -> MadeSnapshot:
        history = self.tables[name]
        everything = UpstreamRead("", name, history.head, None)
        is_current = snapshot.snapshot_id in self._sources(everything)
        return MadeSnapshot(name, history.entry(snapshot), depth, source, is_current=is_current, is_certain=is_certain)

    def _readers(self, table: str, snapshot_id: int) -> Iterator[tuple[str, Snapshot, bool]]:
        """Yield the snapshots that have read rows of a snapshot, oldest first, each with whether that is certain."""
        source = self.tables[table].snapshots.get(snapshot_id)
        for name, history in self.tables.items():
            for snapshot in sorted(history.snapshots.values(), key=lambda item: item.committed_at_ms):
                document = snapshot.summary.get(lineage.UPSTREAM, "")
                reads = [read for read in upstream_reads(document) if read.table == table]
                if any(snapshot_id in self._sources(read) for read in reads):
                    yield name, snapshot, True
                elif not has_all_reads(document) and source and snapshot.committed_at_ms > source.committed_at_ms:
                    yield name, snapshot, False

    def _sources(self, read: UpstreamRead) -> frozenset[int]:
        key = (read.table, read.snapshot_id, read.scope, read.since)
        if key not in self._found:
            history = self.tables.get(read.table)
            sources: Sequence[Snapshot] = () if history is None else history.sources_of(read)
            self._found[key] = frozenset(snapshot.snapshot_id for snapshot in sources)
        return self._found[key]

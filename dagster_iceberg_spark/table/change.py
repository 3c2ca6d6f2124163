"""What a snapshot has changed, and why, as its summary shows."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

from dagster_iceberg_spark.table.lineage import (
    CARRIES_OVER,
    COMMIT_TOKEN,
    RETENTION,
    RUN_ID,
    UNDOES,
    WRITE_DISPOSITION,
    undone_by,
)
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

Reason: TypeAlias = Literal["start", "compaction", "retention", "undo", "materialization", "other writer"]
"""Why a snapshot was made.

| reason | the snapshot |
|---|---|
| start | is the empty one that Iceberg adds to the first branch of a table that has none |
| compaction | has rewritten files without changing rows |
| retention | has deleted rows that their asset does not retain any longer |
| undo | has taken back what other snapshots changed |
| materialization | is that of an asset, in this Dagster instance or in another one |
| other writer | was made by another writer |
"""

_CHANGED_FILES: Final = ("added-data-files", "deleted-data-files", "added-delete-files", "removed-delete-files")
_REMOVALS: Final = ("deleted-records", "deleted-data-files", "added-delete-files")
"""The counts in a snapshot's summary that show that rows were removed (Iceberg spec, "Metrics"). They are optional."""


def reason_of(snapshot: Snapshot) -> Reason:
    """Return why a snapshot was made."""
    summary = snapshot.summary
    if snapshot.is_compaction:
        return "compaction"
    if summary.get(WRITE_DISPOSITION) == RETENTION:
        return "retention"
    if UNDOES in summary:
        return "undo"
    if COMMIT_TOKEN in summary:
        return "materialization"
    is_start = snapshot.parent_snapshot_id is None and summary.get("total-records") == "0"
    return "start" if is_start else "other writer"


def is_empty_start(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is the one that Iceberg adds to a branch of a table that has none."""
    return reason_of(snapshot) == "start"


def may_change_rows(snapshot: Snapshot) -> bool:
    """Return whether a snapshot may have changed rows: it has, unless its summary shows that it has not."""
    if reason_of(snapshot) in ("start", "compaction"):
        return False
    return not _is_counted(snapshot) or any(snapshot.count(key) for key in _CHANGED_FILES)


def may_remove_rows(snapshot: Snapshot) -> bool:
    """Return whether a snapshot may have removed or rewritten rows."""
    if snapshot.operation == "append" or not may_change_rows(snapshot):
        return False
    if snapshot.operation == "delete" or not _is_counted(snapshot):
        return True
    return any(snapshot.count(key) for key in _REMOVALS)


def may_take_over_rows(snapshot: Snapshot) -> bool:
    """Return whether files that a snapshot added may also have rows that older snapshots wrote."""
    reason, summary = reason_of(snapshot), snapshot.summary
    if reason == "materialization" and summary.get(WRITE_DISPOSITION) != "merge":
        return CARRIES_OVER in summary
    if snapshot.operation == "append" or not may_change_rows(snapshot):
        return snapshot.is_compaction
    is_rewritten = reason == "undo" or bool(snapshot.count("deleted-data-files"))
    return not _is_counted(snapshot) or (is_rewritten and bool(snapshot.count("added-data-files")))


def outdates_derived_rows(snapshot: Snapshot) -> bool:
    """Return whether what was derived from a table's rows may be out of date.

    The end of their retention does not matter: what was derived from the rows stays right. The rows that such a
    snapshot had to write again, because they shared a file with those that ended, are not new either.
    """
    return may_change_rows(snapshot) and reason_of(snapshot) != "retention"


def _is_counted(snapshot: Snapshot) -> bool:
    """Return whether the writer has counted files. It leaves out counts of zero, but no total."""
    return "total-data-files" in snapshot.summary


def with_undone(line: Iterable[Snapshot]) -> Iterator[tuple[Snapshot, bool]]:
    """Yield each snapshot of a line, newest first, and whether a later one has undone it.

    An undo that is undone itself undoes nothing.
    """
    undone = set[int]()
    for snapshot in line:
        is_undone = snapshot.snapshot_id in undone
        if not is_undone:
            undone |= undone_by(snapshot.summary)
        yield snapshot, is_undone


def runs_behind(state: TableState, snapshot: Snapshot) -> Iterable[str]:
    """Return the run of a snapshot, or those of the snapshots that it undoes. A snapshot of another writer has none."""
    undone = (state.snapshots.get(snapshot_id) for snapshot_id in undone_by(snapshot.summary))
    made = [item for item in undone if item is not None] or [snapshot]
    return [run_id for item in made if (run_id := item.summary.get(RUN_ID)) is not None]

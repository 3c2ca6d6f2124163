"""The history of a table in words, and the inputs of a step: what each snapshot changed, who made it, from what."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.lineage import RUN_ID, UpstreamRead
from dagster_iceberg_spark.table.scope import listed_keys
from dagster_iceberg_spark.table.snapshot import Snapshot

_MARKUP: Final = re.compile(r"[\\\[\]<>&`]|://")
"""Characters that begin a link, an image, an element or an entity in Markdown. A backslash escapes them."""

_RUN_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def escape(text: str) -> str:
    """Return a text whose markup is escaped, so that it cannot become a link, an image or an element."""
    return _MARKUP.sub(r"\\\g<0>", text)


def cell(text: str) -> str:
    """Return a text for a cell of a table, with its markup escaped."""
    return " ".join(escape(text).replace("|", r"\|").split())


def run_link(run_id: str | None) -> str | None:
    """Return a link to a run in Dagster's UI, or None. Anyone may have written what is not the id of a run."""
    is_run = run_id is not None and _RUN_ID.fullmatch(run_id)
    return f"[{run_id[:8]}](/runs/{run_id})" if run_id and is_run else None


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Its cells are Markdown."""
    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


NEWEST: Final = 10
"""How many snapshots a materialization shows."""
COLUMNS: Final = ("committed at (UTC)", "snapshot", "change", "partitions", "added", "deleted", "by", "run")
_FEW_KEYS: Final = 2


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A snapshot of a table.

    Args:
        is_expired: Whether the table no longer has it, but the ledger of maintenance does.
        is_lost: Whether it was current on `main`, which was rolled back since.
        refs: The other branches and the tags that point to it, such as the name of a release.
    """

    snapshot: Snapshot
    is_expired: bool = False
    is_lost: bool = False
    refs: tuple[str, ...] = ()

    @property
    def change(self) -> str:
        """What the snapshot changed: the write disposition, or Iceberg's operation for another writer."""
        snapshot = self.snapshot
        if snapshot.is_compaction:
            return "compaction"
        return snapshot.summary.get(lineage.WRITE_DISPOSITION, snapshot.operation)

    @property
    def partitions(self) -> str:
        """The partitions that the snapshot wrote, as its summary describes them, or an empty text."""
        return self.snapshot.summary.get(lineage.PARTITION_KEYS, "")

    @property
    def few_partitions(self) -> str:
        """The partitions in a short form: a few keys, or the first and the last with the count."""
        return few_partitions(self.partitions)

    @property
    def run_id(self) -> str | None:
        """The run that made the snapshot, or the id of the undo."""
        return self.snapshot.summary.get(lineage.RUN_ID)

    @property
    def writer(self) -> str:
        """Who made the snapshot: the asset, or another writer's engine (Iceberg spec, "Optional Snapshot Fields")."""
        summary = self.snapshot.summary
        asset = summary.get(lineage.ASSET_KEY)
        if asset is not None:
            return asset
        engine = " ".join(filter(None, (summary.get("engine-name"), summary.get("engine-version"))))
        return engine or "another writer"

    def document(self) -> dict[str, Any]:
        """Return the entry for JSON. Ids are texts, because many readers of JSON round large numbers."""
        snapshot = self.snapshot
        parent = snapshot.parent_snapshot_id
        return {
            "snapshot_id": str(snapshot.snapshot_id),
            "parent_snapshot_id": None if parent is None else str(parent),
            "committed_at": snapshot.committed_at.isoformat(),
            "operation": snapshot.operation,
            "change": self.change,
            "partitions": self.partitions or None,
            "added_rows": snapshot.count("added-records"),
            "deleted_rows": snapshot.count("deleted-records"),
            "run_id": self.run_id,
            "writer": self.writer,
            "expired": self.is_expired,
            "rolled_back": self.is_lost,
            "refs": [*self.refs],
        }

    def cells(self) -> tuple[str, ...]:
        """Return the entry as text, without its run."""
        snapshot = self.snapshot
        return (
            f"{snapshot.committed_at:%Y-%m-%d %H:%M:%S}",
            str(snapshot.snapshot_id),
            self.change,
            self.few_partitions,
            f"{snapshot.count('added-records'):,}",
            f"{snapshot.count('deleted-records'):,}",
            f"{self.writer}{' (rolled back)' if self.is_lost else ' (expired)' if self.is_expired else ''}",
        )


def few_partitions(described: str) -> str:
    """Return the partitions that a summary describes in a short form, or an empty text for the whole table."""
    return few_keys(listed_keys(described) or () if described else ()) or described


def few_keys(keys: Iterable[str]) -> str:
    """Return partition keys in a short form: a few keys, or the first and the last with the count."""
    ordered = sorted(keys)
    if len(ordered) > _FEW_KEYS:
        return f"{ordered[0]}..{ordered[-1]} ({len(ordered)})"
    return ", ".join(ordered)


def entries_as_markdown(entries: Iterable[HistoryEntry]) -> str:
    """Return snapshots as a table in Markdown, with links to their runs in Dagster's UI."""
    return markdown_table(COLUMNS, [(*map(cell, entry.cells()), run_link(entry.run_id) or "") for entry in entries])


_COLUMNS: Final = ("asset", "table", "snapshot", "as of (UTC)", "partitions", "written by run")


def inputs_as_markdown(reads: Sequence[UpstreamRead]) -> str | None:
    """Return a table with a row for each read, or None without reads.

    It shows the snapshot that was read, when it was committed, and the run that had written it. Ids are texts: in
    JavaScript, numbers of their size are rounded.
    """
    return markdown_table(_COLUMNS, map(_row, reads)) if reads else None


def _row(read: UpstreamRead) -> tuple[str, ...]:
    snapshot, is_changes = read.snapshot, read.kind is not None and read.since is not None
    return (
        cell(read.asset_key),
        cell(read.table),
        str(read.snapshot_id or "none"),
        "" if snapshot is None else f"{snapshot.committed_at:%Y-%m-%d %H:%M:%S}",
        cell(read.scope or "whole table") + (f", changes since {read.since}" if is_changes else ""),
        "" if snapshot is None else run_link(snapshot.summary.get(RUN_ID)) or "",
    )

"""The difference between a branch and the snapshot that it began at."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagster_iceberg_spark.errors import CommitConflictError
from dagster_iceberg_spark.plan.publication.branch import branch_start
from dagster_iceberg_spark.plan.read.history import cell, markdown_table
from dagster_iceberg_spark.table.change import is_empty_start
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, Snapshot, TableState


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """The numbers of keys whose rows were added, removed and changed. Without key columns, a whole row is a key."""

    added: int = 0
    removed: int = 0
    changed: int = 0


@dataclass(frozen=True, slots=True)
class TableDiff:
    """What a branch changes in a table.

    Args:
        partitions: The numbers of rows in the files that the branch adds and removes, by partition. Rows that are
            written again unchanged count in both.
        keys: What has changed by key, or None if the rows were not compared.
        has_deletes: Whether delete files change the rows as well. They do not show how many rows they remove.
    """

    table: TableIdentifier
    partitions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    keys: KeyChanges | None = None
    has_deletes: bool = False

    @property
    def added_rows(self) -> int:
        """The rows in added files."""
        return sum(added for added, _ in self.partitions.values())

    @property
    def removed_rows(self) -> int:
        """The rows in removed files."""
        return sum(removed for _, removed in self.partitions.values())

    def document(self) -> dict[str, Any]:
        """Return the difference for JSON."""
        rows = {name: {"added": added, "removed": removed} for name, (added, removed) in self.partitions.items()}
        document = {
            "table": str(self.table),
            "added_rows": self.added_rows,
            "removed_rows": self.removed_rows,
            "has_deletes": self.has_deletes,
        }
        keys = self.keys
        compared = {} if keys is None else {"added": keys.added, "removed": keys.removed, "changed": keys.changed}
        return {**document, "partitions": rows, **({"keys": compared} if keys else {})}


def markdown(diffs: Sequence[TableDiff]) -> str:
    """Return the differences as a table in Markdown."""
    if not diffs:
        return "No table differs."
    has_keys = any(diff.keys is not None for diff in diffs)
    columns = ["table", "partition", "added rows", "removed rows"]
    columns += ["new keys", "removed keys", "changed keys"] if has_keys else []
    rows: list[list[str]] = []
    for diff in diffs:
        table, unknown = cell(str(diff.table)), [""] * 3 if has_keys else []
        for name, (added, removed) in sorted(diff.partitions.items()):
            rows.append([table, cell(name or "whole table"), str(added), str(removed), *unknown])
        keys = diff.keys
        counts = unknown if keys is None else [str(keys.added), str(keys.removed), str(keys.changed)]
        every = "**all**, and rows in delete files" if diff.has_deletes else "**all**"
        rows.append([table, every, str(diff.added_rows), str(diff.removed_rows), *counts])
    return markdown_table(columns, rows)


def compared_rows(
    before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]], keys: Sequence[str], columns: Sequence[str]
) -> KeyChanges:
    """Compare these columns of rows by the key columns, or as a whole without keys. A missing column is NULL."""
    old, new = _by_key(before, keys, columns), _by_key(after, keys, columns)
    if not keys:
        added, removed = _count(new) - _count(old), _count(old) - _count(new)
        return KeyChanges(sum(added.values()), sum(removed.values()))
    return KeyChanges(
        added=len(new.keys() - old.keys()),
        removed=len(old.keys() - new.keys()),
        changed=sum(sorted(old[key]) != sorted(new[key]) for key in old.keys() & new.keys()),
    )


def own_snapshots(state: TableState, branch: str) -> tuple[Snapshot, ...]:
    """Return the snapshots of a branch that `main` does not have and never had, oldest first.

    The empty snapshot that Iceberg adds to the first branch of a new table is left out: it changes nothing.
    """
    start, own = branch_start(state, branch), []
    of_main = {snapshot.snapshot_id for snapshot in state.ancestors(MAIN_BRANCH)}
    for snapshot in state.ancestors(branch):
        if snapshot.snapshot_id == start or snapshot.snapshot_id in of_main or is_empty_start(snapshot):
            break
        own.append(snapshot)
    return tuple(own[::-1])


def refuse_expired_start(state: TableState, branch: str) -> None:
    """Reject a branch if the snapshot that it began at has expired: what it has changed cannot be determined."""
    start = branch_start(state, branch)
    if start is not None and start not in state.snapshots:
        raise CommitConflictError.refusing(
            "compare",
            f"the branch {branch!r} of {state.identifier}",
            expected=f"snapshot {start} of `main`, which it began at",
            found="none: it has expired",
            hint="drop the environment, and run it again.",
        )


def refuse_rolled_back(state: TableState, branch: str, own: Sequence[Snapshot]) -> None:
    """Reject a branch that began at a snapshot which `main` has lost since, because it was rolled back."""
    once_current = state.once_current
    lost = [snapshot.snapshot_id for snapshot in own if snapshot.snapshot_id in once_current]
    start, line = branch_start(state, branch), list(state.ancestors(MAIN_BRANCH))
    if start is not None and line and line[-1].parent_snapshot_id is None:
        lost += [] if any(snapshot.snapshot_id == start for snapshot in line) else [start]
    if lost:
        raise CommitConflictError.refusing(
            "publish",
            str(state.identifier),
            expected=f"a branch {branch!r} that began at a snapshot of `main`",
            found=f"one that has snapshot {lost[0]}, which `main` had before it was rolled back",
            hint="drop the environment, and run it again.",
        )


def _by_key(rows: Iterable[Mapping[str, Any]], keys: Sequence[str], columns: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        values = [repr(row.get(name)) for name in columns]
        found.setdefault(repr([repr(row.get(key)) for key in keys] or values), []).append(repr(values))
    return found


def _count(rows: Mapping[str, list[str]]) -> Counter[str]:
    return Counter({key: len(found) for key, found in rows.items()})

"""Staged writes: the branch that a write goes to before its rows are published.

A staged branch belongs to one output and its partitions. It starts at the head of the branch that its rows will be
published to, and holds one snapshot.
"""

import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import Final

from dagster_iceberg_spark.table.change import is_empty_start
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import PublishedBy, TableState
from dagster_iceberg_spark.table.updates import BranchUpdate, CreateBranch, DropBranch

_PREFIX: Final = "dagster_"
_DIGITS: Final = 16
_NAME: Final = re.compile(rf"{_PREFIX}[0-9a-f]{{{_DIGITS}}}")
RETENTION_DAYS: Final = 7


@dataclass(frozen=True, slots=True)
class Staging:
    """A write that is staged.

    Args:
        branch: The staged branch.
        target: The branch that the rows are published to.
        retention_days: The days after which the expiry of snapshots removes an abandoned staged branch.
        published_by: What publishes the rows.
        target_retention_days: The days after which the expiry removes the target, if the publication creates it, or
            None to keep it for ever.
    """

    branch: str
    target: str
    retention_days: int = RETENTION_DAYS
    published_by: PublishedBy = "step"
    target_retention_days: int | None = None

    def begun(self, state: TableState | None) -> tuple[TableState | None, tuple[BranchUpdate, ...]]:
        """Return the table's state with the staged branch at the head of the target, and the updates to get there.

        The branch may still hold what an earlier run staged. It is dropped then, and starts again.
        """
        start = None if state is None else state.refs.get(self.target)
        create = CreateBranch(self.branch, start, self.retention_days)
        if state is None or self.branch not in state.refs:
            updates: tuple[BranchUpdate, ...] = (create,)
        else:
            updates = () if self._is_unused(state) else (DropBranch(self.branch), create)
        if state is None:
            return None, updates
        others = {name: snapshot_id for name, snapshot_id in state.refs.items() if name != self.branch}
        return replace(state, refs=others if start is None else {**others, self.branch: start}), updates

    def _is_unused(self, state: TableState) -> bool:
        """Return whether the branch holds only what the target holds, or the empty snapshot that Iceberg adds."""
        if self.target in state.refs:
            return state.refs[self.branch] == state.refs[self.target]
        head = state.head(self.branch)
        return head is not None and is_empty_start(head)


def staged_branch(*, root_run_id: str, output: str, scope: PartitionScope | None, target: str) -> str:
    """Return the name of an output's staged branch.

    The root run identifies it, so that retries and the runs that resume a run use the same branch. The scope is None
    for rows that a release publishes: the run's other steps find the branch without knowing which rows it holds.
    """
    document = json.dumps([root_run_id, output, "release" if scope is None else scope.digest, target])
    return f"{_PREFIX}{hashlib.sha256(document.encode()).hexdigest()[:_DIGITS]}"


def is_staged_branch(name: str) -> bool:
    """Return whether a branch has the name of a staged one."""
    return _NAME.fullmatch(name) is not None

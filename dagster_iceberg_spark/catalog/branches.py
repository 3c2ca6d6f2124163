"""Changes branches and tags through pyiceberg, without a JVM.

The change does not depend on what other writers commit concurrently, so a conflict with them needs no new plan.
"""

import random
import time
from collections.abc import Sequence
from typing import Final

import tenacity
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import can_commit, find_table
from dagster_iceberg_spark.catalog.transaction import TableCommit, commit_table
from dagster_iceberg_spark.errors import CommitConflictError
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import DAY_MS
from dagster_iceberg_spark.table.updates import BranchUpdate, CreateBranch, DropTag, SetProperties, TagUpdate
from dagster_iceberg_spark.timeouts import LONGEST_WAIT_SECONDS

ATTEMPTS: Final = 20
"""The attempts of a commit that changes only branches: as many as Iceberg makes of a commit to these tables."""
_FIRST_WAIT_SECONDS: Final = 0.02
AGAIN_AFTER_CONFLICTS: Final = tenacity.Retrying(
    retry=tenacity.retry_if_exception(
        lambda error: isinstance(error, CommitConflictError) and not isinstance(error, _ExpiredStartError)
    ),
    stop=tenacity.stop_after_attempt(ATTEMPTS),
    wait=tenacity.wait_random_exponential(multiplier=_FIRST_WAIT_SECONDS, max=LONGEST_WAIT_SECONDS),
    reraise=True,
)
"""Repeats a change of branches until no other writer commits at the same moment."""


class _ExpiredStartError(CommitConflictError):
    """The snapshot that a branch is to start at has expired. The write has to be planned again."""


def change_branch(description: CatalogDescription, identifier: TableIdentifier, change: BranchUpdate) -> bool:
    """Create or drop a branch, unless it exists, or was dropped already. Return false if only an engine can."""
    return AGAIN_AFTER_CONFLICTS(_change, description, identifier, change)


def change_tags(
    description: CatalogDescription, identifier: TableIdentifier, changes: Sequence[TagUpdate | SetProperties]
) -> bool:
    """Set and drop tags, and set properties, in one commit. Return false if only an engine can."""
    return AGAIN_AFTER_CONFLICTS(_change_tags, description, identifier, changes)


def retention_of(days: int | None, *, keeps_snapshots: bool = False) -> dict[str, int]:
    """Return the retention of a branch, and perhaps of its snapshots, as the fields of its ref. None is for ever."""
    if days is None:
        return {}
    return {"max-ref-age-ms": days * DAY_MS, **({"max-snapshot-age-ms": days * DAY_MS} if keeps_snapshots else {})}


def wait_for_others(retry: int) -> None:
    """Wait a random time before retry number `retry`, from 0, of a commit that conflicted with another writer's."""
    time.sleep(random.uniform(0, min(LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2**retry)))  # noqa: S311


def removal_of(branch: str) -> RemoveSnapshotRefUpdate:
    """Return pyiceberg's update that drops a branch or tag."""
    return RemoveSnapshotRefUpdate.model_validate({"ref-name": branch})


def _change(description: CatalogDescription, identifier: TableIdentifier, change: BranchUpdate) -> bool:
    table = find_table(description, identifier)
    if table is None:
        return False
    if (change.name in table.metadata.refs) is isinstance(change, CreateBranch):
        return True
    if not can_commit(description):
        return False
    match change:
        case CreateBranch(snapshot_id=None):
            return False
        case CreateBranch(name, snapshot_id, retention_days):
            age = retention_of(retention_days)
            ref = {"type": SnapshotRefType.BRANCH, "ref-name": name, "snapshot-id": snapshot_id, **age}
            is_new = AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": None})
            _commit(description, table, identifier, (SetSnapshotRefUpdate.model_validate(ref),), is_new)
        case _:
            _commit(description, table, identifier, (removal_of(change.name),))
    return True


def _change_tags(
    description: CatalogDescription, identifier: TableIdentifier, changes: Sequence[TagUpdate | SetProperties]
) -> bool:
    table = find_table(description, identifier)
    if table is None:
        return True
    if not can_commit(description):
        return False
    refs = table.metadata.refs
    due = [change for change in changes if not isinstance(change, DropTag) or change.name in refs]
    if due:
        _commit(description, table, identifier, tuple(map(update_of_tag, due)))
    return True


def update_of_tag(change: TagUpdate | SetProperties) -> TableUpdate:
    """Return pyiceberg's update that sets or drops a tag, or sets properties."""
    if isinstance(change, SetProperties):
        return SetPropertiesUpdate(updates=dict(change.properties))
    if isinstance(change, DropTag):
        return removal_of(change.name)
    ref = {"type": SnapshotRefType.TAG, "ref-name": change.name, "snapshot-id": change.snapshot_id}
    return SetSnapshotRefUpdate.model_validate(ref | retention_of(change.retention_days))


def _commit(
    description: CatalogDescription,
    table: Table,
    identifier: TableIdentifier,
    updates: tuple[TableUpdate, ...],
    *requirements: TableRequirement,
) -> None:
    known = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    if any(isinstance(update, SetSnapshotRefUpdate) and update.snapshot_id not in known for update in updates):
        raise _ExpiredStartError.to_plan_again(
            "create a branch or tag of",
            identifier,
            expected="the snapshot that was there a moment ago",
            found="none of that id: it has expired",
        )
    same_table = AssertTableUUID(uuid=table.metadata.table_uuid)
    commit = TableCommit(identifier, table, {}, (same_table, *requirements), updates)
    if not commit_table(description, commit, action=f"change the branches and tags of {identifier} in"):
        raise CommitConflictError.refusing(
            "change the branches and tags of",
            str(identifier),
            expected="a table that no other writer changes at this moment",
            found="a commit of another writer",
            hint="try again.",
        )

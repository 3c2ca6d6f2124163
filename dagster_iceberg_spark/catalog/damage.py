"""Repairs the damage that repeated or concurrent requests do to a table.

If the catalog reports that it rejected a commit, the engine deletes the files that it wrote. The catalog may have
made the commit anyway, because the request or its response was repeated on the way. The table then has a snapshot that
cannot be read (Iceberg's `SnapshotProducer.commit` and `CleanableFailure`). If another writer has committed on top of
that snapshot, Iceberg moves the branch back to its own snapshot.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import call_catalog, find_table, has_namespace, open_catalog, translated_answers
from dagster_iceberg_spark.errors import (
    CommitConflictError,
    DisplacedCommitError,
    IcebergSparkError,
    UnreadableCommitError,
)
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, Snapshot, TableState


def has_its_files(description: CatalogDescription, identifier: TableIdentifier, snapshot: Snapshot) -> bool:
    """Return whether the snapshot's manifests exist, and one data file of each manifest that the snapshot added."""
    table = find_table(description, identifier, snapshot_id=snapshot.snapshot_id)
    if table is None:
        return False
    with translated_answers(description, action=f"look for the files of {identifier} in"):
        try:
            return _has_its_files(table, snapshot.snapshot_id)
        except FileNotFoundError:
            return False


def forget_unmade(description: CatalogDescription, identifier: TableIdentifier) -> bool:
    """Drop a table without metadata from a Hive Metastore, and return whether to create the table again.

    If the response to a creation is lost, Hive's client repeats the request. The metastore then reports that the table
    exists, and Iceberg deletes the metadata that the table points to (`HiveTableOperations.doCommit`).
    """
    if not description.is_hive:
        return False
    catalog: Any = open_catalog(description)
    drop = partial(catalog.drop_unmade_table, identifier.parts)
    try:
        return bool(call_catalog(description, drop, action=f"look at {identifier} in"))
    except CommitFailedException:
        return True  # another writer holds the table's lock, and creates or drops the table


@contextmanager
def lone_creation(description: CatalogDescription, namespace: Sequence[str]) -> Iterator[None]:
    """Prevent other writers from creating the namespace during the block, if the catalog does not do so.

    If several requests create a database, a Hive Metastore lets one succeed. Each of the others finds that it has
    created the directory too, and deletes it, with any tables that the owner of the first request has created by then
    (`HiveMetaStore.create_database_core`; measured: sixty times out of sixty).
    """
    name = ".".join(namespace)
    if not description.is_hive or has_namespace(description, namespace):
        yield
        return
    catalog: Any = open_catalog(description)
    try:
        lock = call_catalog(description, partial(catalog.lock_creation, name), action=f"lock the namespace {name} in")
    except CommitFailedException as error:
        raise CommitConflictError.to_plan_again(
            "create",
            f"the namespace {name}",
            expected="the metastore's lock on it",
            found="that another writer holds it",
        ) from error
    try:
        yield
    finally:
        with suppress(IcebergSparkError):  # the metastore releases abandoned locks, and the namespace exists
            call_catalog(description, partial(catalog.unlock, lock), action=f"unlock the namespace {name} in")


def roll_back(description: CatalogDescription, state: TableState, snapshot: Snapshot, *, branch: str) -> None:
    """Make the parent of an unreadable snapshot current again, unless the table has changed since."""
    refusal = UnreadableCommitError.refusing(
        "use",
        str(state.identifier),
        expected=f"the files of its snapshot {snapshot.snapshot_id}",
        found="none: the engine deleted them when it was told that the catalog had refused the commit",
        hint=f"roll the table back to the snapshot {snapshot.parent_snapshot_id} before it, and run again what was "
        "committed since.",
    )
    _make_current(description, state, snapshot.parent_snapshot_id, head=snapshot, branch=branch, refusal=refusal)


def bring_back(
    description: CatalogDescription,
    state: TableState,
    committed: Snapshot,
    displaced: Sequence[Snapshot],
    *,
    branch: str,
) -> None:
    """Make a displaced snapshot current again, which another writer had committed on top of ours."""
    ids = ", ".join(str(snapshot.snapshot_id) for snapshot in displaced)
    refusal = DisplacedCommitError.refusing(
        "write",
        str(state.identifier),
        expected=f"the snapshots that others have committed upon snapshot {committed.snapshot_id} to stay",
        found=f"{ids} out of the history, because Iceberg took a repeated answer for a conflict",
        hint="make it current again with `CALL system.set_current_snapshot`, then re-execute the run from its failure.",
    )
    target = displaced[0].snapshot_id if len(displaced) == 1 else None
    _make_current(description, state, target, head=committed, branch=branch, refusal=refusal)


def _make_current(
    description: CatalogDescription,
    state: TableState,
    target_id: int | None,
    *,
    head: Snapshot,
    branch: str,
    refusal: IcebergSparkError,
) -> None:
    """Make a snapshot of `main` current, unless there is no target or the head has changed."""
    table = find_table(description, state.identifier)
    found = None if table is None else table.current_snapshot()
    is_as_seen = found is not None and found.snapshot_id == head.snapshot_id and branch == MAIN_BRANCH
    if table is None or target_id is None or not is_as_seen:
        raise refusal

    def move() -> None:
        # The catalog verifies that the branch has not moved since this table was loaded.
        with table.manage_snapshots() as changes:
            changes.set_current_snapshot(target_id)

    try:
        call_catalog(description, move, action=f"make snapshot {target_id} of {state.identifier} current in")
    except CommitFailedException as error:
        raise refusal from error


def _has_its_files(table: Table, snapshot_id: int) -> bool:
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return False
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)[:1]:
            if not table.io.new_input(entry.data_file.file_path).exists():
                return False
    return True

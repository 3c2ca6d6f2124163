"""What requests that are repeated, or race, do to a table and its history, and the way back.

An engine that is told that its commit was refused deletes the files that it wrote. Where the catalog had made the
commit all the same, because the request or its answer was repeated on the way, the table has a snapshot that nobody
can read (Iceberg's `SnapshotProducer.commit` and `CleanableFailure`). Where another writer has committed upon it
meanwhile, Iceberg moves the branch back to its own.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import asked, find_table, has_namespace, open_catalog, translated_answers
from dagster_iceberg_spark.errors import (
    CommitConflictError,
    DisplacedCommitError,
    IcebergSparkError,
    UnreadableCommitError,
)
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, Snapshot, TableState


def has_its_files(description: CatalogDescription, identifier: TableIdentifier, snapshot: Snapshot) -> bool:
    """Say whether the snapshot's manifests are there, and one of the data files that each of its own added.

    Raises:
        CatalogUnavailableError: The catalog or the store does not answer.
    """
    table = find_table(description, identifier, snapshot_id=snapshot.snapshot_id)
    if table is None:
        return False
    with translated_answers(description, action=f"look for the files of {identifier} in"):
        try:
            return _has_its_files(table, snapshot.snapshot_id)
        except FileNotFoundError:
            return False


def forget_unmade(description: CatalogDescription, identifier: TableIdentifier) -> bool:
    """Take a table out of a Hive Metastore that was made without its metadata; say whether to make it anew.

    When the answer to its creation gets lost, Hive's client repeats the request. Iceberg is told then that the table
    exists, and deletes the metadata that it points at (`HiveTableOperations.doCommit`).

    Raises:
        CatalogUnavailableError: The catalog does not answer.
    """
    if not description.is_hive:
        return False
    catalog: Any = open_catalog(description)
    drop = partial(catalog.drop_unmade_table, identifier.parts)
    try:
        return bool(asked(description, drop, action=f"look at {identifier} in"))
    except CommitFailedException:
        return True  # another writer holds the table's lock, and makes it or takes it out


@contextmanager
def lone_creation(description: CatalogDescription, namespace: Sequence[str]) -> Iterator[None]:
    """Let nobody else create the namespace meanwhile, where the catalog does not see to it.

    Of several requests to create a database, a Hive Metastore lets one succeed. The others each find that they have
    made its directory, too, and delete it, with whatever tables the first one's owner has put there by then
    (`HiveMetaStore.create_database_core`; measured: sixty times out of sixty).

    Raises:
        CommitConflictError: Another writer is at it.
        CatalogUnavailableError: The catalog does not answer.
    """
    name = ".".join(namespace)
    if not description.is_hive or has_namespace(description, namespace):
        yield
        return
    catalog: Any = open_catalog(description)
    try:
        lock = asked(description, partial(catalog.lock_creation, name), action=f"lock the namespace {name} in")
    except CommitFailedException as error:
        raise CommitConflictError.refusing(
            "create",
            f"the namespace {name}",
            expected="the metastore's lock on it",
            found="that another writer holds it",
            hint="run the asset again.",
        ) from error
    try:
        yield
    finally:
        with suppress(IcebergSparkError):  # the metastore ends what nobody holds, and the namespace is there
            asked(description, partial(catalog.unlock, lock), action=f"unlock the namespace {name} in")


def roll_back(description: CatalogDescription, state: TableState, snapshot: Snapshot, *, branch: str) -> None:
    """Make the parent of an unreadable snapshot current again, unless anything has happened since.

    Args:
        description: The catalog.
        state: The table, as it was seen.
        snapshot: The snapshot without its files.
        branch: The branch that it is the newest one of.

    Raises:
        UnreadableCommitError: Others have built upon the snapshot, it has no parent, or the branch is not `main`.
        CatalogUnavailableError: The catalog or the store does not answer.
    """
    _make_current(
        description,
        state,
        snapshot.parent_snapshot_id,
        head=snapshot,
        branch=branch,
        refusal=_unreadable(state, snapshot),
    )


def bring_back(
    description: CatalogDescription, state: TableState, own: Snapshot, displaced: Sequence[Snapshot], *, branch: str
) -> None:
    """Make the snapshot that others have made upon ours current again, which ours has taken out of the history.

    Raises:
        DisplacedCommitError: There are several, others have committed since, or the branch is not `main`.
        CatalogUnavailableError: The catalog does not answer.
    """
    ids = ", ".join(str(snapshot.snapshot_id) for snapshot in displaced)
    refusal = DisplacedCommitError.refusing(
        "write",
        str(state.identifier),
        expected=f"the snapshots that others have committed upon snapshot {own.snapshot_id} to stay",
        found=f"{ids} out of the history, because Iceberg took a repeated answer for a conflict",
        hint="make it current again with `CALL system.set_current_snapshot`, then execute the run again from its "
        "failure.",
    )
    target = displaced[0].snapshot_id if len(displaced) == 1 else None
    _make_current(description, state, target, head=own, branch=branch, refusal=refusal)


def _make_current(
    description: CatalogDescription,
    state: TableState,
    target_id: int | None,
    *,
    head: Snapshot,
    branch: str,
    refusal: IcebergSparkError,
) -> None:
    """Make a snapshot of `main` current, unless there is none to go to, or the head is not what it was any more."""
    table = find_table(description, state.identifier)
    found = None if table is None else table.current_snapshot()
    is_as_seen = found is not None and found.snapshot_id == head.snapshot_id and branch == MAIN_BRANCH
    if table is None or target_id is None or not is_as_seen:
        raise refusal

    def move() -> None:
        # The catalog compares: the branch must still be where this table was loaded.
        with table.manage_snapshots() as changes:
            changes.set_current_snapshot(target_id)

    try:
        asked(description, move, action=f"make snapshot {target_id} of {state.identifier} current in")
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


def _unreadable(state: TableState, snapshot: Snapshot) -> UnreadableCommitError:
    return UnreadableCommitError.refusing(
        "use",
        str(state.identifier),
        expected=f"the files of its snapshot {snapshot.snapshot_id}",
        found="none: the engine deleted them when it was told that the catalog had refused the commit",
        hint=f"roll the table back to the snapshot {snapshot.parent_snapshot_id} before it, and run again what was "
        "committed since.",
    )

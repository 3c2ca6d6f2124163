"""The reasons not to undo a run."""

from collections.abc import Sequence
from typing import Final

from dagster_iceberg_spark.errors import CommitConflictError, ConfigurationError, UpstreamMissingError
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import Snapshot

_SHOWN: Final = 5


def unknown_run(run_id: str) -> UpstreamMissingError:
    """No table has a snapshot of the run."""
    return UpstreamMissingError.refusing(
        "undo",
        f"the run {run_id}",
        expected="a snapshot of it in the history of `main` of a table",
        found="none: it has published nothing, is undone already, or its snapshots have expired",
    )


def has_dependents(run_id: str, source: str, dependents: Sequence[str]) -> CommitConflictError:
    """Other snapshots were made from those of the run, or have replaced their rows."""
    more = f" and {len(dependents) - _SHOWN} more" if len(dependents) > _SHOWN else ""
    return CommitConflictError.refusing(
        "undo",
        f"the run {run_id}",
        expected=f"no later snapshot that was made from its rows of {source} or has replaced them",
        found=f"{', '.join(dependents[:_SHOWN])}{more}",
        hint="undo these runs first, or all of them with `--cascade`.",
    )


def cannot_restore(identifier: TableIdentifier, undone: object, target: object) -> CommitConflictError:
    """The table has moved since `main` was moved back."""
    return CommitConflictError.refusing(
        "undo",
        f"the undo in {identifier}",
        expected=f"snapshot {target} as the newest of `main`, and snapshot {undone}, which was undone",
        found="later commits, or none of that id, because it has expired",
        hint="run the assets again instead.",
    )


def expired(identifier: TableIdentifier, snapshot_id: int) -> UpstreamMissingError:
    """The snapshot before those of the run has expired, and its files may be gone."""
    return UpstreamMissingError.refusing(
        "undo",
        str(identifier),
        expected=f"the snapshot before {snapshot_id}, which the table would go back to",
        found="none: it has expired",
        hint="run the assets again instead.",
    )


def other_writer(identifier: TableIdentifier, snapshot: Snapshot) -> CommitConflictError:
    """Another writer has changed rows in the partitions of the run since."""
    return CommitConflictError.refusing(
        "undo",
        str(identifier),
        expected="partitions that nobody has changed since the run",
        found=f"snapshot {snapshot.snapshot_id}, which has added or removed files of them",
        hint="undo the later commits first, or run the assets again instead.",
    )


def needs_engine(identifier: TableIdentifier) -> ConfigurationError:
    """Pyiceberg cannot commit to the table, or cannot take the files back."""
    return ConfigurationError.refusing(
        "undo",
        str(identifier),
        expected="files that can be taken back by a commit of metadata",
        found="a table of format 3, in a directory or with delete files, a new partition spec, or files that "
        "compaction has rewritten",
        hint="run the assets again instead, or roll the table back with `CALL system.rollback_to_snapshot`.",
    )


def first_read(identifier: TableIdentifier) -> ConfigurationError:
    """The snapshots are the first that read an input incrementally."""
    return ConfigurationError.refusing(
        "undo",
        str(identifier),
        expected="an earlier snapshot of the asset, which says how far its incremental input was read",
        found="none, and later snapshots of others on top of it",
        hint="undo the later runs first.",
    )


def moved(identifier: TableIdentifier) -> CommitConflictError:
    """Another writer has committed in the meantime."""
    return CommitConflictError.refusing(
        "undo",
        str(identifier),
        expected="the table as it was a moment ago",
        found="a commit of another writer since",
        hint="try again.",
    )

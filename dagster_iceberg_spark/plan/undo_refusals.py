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


def foreign_dependent(run_id: str, source: str, dependent: str) -> CommitConflictError:
    """A table of another code location was made from the rows."""
    return CommitConflictError.refusing(
        "undo",
        f"the run {run_id}",
        expected=f"what was made from its rows of {source} to be in this code location",
        found=dependent,
        hint="undo that run in its own code location first.",
    )


def incomplete(run_id: str, left_out: Sequence[str]) -> UpstreamMissingError:
    """A part of the run cannot be undone."""
    more = f"; and {len(left_out) - _SHOWN} more" if len(left_out) > _SHOWN else ""
    return UpstreamMissingError.refusing(
        "undo",
        f"the run {run_id}",
        expected="all that it has written in the history of `main` of the tables of this code location",
        found=f"{'; '.join(left_out[:_SHOWN])}{more}",
        hint="run the assets again instead, or undo the rest with `--partial`.",
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


def moved(identifier: TableIdentifier) -> CommitConflictError:
    """Another writer has committed in the meantime."""
    return CommitConflictError.refusing(
        "undo",
        str(identifier),
        expected="the table as it was a moment ago",
        found="a commit of another writer since",
        hint="try again.",
    )

"""The errors for histories of tables that do not allow a commit or an incremental read.

Each function returns the error of one case. The caller raises it.
"""

from collections.abc import Sequence

from dagster_iceberg_spark.errors import (
    ChangesConsumedError,
    ChangesUnknownError,
    CommitOutcomeUnknownError,
    ConfigurationError,
    DuplicateCommitError,
    OrphanedCommitError,
)
from dagster_iceberg_spark.plan.read_options import CHANGES_FALLBACK, READ
from dagster_iceberg_spark.table.lineage import CODE_VERSION, COMMIT_TOKEN, ReadKind
from dagster_iceberg_spark.table.snapshot import Snapshot


def forgotten_append(subject: str, runs: Sequence[str], oldest: Snapshot) -> CommitOutcomeUnknownError:
    """An earlier attempt may have appended in a snapshot that has expired."""
    since = oldest.committed_at.isoformat(timespec="seconds")
    return CommitOutcomeUnknownError.refusing(
        "append again to",
        subject,
        expected=f"a history that goes back to the start of run {', '.join(runs)}, which may have appended these rows",
        found=f"snapshots from {since} on: older ones have expired",
        hint="check whether the rows are there. If they are not, launch a new run instead of resuming that one.",
    )


def append_of_other_code(
    subject: str, snapshot: Snapshot, run_id: str, code_version: str | None
) -> OrphanedCommitError:
    """An earlier attempt appended with another code version, and Dagster has not recorded it."""
    return OrphanedCommitError.refusing(
        "append to",
        subject,
        expected="the interrupted append to have the code version that repeats it",
        found=f"snapshot {snapshot.snapshot_id} of run {run_id} with code version "
        f"{snapshot.summary.get(CODE_VERSION)!r}, this one is {code_version!r}",
        hint="look at that snapshot: keep it and record the materialization, or roll it back and run again.",
    )


def twin_appends(subject: str, twins: Sequence[Snapshot]) -> DuplicateCommitError:
    """Two attempts of one step appended at the same time."""
    return DuplicateCommitError.refusing(
        "append to",
        subject,
        expected=f"one snapshot with the commit token {twins[0].summary[COMMIT_TOKEN]}",
        found=f"the snapshots {', '.join(str(snapshot.snapshot_id) for snapshot in twins)}",
        hint="roll back the later snapshot: two attempts of one step ran at once.",
    )


# Incremental reads


def unclear_changes(subject: str, asset: str, read: ReadKind, found: str) -> ChangesUnknownError:
    """The changes of a table cannot be determined."""
    hint = (
        f'set `"{CHANGES_FALLBACK}": "partitions"` in the input\'s metadata, which then reads all rows of the run\'s '
        "partitions and replaces them; `full` only reads all rows, for an asset that merges them."
    )
    if read == "changes":
        expected = f"to know which rows of {asset} were added, as `{READ}` asks"
        hint += " `changelog` also tells of rows that have gone."
    else:
        expected = f"to know every change of {asset}, as `{READ}` asks"
    return ChangesUnknownError.refusing("read what is new in", subject, expected=expected, found=found, hint=hint)


def replaced_by_changes(subject: str, assets: str, disposition: str) -> ConfigurationError:
    """Rows made from changes would replace rows made from earlier changes."""
    return ConfigurationError.refusing(
        "write",
        subject,
        expected=f"an asset that adds to its table what it makes of the changes of {assets}",
        found=f"`iceberg/write_disposition` {disposition}, which removes what was made of earlier ones",
        hint="use `append` or `merge`, or read the asset's own rows of the run's partitions too.",
    )


def replaced_by_another_disposition(subject: str, asset: str, disposition: str) -> ConfigurationError:
    """Only what an asset appends is the same as what it would replace its partitions by."""
    return ConfigurationError.refusing(
        "replace the partitions of",
        subject,
        expected=f"the write disposition `append`, because {asset} is read anew (`{CHANGES_FALLBACK}`)",
        found=f"`{disposition}`",
        hint=f'use `"{CHANGES_FALLBACK}": "full"` to merge all rows.',
    )


def replaced_by_some_changes(subject: str, anew: str, partial: str) -> ConfigurationError:
    """All rows of one input, but only the changes of another, would replace the rows of the partitions."""
    return ConfigurationError.refusing(
        "replace the partitions of",
        subject,
        expected=f"all rows of each input, because {anew} is read anew (`{CHANGES_FALLBACK}`)",
        found=f"only the changes of {partial}",
        hint=f'read {partial} with `"{READ}": "snapshot"`.',
    )


def replaced_with_others(subject: str, asset: str, others: Sequence[str]) -> ConfigurationError:
    """Another asset appends to the same partitions, and its rows would be replaced too."""
    return ConfigurationError.refusing(
        "replace the partitions of",
        subject,
        expected=f"a table that no other asset writes, because {asset} is read anew (`{CHANGES_FALLBACK}`)",
        found=f"rows of {', '.join(others)} too",
        hint="give each asset a table of its own.",
    )


def repeated_rows(subject: str, asset: str) -> ConfigurationError:
    """Rows that were read before would be appended again."""
    return ConfigurationError.refusing(
        "append to",
        subject,
        expected=f"rows of {asset} that are new",
        found=f"all of its rows, as `{CHANGES_FALLBACK}` asks, of which some were read before",
        hint=f'use `"{CHANGES_FALLBACK}": "partitions"`, which replaces the run\'s partitions, or merge the rows.',
    )


def consumed_changes(subject: str, asset: str, since: int | None, found: str) -> ChangesConsumedError:
    """Another materialization has consumed the changes since."""
    return ChangesConsumedError.refusing(
        "write",
        subject,
        expected=f"this run alone to have read {asset} {f'after snapshot {since}' if since else 'from its beginning'}",
        found=found,
        hint="run it again: it reads what is new then.",
    )

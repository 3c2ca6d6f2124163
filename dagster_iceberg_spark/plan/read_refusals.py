"""The errors for inputs that read something that the table does not have.

Each function returns the error of one case. The caller raises it.
"""

import datetime as dt
from collections.abc import Iterable, Sequence
from functools import partial

from dagster_iceberg_spark.errors import MetadataKeyError, UpstreamMissingError
from dagster_iceberg_spark.plan.read_options import COLUMNS

_cannot_read = partial(UpstreamMissingError.refusing, "read")


def unknown_ref(subject: str, ref: str | None, refs: Iterable[str]) -> UpstreamMissingError:
    """The branch or tag does not exist."""
    return _cannot_read(
        subject, expected=f"a branch or tag {ref!r}", found=f"the refs {', '.join(sorted(refs)) or 'none'}"
    )


def unknown_snapshot(subject: str, snapshot_id: int, of_run: str | None, *, others: int) -> UpstreamMissingError:
    """The snapshot does not exist, though a run may have read it."""
    return _cannot_read(
        subject,
        expected=f"the snapshot {snapshot_id}" + (f" that the run {of_run} has read" if of_run else ""),
        found=f"{others} other snapshots",
        hint="it may have expired, or the catalog shows only the newest; `iceberg/as_of` takes an instant.",
    )


def no_snapshot_then(subject: str, branch: str, instant: dt.datetime) -> UpstreamMissingError:
    """The snapshot of the branch at an instant is unknown."""
    return _cannot_read(
        subject,
        expected=f"the snapshot that {branch!r} had at {instant.isoformat()}",
        found="none: the table is younger, its older snapshots have expired, or the catalog shows only the newest",
    )


def earlier_than_read(subject: str, snapshot_id: int | None, since: int) -> UpstreamMissingError:
    """An incremental read selects a snapshot that is older than the last one that the asset read."""
    return UpstreamMissingError.refusing(
        "read what is new in",
        subject,
        expected=f"a snapshot that is not older than {since}, which the asset has read",
        found=f"{snapshot_id}",
        hint="to read an earlier state again, set `iceberg/read` to `snapshot`, or roll the asset's own table back.",
    )


def unknown_columns(subject: str, missing: Sequence[str], columns: Sequence[str]) -> UpstreamMissingError:
    """The table lacks columns that the input selects."""
    return _cannot_read(
        subject, expected=f"the columns {', '.join(missing)} of `{COLUMNS}`", found=f"the columns {', '.join(columns)}"
    )


def repeated_columns(subject: str, columns: Sequence[str]) -> MetadataKeyError:
    """The input selects a column twice."""
    return MetadataKeyError.of_value(COLUMNS, subject, expected="each column once", found=", ".join(columns))

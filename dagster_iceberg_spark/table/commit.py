"""The commit of one materialization."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from dagster_iceberg_spark.table.audit import AuditResult
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.snapshot import Snapshot

PublishedBy: TypeAlias = Literal["step", "release"]
"""What publishes the rows of an asset: the step that writes them, or a release of several assets."""


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Row counts of a write, counted while the rows are written, without another pass over the data.

    Args:
        rows: Rows of the DataFrame that were written, or None if they were not counted.
        dropped: Rows that were left out because they belong to none of the run's partitions.
        by_partition: Rows by partition key.
        unchanged: Rows of a merge's batch that the table already had or that a rule kept out, or None if they were not
            counted.
    """

    rows: int | None = None
    dropped: int = 0
    by_partition: Mapping[str, int] = field(default_factory=dict)
    unchanged: int | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit of one materialization.

    Args:
        snapshot: The snapshot that carries the commit token.
        write_seconds: Seconds from the first step to the snapshot's timestamp.
        commit_seconds: Seconds from the snapshot's timestamp to the engine's return.
        retries: How often the write was planned again after a conflict or an outage.
        retry_seconds: Seconds that the attempts before the last one took, including the waits between them.
        audits: The results of the audits, if the write was staged.
        publication: How this attempt published the staged rows, or None if it published none.
        staged_branch: The branch that holds the snapshot until a release publishes it, or None if it is published.
        history: The snapshot and its newest ancestors, newest first.
        publication_seconds: Seconds from the end of the staged write to the end of the publication, with the audits.
    """

    identifier: TableIdentifier
    location: str
    schema: Schema
    snapshot: Snapshot
    counts: RowCounts = field(default_factory=RowCounts)
    write_seconds: float = 0.0
    commit_seconds: float = 0.0
    retries: int = 0
    retry_seconds: float = 0.0
    changes: tuple[str, ...] = ()
    is_adopted: bool = False
    has_created: bool = False
    audits: tuple[AuditResult, ...] = ()
    publication: str | None = None
    staged_branch: str | None = None
    publication_seconds: float = 0.0
    history: tuple[Snapshot, ...] = ()

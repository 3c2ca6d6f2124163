"""What is asked of a materialization, and what it answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dagster_iceberg_spark.plan.adoption import RecordCheck, RemoteAttempt, TokenCandidate
from dagster_iceberg_spark.plan.request import TableRequest
from dagster_iceberg_spark.spark.counts import RowCounts
from dagster_iceberg_spark.spark.execution import Announce
from dagster_iceberg_spark.spark.progress import Report
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import Materialization
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """How often, and how long, a conflict or an outage is answered by planning again.

    Args:
        attempts: At most so many attempts, the first included.
        seconds: No new attempt starts after so many seconds.
    """

    attempts: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Publication:
    """What is to be materialized.

    Args:
        request: What the definition wants of the table.
        materialization: The run's scope and what the snapshot says.
        candidates: Tokens that may be in the table already.
        record_of: Says what Dagster has recorded of a snapshot.
        limits: How conflicts and outages are retried.
        report: Takes a line for the run's log.
        announce: Takes note of where on a Spark Connect server this attempt writes, before it does.
        earlier_attempts: Returns where earlier attempts have written.
    """

    request: TableRequest
    materialization: Materialization
    candidates: Sequence[TokenCandidate]
    record_of: RecordCheck
    limits: RetryLimits
    report: Report
    announce: Announce
    earlier_attempts: Callable[[], Sequence[RemoteAttempt]]


@dataclass(frozen=True, slots=True)
class Commit:
    """What one materialization did.

    Args:
        identifier: The table.
        location: The URI of its directory.
        schema: Its columns after the commit.
        snapshot: The snapshot that carries the token.
        counts: What the write counted.
        write_seconds: Seconds from the first step to the snapshot's timestamp.
        commit_seconds: Seconds from the snapshot's timestamp to the engine's return.
        retries: How often it was planned again after a conflict or an outage.
        retry_seconds: Seconds that the attempts before the last one took, and the waits between.
        changes: Changes of the table's metadata, in words.
        is_adopted: Whether the snapshot was there already.
        has_created: Whether the table was created.
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

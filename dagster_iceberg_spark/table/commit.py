"""What one materialization did."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class RowCounts:
    """What the write counted on its way, at no pass of its own.

    Args:
        rows: Rows of the frame that were written; None where nothing asked for it.
        dropped: Rows that were left out because the run does not own them.
        by_partition: Rows by partition key.
        unchanged: Rows of a merge's batch that the table had already, or did not let in; None where nothing counted.
    """

    rows: int | None = None
    dropped: int = 0
    by_partition: Mapping[str, int] = field(default_factory=dict)
    unchanged: int | None = None


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

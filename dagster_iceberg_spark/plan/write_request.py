"""What is asked of one materialization."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dagster_iceberg_spark.plan.adoption import RecordCheck, RemoteAttempt, TokenCandidate
from dagster_iceberg_spark.plan.table_request import TableRequest
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import Materialization

Report: TypeAlias = Callable[[str], None]
"""Takes a line for the run's log."""
Announce: TypeAlias = Callable[[RemoteAttempt], None]
"""Records where on a Spark Connect server an attempt writes, before it does."""


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """How often, and how long, a write is planned again after a conflict or an outage.

    Args:
        attempts: The most attempts, the first included.
        seconds: Seconds after which no new attempt starts.
    """

    attempts: int = 5
    seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """What an output asks for.

    Args:
        table: The table and how it is written.
        materialization: The run's scope and what the snapshot will say.
        candidates: Commit tokens that may be in the table already.
        record_of: Returns what Dagster has recorded of a snapshot.
        limits: How often the write is planned again.
        report: Takes a line for the run's log.
        announce: Records where on a Spark Connect server this attempt writes.
        earlier_attempts: Returns where earlier attempts have written.
    """

    table: TableRequest
    materialization: Materialization
    candidates: tuple[TokenCandidate, ...]
    record_of: RecordCheck
    limits: RetryLimits
    report: Report
    announce: Announce
    earlier_attempts: Callable[[], Sequence[RemoteAttempt]]

    @property
    def identifier(self) -> TableIdentifier:
        """The table's name."""
        return self.table.identifier

    @property
    def subject(self) -> str:
        """The table's name, for messages."""
        return str(self.table.identifier)

    @property
    def branch(self) -> str:
        """The branch that is written."""
        return self.table.options.branch

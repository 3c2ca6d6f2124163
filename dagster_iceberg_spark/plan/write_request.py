"""The write request of one materialization."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dagster_iceberg_spark.plan.adoption import RecordCheck, RemoteAttempt, TokenCandidate
from dagster_iceberg_spark.plan.table_request import TableRequest
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import Materialization

Report: TypeAlias = Callable[[str], None]
"""Writes a line to the run's log."""
Announce: TypeAlias = Callable[[RemoteAttempt], None]
"""Records the session on a Spark Connect server in which an attempt is about to write."""


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """The limits within which a write is planned again after a conflict or an outage.

    Args:
        attempts: The maximum number of attempts, including the first.
        seconds: The time in which a new attempt may start, in seconds.
    """

    attempts: int = 5
    seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """The write request of an output.

    Args:
        table: The table and the options of the output.
        materialization: The run's scope and the lineage for the snapshot.
        candidates: The commit tokens that may already be in the table.
        record_of: Returns what Dagster has recorded of a snapshot.
        limits: The limits within which the write is planned again.
        report: Writes a line to the run's log.
        announce: Records the session on a Spark Connect server in which this attempt writes.
        earlier_attempts: Returns the sessions in which earlier attempts wrote.
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
        """The table."""
        return self.table.identifier

    @property
    def subject(self) -> str:
        """The table, for messages."""
        return str(self.table.identifier)

    @property
    def branch(self) -> str:
        """The branch that the write goes to."""
        return self.table.options.branch

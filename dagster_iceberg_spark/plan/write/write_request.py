"""The write request of one materialization."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dagster_iceberg_spark.plan.write.adoption import RecordCheck, RemoteAttempt, TokenCandidate
from dagster_iceberg_spark.plan.write.table_request import TableRequest
from dagster_iceberg_spark.table.audit import SHOWN_ROWS
from dagster_iceberg_spark.table.commit import Commit
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import Materialization
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH

Report: TypeAlias = Callable[[str], None]
"""Writes a line to the run's log."""
Announce: TypeAlias = Callable[[RemoteAttempt], None]
"""Records the session on a Spark Connect server in which an attempt is about to write."""


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """The limits of a write: attempts, including the first, and the seconds in which an attempt may start."""

    attempts: int = 5
    seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """The write request of an output.

    Args:
        announce: Records the session on a Spark Connect server in which this attempt writes.
        earlier_attempts: Returns the sessions in which earlier attempts wrote.
        audit_samples: How many rows that fail an audit are shown.
    """

    table: TableRequest
    materialization: Materialization
    candidates: tuple[TokenCandidate, ...]
    record_of: RecordCheck
    limits: RetryLimits
    report: Report
    announce: Announce
    earlier_attempts: Callable[[], Sequence[RemoteAttempt]]
    audit_samples: int = SHOWN_ROWS

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
        return self.table.branch

    def shows_in_main(self, commit: Commit) -> bool:
        """Return whether the rows of a commit are in `main`, not in another branch or staged."""
        return commit.staged_branch is None and self.table.options.branch == MAIN_BRANCH

    @property
    def searched(self) -> tuple[tuple[str, tuple[TokenCandidate, ...]], ...]:
        """The branches that may hold what an earlier attempt committed, each with the tokens to look for.

        What another run has staged, and no run has published, is not adopted: its rows may have failed an audit.
        """
        staging = self.table.staging
        if staging is None:
            return ((self.branch, self.candidates),)
        own = tuple(candidate for candidate in self.candidates if candidate.is_same_run)
        return ((staging.target, self.candidates), (staging.branch, own))

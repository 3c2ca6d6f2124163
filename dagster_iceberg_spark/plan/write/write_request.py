"""The write request of one materialization: the table that a definition asks for, and the branch that stages rows.

A staged branch belongs to one output and its partitions. It starts at the head of the branch that its rows will be
published to, and holds one snapshot.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from dagster_iceberg_spark.plan.options.output_options import WriteOptions
from dagster_iceberg_spark.plan.schema.renames import StoredNames
from dagster_iceberg_spark.plan.write.placement import TableCreation
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.audit import SHOWN_ROWS, AuditResult
from dagster_iceberg_spark.table.change import is_empty_start
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import Materialization
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, Commit, PublishedBy, RowCounts, TableState
from dagster_iceberg_spark.table.updates import BranchUpdate, CreateBranch, DropBranch, SetTag

_PREFIX: Final = "dagster_"
_DIGITS: Final = 16
_NAME: Final = re.compile(rf"{_PREFIX}[0-9a-f]{{{_DIGITS}}}")
STAGED_RETENTION_DAYS: Final = 7


@dataclass(frozen=True, slots=True)
class ReleaseTag:
    """The tag of a release, on all of its tables.

    Args:
        retention_days: The age, in days, at which the expiry of snapshots removes it, or None to keep it for ever.
    """

    name: str
    retention_days: int | None = None

    def at(self, snapshot_id: int) -> SetTag:
        """Return the update that sets the tag."""
        return SetTag(self.name, snapshot_id, self.retention_days)


@dataclass(frozen=True, slots=True)
class Staging:
    """A write that is staged.

    Args:
        branch: The staged branch.
        target: The branch that the rows are published to.
        retention_days: The days after which the expiry of snapshots removes an abandoned staged branch.
        published_by: What publishes the rows.
        target_retention_days: The days after which the expiry removes the target, if the publication creates it, or
            None to keep it for ever.
        rivals: The commit tokens under which other processes may publish the same rows concurrently.
        tag: The tag that the publication sets, or None.
    """

    branch: str
    target: str
    retention_days: int = STAGED_RETENTION_DAYS
    published_by: PublishedBy = "step"
    target_retention_days: int | None = None
    rivals: frozenset[str] = frozenset()
    tag: ReleaseTag | None = None

    def begun(self, state: TableState | None) -> tuple[TableState | None, tuple[BranchUpdate, ...]]:
        """Return the table's state with the staged branch at the head of the target, and the updates to get there.

        The branch may still hold what an earlier run staged. It is dropped then, and starts again.
        """
        start = None if state is None else state.refs.get(self.target)
        create = CreateBranch(self.branch, start, self.retention_days)
        if state is None or self.branch not in state.refs:
            updates: tuple[BranchUpdate, ...] = (create,)
        else:
            updates = () if self._is_unused(state) else (DropBranch(self.branch), create)
        if state is None:
            return None, updates
        others = {name: snapshot_id for name, snapshot_id in state.refs.items() if name != self.branch}
        return replace(state, refs=others if start is None else {**others, self.branch: start}), updates

    def _is_unused(self, state: TableState) -> bool:
        """Return whether the branch holds only what the target holds, or the empty snapshot that Iceberg adds."""
        if self.target in state.refs:
            return state.refs[self.branch] == state.refs[self.target]
        head = state.head(self.branch)
        return head is not None and is_empty_start(head)


def staged_branch(*, root_run_id: str, output: str, scope: PartitionScope | None, target: str) -> str:
    """Return the name of an output's staged branch.

    The root run identifies it, so that retries and the runs that resume a run use the same branch. The scope is None
    for rows that a release publishes: the run's other steps find the branch without knowing which rows it holds.
    """
    document = json.dumps([root_run_id, output, "release" if scope is None else scope.digest, target])
    return f"{_PREFIX}{hashlib.sha256(document.encode()).hexdigest()[:_DIGITS]}"


def is_staged_branch(name: str) -> bool:
    """Return whether a branch has the name of a staged one."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """What a write may change of its table besides rows. By default, it is production's.

    Args:
        retention_days: The days without a write after which the expiry of snapshots removes the branch that the write
            creates, and after which its snapshots expire, or None to keep it for ever.
        keeps_layout: Whether the partition spec, the order and the properties stay, which all branches share.
        may_add_columns: Whether the columns are added that rows need.
    """

    retention_days: int | None = None
    keeps_layout: bool = False
    may_add_columns: bool = True


@dataclass(frozen=True, slots=True)
class TableRequest:
    """The table that a definition asks for. An op's output has no asset key, and owns no table.

    `staging` is None for a write whose rows are published at once.
    """

    identifier: TableIdentifier
    asset_key: str | None
    is_named_explicitly: bool
    options: WriteOptions
    column_docs: Mapping[str, str] = field(default_factory=dict)
    creation: TableCreation = field(default_factory=TableCreation)
    staging: Staging | None = None
    target: WriteTarget = field(default_factory=WriteTarget)

    @property
    def branch(self) -> str:
        """The branch that the write goes to."""
        return self.options.branch if self.staging is None else self.staging.branch

    def by_names(self, names: StoredNames) -> "TableRequest":
        """Return the request with the table's names of the columns."""
        docs = {names.column(column): doc for column, doc in self.column_docs.items()}
        return replace(self, options=names.of_options(self.options), column_docs=docs)

    def with_properties(self, properties: Mapping[str, str]) -> "TableRequest":
        """Return the request with more table properties. Those that it already sets keep their values."""
        wanted = {**properties, **self.options.table_properties}
        return replace(self, options=self.options.model_copy(update={"table_properties": wanted}))

    def ownership(self) -> dict[str, str]:
        """Return the table properties that record the owner."""
        if self.asset_key is None:
            return {}
        named = {lineage.SHARED_PROPERTY: lineage.NAMED_EXPLICITLY} if self.is_named_explicitly else {}
        return {lineage.OWNER_PROPERTY: self.asset_key, **named}


Record: TypeAlias = Literal["none", "recorded", "rejected"]
"""What Dagster has recorded of a snapshot: no materialization, one, or one whose blocking check failed."""
RecordCheck: TypeAlias = Callable[[int], Record]
"""Returns what the candidates' runs have recorded of a snapshot, for this asset and partition."""


def operation_tag(token: str) -> str:
    """Return the tag of the operations that write under the token. Spark's tags allow no commas or spaces."""
    return f"dagster-iceberg-{token}"


@dataclass(frozen=True, slots=True)
class TokenCandidate:
    """A token under which the materialization may already be in the table.

    Args:
        run_started_at_ms: When that run began, in milliseconds since 1970, or None if it is unknown.
        has_begun: Whether an earlier attempt under the token is known to have begun.
    """

    token: str
    run_id: str
    run_started_at_ms: int | None
    is_same_run: bool
    has_begun: bool = True

    @property
    def tag(self) -> str:
        """The tag of the operations that write under the token."""
        return operation_tag(self.token)


@dataclass(frozen=True, slots=True)
class RemoteAttempt:
    """The session on a Spark Connect server (host and port) in which an attempt writes, or has written."""

    tag: str
    session_id: str
    user_id: str
    server: str


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
        has_ended: Returns whether a run is known to have ended, by its id.
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
    has_ended: Callable[[str], bool] = lambda _: False
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
    def searched_branches(self) -> tuple[tuple[str, tuple[TokenCandidate, ...]], ...]:
        """The branches that may hold what an earlier attempt committed, each with the tokens to look for.

        What another run has staged, and no run has published, is not adopted: its rows may have failed an audit.
        """
        staging = self.table.staging
        if staging is None:
            return ((self.branch, self.candidates),)
        own = tuple(candidate for candidate in self.candidates if candidate.is_same_run)
        return ((staging.target, self.candidates), (staging.branch, own))


@dataclass(frozen=True, slots=True)
class WrittenElsewhere:
    """What an asset returns whose rows another process has written, under the commit token of the output.

    Args:
        found: How the process has ended, for the error if there is no snapshot.
        cause: The error that it has ended with, or None.
        audits: The results of audits that it has evaluated, by name.
        known: The snapshots that the table had before the process was launched.
        snapshot_id: The snapshot that it has reported, or None if its report was lost.
        counts: The counts of the rows of that snapshot, or None.
    """

    found: str
    cause: Exception | None = None
    audits: Mapping[str, AuditResult] = field(default_factory=dict)
    known: frozenset[int] = frozenset()
    snapshot_id: int | None = None
    counts: RowCounts | None = None

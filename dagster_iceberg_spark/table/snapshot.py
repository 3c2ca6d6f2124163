"""Snapshots, and the state of a table at one point in time."""

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from dagster_iceberg_spark.table.audit import AuditResult
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.partitioning import PartitionSpec, SortField
from dagster_iceberg_spark.table.schema import Schema

ROW_LINEAGE_VERSION: Final = 3
"""The format version whose snapshots assign ids to rows, and whose columns have default values."""
MAIN_BRANCH = "main"
DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot of a table: an `append`, `overwrite`, `delete` or `replace`.

    Args:
        summary: The summary without the operation. Its keys are lower case.
        sequence_number: The place among the changes of the table (Iceberg spec, "Sequence Numbers"). Format version 1
            has none.
        first_row_id: The id of the first row that it added, or None for a snapshot of format version 1 or 2 (Iceberg
            spec, "Row Lineage").
    """

    snapshot_id: int
    parent_snapshot_id: int | None
    committed_at_ms: int
    operation: str
    summary: Mapping[str, str] = field(default_factory=dict)
    schema_id: int | None = None
    sequence_number: int | None = None
    first_row_id: int | None = None

    @property
    def is_compaction(self) -> bool:
        """Whether files were rewritten without changing rows: Iceberg's operation `replace` (spec, "Snapshots")."""
        return self.operation == "replace"

    @property
    def committed_at(self) -> dt.datetime:
        """When the snapshot was committed, in UTC."""
        return dt.datetime.fromtimestamp(self.committed_at_ms / 1000, dt.timezone.utc)

    def count(self, key: str) -> int:
        """Return a number in the summary. The engine leaves out zeros."""
        return int(self.summary.get(key, "0"))


def ancestry(snapshots: Mapping[int, Snapshot], snapshot_id: int | None) -> Iterator[Snapshot]:
    """Yield a snapshot and its ancestors, newest first, as far as they are among these."""
    while snapshot_id is not None and (snapshot := snapshots.get(snapshot_id)) is not None:
        yield snapshot
        snapshot_id = snapshot.parent_snapshot_id


@dataclass(frozen=True, slots=True)
class PublishedSnapshot:
    """The published snapshot that has the rows of a staged one.

    `is_moved` says whether others have committed to the target between the two, or whether that is unknown.
    """

    snapshot_id: int
    is_moved: bool

    @classmethod
    def of(cls, staged: Snapshot, published: Snapshot) -> "PublishedSnapshot":
        """Compare the two snapshots."""
        return cls(published.snapshot_id, is_moved=staged.parent_snapshot_id != published.parent_snapshot_id)


@dataclass(frozen=True, slots=True)
class RefRetention:
    """How long an expiry keeps a branch or tag (Iceberg spec, "Snapshot References"). None: as the table says.

    Args:
        max_ref_age_ms: The greatest age of the snapshot that the ref points to. `main` has none.
        max_snapshot_age_ms: The greatest age of the snapshots of a branch.
        min_snapshots_to_keep: The number of snapshots of a branch that are kept, whatever their age.
    """

    max_ref_age_ms: int | None = None
    max_snapshot_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of a table when it was loaded.

    Args:
        specs: All partition specs by id. Live files may have been written under old specs.
        snapshots: The snapshots by id. Some catalogs show only the newest.
        refs: The snapshot id of each branch and tag by name. `main` is absent while the table has no snapshot.
        identifier_fields: The dotted names of the columns that identify a row.
        sort_order: The order of rows in new files.
        snapshot_log: The snapshots that were current on `main`: when, in milliseconds since 1970, and which; oldest
            first.
        retention: How long an expiry keeps each branch and tag that says so.
        uuid: The identity of the table. A table that is dropped and created again has another one.
    """

    identifier: TableIdentifier
    location: str
    format_version: int
    schema: Schema
    specs: Mapping[int, PartitionSpec]
    default_spec_id: int
    properties: Mapping[str, str]
    snapshots: Mapping[int, Snapshot]
    refs: Mapping[str, int]
    schemas: Mapping[int, Schema] = field(default_factory=dict)
    identifier_fields: tuple[str, ...] = ()
    sort_order: tuple[SortField, ...] = ()
    branches: frozenset[str] = frozenset({MAIN_BRANCH})
    snapshot_log: tuple[tuple[int, int], ...] = ()
    retention: Mapping[str, RefRetention] = field(default_factory=dict)
    uuid: str = ""

    @property
    def spec(self) -> PartitionSpec:
        """The spec for new files."""
        return self.specs[self.default_spec_id]

    @property
    def once_current(self) -> frozenset[int]:
        """The snapshots that are or were current on `main`, including those that it has lost by a rollback."""
        return frozenset(snapshot_id for _, snapshot_id in self.snapshot_log)

    def compared_like(self, schema: Schema) -> "TableState":
        """Return the state with column names compared in the same way as in the schema."""
        return replace(self, schema=replace(self.schema, is_case_sensitive=schema.is_case_sensitive))

    def head(self, branch: str = MAIN_BRANCH) -> Snapshot | None:
        """Return the newest snapshot of the branch."""
        snapshot_id = self.refs.get(branch)
        return None if snapshot_id is None else self.snapshots.get(snapshot_id)

    def base(self, branch: str = MAIN_BRANCH) -> Snapshot | None:
        """Return the parent snapshot of a write to the branch. A new branch starts at the head of `main`."""
        return self.head(self._start_of(branch))

    def base_ancestors(self, branch: str = MAIN_BRANCH) -> Iterator[Snapshot]:
        """Yield the ancestors of a write to the branch, newest first."""
        return self.ancestors(self._start_of(branch))

    def _start_of(self, branch: str) -> str:
        return branch if branch in self.refs else MAIN_BRANCH

    def ancestors(self, branch: str = MAIN_BRANCH) -> Iterator[Snapshot]:
        """Yield the head of the branch and its ancestors, newest first."""
        return self.history(self.refs.get(branch))

    def without_refs(self, names: Collection[str]) -> "TableState":
        """Return the state without these branches and tags."""
        return replace(self, refs={name: item for name, item in self.refs.items() if name not in names})

    def has_branch(self, ref: str) -> bool:
        """Return whether a ref is a branch. Otherwise it is a tag."""
        return ref in self.branches

    def has_only_since(self, base_id: int | None, branch: str, test: Callable[[Snapshot], bool]) -> bool:
        """Return whether each snapshot that the branch got on top of the base passes the test.

        It is false if the branch does not have the base. If that is None, each snapshot of the branch has to pass.
        """
        for snapshot in self.base_ancestors(branch):
            if snapshot.snapshot_id == base_id:
                return True
            if not test(snapshot):
                return False
        return base_id is None

    def history(self, snapshot_id: int | None) -> Iterator[Snapshot]:
        """Return the snapshot and its ancestors, newest first."""
        return ancestry(self.snapshots, snapshot_id)


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

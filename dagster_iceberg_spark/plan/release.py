"""Decides about releases: publications of what a run has staged in several tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import chain

from dagster_iceberg_spark.errors import CommitConflictError, UpstreamMissingError
from dagster_iceberg_spark.plan.publication import StagedRows
from dagster_iceberg_spark.table.lineage import ASSET_KEY, UPSTREAM, UpstreamRead, upstream_reads, with_published_reads
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState


@dataclass(frozen=True, slots=True)
class Member:
    """An asset of a release, with the state of its table and the rows that the run has staged."""

    asset: str
    state: TableState
    rows: StagedRows

    @property
    def reads(self) -> tuple[UpstreamRead, ...]:
        """The inputs that the rows were made from."""
        return tuple(read for snapshot in self.rows.snapshots for read in _reads_of(snapshot))


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


def in_order(members: Sequence[Member]) -> tuple[Member, ...]:
    """Return the members, each after those that it was made from."""
    by_table = {str(member.state.identifier): member for member in members}
    sources = {
        table: {read.table for read in member.reads} & by_table.keys() - {table} for table, member in by_table.items()
    }
    try:
        return tuple(by_table[table] for table in TopologicalSorter(sources).static_order())
    except CycleError:  # assets that read one another in several runs
        return tuple(members)


def refuse_outdated(members: Sequence[Member], published: Mapping[int, PublishedSnapshot]) -> None:
    """Reject a member that was made from staged rows which have been staged again since.

    `published` has the snapshots that are published already, by the ids of the staged ones.
    """
    by_table = {str(member.state.identifier): member for member in members}
    for member in members:
        for read in member.reads:
            source = by_table.get(read.table)
            if source is None or source is member or read.snapshot_id is None or read.snapshot_id in published:
                continue
            staged = source.state.history(source.rows.snapshot.snapshot_id)
            known = chain(staged, source.state.ancestors(source.rows.staging.target))
            if all(snapshot.snapshot_id != read.snapshot_id for snapshot in known):
                raise UpstreamMissingError.refusing(
                    "publish",
                    member.asset,
                    expected=f"rows that were made from the staged rows of {source.asset}",
                    found=f"rows that were made from its snapshot {read.snapshot_id}, after which it was staged again",
                    hint=f"materialize {member.asset} in this run again.",
                )


def published_upstream(staged: Snapshot, published: Mapping[int, PublishedSnapshot]) -> str | None:
    """Return a snapshot's inputs by the ids of the published snapshots, or None if these are the ids that it has.

    An incremental read goes on from the published snapshot. What others have committed before it would never be read.

    Raises:
        CommitConflictError: Others have committed to a table that was read incrementally.
    """
    ids = {before: after.snapshot_id for before, after in published.items() if before != after.snapshot_id}
    reads = [read for read in _reads_of(staged) if read.snapshot_id in ids]
    for read in reads:
        if read.kind is not None and published[read.snapshot_id or 0].is_moved:
            raise _unread_changes(staged.summary.get(ASSET_KEY, "the rows"), read.asset_key)
    return with_published_reads(staged.summary[UPSTREAM], ids) if reads else None


def _reads_of(snapshot: Snapshot) -> tuple[UpstreamRead, ...]:
    return upstream_reads(snapshot.summary.get(UPSTREAM, ""))


def _unread_changes(asset: str, source: str) -> CommitConflictError:
    """Others have committed to a table whose changes an asset has read."""
    return CommitConflictError.refusing(
        "publish",
        asset,
        expected=f"no commits of others to {source}, whose changes it has read up to the staged snapshot",
        found="some, which the asset would never read",
        hint=f"materialize {source} and {asset} again.",
    )

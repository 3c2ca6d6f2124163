"""Decides about releases: publications of what a run has staged in several tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from dagster_iceberg_spark.plan import release_refusals
from dagster_iceberg_spark.plan.publication import StagedRows
from dagster_iceberg_spark.table.lineage import UPSTREAM, upstream_reads, with_published_reads
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState


@dataclass(frozen=True, slots=True)
class Member:
    """An asset of a release, with the state of its table and the rows that the run has staged."""

    asset: str
    state: TableState
    rows: StagedRows

    @property
    def upstream(self) -> str:
        """The document of the inputs that the rows were made from."""
        return self.rows.snapshot.summary.get(UPSTREAM, "")


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
    by_asset = {member.asset: member for member in members}
    sources = {
        asset: {read.asset_key for read in upstream_reads(member.upstream)} & by_asset.keys() - {asset}
        for asset, member in by_asset.items()
    }
    return tuple(by_asset[asset] for asset in TopologicalSorter(sources).static_order())


def refuse_outdated(members: Sequence[Member], published: Mapping[int, PublishedSnapshot]) -> None:
    """Reject a member that was made from staged rows which have been staged again since.

    `published` has the snapshots that are published already, by the ids of the staged ones.
    """
    by_asset = {member.asset: member for member in members}
    for member in members:
        for read in upstream_reads(member.upstream):
            source = by_asset.get(read.asset_key)
            if source is None or source is member or read.snapshot_id is None or read.snapshot_id in published:
                continue
            line = source.state.history(source.rows.snapshot.snapshot_id)
            if all(snapshot.snapshot_id != read.snapshot_id for snapshot in line):
                raise release_refusals.outdated_member(member.asset, source.asset, read.snapshot_id)


def published_upstream(member: Member, published: Mapping[int, PublishedSnapshot]) -> str | None:
    """Return the member's inputs by the ids of the published snapshots, or None if these are the ids that it has.

    An incremental read goes on from the published snapshot. What others have committed before it would never be read.

    Raises:
        CommitConflictError: Others have committed to a table that the member reads incrementally.
    """
    ids = {staged: after.snapshot_id for staged, after in published.items() if staged != after.snapshot_id}
    for read in upstream_reads(member.upstream):
        if read.kind is not None and read.snapshot_id in ids and published[read.snapshot_id].is_moved:
            raise release_refusals.unread_changes(member.asset, read.asset_key)
    if not any(read.snapshot_id in ids for read in upstream_reads(member.upstream)):
        return None
    return with_published_reads(member.upstream, ids)

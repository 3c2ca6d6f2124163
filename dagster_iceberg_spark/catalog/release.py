"""Publishes what a run has staged in several tables: at one instant where the catalog can, else one table at a time."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TypeAlias

from dagster_iceberg_spark.catalog.branches import ATTEMPTS, can_commit, wait_for_others
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.catalog.publication import Outcome, choose_publication, fast_forwarded, rebased
from dagster_iceberg_spark.catalog.transaction import (
    TableCommit,
    commit_table,
    commit_tables,
    discard_all,
    is_transactional,
)
from dagster_iceberg_spark.errors import CommitConflictError
from dagster_iceberg_spark.plan.publication import Publication, StagedRows, moved, published_snapshot
from dagster_iceberg_spark.plan.release import Member, PublishedSnapshot, in_order, published_upstream, refuse_outdated
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import changes_read
from dagster_iceberg_spark.table.snapshot import TableState

Advance: TypeAlias = Callable[[TableState, StagedRows], Outcome]
"""Fast-forwards a table that pyiceberg cannot commit to."""


@dataclass(frozen=True, slots=True)
class PublishedMember:
    """A member of a release that is published.

    Args:
        how: How it was published.
        published: The snapshot that has its rows now.
        before: The target's snapshot before, or None if it had none.
    """

    member: Member
    how: Publication
    published: PublishedSnapshot
    before: int | None


@dataclass(frozen=True, slots=True)
class Release:
    """A release that has been made. `is_atomic` says whether all tables were published at one instant."""

    members: tuple[PublishedMember, ...]
    is_atomic: bool


@dataclass(frozen=True, slots=True)
class _Step:
    """The publication of one member. The commit is None if only an engine can make it."""

    member: Member
    how: Publication
    commit: TableCommit | None

    @property
    def published(self) -> Mapping[int, PublishedSnapshot]:
        """The snapshots after the publication, by the ids of the staged ones."""
        if self.commit is not None:
            return self.commit.published
        ids = (snapshot.snapshot_id for snapshot in self.member.rows.snapshots)
        return {snapshot_id: PublishedSnapshot(snapshot_id, is_moved=False) for snapshot_id in ids}

    def done(self) -> PublishedMember:
        rows = self.member.rows
        published = self.published[rows.snapshot.snapshot_id]
        return PublishedMember(self.member, self.how, published, self.member.state.refs.get(rows.staging.target))


def publish_release(
    description: CatalogDescription,
    members: Sequence[Member],
    published: Mapping[int, PublishedSnapshot],
    *,
    advance: Advance,
    report: Callable[[str], None],
) -> Release:
    """Publish the members, or none of them if the catalog can commit several tables at one instant.

    `published` has the snapshots that an earlier attempt has published, by the ids of the staged ones. Without
    transactions, a member is published after those that it was made from, and an attempt that is interrupted has
    published the first members. The next attempt publishes the others.

    Raises:
        CommitConflictError: Another writer has changed the rows of a member.
    """
    left, ids, done = in_order(members), dict(published), list[PublishedMember]()
    refuse_outdated(left, published)
    if not left:
        return Release((), is_atomic=is_transactional(description))
    for retry in range(ATTEMPTS):
        steps = _prepared(description, left, ids)
        is_atomic = is_transactional(description) and all(step.commit is not None for step in steps)
        if is_atomic:
            made = steps if commit_tables(description, [step.commit for step in steps if step.commit]) else ()
        else:
            made = _in_turn(description, steps, advance, report)
        discard_all(step.commit for step in steps[len(made) :])
        done += [step.done() for step in made]
        if len(made) == len(steps):
            return Release(tuple(done), is_atomic=is_atomic and len(done) == len(steps) and not published)
        wait_for_others(retry)
        others = [_looked_at(description, step) for step in steps[len(made) :]]
        done += [other for other in others if isinstance(other, PublishedMember)]
        left = tuple(other for other in others if isinstance(other, Member))
        if not left:
            return Release(tuple(done), is_atomic=False)
        ids |= {key: found for step in made for key, found in step.published.items()}
        ids |= {item.member.rows.snapshot.snapshot_id: item.published for item in done}
    raise moved(left[0].state.identifier, left[0].rows.staging)


def _prepared(
    description: CatalogDescription, members: Sequence[Member], published: Mapping[int, PublishedSnapshot]
) -> tuple[_Step, ...]:
    """Decide how to publish each member, and write what its commit needs. Nothing is committed."""
    ids, steps = dict(published), list[_Step]()
    with ExitStack() as stack:
        for member in members:
            step = _step(description, member, ids)
            stack.callback(discard_all, [step.commit])
            steps.append(step)
            ids |= step.published
        stack.pop_all()
    return tuple(steps)


def _step(description: CatalogDescription, member: Member, published: Mapping[int, PublishedSnapshot]) -> _Step:
    """Decide how to publish a member. It is rebased if its lineage names snapshots that are published as others."""
    state, rows = member.state, member.rows
    how = choose_publication(description, state, rows)
    is_renamed = any(published_upstream(snapshot, published) is not None for snapshot in rows.snapshots)
    if how == "rewrite":
        raise _needs_rewrite(state.identifier, rows.staging.target)
    if how == "rebase" or is_renamed:
        commit = rebased(description, state, rows, published)
        if commit is not None:
            return _Step(member, "rebase", commit)
        # The next incremental read goes on from the ids in the lineage.
        if how == "rebase" or any(changes_read(snapshot.summary) for snapshot in rows.snapshots):
            raise _needs_rewrite(state.identifier, rows.staging.target)
    if not can_commit(description, state.format_version):
        return _Step(member, "fast-forward", None)
    return _Step(member, "fast-forward", fast_forwarded(description, state, rows))


def _in_turn(
    description: CatalogDescription, steps: Sequence[_Step], advance: Advance, report: Callable[[str], None]
) -> tuple[_Step, ...]:
    """Publish one member after the other, until a table has moved. Return the published ones."""
    for number, step in enumerate(steps):
        state, rows = step.member.state, step.member.rows
        commit = step.commit
        if not (advance(state, rows) == "published" if commit is None else commit_table(description, commit)):
            return tuple(steps[:number])
        report(f"Published {state.identifier}, {number + 1} of {len(steps)} tables.")
    return tuple(steps)


def _looked_at(description: CatalogDescription, step: _Step) -> Member | PublishedMember:
    """Return the member as it is now. If the answer to its commit was lost, it is published."""
    member = step.member
    state = look(description, member.state.identifier) or member.state
    found = published_snapshot(state, member.rows.staging, member.rows.snapshot)
    if found is None:
        return replace(member, state=state)
    return replace(step.done(), published=PublishedSnapshot.of(member.rows.snapshot, found))


def _needs_rewrite(identifier: TableIdentifier, target: str) -> CommitConflictError:
    """The target has moved, and a release cannot take the files over."""
    return CommitConflictError.refusing(
        "publish",
        str(identifier),
        expected=f"files that can be taken over to {target!r}, which another writer has changed since they were staged",
        found="a table of format 3, in a directory or with delete files, a new partition spec, or files that "
        "compaction has rewritten",
        hint="materialize the assets of the release again.",
    )

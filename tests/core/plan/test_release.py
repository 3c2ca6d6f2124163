"""The order of a release, and what keeps its assets back."""

import json
from dataclasses import replace
from typing import Any

import pytest

from dagster_iceberg_spark.errors import CommitConflictError, UpstreamMissingError
from dagster_iceberg_spark.plan.partitions.binding import EVERYTHING
from dagster_iceberg_spark.plan.publication.staged_rows import (
    Member,
    StagedRows,
    in_order,
    published_upstream,
    refuse_outdated,
)
from dagster_iceberg_spark.plan.write.write_request import Staging
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import UpstreamRead, upstream_document
from dagster_iceberg_spark.table.snapshot import PublishedSnapshot
from tests.core.table.samples import chain, snapshot, table

STAGING = Staging("staged", "main", published_by="release")


def member(asset: str, snapshot_id: int, *reads: UpstreamRead) -> Member:
    line = chain(snapshot(1), snapshot(snapshot_id, upstream=upstream_document(reads)))
    found = table(snapshots=line, refs={"main": 1, "staged": snapshot_id})
    state = replace(found, identifier=TableIdentifier(("db",), asset))
    return Member(asset, state, StagedRows(STAGING, line[-1:], EVERYTHING, None))


def read(asset: str, snapshot_id: int, **options: Any) -> UpstreamRead:
    return UpstreamRead(asset, f"db.{asset}", snapshot_id, None, **options)


def test_each_asset_follows_those_that_it_was_made_from() -> None:
    last, first = member("a", 30, read("b", 20), read("a", 1)), member("c", 10)
    middle = member("b", 20, read("c", 10), read("elsewhere", 5))
    assert in_order([last, middle, first]) == (first, middle, last)


def test_rows_may_be_made_from_what_is_staged_published_or_was_current() -> None:
    source = member("b", 20)
    for snapshot_id in (20, 1):
        refuse_outdated([source, member("a", 30, read("b", snapshot_id))], {})
    refuse_outdated([member("a", 30, read("b", 19))], {})
    refuse_outdated([source, member("a", 30, read("b", 19))], {19: PublishedSnapshot(21, is_moved=True)})


def test_rows_that_were_made_from_other_staged_rows_are_refused() -> None:
    with pytest.raises(UpstreamMissingError, match="derived from its snapshot 19, after which it was staged again"):
        refuse_outdated([member("b", 20), member("a", 30, read("b", 19))], {})


@pytest.mark.parametrize(
    "published", [{}, {20: PublishedSnapshot(20, is_moved=True)}, {5: PublishedSnapshot(6, is_moved=True)}]
)
def test_lineage_that_names_published_snapshots_stays(published: dict[int, PublishedSnapshot]) -> None:
    assert published_upstream(member("a", 30, read("b", 20)).rows.snapshot, published) is None


def test_lineage_names_the_published_snapshots_and_keeps_the_staged_ones() -> None:
    own = member("a", 30, read("b", 20), read("elsewhere", 5))
    document = published_upstream(own.rows.snapshot, {20: PublishedSnapshot(21, is_moved=True)})
    assert [(row["snapshot_id"], row.get("staged_snapshot_id")) for row in json.loads(document or "")] == [
        (21, 20),
        (5, None),
    ]


def test_an_incremental_read_goes_on_only_if_nobody_else_has_committed() -> None:
    own = member("a", 30, read("b", 20, kind="changes", since=1))
    assert '"since":1' in (published_upstream(own.rows.snapshot, {20: PublishedSnapshot(21, is_moved=False)}) or "")
    with pytest.raises(CommitConflictError, match="expected no commits of others to b"):
        published_upstream(own.rows.snapshot, {20: PublishedSnapshot(21, is_moved=True)})


def test_too_many_inputs_are_known_by_their_digest_and_the_incremental_ones_are_renamed() -> None:
    reads = [read(f"{number:0>60}", number) for number in range(40)]
    own = member("a", 30, *reads, read("b", 20, kind="changes"))
    document = json.loads(published_upstream(own.rows.snapshot, {20: PublishedSnapshot(21, is_moved=False)}) or "")
    assert (document["count"], document["changes"][0]["snapshot_id"]) == (41, 21)


@pytest.mark.parametrize(("parent", "is_moved"), [(1, False), (2, True)])
def test_a_published_snapshot_has_moved_if_its_parent_is_another(parent: int, *, is_moved: bool) -> None:
    found = PublishedSnapshot.of(snapshot(10, parent=1), snapshot(11, parent=parent))
    assert found == PublishedSnapshot(11, is_moved=is_moved)

"""What an incremental read reads, and when it does not know."""

from dataclasses import replace
from typing import Any

import pytest

from dagster_iceberg_spark.assets import read_position
from dagster_iceberg_spark.assets.read_position import with_changes
from dagster_iceberg_spark.assets.read_requests import InputAnnotation, ReadRequest
from dagster_iceberg_spark.errors import ChangesUnknownError, ConfigurationError
from dagster_iceberg_spark.plan.read.incremental import Changes
from dagster_iceberg_spark.plan.read.read_options import parse_read_options
from dagster_iceberg_spark.plan.read.read_plan import ReadPlan, plan_read
from dagster_iceberg_spark.plan.write.overwrite_filter import ColumnBounds, DataFile
from dagster_iceberg_spark.table.lineage import ReadKind, UpstreamRead
from dagster_iceberg_spark.table.schema import STRING, MapType
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState
from tests.core.table.samples import TABLE, chain, daily, schema, table, utc

CATALOG: Any = None
DELETES = {"total-delete-files": "0", "deleted-data-files": "1"}


def appended(number: int, **counts: str) -> Snapshot:
    return Snapshot(number, None, number * 1000, "append", {"total-delete-files": "0", **counts})


def rewrote(number: int, **counts: str) -> Snapshot:
    return Snapshot(number, None, number * 1000, "overwrite", {**DELETES, **counts})


class Read:
    """An incremental read of a table by one input, after a position."""

    def __init__(self, *snapshots: Snapshot, scope: PartitionScope | None = None, metadata: Any = None) -> None:
        self.state: TableState = table(snapshots=chain(*snapshots))
        self.options = parse_read_options({"iceberg/read": "changes", **(metadata or {})}, subject="up")
        self.request = ReadRequest(TABLE, "up", "up", scope or PartitionScope(), self.options, InputAnnotation(None))
        self.warnings: list[str] = []

    def after(self, position: UpstreamRead | int | str | None) -> ReadPlan:
        read = position if isinstance(position, UpstreamRead | str) else self.reading(since=position)
        return with_changes(
            self.state,
            plan_read(self.state, self.request.scope, self.options),
            read,
            self.options.kind or "changes",
            request=self.request,
            catalog=CATALOG,  # only for files that a snapshot removed
            warn=self.warnings.append,
        )

    def reading(self, **fields: Any) -> UpstreamRead:
        return replace(self.request.upstream_read, **fields)


def test_the_first_read_has_all_rows() -> None:
    assert Read(appended(1), appended(2)).after(None).changes == Changes("changes", None)


def test_a_later_read_has_the_snapshots_since_the_last_one() -> None:
    found = Read(appended(1), appended(2), appended(3)).after(1).changes
    assert found == Changes("changes", 1, (2, 3), scan="appends")


def test_nothing_new_is_no_scan() -> None:
    assert Read(appended(1)).after(1).changes == Changes("changes", 1, scan="nothing")


def test_an_earlier_attempt_fixes_the_end_of_the_range() -> None:
    read = Read(appended(1), appended(2), appended(3))
    plan = read.after(read.reading(since=1, snapshot_id=2))
    assert (plan.snapshot_id, plan.changes) == (2, Changes("changes", 1, (2,), scan="appends"))


@pytest.mark.parametrize(
    ("kind", "later", "reason"),
    [
        ("changes", rewrote(2), r"found snapshot 2 \(overwrite\), which removed or rewrote rows that the input reads"),
        ("changelog", rewrote(2, **{"total-delete-files": "1"}), "which has delete files"),
    ],
)
def test_unclear_changes_are_refused_with_the_snapshot(kind: ReadKind, later: Snapshot, reason: str) -> None:
    with pytest.raises(ChangesUnknownError, match=reason):
        Read(appended(1), later, metadata={"iceberg/read": kind}).after(1)


def test_unclear_changes_are_read_as_all_rows_where_the_input_says_so() -> None:
    read = Read(appended(1), rewrote(2), metadata={"iceberg/changes_fallback": "partitions"})
    assert read.after(1).changes == Changes("changes", None, is_repeated=True)
    [warning] = read.warnings
    assert warning.startswith("Reading all rows of nyc.flights (`iceberg/changes_fallback`) because of snapshot 2")


def test_a_changelog_follows_rewritten_rows() -> None:
    found = Read(appended(1), rewrote(2), metadata={"iceberg/read": "changelog"}).after(1).changes
    assert found == Changes("changelog", 1, (2,), scan="changelog")


def test_a_position_that_is_gone_is_unclear() -> None:
    with pytest.raises(ChangesUnknownError, match="found a history without snapshot 9, which was read last"):
        Read(appended(1)).after(9)


def test_an_unclear_position_is_refused_as_it_is_told() -> None:
    with pytest.raises(ChangesUnknownError, match="found run 7, which read other rows"):
        Read(appended(1)).after("run 7, which read other rows")


def test_removed_files_count_only_where_the_input_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = ColumnBounds(utc(2013, 1, 1, 5), utc(2013, 1, 1, 9), may_hold_null=False)
    monkeypatch.setattr(read_position, "removed_files", lambda *_, **__: [DataFile("f", {"ts": bounds})])
    with pytest.raises(ChangesUnknownError, match="removed or rewrote"):
        Read(appended(1), rewrote(2), scope=daily("2013-01-01")).after(1)
    elsewhere = Read(appended(1), rewrote(2), scope=daily("2013-01-02")).after(1)
    assert elsewhere.changes == Changes("changes", 1, (2,), scan="inserts")


def test_a_changelog_needs_columns_that_can_be_sorted() -> None:
    read = Read(appended(1), metadata={"iceberg/read": "changelog"})
    read.state = replace(read.state, schema=schema(k="string", m=MapType(STRING, STRING)))
    with pytest.raises(ConfigurationError, match="the column 'm', which contains a map or a variant"):
        read.after(1)

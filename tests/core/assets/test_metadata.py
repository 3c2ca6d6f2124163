"""Turning a commit into Dagster's metadata."""

from collections.abc import Sequence
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark.assets.commit_metadata import (
    column_schema,
    data_version,
    materialization_metadata,
    partition_metadata,
)
from dagster_iceberg_spark.table.lineage import UpstreamRead
from dagster_iceberg_spark.table.schema import Field, Schema, parse_type
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import Commit, RowCounts, Snapshot
from tests.core.table.samples import TABLE, daily, schema

RUN = "5d0f3c1e-0000-4000-8000-000000000000"
LINK = f"[5d0f3c1e](/runs/{RUN})"
REPLACE = {"dagster.write_disposition": "replace", "added-records": "5", "deleted-records": "3", "total-records": "9"}


def commit(summary: dict[str, str] = REPLACE, parent: int | None = 6, **changes: Any) -> Commit:
    made = Snapshot(7, parent, 7000, "overwrite", summary)
    return Commit(TABLE, "file:///lake/nyc/flights", schema(ts="timestamptz", v="int!"), made, **changes)


def reported(done: Commit, scope: PartitionScope | None = None, reads: Sequence[UpstreamRead] = ()) -> dict[str, Any]:
    return materialization_metadata(done, scope or PartitionScope(), reads, catalog="lake", column_docs={})


def test_standard_keys_and_the_commit_s_keys_are_reported() -> None:
    found = reported(commit(write_seconds=1.23456, retries=2))
    assert found["dagster/table_name"] == "lake.nyc.flights"
    assert found["dagster/uri"] == "file:///lake/nyc/flights"
    assert (found["dagster/row_count"], found["iceberg/added_rows"], found["iceberg/deleted_rows"]) == (9, 5, 3)
    assert (found["iceberg/snapshot_id"], found["iceberg/parent_snapshot_id"]) == ("7", "6")
    assert (found["iceberg/write_seconds"], found["iceberg/retries"]) == (1.235, 2)
    assert "iceberg/parent_snapshot_id" not in reported(commit(parent=None))


def test_the_inputs_are_a_table_with_links_to_runs() -> None:
    read = Snapshot(6700450230530213017, None, 0, "append", {"dagster.run_id": RUN})
    reads = (
        UpstreamRead("nyc/flights", "nyc.flights", read.snapshot_id, "2013-01-01", snapshot=read),
        UpstreamRead("added", "nyc.added", 8, None, kind="changes", since=7),
        UpstreamRead("empty", "nyc.empty", None, None),
    )
    text = reported(commit(), reads=reads)["iceberg/inputs"].value
    assert text.splitlines()[2:] == [
        f"| nyc/flights | nyc.flights | 6700450230530213017 | 1970-01-01 00:00:00 | 2013-01-01 | {LINK} |",
        "| added | nyc.added | 8 |  | whole table, changes since 7 |  |",
        "| empty | nyc.empty | none |  | whole table |  |",
    ]
    assert "iceberg/inputs" not in reported(commit())


def test_the_newest_snapshots_are_a_table_in_markdown() -> None:
    newest = Snapshot(8, 7, 0, "overwrite", {**REPLACE, "dagster.run_id": RUN, "dagster.asset_key": "a|b"})
    text = reported(commit(history=(newest, Snapshot(7, None, 0, "append"))))["iceberg/history"].value
    assert text.splitlines()[2:] == [
        rf"| 1970-01-01 00:00:00 | 8 | replace |  | 5 | 3 | a\|b | {LINK} |",
        "| 1970-01-01 00:00:00 | 7 | append |  | 0 | 0 | another writer |  |",
    ]


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        ({"changes": ("add column v int",)}, "iceberg/table_changes", ["add column v int"]),
        ({"is_adopted": True}, "iceberg/adopted", True),
        ({"counts": RowCounts(rows=4, dropped=2)}, "iceberg/dropped_rows", 2),
        ({"counts": RowCounts(rows=4)}, "iceberg/carried_over_rows", 1),
    ],
)
def test_empty_metadata_is_not_reported(changes: dict[str, Any], key: str, value: Any) -> None:
    assert reported(commit(**changes))[key] == value
    assert key not in reported(commit())


@pytest.mark.parametrize(
    ("summary", "scope", "expected"),
    [
        (REPLACE, PartitionScope(), {"dagster/row_count": 9}),
        ({**REPLACE, "total-delete-files": "1"}, PartitionScope(), {}),
        (REPLACE, daily("2024-01-02"), {"dagster/partition_row_count": 5}),
        (REPLACE, daily("2024-01-02", "2024-01-03"), {}),
        ({**REPLACE, "dagster.write_disposition": "append"}, daily("2024-01-02"), {}),
    ],
)
def test_rows_are_reported_if_the_snapshot_has_their_count(
    summary: dict[str, str], scope: PartitionScope, expected: dict[str, int]
) -> None:
    found = reported(commit(summary), scope)
    assert {key: value for key, value in found.items() if key.endswith("row_count")} == expected


@pytest.mark.parametrize(
    ("by_partition", "rows", "expected"),
    [({"a": 2, "b": 3}, 5, {"a": 2, "b": 3}), ({"a": 2, "b": 3}, 6, {}), ({}, 5, {})],
)
def test_rows_by_partition_are_reported_if_the_counts_add_up(
    by_partition: dict[str, int], rows: int, expected: dict[str, int]
) -> None:
    found = partition_metadata(commit(counts=RowCounts(rows=rows, by_partition=by_partition)))
    assert found == {key: {"dagster/partition_row_count": count} for key, count in expected.items()}


def test_deleted_rows_of_an_older_spark_follow_from_the_rows_of_the_files() -> None:
    counted = {"dagster_iceberg_spark.merge_inserted_rows": "2", "dagster_iceberg_spark.merge_updated_rows": "3"}
    summary = {"dagster.write_disposition": "merge", **counted}
    for files in (
        {"added-records": "15", "deleted-records": "17"},  # copy-on-write: 10 rows are written again
        {"added-records": "5", "added-position-deletes": "9", "removed-position-deletes": "2"},
    ):
        found = reported(commit({**summary, **files}))
        assert [found[f"iceberg/merge_{done}_rows"] for done in ("inserted", "updated", "deleted")] == [2, 3, 4]


def test_merge_counts_come_from_the_engine() -> None:
    prefix = "spark.merge-into.num-target-rows"
    summary = {"dagster.write_disposition": "merge", f"{prefix}-inserted": "1", f"{prefix}-updated": "2"}
    found = reported(commit(summary, counts=RowCounts(unchanged=4)))
    counted = {key.removeprefix("iceberg/merge_"): value for key, value in found.items() if "/merge_" in key}
    assert counted == {"inserted_rows": 1, "updated_rows": 2, "deleted_rows": 0, "unchanged_rows": 4}


@pytest.mark.parametrize(
    ("policy", "code_version", "expected"),
    [("auto", None, "7"), ("auto", "1", None), ("snapshot", "1", "7"), ("dagster", None, None)],
)
def test_the_data_version_follows_the_policy(policy: Any, code_version: str | None, expected: str | None) -> None:
    assert data_version(commit(), policy, code_version=code_version) == expected


def test_column_docs_from_the_table_are_escaped() -> None:
    columns = Schema((Field("a", parse_type("int"), doc="see [x](http://y) & <b>"),))
    [shown] = column_schema(columns, {}).columns
    assert shown.description == r"see \[x\](http\://y) \& \<b\>"
    [given] = column_schema(columns, {"a": "see [x](http://y) & <b>"}).columns
    assert given == dg.TableColumn("a", "int", "see [x](http://y) & <b>", dg.TableColumnConstraints(nullable=True))

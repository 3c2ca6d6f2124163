"""What a DuckLake must change to show the rows of an Iceberg table.

docs/mirror.md: What the mirror promises
"""

import json
from dataclasses import replace

import pytest

from dagster_iceberg_spark.features.mirror.options import Mirror
from dagster_iceberg_spark.features.mirror.plan import (
    Column,
    ColumnStatistics,
    CopyPlan,
    MirrorChange,
    MirrorRecord,
    SourceFile,
    ViewChange,
    changed_columns,
    plan_copy,
    scan_query,
)
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import Snapshot

RECORD = MirrorRecord("lake", "/lake/catalog.db", "db.t", "uuid", 2**60, 1, "s3://lake/v1.metadata.json", "register")
A, B, C = Column(1, "a", "int32"), Column(2, "b", "varchar"), Column(3, "c", "struct")


def test_a_record_is_read_as_it_was_written() -> None:
    assert MirrorRecord.parse(RECORD.text()) == RECORD
    assert json.loads(RECORD.text())["snapshot_id"] == str(2**60)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"snapshot_id": "x"}', RECORD.text().replace("catalog", "catalogue")]
)
def test_another_record_is_no_record(text: str) -> None:
    assert MirrorRecord.parse(text) is None


@pytest.mark.parametrize(
    ("other", "continues", "is_same", "is_served"),
    [
        (RECORD, True, True, True),
        (None, False, False, False),
        (replace(RECORD, snapshot_id=2), True, False, False),
        (replace(RECORD, schema_id=2), True, False, False),
        (replace(RECORD, metadata_location="v2"), True, True, True),
        (replace(RECORD, mode="view"), False, False, False),
        (replace(RECORD, table_uuid="another"), False, False, False),
    ],
)
def test_a_mirror_is_current_if_it_shows_the_same_rows(
    other: MirrorRecord | None, continues: bool, is_same: bool, is_served: bool
) -> None:
    found = (RECORD.continues(other), RECORD.shows_same(other), RECORD.is_served_by(other))
    assert found == (continues, is_same, is_served)


def test_a_view_follows_the_metadata_file() -> None:
    view = replace(RECORD, mode="view")
    other = replace(view, metadata_location="v2")
    assert (view.shows_same(other), view.is_served_by(other), view.is_served_by(view)) == (True, False, True)


def test_a_changed_column_ends_and_begins_under_its_id() -> None:
    renamed = replace(B, name="bb")
    assert changed_columns((A, B), (A, B)) == (set(), [])
    assert changed_columns((A, B), (A, renamed)) == ({2}, [(1, renamed)])
    assert changed_columns((A, B), (B, C)) == ({1, 2}, [(0, B), (1, C)])
    assert changed_columns((), (A,)) == (set(), [(0, A)])


def test_a_partition_that_only_gains_files_gains_copies() -> None:
    new = [SourceFile("1", "p"), SourceFile("2", "p"), SourceFile("3", "q")]
    assert plan_copy([], new) == CopyPlan(frozenset(), {"p": ("1", "2"), "q": ("3",)})


def test_any_other_changed_partition_is_copied_again() -> None:
    gone, new = [SourceFile("0", "p")], [SourceFile("1", "p"), SourceFile("2", "q")]
    assert plan_copy(gone, new) == CopyPlan(frozenset({"p"}), {"q": ("2",)})
    assert plan_copy([], [*new, SourceFile("d", "q", is_deletes=True)]).rewritten == frozenset("q")
    assert plan_copy([SourceFile("d", "q", is_deletes=True)], []).rewritten == frozenset("q")


def test_the_whole_table_is_copied_if_nobody_knows_what_has_changed() -> None:
    assert plan_copy(None, [SourceFile("1", "p")]) == CopyPlan(None)
    assert plan_copy([], [SourceFile("d", "", is_deletes=True, is_global=True)]) == CopyPlan(None)


def test_bounds_are_not_used_where_there_may_be_nan() -> None:
    known = ColumnStatistics(1, 10, 3, 0, "1.0", "2.0", has_nan=False)
    assert known.bounds == ("1.0", "2.0")
    assert replace(known, has_nan=True).bounds == (None, None)
    assert replace(known, upper=None).bounds == (None, None)
    assert replace(known, lower="a\0b", upper="c").bounds == (None, None), "PostgreSQL stores no NUL"


def test_a_ducklake_snapshot_says_who_made_the_iceberg_snapshot() -> None:
    origin = Snapshot(2**60, None, 0, "append", {"dagster.asset_key": "nyc/t", "dagster.run_id": "run"})
    mirror = Mirror(TableIdentifier(("db",), "t"), "view", "snappy")
    change = MirrorChange(mirror, None, RECORD, origin, ViewChange("select 1"))
    assert change.message == f"nyc/t: snapshot {2**60} of lake.db.t"
    assert json.loads(change.extra_info) == {
        "iceberg_table": "lake.db.t",
        "iceberg_snapshot_id": str(2**60),
        "asset_key": "nyc/t",
        "run_id": "run",
    }
    foreign = replace(change, origin=replace(origin, summary={}))
    assert foreign.message == f"snapshot {2**60} of lake.db.t"


def test_a_quote_in_a_location_ends_no_text() -> None:
    assert scan_query("s3://it's") == "SELECT * FROM iceberg_scan('s3://it''s')"

"""Merges without a JVM: insert-only merges and upserts of small files."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from dagster_iceberg_spark.arrow.scan import batches_by_file
from dagster_iceberg_spark.arrow.write import engine, upsert
from dagster_iceberg_spark.assets import engines
from dagster_iceberg_spark.catalog import data_commit
from tests.core.arrow.test_write import DAY, day, failure, once
from tests.core.arrow.writing import DAYS, ArrowLake, metadata_of

MERGE = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}
PEOPLE = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "v": [1.0, None, math.nan]})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[ArrowLake]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield ArrowLake(tmp_path, instance)


def counts(result: dg.ExecuteInProcessResult) -> tuple[int, ...]:
    found = metadata_of(result)
    return tuple(found[f"iceberg/merge_{name}_rows"] for name in ("inserted", "updated", "unchanged"))


def paths(lake: ArrowLake) -> set[str]:
    return {file.file_path for file in lake.files()}


def test_only_files_in_which_a_row_changes_are_written_again(lake: ArrowLake) -> None:
    for first in (0, 10, 20):
        stored = pa.table({"id": range(first, first + 10), "name": ["a"] * 10})
        lake.write(stored, metadata={**MERGE, "iceberg/merge": "insert_only"})
    before = paths(lake)
    result = lake.write(pa.table({"id": [3, 4, 13, 30], "name": ["b", "a", "a", "new"]}), metadata=MERGE)
    assert counts(result) == (1, 1, 2)
    assert (len(before), len(paths(lake) & before), len(paths(lake))) == (3, 2, 3)
    assert dict(lake.rows("id", "name")) == {**dict.fromkeys(range(30), "a"), 3: "b", 30: "new"}
    assert lake.operations() == ["append", "append", "append", "overwrite"]


def test_a_batch_that_changes_nothing_adds_an_empty_snapshot(lake: ArrowLake) -> None:
    """NULL equals NULL, and NaN equals NaN."""
    lake.write(PEOPLE, metadata=MERGE)
    before = paths(lake)
    assert counts(lake.write(PEOPLE, metadata=MERGE)) == (0, 0, 3)
    assert (paths(lake), len(lake.operations())) == (before, 2)
    zero = PEOPLE.slice(0, 1).set_column(2, "v", [[0.0]])
    lake.write(zero, metadata=MERGE)
    assert counts(lake.write(zero.set_column(2, "v", [[-0.0]]), metadata=MERGE)) == (0, 0, 1)


def test_an_insert_only_merge_appends_the_rows_with_new_keys(lake: ArrowLake) -> None:
    lake.write(PEOPLE, metadata=MERGE)
    batch = pa.table({"id": [2, 4], "name": ["other", "d"], "v": [0.0, 4.0]})
    result = lake.write(batch, metadata={**MERGE, "iceberg/merge": "insert_only"})
    assert counts(result) == (1, 0, 1)
    assert (lake.rows("name"), lake.operations()[-1]) == (["a", "b", "c", "d"], "append")


@pytest.mark.full
@pytest.mark.parametrize("rules", [{"update_columns": ["v"]}, {"exclude_columns": ["name"]}], ids=str)
def test_an_update_writes_the_chosen_columns(lake: ArrowLake, rules: Mapping[str, Any]) -> None:
    lake.write(PEOPLE, metadata=MERGE)
    lake.write(
        pa.table({"id": [1, 4], "name": ["x", "d"], "v": [9.0, 4.0]}), metadata={**MERGE, "iceberg/merge": rules}
    )
    assert lake.rows("id", "name", "v")[::3] == [(1, "a", 9.0), (4, "d", 4.0)]


@pytest.mark.full
def test_columns_that_the_batch_lacks_keep_their_values(lake: ArrowLake) -> None:
    nested = PEOPLE.append_column("tags", pa.array([["x"], ["y"], None]))
    lake.write(nested, metadata=MERGE)
    result = lake.write(pa.table({"id": [1, 4], "tags": [["x", "z"], []], "added": [True, None]}), metadata=MERGE)
    assert counts(result) == (1, 1, 0)
    found = {row["id"]: row for row in lake.table().scan().to_arrow().to_pylist()}
    assert found[1] == {"id": 1, "name": "a", "v": 1.0, "tags": ["x", "z"], "added": True}
    assert found[4] == {"id": 4, "name": None, "v": None, "tags": [], "added": None}


@pytest.mark.full
@pytest.mark.parametrize("layout", [[], ["day(at)"]], ids=["flat", "by day"])
@pytest.mark.parametrize("strategy", ["upsert", "insert_only"])
def test_equal_keys_of_other_partitions_stay(lake: ArrowLake, layout: list[str], strategy: str) -> None:
    metadata = {**DAY, **MERGE, "iceberg/merge_keys": ["v"], "iceberg/partition_by": layout, "iceberg/merge": strategy}

    def write(number: int, hour: int, *values: int) -> dg.ExecuteInProcessResult:
        rows = day(number, *values, hour=hour)
        return lake.write(rows, key=f"2024-01-{number:02d}", partitions_def=DAYS, metadata=metadata)

    stored, added = pa.concat_tables([day(1, 1, 2), day(2, 2, 3)]), {"iceberg/write_disposition": "append"}
    lake.write_days(stored, "2024-01-01", "2024-01-02", **{**DAY, **added, "iceberg/partition_by": layout})
    assert counts(write(2, 5, 1, 2)) == ((1, 1, 0) if strategy == "upsert" else (1, 0, 1))
    found = [(at.day, at.hour, value) for at, value in lake.rows("at", "v")]
    assert found == [(1, 0, 1), (1, 0, 2), *sorted([(2, 5 if strategy == "upsert" else 0, 2), (2, 0, 3), (2, 5, 1)])]


def test_keys_that_are_null_or_repeated_are_rejected(lake: ArrowLake) -> None:
    lake.write(PEOPLE, metadata=MERGE)
    found = failure(lake, pa.table({"id": [1, 1, None], "name": ["x", "y", "z"]}), metadata=MERGE)
    assert "expected one row for each value of id, and no NULL in it, found (id=1) in 2 row(s); (id=NULL) in 1" in found
    matched = {**MERGE, "iceberg/merge": {"null_keys": "match"}}
    for name in ("first", "second"):
        lake.write(pa.table({"id": pa.array([None], pa.int64()), "name": [name]}), metadata=matched)
    assert sorted(lake.table().scan().to_arrow()["name"].to_pylist()) == ["a", "b", "c", "second"]


def test_a_merge_is_planned_again_where_others_have_written(lake: ArrowLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write(PEOPLE, metadata=MERGE)
    other = ArrowLake(lake.directory, lake.instance)
    theirs = pa.table({"id": [4], "name": ["theirs"]})
    once(monkeypatch, data_commit, "commit_table", before=lambda: other.write(theirs, metadata=MERGE))
    result = lake.write(pa.table({"id": [1, 4], "name": ["x", "y"]}), metadata=MERGE)
    assert (lake.rows("name"), counts(result)) == (["b", "c", "x", "y"], (0, 2, 0))
    assert metadata_of(result)["iceberg/retries"] == 1


@pytest.mark.parametrize("at", ["table_to_commit_to", "commit_data"])
def test_merges_of_other_partitions_at_the_same_time_are_no_conflict(
    lake: ArrowLake, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    metadata = {**DAY, **MERGE, "iceberg/merge_keys": ["v"]}

    def merge_day(into: ArrowLake, number: int, *values: int) -> dg.ExecuteInProcessResult:
        return into.write(day(number, *values), key=f"2024-01-{number:02d}", partitions_def=DAYS, metadata=metadata)

    merge_day(lake, 1, 1, 2)
    other = ArrowLake(lake.directory, lake.instance)
    once(monkeypatch, engine, at, before=lambda: merge_day(other, 2, 1))
    result = merge_day(lake, 1, 1, 3)
    assert [(moment.day, value) for moment, value in lake.rows("at", "v")] == [(1, 1), (1, 2), (1, 3), (2, 1)]
    assert (counts(result), metadata_of(result)["iceberg/retries"]) == ((1, 0, 1), 0)
    once(monkeypatch, engine, at, before=lambda: merge_day(other, 1, 4))
    result = merge_day(lake, 1, 4)
    assert (counts(result), lake.rows("v")) == ((0, 0, 1), [1, 1, 2, 3, 4])


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"iceberg/merge": "delete_insert"}, "Spark evaluates the merge strategy 'delete_insert'"),
        ({"iceberg/merge": {"sync": True}}, "Spark evaluates `sync` of `iceberg/merge`"),
        ({"iceberg/merge_keys": ["v"]}, "the merge key 'v' is of type double"),
        ({"iceberg/table_properties": {"write.merge.mode": "merge-on-read"}}, "asks for delete files"),
    ],
)
def test_merges_that_need_spark_are_refused_by_name(lake: ArrowLake, changed: Mapping[str, Any], reason: str) -> None:
    found = failure(lake, PEOPLE, metadata={**MERGE, **changed})
    assert reason in found
    assert not lake.spark.pyiceberg_catalog.table_exists(("db", "t"))


def test_a_merge_into_large_files_is_left_to_spark(lake: ArrowLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write(PEOPLE, metadata=MERGE)
    monkeypatch.setattr(engines, "installed_pyspark", lambda: None)
    automatic = ArrowLake(lake.directory, lake.instance, {"engine": "auto", "arrow_bytes": 1000})
    found = failure(automatic, PEOPLE.slice(0, 1), metadata=MERGE)
    assert "the files that may have keys of the batch have more than 0 MB" in found
    far = pa.table({"id": [7], "name": ["g"]})
    assert counts(automatic.write(far, metadata=MERGE)) == (1, 0, 0), "no file can have the key"


@pytest.mark.full
def test_files_are_found_by_the_range_of_many_keys(lake: ArrowLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upsert, "MAXIMUM_LISTED_KEYS", 2)
    for first in (0, 10, 20):
        lake.write(pa.table({"id": range(first, first + 10), "name": ["a"] * 10}), metadata=MERGE)
    read = list[int]()

    def counted(scan: Any, io: Any, tasks: Sequence[Any]) -> Any:
        read.append(len(tasks))
        return batches_by_file(scan, io, tasks)

    monkeypatch.setattr(upsert, "batches_by_file", counted)
    lake.write(pa.table({"id": [12, 13, 14], "name": ["b", "b", "b"]}), metadata=MERGE)
    assert read == [1, 1], "the keys of one file, and then its rows"
    assert lake.rows("name").count("b") == 3

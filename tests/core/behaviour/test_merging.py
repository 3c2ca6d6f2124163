"""What `iceberg/merge` says of a batch and the table: strategies, options, and that only what changes is written."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagster_iceberg_spark.plan.write import merging as merging_module
from dagster_iceberg_spark.plan.write.merging import GROUP_FILTER, SHUFFLE_PARTITIONS, MergeSize, merge_settings
from dagster_iceberg_spark.spark.session.session import temporary_settings
from dagster_iceberg_spark.spark.write import merge as module
from tests.lakes import Lake, error_of, frame_asset, metadata_of

pytestmark = pytest.mark.spark

STORED = "(1, 'a', 10), (2, 'b', 20), (3, 'c', 30)"


def values(rows: str, columns: str = "id, n, v") -> str:
    return f"select * from values {rows} as t({columns})"


def merging(query: str, keys: tuple[str, ...] = ("id",), **rules: Any) -> dg.AssetsDefinition:
    metadata = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": list(keys)}
    return frame_asset("t", query, metadata={**metadata, **({"iceberg/merge": rules} if rules else {})})


def counts(result: dg.ExecuteInProcessResult) -> tuple[Any, ...]:
    metadata = metadata_of(result, "t")
    return tuple(metadata[f"iceberg/merge_{name}_rows"] for name in ("inserted", "updated", "deleted", "unchanged"))


def merged(lake: Lake, rows: str, columns: str = "id, n, v", **rules: Any) -> dg.ExecuteInProcessResult:
    """Merge into the three stored rows; each merge is one snapshot."""
    lake.materialize(merging(values(STORED)))
    result = lake.materialize(merging(values(rows, columns), **rules))
    assert len(lake.summaries("t")) == 2
    assert lake.summaries("t")[-1]["dagster.run_id"] == result.run_id
    return result


def table(lake: Lake) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in lake.arrow("t").to_pylist())


@pytest.mark.full
def test_rows_that_are_as_they_were_are_not_written(lake: Lake) -> None:
    result = merged(lake, "(1, 'a', 10), (2, 'B', 20), (4, 'd', 40)")
    assert table(lake) == [(1, "a", 10), (2, "B", 20), (3, "c", 30), (4, "d", 40)]
    assert counts(result) == (1, 1, 0, 1)


@pytest.mark.full
@pytest.mark.parametrize("name", ["source", "target", "Source"])
def test_a_table_may_have_any_name(classic_lake: Lake, name: str) -> None:
    metadata = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}
    for rows in ("(1, 'a')", "(1, 'b'), (2, 'c')"):
        classic_lake.materialize(frame_asset(name, values(rows, "id, n"), metadata=metadata))
    assert classic_lake.rows(name, "n") == ["b", "c"]


@pytest.mark.slow
def test_two_thousand_columns_are_compared(classic_lake: Lake) -> None:
    for changed in (0, 1):
        columns = ", ".join(f"id + {number * (1 + changed)} as c{number}" for number in range(2000))
        result = classic_lake.materialize(merging(f"select id, {columns} from range(3)"))
        assert counts(result) == ((0, 3, 0, 0) if changed else (3, 0, 0, 0))


@pytest.mark.each_engine
@pytest.mark.feature("merge")
def test_a_batch_that_changes_nothing_rewrites_no_file(lake: Lake) -> None:
    result = merged(lake, STORED)
    assert counts(result) == (0, 0, 0, 3)
    summary = lake.summaries("t")[-1]
    assert (summary.get("added-data-files", "0"), summary.get("deleted-data-files", "0")) == ("0", "0")


@pytest.mark.sample(4)
@pytest.mark.each_engine
@pytest.mark.feature("merge")
@pytest.mark.parametrize(
    ("batch", "written_again", "counted"),
    [
        ("(1, 'a', 10), (2, 'b', 20)", 0, (0, 0, 0, 2)),
        ("(1, 'A', 10), (2, 'b', 20), (4, 'd', 40)", 1, (1, 1, 0, 1)),
        ("(1, 'A', 10), (2, 'B', 20), (3, 'c', 30)", 2, (0, 2, 0, 1)),
        ("(2, 'b', 20), (4, 'd', 40)", 0, (1, 0, 0, 1)),
    ],
)
@pytest.mark.parametrize("is_copied", [True, False], ids=["copied", "shuffled"])
def test_only_files_of_which_a_row_changes_are_written_again(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    batch: str,
    written_again: int,
    counted: tuple[int, ...],
    is_copied: bool,
) -> None:
    if not is_copied:
        monkeypatch.setattr("dagster_iceberg_spark.spark.write.batch.MAXIMUM_COPIED_BYTES", 0)
    stored = (values("(1, 'a', 10), (3, 'c', 30)"), values("(2, 'b', 20)"))
    for query in stored:
        lake.materialize(frame_asset("t", query, metadata={"iceberg/write_disposition": "append"}))
    result = lake.materialize(merging(values(batch)))
    assert counts(result) == counted
    assert int(lake.summaries("t")[-1].get("deleted-data-files", "0")) == written_again
    changed = [row for row in ((1, "A", 10), (2, "B", 20), (4, "d", 40)) if str(row) in batch]
    kept = [row for row in ((1, "a", 10), (2, "b", 20), (3, "c", 30)) if row[0] not in [new[0] for new in changed]]
    assert table(lake) == sorted(kept + changed)


@pytest.mark.by_spark
@pytest.mark.full
@pytest.mark.parametrize(
    ("keys", "stored_rows", "looks_for_files", "written_again"),
    [
        ("1, 2, 3", 6, False, 2),  # each file has one
        ("4, 5", 6, True, 1),  # 3 and 8 of the other file lie on both sides of them
        ("5, 6", 3, False, 1),  # the other file ends before them
    ],
)
def test_a_merge_looks_for_files_unless_it_changes_each(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, keys: str, stored_rows: int, looks_for_files: bool, written_again: int
) -> None:
    sizes: list[MergeSize] = []
    settings: list[dict[str, str]] = []

    def noted(size: MergeSize, **known: int) -> dict[str, str]:
        sizes.append(size)
        settings.append(merge_settings(size, **known))
        return settings[-1]

    monkeypatch.setattr(module, "merge_settings", noted)
    first = "1, 3, 8" if stored_rows == 6 else "1, 2, 3"
    for stored in (first, "2, 4, 5" if stored_rows == 6 else "4, 5, 6"):
        query = f"select explode(array({stored})) as id, 0 as v"
        lake.materialize(frame_asset("t", query, metadata={"iceberg/write_disposition": "append"}))
    lake.materialize(merging(f"select explode(array({keys})) as id, 1 as v"))
    assert [size.stored_rows for size in sizes] == [stored_rows]
    assert [GROUP_FILTER not in each for each in settings] == [looks_for_files]
    assert int(lake.summaries("t")[-1]["deleted-data-files"]) == written_again
    changed = {int(key) for key in keys.split(", ")}
    assert {row["id"] for row in lake.arrow("t").to_pylist() if row["v"]} == changed


NUMBERS, DATES = ("1", "2", "3"), ("'2024-01-01'", "'2024-01-02'", "'2024-01-03'")


@pytest.mark.sample(3)
@pytest.mark.full
@pytest.mark.parametrize(
    ("stored", "given", "keys"),
    [
        ("decimal(12, 2)", "decimal(10, 1)", NUMBERS),
        ("bigint", "int", NUMBERS),
        ("double", "float", NUMBERS),
        ("date", "date", DATES),
        ("timestamp", "timestamp", DATES),
    ],
)
def test_keys_of_a_narrower_type_are_looked_for_among_the_table_s(
    classic_lake: Lake, stored: str, given: str, keys: Sequence[str]
) -> None:
    for kind, value, batch in ((stored, 0, keys), (given, 1, keys[:2]), (given, 2, keys[:1])):
        ids = ", ".join(f"cast({key} as {kind})" for key in batch)
        classic_lake.materialize(merging(f"select explode(array({ids})) as id, {value} as v"))
    assert sorted(classic_lake.rows("t", "v")) == [0, 1, 2]


@pytest.mark.by_spark
@pytest.mark.full
def test_a_merge_leaves_no_setting_behind(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging_module, "MINIMUM_PARTITIONS", 1)
    seen: list[Mapping[str, str]] = []

    @contextmanager
    def noted(session: Any, settings: Mapping[str, str]) -> Iterator[None]:
        seen.append(settings)
        with temporary_settings(session, settings):
            yield

    monkeypatch.setattr(module, "temporary_settings", noted)
    lake.materialize(merging(values(STORED)))
    lake.materialize(merging(values("(1, 'A', 11), (2, 'B', 21), (3, 'C', 31)")))
    assert seen[-1] == {GROUP_FILTER: "false", SHUFFLE_PARTITIONS: "1"}
    assert [row[2] for row in table(lake)] == [11, 21, 31]
    with lake.spark.iceberg_session.sibling({}) as beside:
        assert beside.conf.get(SHUFFLE_PARTITIONS) == lake.session.conf.get(SHUFFLE_PARTITIONS) == "2"
        assert beside.conf.get(GROUP_FILTER) == "true"


@pytest.mark.full
def test_a_key_that_the_table_has_twice_does_not_hide_a_new_one(classic_lake: Lake) -> None:
    doubled = frame_asset("t", values("(1, 'a'), (1, 'a')", "id, n"), metadata={"iceberg/write_disposition": "append"})
    classic_lake.materialize(doubled)
    result = classic_lake.materialize(merging(values("(1, 'a'), (2, 'b')", "id, n")))
    assert table(classic_lake) == [(1, "a"), (1, "a"), (2, "b")]
    assert counts(result)[:3] == (1, 0, 0)


@pytest.mark.full
def test_keys_of_which_a_part_is_null_are_told_apart(classic_lake: Lake) -> None:
    stored, moved = values("(null, 'a', 1)", "x, y, v"), values("('a', null, 1)", "x, y, v")
    for query in (stored.replace("null", "cast(null as string)"), moved.replace("null", "cast(null as string)")):
        result = classic_lake.materialize(merging(query, ("x", "y"), null_keys="match"))
        assert counts(result) == (1, 0, 0, 0)
    again = classic_lake.materialize(merging(stored, ("x", "y"), null_keys="match"))
    assert counts(again) == (0, 0, 0, 1)


@pytest.mark.full
def test_only_new_keys_are_inserted(lake: Lake) -> None:
    result = merged(lake, "(1, 'x', 0), (4, 'd', 40)", strategy="insert_only")
    assert table(lake) == [(1, "a", 10), (2, "b", 20), (3, "c", 30), (4, "d", 40)]
    assert counts(result) == (1, 0, 0, 1)


@pytest.mark.full
def test_the_rows_of_a_key_are_replaced_as_a_whole(lake: Lake) -> None:
    result = merged(lake, "(1, 'x', 0), (1, 'y', 1), (2, 'b', 20), (4, 'd', 40)", strategy="delete_insert")
    assert table(lake) == [(1, "x", 0), (1, "y", 1), (2, "b", 20), (3, "c", 30), (4, "d", 40)]
    assert counts(result) == (3, 0, 1, 1)
    again = lake.materialize(merging(values("(1, 'y', 1), (1, 'x', 0), (4, 'd', 40)"), strategy="delete_insert"))
    assert counts(again) == (0, 0, 0, 3)
    fewer = lake.materialize(merging(values("(1, 'y', 1)"), strategy="delete_insert"))
    assert table(lake) == [(1, "y", 1), (2, "b", 20), (3, "c", 30), (4, "d", 40)]
    assert counts(fewer) == (1, 0, 2, 0)


@pytest.mark.full
def test_equal_rows_of_a_key_count_each(lake: Lake) -> None:
    lake.materialize(merging(values("(1, 'a', 1), (1, 'a', 1)"), strategy="delete_insert"))
    same = lake.materialize(merging(values("(1, 'a', 1), (1, 'a', 1)"), strategy="delete_insert"))
    assert counts(same) == (0, 0, 0, 2)
    lake.materialize(merging(values("(1, 'a', 1)"), strategy="delete_insert"))
    assert table(lake) == [(1, "a", 1)]


@pytest.mark.since("4.0", "connect")
@pytest.mark.each_engine
@pytest.mark.full
@pytest.mark.parametrize(("marks", "kind"), [("true, false", "boolean"), ("timestamp'2024-01-01', null", "timestamp")])
@pytest.mark.parametrize("strategy", ["upsert", "delete_insert"])
def test_marked_keys_are_deleted_and_the_mark_is_not_stored(lake: Lake, strategy: str, marks: str, kind: str) -> None:
    yes, no = marks.split(", ")
    rows = f"(1, null, null, {yes}), (2, 'B', 20, {no}), (9, null, null, {yes}), (4, 'd', 40, {no})"
    result = merged(lake, rows, "id, n, v, gone", strategy=strategy, hard_delete="gone")
    assert table(lake) == [(2, "B", 20), (3, "c", 30), (4, "d", 40)], kind
    assert lake.arrow("t").column_names == ["id", "n", "v"]
    assert counts(result) == ((1, 1, 1, 0) if strategy == "upsert" else (2, 0, 2, 0))


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["upsert", "delete_insert"])
def test_a_mark_may_have_an_odd_name_and_other_case(classic_lake: Lake, strategy: str) -> None:
    query = values("(1, 'a', {}), (2, 'b', false)", "`my id`, n, `Is.Gone`")
    for gone, left in (("false", [(1, "a"), (2, "b")]), ("true", [(2, "b")])):
        rows = query.replace("{}", gone)
        classic_lake.materialize(merging(rows, ("MY ID",), strategy=strategy, hard_delete="is.gone"))
        assert table(classic_lake) == left


@pytest.mark.full
def test_a_first_batch_leaves_out_what_it_marks(lake: Lake) -> None:
    lake.materialize(merging(values("(1, 'a', true), (2, 'b', false)", "id, n, gone"), hard_delete="gone"))
    assert table(lake) == [(2, "b")]


@pytest.mark.full
@pytest.mark.parametrize("full", [False, True])
def test_a_mark_is_no_column_under_any_evolution(classic_lake: Lake, full: bool) -> None:
    asset = merging(values("(1, 'a', true), (2, 'b', false)", "id, n, gone"), hard_delete="gone")
    for _ in range(2):
        classic_lake.with_options(schema_evolution="full" if full else "strict").materialize(asset)
    assert classic_lake.arrow("t").column_names == ["id", "n"]


@pytest.mark.full
def test_the_newest_of_a_key_s_rows_counts(lake: Lake) -> None:
    result = merged(lake, "(1, 'old', 1), (1, 'new', 2), (4, 'd', 1)", dedup_sort="v desc")
    assert table(lake) == [(1, "new", 2), (2, "b", 20), (3, "c", 30), (4, "d", 1)]
    assert counts(result) == (1, 1, 0, 0)


@pytest.mark.full
def test_rows_that_come_first_together_are_refused(classic_lake: Lake) -> None:
    classic_lake.materialize(merging(values(STORED)))
    bad = merging(values("(1, 'x', 1), (1, 'y', 1)"), dedup_sort="v desc")
    error = error_of(classic_lake.materialize(bad, raise_on_error=False))
    assert error.class_name == "MergeKeyError"
    assert "(id=1) in 2 row(s)" in str(error)
    assert len(classic_lake.summaries("t")) == 1


@pytest.mark.full
def test_null_may_be_a_key_like_any_other(lake: Lake) -> None:
    keys = ("id", "n")
    first = "(1, null, 1), (2, 'b', 2), (null, 'c', 3)"
    lake.materialize(merging(values(first), keys, null_keys="match"))
    result = lake.materialize(
        merging(values("(1, null, 10), (null, 'c', 3), (null, null, 4)"), keys, null_keys="match")
    )
    rows = [tuple(row.values()) for row in lake.arrow("t").to_pylist()]
    assert sorted(rows, key=str) == [(1, None, 10), (2, "b", 2), (None, "c", 3), (None, None, 4)]
    assert counts(result) == (1, 1, 0, 1)


@pytest.mark.full
@pytest.mark.parametrize("rules", [{"update_columns": ["v"]}, {"exclude_columns": ["n"]}], ids=str)
def test_an_update_writes_the_chosen_columns_alone(lake: Lake, rules: dict[str, Any]) -> None:
    result = merged(lake, "(1, 'x', 11), (2, 'y', 20), (4, 'd', 40)", **rules)
    assert table(lake) == [(1, "a", 11), (2, "b", 20), (3, "c", 30), (4, "d", 40)]
    assert counts(result) == (1, 1, 0, 1)


@pytest.mark.full
def test_only_newer_rows_win(lake: Lake) -> None:
    result = merged(lake, "(1, 'x', 9), (2, 'y', 21), (4, 'd', 40)", when_matched="source.v > target.v")
    assert table(lake) == [(1, "a", 10), (2, "y", 21), (3, "c", 30), (4, "d", 40)]
    assert counts(result) == (1, 1, 0, 1)


@pytest.mark.full
def test_keys_that_the_batch_lacks_are_deleted(lake: Lake) -> None:
    result = merged(lake, "(1, 'a', 10), (2, 'B', 20)", sync=True)
    assert table(lake) == [(1, "a", 10), (2, "B", 20)]
    assert counts(result) == (0, 1, 1, 1)


@pytest.mark.full
def test_an_empty_batch_deletes_all_where_it_is_the_whole(lake: Lake) -> None:
    lake.materialize(merging(values(STORED)))
    lake.materialize(merging(f"{values(STORED)} where false", sync=True))
    assert table(lake) == []
    assert len(lake.summaries("t")) == 2


DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")


@pytest.mark.sample(2)
@pytest.mark.full
@pytest.mark.parametrize("strategy", ["upsert", "insert_only", "delete_insert"])
def test_equal_keys_of_other_partitions_stay(lake: Lake, strategy: str) -> None:
    asset = daily("(1, '{key}'), (2, '{key}')", strategy=strategy)
    for key in ("2013-01-01", "2013-01-02", "2013-01-01"):
        lake.materialize(asset, partition_key=key)
    assert lake.rows("t", "id", "n") == [
        (1, "2013-01-01"), (1, "2013-01-02"), (2, "2013-01-01"), (2, "2013-01-02"),
    ]  # fmt: skip


def daily(rows: str, **rules: Any) -> dg.AssetsDefinition:
    metadata = {
        "partition_expr": "ts",
        "iceberg/write_disposition": "merge",
        "iceberg/merge_keys": ["id"],
        "iceberg/merge": rules,
    }
    query = "select {start} as ts, * from values " + rows + " as t(id, n)"
    return frame_asset("t", query, partitions_def=DAYS, metadata=metadata)


@pytest.mark.full
def test_a_partition_s_absent_keys_are_deleted_and_no_other_s(lake: Lake) -> None:
    for key in ("2013-01-01", "2013-01-02"):
        lake.materialize(daily("(1, 'a'), (2, 'b')"), partition_key=key)
    result = lake.materialize(daily("(1, 'a')", sync=True), partition_key="2013-01-02")
    assert lake.rows("t", "id") == [1, 1, 2]
    assert counts(result) == (0, 0, 1, 1)


@pytest.mark.full
def test_structs_and_maps_are_compared_by_name_and_entry(lake: Lake) -> None:
    def query(struct: str, entries: str) -> str:
        return f"select 1 as id, {struct} as s, map({entries}) as m, array({struct}) as l"

    lake.materialize(merging(query("named_struct('a', 1, 'b', 2)", "'x', 1, 'y', 2")))
    same = lake.materialize(merging(query("named_struct('b', 2, 'a', 1)", "'y', 2, 'x', 1")))
    assert counts(same) == (0, 0, 0, 1)
    swapped = lake.materialize(merging(query("named_struct('b', 1, 'a', 2)", "'y', 2, 'x', 1")))
    assert counts(swapped) == (0, 1, 0, 0)
    [row] = lake.arrow("t").to_pylist()
    assert (row["s"], row["l"], sorted(row["m"])) == ({"a": 2, "b": 1}, [{"a": 2, "b": 1}], [("x", 1), ("y", 2)])


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["upsert", "delete_insert"])
def test_fields_that_differ_in_case_alone_are_the_same(lake: Lake, strategy: str) -> None:
    for name, value, expected in (("a", 1, None), ("A", 2, None), ("A", 2, 1)):
        query = f"select 1 as id, named_struct('{name}', {value}) as s, array(named_struct('{name}', {value})) as l"
        result = lake.materialize(merging(query, strategy=strategy))
        assert expected is None or counts(result)[3] == expected
    assert lake.arrow("t").to_pylist() == [{"id": 1, "s": {"a": 2}, "l": [{"a": 2}]}]


ODD_TEXTS = ["a${x}", "${spark:spark.app.name}", "a", "it's", "a\\b", "", "$", "\U0001f600"]


@pytest.mark.full
def test_texts_are_found_again_whatever_is_in_them(lake: Lake) -> None:
    texts = ", ".join(f"decode(unhex('{text.encode().hex()}'), 'UTF-8')" for text in ODD_TEXTS)
    for value in (1, 2):
        lake.materialize(merging(f"select explode(array({texts})) as id, {value} as v"))
    assert lake.rows("t", "id", "v") == sorted((text, 2) for text in ODD_TEXTS)


@pytest.mark.sample(2)
@pytest.mark.full
@pytest.mark.parametrize("key", ["cast(X'FF' as string)", "date_add(date'9999-12-31', 1)", "date'0000-01-01'"])
def test_keys_that_python_does_not_have_are_found_again(lake: Lake, key: str) -> None:
    for value in (1, 2):
        lake.materialize(merging(f"select {key} as id, {value} as v"))
    assert [row.v for row in lake.session.table("lake.db.t").select("v").collect()] == [2]
    error = error_of(lake.materialize(merging(f"select {key} as id, id as v from range(2)"), raise_on_error=False))
    assert error.class_name == "MergeKeyError"


@pytest.mark.full
def test_rows_without_a_key_are_absent_too(classic_lake: Lake) -> None:
    classic_lake.session.sql("create namespace lake.db")
    classic_lake.session.sql(
        "create table lake.db.t using iceberg as select null as id, 'x' as n, 1 as v union select 1, 'a', 1"
    )
    result = classic_lake.materialize(merging(values("(1, 'a', 1)"), sync=True))
    assert table(classic_lake) == [(1, "a", 1)]
    assert counts(result) == (0, 0, 1, 1)


@pytest.mark.full
def test_a_condition_holds_for_each_of_a_key_s_rows(classic_lake: Lake) -> None:
    classic_lake.session.sql("create namespace lake.db")
    classic_lake.session.sql(
        "create table lake.db.t using iceberg as select * from values (1, 'a', 10), (1, 'b', 50) as t(id, n, v)"
    )
    classic_lake.materialize(merging(values("(1, 'c', 20)"), when_matched="source.v > target.v"))
    assert table(classic_lake) == [(1, "b", 50), (1, "c", 20)]


@pytest.mark.full
def test_rows_are_not_counted_where_delete_files_take_some_off(classic_lake: Lake) -> None:
    asset, properties = merging(values(STORED)), {"write.merge.mode": "merge-on-read"}
    lake = classic_lake.with_options(table_properties=properties)
    assert metadata_of(lake.materialize(asset), "t")["dagster/row_count"] == 3
    result = lake.materialize(merging(values("(1, 'new', 1)")))
    assert "dagster/row_count" not in metadata_of(result, "t")
    assert lake.head("t").summary["total-records"] == "4"  # type: ignore[index]


@pytest.mark.full
def test_each_row_that_the_table_has_of_a_key_is_compared(classic_lake: Lake) -> None:
    classic_lake.materialize(merging(values(STORED)))
    classic_lake.session.sql("insert into lake.db.t values (1, 'other', 11), (2, 'b', 20)")
    result = classic_lake.materialize(merging(values("(1, 'a', 10), (2, 'b', 20)")))
    assert table(classic_lake) == [(1, "a", 10), (1, "a", 10), (2, "b", 20), (2, "b", 20), (3, "c", 30)]
    assert counts(result) == (0, 2, 0, 1)


@pytest.mark.by_spark
@pytest.mark.sample(2)
@pytest.mark.full
@pytest.mark.parametrize(
    ("rules", "left", "counted"),
    [
        ({}, [(1, "a", 10), (1, "a", 10), (2, "b", 20), (2, "b", 20), (3, "c", 30), (4, "d", 40)], (1, 2, 0, 1)),
        (
            {"strategy": "insert_only"},
            [(1, "a", 10), (1, "other", 11), (2, "b", 20), (2, "b", 20), (3, "c", 30), (4, "d", 40)],
            (1, 0, 0, 2),
        ),
        ({"sync": True}, [(1, "a", 10), (1, "a", 10), (2, "b", 20), (2, "b", 20), (4, "d", 40)], (1, 2, 1, 1)),
        ({"hard_delete": "gone"}, [(2, "b", 20), (2, "b", 20), (3, "c", 30), (4, "d", 40)], (1, 0, 2, 1)),
    ],
    ids=str,
)
def test_a_batch_too_large_to_be_copied_meets_each_row_of_a_key(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, rules: dict[str, Any], left: list[tuple[Any, ...]], counted: tuple[int]
) -> None:
    monkeypatch.setattr("dagster_iceberg_spark.spark.write.batch.MAXIMUM_COPIED_BYTES", 0)
    lake.materialize(merging(values(STORED)))
    stored = values("(1, 'other', 11), (2, 'b', 20)")
    lake.materialize(frame_asset("t", stored, metadata={"iceberg/write_disposition": "append"}))
    batch = "(1, 'a', 10, true), (2, 'b', 20, false), (4, 'd', 40, false)"
    columns = "id, n, v, gone" if "hard_delete" in rules else "id, n, v"
    result = lake.materialize(merging(f"select {columns} from values {batch} as t(id, n, v, gone)", **rules))
    assert table(lake) == left
    assert counts(result) == counted


@pytest.mark.by_spark
@pytest.mark.sample(3)
@pytest.mark.full
@pytest.mark.parametrize("rules", [{}, {"when_matched": "source.v > target.v"}, {"strategy": "insert_only"}], ids=str)
@pytest.mark.parametrize("theirs", ["update", "insert", "delete"])
def test_what_others_write_right_before_the_merge_is_met(
    lake: Lake, rules: dict[str, Any], theirs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement = [
        {
            "update": "update lake.db.t set v = 99, n = 'theirs' where id = 1",
            "insert": "insert into lake.db.t values (4, 'theirs', 99)",
            "delete": "delete from lake.db.t where id = 1",
        }[theirs]
    ]
    handed_over = module._handed_over

    def write_first(*arguments: Any) -> Any:
        while statement:
            lake.session.sql(statement.pop()).collect()
        return handed_over(*arguments)

    lake.materialize(merging(values(STORED)))
    monkeypatch.setattr(module, "_handed_over", write_first)
    result = lake.materialize(merging(values("(1, 'x', 50), (4, 'd', 40)"), **rules))
    one, four = (1, "x", 50), (4, "d", 40)
    if rules:
        one = (1, "theirs", 99) if theirs == "update" else (1, "a", 10) if "strategy" in rules else one
        four = (4, "theirs", 99) if theirs == "insert" else four
    first = [] if "strategy" in rules and theirs == "delete" else [one]
    assert table(lake) == [*first, (2, "b", 20), (3, "c", 30), four]
    assert (metadata_of(result, "t")["iceberg/retries"] == 1) == ("when_matched" in rules)


@pytest.mark.full
def test_a_mark_that_the_table_has_stored_before_is_left_as_it_is(classic_lake: Lake) -> None:
    query = values("(1, 'a', false), (2, 'b', false)", "id, n, gone")
    classic_lake.materialize(merging(query))
    asset = merging(query.replace("1, 'a', false", "1, 'a', true"), strategy="delete_insert", hard_delete="gone")
    classic_lake.materialize(asset)
    assert classic_lake.rows("t", "id") == [2]


@pytest.mark.full
def test_a_collation_of_the_batch_makes_no_texts_equal(classic_lake: Lake) -> None:
    for text in ("a", "A"):
        column = f"'{text}' collate UTF8_LCASE"
        classic_lake.materialize(merging(f"select 1 as id, {column} as n, array({column}) as l"))
    assert classic_lake.rows("t", "n", "l") == [("A", ["A"])]


@pytest.mark.full
def test_what_cannot_be_compared_counts_as_changed(classic_lake: Lake) -> None:
    asset = merging("select id, map('x', map('y', id)) as m from range(2)")
    for expected in ((2, 0, 0, 0), (0, 2, 0, 0)):
        assert counts(classic_lake.materialize(asset)) == expected


KEYS = {
    "int": "cast(id as int)",
    "long": "id",
    "string": "cast(id as string)",
    "decimal": "cast(id as decimal(9, 2))",
    "date": "date_add(date'2024-01-01', cast(id as int))",
    "timestamptz": "timestamp'2024-03-10 02:30:00 UTC' + make_dt_interval(0, id)",
    "timestamp": "timestamp_ntz'2024-03-10 02:30:00' + make_dt_interval(0, id)",
    "double": "cast(id as double)",
    "binary": "cast(cast(id as string) as binary)",
}


@pytest.mark.sample(4)
@pytest.mark.full
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_keys_of_every_type_are_found_again(classic_lake: Lake, key: str) -> None:
    """By their range, and where they are few by a list of them."""
    for value, rows, expected in (("1", 150, (150, 0, 0, 0)), ("1", 2, (0, 0, 0, 2)), ("2", 150, (0, 150, 0, 0))):
        result = classic_lake.materialize(merging(f"select {key} as id, {value} as v from range({rows})"))
        assert counts(result) == expected
    assert classic_lake.arrow("t").num_rows == 150


@pytest.mark.full
def test_a_column_that_is_not_there_is_named(classic_lake: Lake) -> None:
    classic_lake.materialize(merging(values(STORED)))
    asset = merging(values("(1, 'x', 1)"), when_matched="source.nope > 1")
    error = error_of(classic_lake.materialize(asset, raise_on_error=False))
    assert "nope" in str(error)
    assert len(classic_lake.summaries("t")) == 1


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["upsert", "insert_only", "delete_insert", "scd2"])
def test_rows_are_counted_once_though_spark_samples_them_to_sort_the_files(lake: Lake, strategy: str) -> None:
    metadata = {
        "iceberg/sort_by": ["id"],
        "iceberg/write_disposition": "merge",
        "iceberg/merge_keys": ["id"],
        "iceberg/merge": strategy,
    }
    for rows in (STORED, "(2, 'B', 20), (3, 'c', 30), (4, 'd', 40)"):
        result = lake.materialize(frame_asset("t", values(rows), metadata=metadata))
    found = {"upsert": (1, 1, 0, 1), "insert_only": (1, 0, 0, 2), "delete_insert": (2, 0, 1, 1), "scd2": (2, 1, 0, 1)}
    assert counts(result) == found[strategy]


Row = tuple[int | None, str | None, int | None]


def after(stored: Sequence[Row], batch: Sequence[tuple[Row, bool | None]], rules: dict[str, Any]) -> Counter[Row]:
    """What a merge leaves, in Python: rows of key, text and number. NULL is the last number, and no mark."""
    strategy, dedup = rules.get("strategy", "upsert"), rules.get("dedup_sort")
    if dedup:
        best = {row[0]: max((number(item) for item, _ in batch if item[0] == row[0])) for row, _ in batch}
        batch = [(row, gone) for row, gone in batch if number(row) == best[row[0]]]
    gone = {row[0] for row, is_gone in batch if is_gone}
    live = [row for row, is_gone in batch if not is_gone]
    known, keys = {row[0] for row in stored}, {row[0] for row, _ in batch}
    if strategy == "delete_insert":
        return Counter([*(row for row in stored if row[0] not in keys), *live])
    new = [row for row in live if row[0] not in known]
    if strategy == "insert_only":
        return Counter([*stored, *new])
    left = []
    by_key = {row[0]: row for row, _ in batch}
    for row in stored:
        other = by_key.get(row[0]) if row[0] in by_key else None
        if other is None:
            left += [] if rules.get("sync") else [row]
        elif rules.get("when_matched") and not (row[2] is not None and number(other) > row[2]):
            left.append(row)
        elif row[0] not in gone:
            left.append((row[0], row[1] if rules.get("exclude_columns") else other[1], other[2]))
    return Counter([*left, *new])


def number(row: Row) -> int:
    """The number of a row, with NULL below all others."""
    return -1 if row[2] is None else row[2]


def rows_of(keys: st.SearchStrategy[Any], *, unique: bool) -> st.SearchStrategy[list[Row]]:
    row = st.tuples(keys, st.sampled_from([None, "a", "b"]), st.sampled_from([None, 0, 1, 2, 3]))
    return st.lists(row, max_size=6, unique_by=(lambda item: item[0]) if unique else None)


@st.composite
def merges(draw: st.DrawFn) -> tuple[list[Row], list[tuple[Row, bool | None]], dict[str, Any]]:
    rules: dict[str, Any] = {"strategy": draw(st.sampled_from(["upsert", "insert_only", "delete_insert"]))}
    keys: st.SearchStrategy[Any] = st.integers(0, 5)
    if draw(st.booleans()):
        rules["null_keys"], keys = "match", keys | st.none()
    several = rules["strategy"] == "delete_insert"
    if rules["strategy"] == "upsert":
        more = {"sync": True, "when_matched": "source.v > target.v", "exclude_columns": ["n"]}
        rules |= {name: value for name, value in more.items() if draw(st.booleans())}
    stored, batch = draw(rows_of(keys, unique=not several)), draw(rows_of(keys, unique=not several))
    if draw(st.booleans()):
        rules["dedup_sort"] = "v desc"
        batch = list({(row[0], row[2]): row for row in draw(rows_of(keys, unique=False))}.values())
    marks: list[bool | None] = [False] * len(batch)
    if rules["strategy"] != "insert_only" and draw(st.booleans()):
        rules["hard_delete"] = "gone"
        mark = st.sampled_from([True, False, None])
        marks = draw(st.lists(mark, min_size=len(batch), max_size=len(batch)))
    return stored, list(zip(batch, marks, strict=True)), rules


def shown(rows: Sequence[Row], *marks: Sequence[bool | None]) -> str:
    """A query for the rows, and for what marks them."""
    names = ["id", "n", "v", *(["gone"] if marks else [])]
    types = ["bigint", "string", "bigint", *(["boolean"] if marks else [])]
    texts = [
        ["null" if item is None else repr(item) for item in (*row, *mark)]
        for row, *mark in zip(rows, *marks, strict=True)
    ]
    lines = [", ".join(map("cast({} as {})".format, line, types)) for line in texts]
    empty = ", ".join(f"cast(null as {kind}) as {name}" for name, kind in zip(names, types, strict=True))
    return " union all ".join([f"select {empty} where false", *(f"select {line}" for line in lines)])


@pytest.mark.full
@settings(
    max_examples=int(os.environ.get("MERGES", "10")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(case=merges())
def test_a_merge_leaves_what_a_model_of_it_leaves(
    lake: Lake, case: tuple[list[Row], list[tuple[Row, bool | None]], dict[str, Any]]
) -> None:
    stored, batch, rules = case
    lake.session.sql("drop table if exists lake.db.t")
    lake.session.sql("create namespace if not exists lake.db")
    lake.session.sql("create table lake.db.t (id bigint, n string, v bigint) using iceberg")
    if stored:
        lake.session.sql(f"insert into lake.db.t {shown(stored)}")
    before = len(lake.summaries("t"))
    marks = [[gone for _, gone in batch]] if "hard_delete" in rules else []
    result = lake.materialize(merging(shown([row for row, _ in batch], *marks), **rules))
    found = Counter(tuple(row.values()) for row in lake.arrow("t").to_pylist())
    assert found == after(stored, batch, rules)
    inserted, updated, deleted, _ = counts(result)
    assert inserted - deleted == found.total() - len(stored)
    if rules["strategy"] != "delete_insert":  # a key has one row
        kept = {row[0]: row for row in found}
        assert updated == sum(row[0] in kept and kept[row[0]] != row for row in stored)
    assert len(lake.summaries("t")) == before + 1


@pytest.mark.sample(3)
@pytest.mark.full
@pytest.mark.parametrize("layout", [[], ["bucket(8, id)"]], ids=["range of keys", "buckets"])
@pytest.mark.parametrize("strategy", ["upsert", "insert_only", "delete_insert"])
def test_files_that_cannot_have_a_key_of_the_batch_are_not_opened(
    classic_lake: Lake, strategy: str, layout: list[str]
) -> None:
    metadata, lake = {"iceberg/partition_by": layout, "iceberg/write_disposition": "append"}, classic_lake
    for first in range(0, 40, 10):
        lake.materialize(frame_asset("t", f"select id, 'a' as n from range({first}, {first + 10})", metadata=metadata))
    files = {task.file.file_path for task in lake.table("t").scan().plan_files()}
    needed = {task.file.file_path for task in lake.table("t").scan(row_filter="id in (12, 13)").plan_files()}
    assert len(files) > 2 * len(needed)
    for path in files - needed:
        Path(urlsplit(path).path).unlink()
    lake.materialize(merging("select * from values (12L, 'b'), (13L, 'a') as t(id, n)", strategy=strategy))
    rows = lake.arrow("t", row_filter="id in (12, 13)").sort_by("id").column("n").to_pylist()
    assert rows == (["a", "a"] if strategy == "insert_only" else ["b", "a"])


@pytest.mark.by_spark
@pytest.mark.full
def test_a_batch_is_compared_anew_where_others_have_written(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("id", pa.int32()), ("n", pa.string()), ("v", pa.int32())])
    unmoved, theirs = module._require_unmoved, [pa.table({"id": [4], "n": ["theirs"], "v": [0]}, schema=schema)]

    def write_first(*arguments: Any) -> None:
        while theirs:
            lake.table("t").append(theirs.pop())
        unmoved(*arguments)

    lake.materialize(merging(values(STORED)))
    monkeypatch.setattr(module, "_require_unmoved", write_first)
    result = lake.materialize(merging(values("(1, 'a', 10), (4, 'ours', 40)")))
    assert table(lake) == [(1, "a", 10), (2, "b", 20), (3, "c", 30), (4, "ours", 40)]
    assert counts(result) == (0, 1, 0, 1)
    assert metadata_of(result, "t")["iceberg/retries"] == 1


@pytest.mark.full
def test_a_merge_into_the_branch_of_a_new_table(lake: Lake) -> None:
    options = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"], "iceberg/branch": "tried"}
    for value in ("a", "b"):
        lake.materialize(frame_asset("people", f"select 1 as id, '{value}' as n", metadata=options))
    table = lake.table("people")
    assert (table.current_snapshot(), table.scan().use_ref("tried").to_arrow()["n"].to_pylist()) == (None, ["b"])

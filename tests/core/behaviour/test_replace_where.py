"""`replace_where`: the rows that meet a condition are replaced, in one snapshot, and no others."""

from typing import Any

import dagster as dg
import pytest

from tests.lakes import Lake, frame_asset

pytestmark = pytest.mark.spark

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")


def replacing(where: str, query: str, **metadata: Any) -> dg.AssetsDefinition:
    rules = {"strategy": "replace_where", "where": where}
    return frame_asset("t", query, metadata={"iceberg/write_disposition": "merge", "iceberg/merge": rules, **metadata})


def first(lake: Lake, *partition_by: str) -> None:
    """Numbers 0 to 9 with their texts, and a row of NULLs."""
    by = {"iceberg/partition_by": list(partition_by)} if partition_by else None
    numbers = "select cast(id as int) as n, concat('s', id) as s, 'old' as v from range(10)"
    lake.materialize(frame_asset("t", f"{numbers} union all select null, null, 'old'", metadata=by))


def rows_of(lake: Lake) -> dict[Any, str]:
    return dict(zip(lake.arrow("t").column("n").to_pylist(), lake.arrow("t").column("v").to_pylist(), strict=True))


@pytest.mark.sample(8)
@pytest.mark.each_engine("quick")
@pytest.mark.feature("replace_where")
@pytest.mark.parametrize("spec", [(), ("n",), ("truncate(4, n)",), ("bucket(2, s)",)], ids=str)
@pytest.mark.parametrize(
    ("where", "replaced"),
    [
        ("n >= 3 and n < 6", {3, 4, 5}),
        ("n > 7", {8, 9}),
        ("n <= 0 or n = 5", {0, 5}),
        ("s in ('s1', 's2')", {1, 2}),
        ("n is null", {None}),
        ("n < 2 or n is null", {0, 1, None}),
        ("n between 20 and 30", set()),
    ],
)
def test_the_rows_of_the_condition_are_replaced(
    lake: Lake, spec: tuple[str, ...], where: str, replaced: set[Any]
) -> None:
    first(lake, *spec)
    kept = sorted(value for value in replaced if value is not None)[:1]
    numbers = "select cast(id as int) as n, concat('s', id) as s, 'new' as v from range(10)"
    lake.materialize(replacing(where, f"{numbers} where id = {(kept or [-1])[0]}"))
    expected = {value: "old" for value in [*range(10), None] if value not in replaced} | dict.fromkeys(kept, "new")
    assert rows_of(lake) == expected
    assert lake.arrow("t").num_rows == len(expected)
    assert len(lake.summaries("t")) == 2


@pytest.mark.sample(4)
@pytest.mark.full
@pytest.mark.parametrize("spec", [(), ("amount",), ("bucket(2, name)",)], ids=str)
@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("name = 'O''Brien'", ["OBrien", "least", "most", "null"]),
        ("amount > 10.5", ["O'Brien", "least", "null"]),
        ("amount > -9999999.99 and amount <= 10.5", ["OBrien", "least", "most", "null"]),
        ("amount <= 9999999.99", ["null"]),
        ("amount > 9999999.98", ["O'Brien", "OBrien", "least", "null"]),
    ],
)
def test_texts_and_decimals_are_told_apart_exactly(
    lake: Lake, spec: tuple[str, ...], where: str, kept: list[str]
) -> None:
    rows = (
        """values ("O'Brien", 10.5), ('OBrien', 10.51), ('least', -9999999.99), ('most', 9999999.99), ('null', null)"""
    )
    query = f"select name, cast(amount as decimal(9, 2)) as amount from {rows} as t(name, amount)"
    lake.materialize(frame_asset("t", query, metadata={"iceberg/partition_by": list(spec)} if spec else None))
    lake.materialize(replacing(where, f"{query} where false"))
    assert lake.rows("t", "name") == kept


@pytest.mark.full
@pytest.mark.parametrize("spec", [(), ("flag",)], ids=str)
def test_a_file_of_null_alone_is_not_false(lake: Lake, spec: tuple[str, ...]) -> None:
    by = {"iceberg/partition_by": list(spec), "iceberg/write_disposition": "append"}
    flags = "values (cast(null as boolean), 'null'), (true, 'true'), (false, 'false') as t(flag, v)"
    for flag in ("true", "false", "null"):  # a file each, in manifests of their own
        lake.materialize(frame_asset("t", f"select * from {flags} where v = '{flag}'", metadata=by))
    lake.materialize(frame_asset("t", f"select * from {flags}", metadata=by))  # in one, by the spec
    lake.materialize(replacing("flag = false", "select false as flag, 'new' as v"))
    assert lake.rows("t", "v") == ["new", "null", "null", "true", "true"]


@pytest.mark.full
def test_rows_that_do_not_meet_the_condition_are_refused_or_dropped(lake: Lake) -> None:
    first(lake)
    query = "select cast(id as int) as n, concat('s', id) as s, 'new' as v from range(5)"
    error = lake.failure(replacing("n >= 3", query))
    assert error.class_name == "RowsOutsidePartitionError"
    assert "where n >= 3" in str(error)
    assert set(rows_of(lake).values()) == {"old"}
    dropping = {"iceberg/rows_outside_partition": "drop"}
    lake.materialize(replacing("n >= 3", query, **dropping))
    assert rows_of(lake) == {0: "old", 1: "old", 2: "old", None: "old", 3: "new", 4: "new"}


@pytest.mark.full
def test_a_run_replaces_rows_of_its_own_partition_alone(lake: Lake) -> None:
    def daily(value: str, metadata: dict[str, Any]) -> dg.AssetsDefinition:
        query = f"select date '{{key}}' as day, cast(id as int) as n, '{value}' as v from range(4)"
        return frame_asset("t", query, partitions_def=DAYS, metadata={"partition_expr": "day", **metadata})

    for day in ("2013-01-01", "2013-01-02"):
        lake.materialize(daily("old", {}), partition_key=day)
    rules = {"iceberg/write_disposition": "merge", "iceberg/merge": {"strategy": "replace_where", "where": "n >= 2"}}
    lake.materialize(daily("new", {**rules, "iceberg/rows_outside_partition": "drop"}), partition_key="2013-01-02")
    found = [(str(row["day"]), row["n"], row["v"]) for row in lake.arrow("t").to_pylist()]
    old = [("2013-01-01", n, "old") for n in range(4)] + [("2013-01-02", n, "old") for n in (0, 1)]
    assert sorted(found) == sorted([*old, ("2013-01-02", 2, "new"), ("2013-01-02", 3, "new")])


@pytest.mark.full
def test_no_rows_delete_what_meets_the_condition(lake: Lake) -> None:
    first(lake)
    lake.materialize(replacing("n >= 2", "select 1 as n, '' as s, '' as v where false"))
    assert rows_of(lake) == {0: "old", 1: "old", None: "old"}


def test_the_first_write_is_like_any_other(lake: Lake) -> None:
    lake.materialize(replacing("n > 0", "select 1 as n"))
    assert lake.rows("t", "n") == [1]


@pytest.mark.sample(3)
@pytest.mark.full
@pytest.mark.parametrize("where", ["n < 2", "n <= 1 or s = 's7'", "s < 's3'", "s > 's8' or s < 's0'"])
@pytest.mark.parametrize("column", ["n", "s"])
def test_null_is_below_no_value(lake: Lake, where: str, column: str) -> None:
    """Iceberg's own evaluation of partitions takes it for less than any."""
    first(lake, column)
    lake.materialize(replacing(where, "select 1 as n, 's1' as s, '' as v where false"))
    assert None in rows_of(lake)

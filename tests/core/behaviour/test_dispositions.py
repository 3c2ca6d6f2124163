"""Appending, merging, and the guard against rows that a run does not own."""

import datetime as dt
import time
from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark.catalog.branches import change_tags
from dagster_iceberg_spark.commit import waiting
from dagster_iceberg_spark.table.claims import Claim, written_rows
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.scope import Dimension, PartitionScope, PartitionSlice
from dagster_iceberg_spark.table.updates import SetTag
from tests.lakes import Lake, around_write, frame_asset, hours_asset, metadata_of

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")
DAY = {"partition_expr": "ts"}
MERGE = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}

pytestmark = pytest.mark.spark


@pytest.mark.each_engine("quick")
@pytest.mark.feature("append")
def test_append_adds_rows_once_for_each_run(lake: Lake) -> None:
    asset = frame_asset("log", "select 1 as id", metadata={"iceberg/write_disposition": "append"})
    lake.materialize(asset)
    result = lake.materialize(asset)
    assert lake.rows("log", "id") == [1, 1]
    assert [summary["operation"] for summary in lake.summaries("log")] == ["append", "append"]
    assert metadata_of(result, "log")["dagster/row_count"] == 2


@pytest.mark.full
def test_append_to_a_partition_keeps_what_is_there(lake: Lake) -> None:
    asset = hours_asset(partitions_def=DAYS, metadata={**DAY, "iceberg/write_disposition": "append"})
    for _ in range(2):
        lake.materialize(asset, partition_key="2013-01-01")
    assert len(lake.rows("hours")) == 48


def test_an_empty_append_is_one_snapshot(lake: Lake) -> None:
    asset = frame_asset("log", "select 1 as id where false", metadata={"iceberg/write_disposition": "append"})
    lake.materialize(asset)
    assert [summary["operation"] for summary in lake.summaries("log")] == ["append"]


@pytest.mark.each_engine("quick")
@pytest.mark.feature("merge")
def test_merge_updates_known_keys_and_inserts_new_ones(lake: Lake) -> None:
    lake.materialize(frame_asset("people", "select * from values (1, 'a'), (2, 'b') as t(id, n)", metadata=MERGE))
    lake.materialize(frame_asset("people", "select * from values (3, 'c'), (2, 'B') as t(id, n)", metadata=MERGE))
    assert lake.rows("people", "id", "n") == [(1, "a"), (2, "B"), (3, "c")]
    summaries = lake.summaries("people")
    assert len(summaries) == 2
    assert all("dagster.commit_token" in summary and "dagster.run_id" in summary for summary in summaries)


@pytest.mark.full
def test_merge_of_nothing_makes_a_new_table_with_one_snapshot(lake: Lake) -> None:
    lake.materialize(frame_asset("people", "select 1 as id, 'x' as n where false", metadata=MERGE))
    assert (lake.rows("people", "id"), len(lake.summaries("people"))) == ([], 1)


@pytest.mark.full
def test_merge_of_nothing_is_one_snapshot_and_changes_nothing(lake: Lake) -> None:
    lake.materialize(frame_asset("people", "select 1 as id, 'a' as n", metadata=MERGE))
    lake.materialize(frame_asset("people", "select 1 as id, 'x' as n where false", metadata=MERGE))
    assert lake.rows("people", "id", "n") == [(1, "a")]
    assert len(lake.summaries("people")) == 2


@pytest.mark.full
def test_merge_takes_a_frame_that_is_not_deterministic(lake: Lake) -> None:
    asset = frame_asset("rolls", "select id, rand() as roll from range(10)", metadata=MERGE)
    for _ in range(2):
        lake.materialize(asset)
    assert lake.rows("rolls", "id") == list(range(10))
    assert len(lake.summaries("rolls")) == 2


@pytest.mark.full
def test_merge_into_a_partition_leaves_equal_keys_of_others_alone(lake: Lake) -> None:
    query = "select {start} as ts, 1 as id, '{key}' as n"
    asset = frame_asset("people", query, partitions_def=DAYS, metadata={**DAY, **MERGE})
    for key in ("2013-01-01", "2013-01-02", "2013-01-01"):
        lake.materialize(asset, partition_key=key)
    assert lake.rows("people", "n") == ["2013-01-01", "2013-01-02"]


@pytest.mark.full
def test_a_batch_that_lacks_a_column_leaves_its_stored_values(lake: Lake) -> None:
    lake.materialize(frame_asset("people", "select 1 as id, 'a' as n, 10 as age", metadata=MERGE))
    lake.materialize(frame_asset("people", "select * from values (1, 'A'), (2, 'b') as t(id, n)", metadata=MERGE))
    assert lake.arrow("people").sort_by("id").to_pylist() == [
        {"id": 1, "n": "A", "age": 10},
        {"id": 2, "n": "b", "age": None},
    ]


@pytest.mark.full
def test_a_merge_adds_the_batch_s_new_columns(lake: Lake) -> None:
    lake.materialize(frame_asset("people", "select 1 as id, 'a' as n", metadata=MERGE))
    lake.materialize(frame_asset("people", "select 2 as id, 'b' as n, 20 as age", metadata=MERGE))
    assert lake.arrow("people").sort_by("id").column("age").to_pylist() == [None, 20]


@pytest.mark.full
def test_merge_by_odd_names_under_an_odd_table(lake: Lake) -> None:
    metadata = {
        "iceberg/write_disposition": "merge",
        "iceberg/merge_keys": ["my id", "a.b"],
        "iceberg/table": "db.`my.table`",
    }
    query = "select * from values (1, 2, {0}, 3, 4), (2, 2, {0}, 3, 4) as t(`my id`, `a.b`, `it's`, `{1}`, Masse)"
    for value, other_case in ((1, "Maße"), (2, "MAẞE")):  # which Spark takes for one column, and `Masse` for another
        asset = query.replace("{0}", str(value)).replace("{1}", other_case)
        lake.materialize(frame_asset("odd", asset, metadata=metadata))
    assert lake.rows("my.table", "my id", "a.b", "it's", "Maße", "Masse") == [(1, 2, 2, 3, 4), (2, 2, 2, 3, 4)]


@pytest.mark.parametrize(
    ("rows", "found"), [("(1, 'a'), (1, 'b')", "id=1"), ("(1, 'a'), (null, 'b')", "id=NULL")], ids=["twice", "null"]
)
def test_merge_refuses_keys_that_do_not_identify(lake: Lake, rows: str, found: str) -> None:
    lake.materialize(frame_asset("people", "select 1 as id, 'x' as n", metadata=MERGE))
    error = lake.failure(frame_asset("people", f"select * from values {rows} as t(id, n)", metadata=MERGE))
    assert error.class_name == "MergeKeyError"
    assert found in str(error)
    assert not error.allow_retries
    assert lake.rows("people", "id", "n") == [(1, "x")]
    assert len(lake.summaries("people")) == 1


OUTSIDE = {"before": "{start} - interval 1 microsecond", "at the end": "{end}", "null": "cast(null as timestamp)"}


@pytest.mark.sample(5)
@pytest.mark.each_engine
@pytest.mark.feature("rows outside of the partition are refused")
@pytest.mark.parametrize("outside", OUTSIDE.values(), ids=list(OUTSIDE))
@pytest.mark.parametrize("disposition", ["replace", "append", "merge"])
def test_rows_outside_of_the_partition_are_refused(lake: Lake, outside: str, disposition: str) -> None:
    metadata = {**DAY, "iceberg/write_disposition": disposition, "iceberg/merge_keys": ["id"]}
    lake.materialize(
        frame_asset("t", "select {start} as ts, 1 as id", partitions_def=DAYS, metadata=metadata),
        partition_key="2013-01-02",
    )
    bad = frame_asset(
        "t", f"select {{start}} as ts, 1 as id union all select {outside}, 2", partitions_def=DAYS, metadata=metadata
    )
    error = lake.failure(bad, partition_key="2013-01-02")
    assert error.class_name == "RowsOutsidePartitionError"
    assert "ts=" in str(error)
    assert "2013-01-02" in str(error)
    assert lake.rows("t", "id") == [1]
    assert len(lake.summaries("t")) == 1


def test_a_refused_first_write_leaves_no_rows(lake: Lake) -> None:
    bad = frame_asset("t", "select {end} as ts", partitions_def=DAYS, metadata=DAY)
    error = lake.failure(bad, partition_key="2013-01-02")
    assert error.class_name == "RowsOutsidePartitionError"
    assert "the table was created and is empty" in str(error)
    assert lake.rows("t") == []
    assert lake.summaries("t") == []


@pytest.mark.full
def test_the_guard_judges_only_rows_that_the_frame_holds(lake: Lake) -> None:
    """A guard that the optimiser moved below a join, an aggregate or a limit would refuse rows that are not there."""
    query = """
        select ts, max(v) as v
        from (select explode(sequence({start} - interval 3 days, {end}, interval 1 hour)) as ts, 1 as v)
        join (select {start} as day) on ts = day
        group by ts having max(v) = 1
    """
    limited = "select {start} + make_interval(0, 0, 0, id) as ts, id as v from range(0, 100, 1, 4) order by id limit 1"
    for name, text in (("joined", query), ("limited", limited)):
        lake.materialize(frame_asset(name, text, partitions_def=DAYS, metadata=DAY), partition_key="2013-01-02")
        assert lake.rows(name, "ts") == [dt.datetime(2013, 1, 2, tzinfo=dt.timezone.utc)]


@pytest.mark.parametrize("disposition", ["replace", "append", "merge"])
def test_rows_outside_are_dropped_and_counted_where_that_is_asked_for(lake: Lake, disposition: str) -> None:
    query = "select explode(array({start}, {end}, cast(null as timestamp))) as ts"
    metadata = {
        **DAY,
        "iceberg/rows_outside_partition": "drop",
        "iceberg/write_disposition": disposition,
        "iceberg/merge_keys": ["ts"],
    }
    result = lake.materialize(
        frame_asset("t", query, partitions_def=DAYS, metadata=metadata), partition_key="2013-01-02"
    )
    assert lake.rows("t", "ts") == [dt.datetime(2013, 1, 2, tzinfo=dt.timezone.utc)]
    reported = metadata_of(result, "t")
    assert reported["iceberg/dropped_rows"] == 2
    assert reported.get("dagster/partition_row_count") == (1 if disposition == "replace" else None)


@pytest.mark.each_engine("all")
@pytest.mark.feature("the lineage of each disposition")
@pytest.mark.parametrize("disposition", ["replace", "append", "merge"])
def test_every_disposition_carries_the_whole_lineage(lake: Lake, disposition: str) -> None:
    metadata = {**DAY, "iceberg/write_disposition": disposition, "iceberg/merge_keys": ["id"]}
    source = frame_asset("source", "select 1 as id")

    @dg.asset(
        io_manager_key="iceberg",
        partitions_def=DAYS,
        metadata=metadata,
        code_version="v7",
        ins={"source": dg.AssetIn()},
    )
    def t(source: object) -> object:
        return source.selectExpr("id", "timestamp '2013-01-02 12:00:00Z' as ts")  # type: ignore[attr-defined]

    lake.materialize(source)
    result = lake.materialize(t, source.to_source_asset(), partition_key="2013-01-02", selection=[t])
    summary = lake.summaries("t")[-1]
    source_id = lake.head("source").snapshot_id
    assert summary["dagster.asset_key"] == "t"
    assert summary["dagster.run_id"] == result.run_id
    assert summary["dagster.step_key"] == "t"
    assert summary["dagster.job"] == "__ephemeral_asset_job__"
    assert summary["dagster.partition_keys"] == "2013-01-02"
    assert summary["dagster.code_version"] == "v7"
    assert summary["dagster.write_disposition"] == disposition
    assert summary["dagster.upstream"] == (
        f'[{{"asset":"source","table":"db.source","snapshot_id":{source_id},"scope":null}}]'
    )
    assert {"dagster.commit_token", "dagster.partition_digest", "dagster_iceberg_spark.version"} <= set(summary)


@pytest.mark.each_engine
@pytest.mark.since("4.0", "connect")
def test_a_query_may_name_dataframes(lake: Lake) -> None:
    """pyspark drops the views that stand for them as soon as it has the result."""
    lake.materialize(frame_asset("t", lambda spark: spark.sql("select id from {rows}", rows=spark.range(3))))
    assert lake.rows("t") == [0, 1, 2]


@pytest.mark.each_engine
def test_a_run_waits_for_another_of_its_partition(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    identifier, waits = TableIdentifier(("db",), "hours"), {**DAY, "iceberg/concurrent_writes": "wait"}

    def write(value: str) -> None:
        asset = hours_asset("hours", value, partitions_def=DAYS, metadata=waits)
        lake.materialize(asset, partition_key="2013-01-01")

    write("1")
    other = lake.instance.create_run_for_job(dg.job(name="other")(lambda: None), status=dg.DagsterRunStatus.STARTED)
    scope = PartitionScope((Dimension(None, "ts"),), ((PartitionSlice("2013-01-01"),),), ("2013-01-01",))
    claim = Claim(written_rows("hours", "main", scope), other.run_id, int(time.time() * 1000))
    head = lake.head("hours").snapshot_id
    change_tags(lake.spark.catalog_description, identifier, [SetTag(claim.tag, head, 2)])

    def end_other(lasted: float) -> None:
        if list(lake.table("hours").refs()) != ["main"]:
            assert lake.head("hours").snapshot_id == head
            lake.instance.report_run_canceled(other)
        time.sleep(lasted / 100)

    monkeypatch.setattr(waiting, "sleep", end_other)
    write("2")
    assert list(lake.table("hours").refs()) == ["main"]
    assert lake.rows("hours", "v") == [2] * 24


@pytest.mark.by_spark
@pytest.mark.each_engine
@pytest.mark.parametrize("moment", ["computation", "write"])
@pytest.mark.parametrize("audits", [{}, {"iceberg/audits": {"plausible": "v > 0"}}], ids=["", "audited"])
def test_the_first_of_two_runs_of_a_partition_wins(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, moment: str, audits: dict[str, Any]
) -> None:
    """Whether the other run commits while rows are computed, or between the plan and the commit."""
    first_wins = {**DAY, "iceberg/concurrent_writes": "first_wins", **audits}
    others: list[str] = []

    def hours(value: str, **options: Any) -> dg.AssetsDefinition:
        return hours_asset("hours", value, partitions_def=DAYS, metadata=first_wins, **options)

    def other() -> None:
        if others:
            lake.materialize(hours("2"), partition_key=others.pop())

    @dg.asset(partitions_def=DAYS)
    def gate() -> dg.MaterializeResult[None]:
        if moment == "computation":
            other()
        return dg.MaterializeResult()

    def writing(write: Callable[[], Any], _: Any) -> Any:
        if moment == "write":
            other()
        return write()

    around_write(monkeypatch, writing)
    lake.materialize(hours("1"), partition_key="2013-01-01")
    others.append("2013-01-02")
    lake.materialize(gate, hours("1", deps=[gate]), partition_key="2013-01-03")
    assert lake.rows("hours", "v") == [1] * 48 + [2] * 24, "runs of other partitions are no rivals"
    others.append("2013-01-01")
    error = lake.failure(gate, hours("3", deps=[gate]), partition_key="2013-01-01")
    assert error.class_name == "ConcurrentWriteError", error
    assert "expected no other run of the same partitions since this run began" in str(error)
    assert lake.rows("hours", "v") == [1] * 24 + [2] * 48
    lake.materialize(hours("4"), partition_key="2013-01-01")
    assert lake.rows("hours", "v") == [1] * 24 + [2] * 24 + [4] * 24

"""Undo: the tables of a run go back to what they were before it."""

import json
from typing import Any

import dagster as dg
import polars as pl
import pytest

from dagster_iceberg_spark import CatalogUnavailableError, CommitConflictError, build_release, build_undo_op
from dagster_iceberg_spark.catalog import undo as undos
from dagster_iceberg_spark.undo import Undo, undo_run
from tests.lakes import Lake, frame_asset, hours_asset

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")
DAY, OTHER_DAY = "2013-01-01", "2013-01-02"

pytestmark = pytest.mark.spark


def hours(value: str = "1", **options: Any) -> dg.AssetsDefinition:
    metadata = {"partition_expr": "ts", **{f"iceberg/{key}": value for key, value in options.items()}}
    return hours_asset("hours", value, partitions_def=DAYS, metadata=metadata)


@dg.asset(io_manager_key="iceberg", partitions_def=DAYS, metadata={"partition_expr": "ts"})
def doubled(hours: pl.DataFrame) -> pl.DataFrame:
    return hours.with_columns(v=pl.col("v") * 2)


def seen(lake: Lake) -> tuple[list[int], list[int]]:
    hours, doubled = (sorted(set(lake.arrow(name).column("v").to_pylist())) for name in ("hours", "doubled"))
    return hours, doubled


def undo(lake: Lake, run_id: str, **options: Any) -> Undo:
    definitions = dg.Definitions([hours(), doubled], resources=lake.resources)
    return undo_run(definitions, run_id, instance=lake.instance, report=lambda _: None, **options)


def both(lake: Lake, value: str, day: str = DAY) -> str:
    return str(lake.materialize(hours(value), doubled, partition_key=day).run_id)


@pytest.mark.each_engine
@pytest.mark.feature("runs are undone")
def test_a_run_at_the_head_of_its_tables_is_rolled_back_and_restored(lake: Lake) -> None:
    both(lake, "1")
    run = both(lake, "3")
    planned = undo(lake, run, dry_run=True)
    assert (planned.is_atomic, seen(lake)) == (None, ([3], [6]))
    done = undo(lake, run)
    assert [(str(table.table), table.how) for table in done.tables] == [
        ("db.doubled", "rollback"),
        ("db.hours", "rollback"),
    ]
    assert (done.is_atomic, seen(lake)) == (True, ([1], [2]))
    (record,) = json.loads(lake.table("hours").properties["dagster.undone"])
    assert (record["run"], record["by"], record["to"]) == (run, done.by, lake.head("hours").snapshot_id)
    undo(lake, done.by)
    assert seen(lake) == ([3], [6])
    with pytest.raises(CommitConflictError, match="expected snapshot"):
        undo(lake, done.by)


@pytest.mark.full
def test_a_run_below_others_is_reverted_and_its_undo_too(lake: Lake) -> None:
    both(lake, "1")
    run = both(lake, "3")
    both(lake, "5", OTHER_DAY)
    done = undo(lake, run)
    assert ({table.how for table in done.tables}, seen(lake)) == ({"revert"}, ([1, 5], [2, 10]))
    summary = lake.summaries("hours")[-1]
    assert (summary["dagster.run_id"], summary["dagster.partition_keys"]) == (done.by, DAY)
    assert summary["dagster.undoes"] == f"[{done.tables[1].undone[0]}]"
    again = undo(lake, done.by)
    assert seen(lake) == ([3, 5], [6, 10])
    undo(lake, again.by)
    assert seen(lake) == ([1, 5], [2, 10])
    both(lake, "7")
    assert seen(lake) == ([5, 7], [10, 14])


@pytest.mark.full
def test_dagster_is_told_what_is_current_again(lake: Lake) -> None:
    both(lake, "1")
    run = both(lake, "3")
    done = undo(lake, run)
    event = lake.instance.get_latest_materialization_event(dg.AssetKey("hours"))
    assert event is not None
    materialization = event.asset_materialization
    assert materialization is not None
    assert materialization.partition == DAY
    assert materialization.metadata["iceberg/snapshot_id"].value == str(lake.head("hours").snapshot_id)
    assert materialization.metadata["iceberg/undone_by"].value == done.by


@pytest.mark.full
def test_what_was_made_of_the_rows_is_named_or_undone_too(lake: Lake) -> None:
    both(lake, "1")
    run = str(lake.materialize(hours("3"), partition_key=DAY).run_id)
    made_of_it = str(lake.materialize(hours(), doubled, partition_key=DAY, selection=[doubled]).run_id)
    with pytest.raises(CommitConflictError) as caught:
        undo(lake, run)
    assert f"of db.doubled by run {made_of_it}. Hint: undo these runs first" in str(caught.value)
    assert seen(lake) == ([3], [6])
    assert undo(lake, run, cascade=True).is_atomic
    assert seen(lake) == ([1], [2])


@pytest.mark.full
def test_partitions_that_a_later_run_has_written_again_are_named(lake: Lake) -> None:
    both(lake, "1")
    run = str(lake.materialize(hours("3"), partition_key=DAY).run_id)
    later = str(lake.materialize(hours("4"), partition_key=DAY).run_id)
    with pytest.raises(CommitConflictError, match=f"of db.hours by run {later}"):
        undo(lake, run)
    undo(lake, run, cascade=True)
    assert seen(lake) == ([1], [2])


@pytest.mark.full
def test_rows_that_another_tool_has_changed_are_not_taken_back(lake: Lake) -> None:
    both(lake, "1")
    run = both(lake, "3")
    lake.session.sql(
        f"insert into {lake.spark.catalog_description.name}.db.hours values (timestamp'{DAY} 12:00:00 UTC', 9)"
    )
    with pytest.raises(CommitConflictError, match="which has added or removed files of them"):
        undo(lake, run)
    assert seen(lake) == ([3, 9], [6])


@pytest.mark.full
def test_the_first_run_leaves_an_empty_table(lake: Lake) -> None:
    run = both(lake, "1")
    done = undo(lake, run)
    assert ({table.how for table in done.tables}, seen(lake)) == ({"revert"}, ([], []))
    undo(lake, done.by)
    assert seen(lake) == ([1], [2])


@pytest.mark.full
def test_an_appended_run_is_taken_out_and_incremental_reads_go_back_with_it(lake: Lake) -> None:
    read: list[list[int]] = []

    @dg.asset(
        io_manager_key="iceberg",
        ins={"t": dg.AssetIn(metadata={"iceberg/read": "changes"})},
        metadata={"iceberg/write_disposition": "append"},
    )
    def log(t: pl.DataFrame) -> pl.DataFrame:
        read.append(sorted(t["v"]))
        return t

    def run(value: int) -> str:
        asset = frame_asset("t", f"select {value} as v", metadata={"iceberg/write_disposition": "append"})
        return str(lake.materialize(asset, log).run_id)

    definitions = dg.Definitions([frame_asset("t", ""), log], resources=lake.resources)
    run(1)
    undone = run(2)
    undo_run(definitions, undone, report=lambda _: None)
    assert (lake.rows("t", "v"), lake.rows("log", "v")) == ([1], [1])
    run(3)
    assert (lake.rows("t", "v"), lake.rows("log", "v"), read) == ([1, 3], [1, 3], [[1], [2], [3]])


@pytest.mark.full
def test_a_released_run_is_undone_by_an_op(lake: Lake) -> None:
    staged = {"partition_expr": "ts", "iceberg/publish": "release"}
    other = hours_asset("doubled", "2", partitions_def=DAYS, metadata=staged)
    own = hours(publish="release")
    release = build_release("release", [own, other])
    lake.materialize(own, other, release, partition_key=DAY)
    run = lake.materialize(hours("3", publish="release"), other, release, partition_key=DAY).run_id
    op = build_undo_op([own, other])

    @dg.job(resource_defs=lake.resources)
    def undo_job() -> None:
        op()

    config = {"ops": {"undo_run": {"config": {"run_id": run}}}}
    result = undo_job.execute_in_process(run_config=config, instance=lake.instance)
    assert (result.success, seen(lake)) == (True, ([1], [2]))


@pytest.mark.full
def test_an_undo_whose_answer_is_lost_keeps_its_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    both(lake, "1")
    run = both(lake, "3")
    both(lake, "5", OTHER_DAY)
    commit = getattr(undos, "commit_tables")  # noqa: B009 - not exported

    def lost(*args: Any) -> bool:
        commit(*args)
        raise CatalogUnavailableError("gone")

    monkeypatch.setattr(undos, "commit_tables", lost)
    with pytest.raises(CatalogUnavailableError):
        undo(lake, run)
    assert seen(lake) == ([1, 5], [2, 10])

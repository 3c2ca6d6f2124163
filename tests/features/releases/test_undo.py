"""Undo: the tables of a run go back to what they were before it.

docs/undo.md: All of it, or nothing; What depends on the rows; Who undid what
"""

import time
from typing import Any

import dagster as dg
import polars as pl
import pytest

from dagster_iceberg_spark import (
    CatalogUnavailableError,
    CommitConflictError,
    ConfigurationError,
    UpstreamMissingError,
    build_release,
    build_undo_op,
)
from dagster_iceberg_spark.features.releases import undo as undos
from dagster_iceberg_spark.features.releases.undo import Undo, undo_run
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
def test_a_run_is_undone_and_its_undo_too(lake: Lake) -> None:
    both(lake, "1")
    run = both(lake, "3")
    planned = undo(lake, run, dry_run=True)
    assert (planned.is_atomic, seen(lake)) == (None, ([3], [6]))
    done = undo(lake, run)
    assert [str(table.table) for table in done.tables] == ["db.doubled", "db.hours"]
    assert (done.is_atomic, done.left_out, seen(lake)) == (True, (), ([1], [2]))
    summary = lake.summaries("hours")[-2]  # the last one is the empty one
    assert (summary["dagster.run_id"], summary["dagster.partition_keys"]) == (done.by, DAY)
    again = undo(lake, done.by)
    assert seen(lake) == ([3], [6])
    with pytest.raises(UpstreamMissingError, match="is undone already"):
        undo(lake, done.by)
    undo(lake, again.by)
    assert seen(lake) == ([1], [2])


@pytest.mark.full
@pytest.mark.since("4.0", "connect")  # the protocol of 3.5 carries no MERGE
@pytest.mark.each_engine
@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.full), 3])
def test_deleted_rows_come_back_and_go_again(lake: Lake, version: int) -> None:
    """By delete files and deletion vectors, and with the ids that the rows had."""
    modes = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
    options = {"iceberg/format_version": version, "iceberg/table_properties": modes}
    merged = {**options, "iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}
    ids = ", _row_id" if version > 2 else ""

    def rows() -> list[Any]:
        assert sorted(lake.rows("t", "id", "v")) == sorted((row[0], row[1]) for row in stored()), "two engines agree"
        return stored()

    def stored() -> list[Any]:
        return [tuple(row) for row in lake.session.sql(f"select id, v{ids} from lake.db.t order by id").collect()]

    def undone(run: str) -> Any:
        definitions = dg.Definitions([asset(1, 2, 3)], resources=lake.resources)
        return undo_run(definitions, run, instance=lake.instance, report=lambda _: None).by

    def asset(*values: int) -> dg.AssetsDefinition:
        query = " union all ".join(f"select {place} as id, {value} as v" for place, value in enumerate(values))
        return frame_asset("t", query, metadata=merged)

    lake.materialize(asset(1, 2, 3, 4))
    lake.materialize(asset(1, 9))
    lake.session.sql("delete from lake.db.t where id = 3")
    before = rows()
    run = str(lake.materialize(asset(1, 9, 7, 8)).run_id)
    after = rows()
    assert [row[:2] for row in before] == [(0, 1), (1, 9), (2, 3)]
    assert [row[:2] for row in after] == [(0, 1), (1, 9), (2, 7), (3, 8)]
    by = undone(run)
    assert rows() == before
    undone(by)
    assert rows() == after


@pytest.mark.full
@pytest.mark.parametrize("expires_all", [False, True])
def test_files_that_are_back_outlive_the_snapshot_that_removed_them(classic_lake: Lake, *, expires_all: bool) -> None:
    """Iceberg's own expiry, which Trino and Flink call, deletes what the expired snapshots have removed."""
    lake = classic_lake
    both(lake, "1")
    run = both(lake, "3")
    undo(lake, run)
    if not expires_all:
        both(lake, "5", OTHER_DAY)
    java: Any = classic_lake.session
    name = f"{lake.spark.catalog_description.name}.db.hours"
    table = java._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(java._jsparkSession, name)
    table.expireSnapshots().expireOlderThan(time.time_ns() // 1_000_000 + 1).retainLast(1).commit()
    assert seen(lake) == (([1], [2]) if expires_all else ([1, 5], [2, 10]))
    assert len(lake.table("hours").snapshots()) == 2, "the newest one, and the empty one"


@pytest.mark.full
def test_columns_that_do_not_come_back_are_named(lake: Lake) -> None:
    def run(query: str) -> str:
        asset = frame_asset("t", query, metadata={"iceberg/schema_evolution": "full"})
        return str(lake.materialize(asset).run_id)

    run("select 1 as id, 'x' as name")
    undone = run("select 2 as id, 3 as more")
    definitions = dg.Definitions([frame_asset("t", "")], resources=lake.resources)
    done = undo_run(definitions, undone, report=lambda _: None)
    assert (lake.arrow("t").to_pylist(), done.tables[0].lost_columns) == ([{"id": 1, "more": None}], ("name",))


@pytest.mark.full
def test_an_undo_sees_what_other_code_locations_have_made_of_the_rows(lake: Lake) -> None:
    both(lake, "1")
    run = str(lake.materialize(hours("3"), partition_key=DAY).run_id)
    lake.materialize(hours(), doubled, partition_key=DAY, selection=[doubled])
    alone = dg.Definitions([hours()], resources=lake.resources)
    with pytest.raises(CommitConflictError, match=r"snapshot \d+ of db\.doubled by run"):
        undo_run(alone, run, dry_run=True)


@pytest.mark.full
def test_a_dry_run_refuses_what_the_undo_refuses(lake: Lake) -> None:
    append = {"write_disposition": "append"}
    lake.materialize(hours("1", **append), partition_key=DAY)
    run = str(lake.materialize(hours("3", **append), partition_key=DAY).run_id)
    lake.materialize(hours("4", **append), partition_key=OTHER_DAY)
    name = f"{lake.spark.catalog_description.name}.system"
    lake.session.sql(f"call {name}.rewrite_data_files(table => 'db.hours', options => map('rewrite-all', 'true'))")
    definitions = dg.Definitions([hours(**append)], resources=lake.resources)
    for dry_run in (True, False):
        with pytest.raises(ConfigurationError, match="files that compaction has rewritten"):
            undo_run(definitions, run, dry_run=dry_run, report=lambda _: None)


@pytest.mark.full
def test_a_part_of_a_run_is_undone_only_on_demand(lake: Lake) -> None:
    both(lake, "1")
    run = both(lake, "3")
    name = lake.spark.catalog_description.name
    lake.materialize(hours("5"), partition_key=OTHER_DAY)
    lake.session.sql(f"call {name}.system.expire_snapshots(table => 'db.hours', older_than => now(), retain_last => 1)")
    with pytest.raises(UpstreamMissingError, match=r"snapshot \d+ of hours, which no table of the catalog has"):
        undo(lake, run)
    done = undo(lake, run, partial=True)
    assert ([str(table.table) for table in done.tables], len(done.left_out)) == (["db.doubled"], 1)
    assert seen(lake) == ([3, 5], [2])


@pytest.mark.full
def test_a_run_below_others_is_undone_and_its_undo_too(lake: Lake) -> None:
    both(lake, "1")
    run = both(lake, "3")
    both(lake, "5", OTHER_DAY)
    done = undo(lake, run)
    assert seen(lake) == ([1, 5], [2, 10])
    summary = lake.summaries("hours")[-2]  # the last one is the empty one
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
    assert seen(lake) == ([], [])
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
    commit = getattr(undos, "commit_in_order")  # noqa: B009 - not exported

    def lost(*args: Any, **kwargs: Any) -> bool:
        commit(*args, **kwargs)
        raise CatalogUnavailableError("gone")

    monkeypatch.setattr(undos, "commit_in_order", lost)
    with pytest.raises(CatalogUnavailableError):
        undo(lake, run)
    assert seen(lake) == ([1, 5], [2, 10])

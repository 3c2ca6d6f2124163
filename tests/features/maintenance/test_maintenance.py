"""Maintenance: what it does to tables, and what it keeps for those who still need it.

docs/maintenance.md: What is done, and when; What is kept, and for whom
"""

import datetime as dt
import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from dagster_iceberg_spark import HadoopCatalog, MaintenancePolicy, build_health_checks
from dagster_iceberg_spark.catalog.branches import change_tags
from dagster_iceberg_spark.features.maintenance import spark as maintenance
from dagster_iceberg_spark.features.maintenance.health_reports import table_files
from dagster_iceberg_spark.features.maintenance.plan.actions import ExpireSnapshots
from dagster_iceberg_spark.features.maintenance.readers import Readers
from dagster_iceberg_spark.features.maintenance.table_maintenance import Maintained, TableMaintenance, maintain_location
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.table.claims import MAINTENANCE, Claim
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.updates import SetTag
from tests.features.maintenance.maintaining import AT_ONCE, done, figures, maintain, run_job
from tests.lakes import Lake, error_of, frame_asset, hours_asset, open_lake

if TYPE_CHECKING:
    from collections.abc import Mapping

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")
APPEND = {"iceberg/write_disposition": "append"}
pytestmark = pytest.mark.spark


def events(**options: Any) -> dg.AssetsDefinition:
    metadata = {"partition_expr": "ts", **APPEND, **{f"iceberg/{key}": value for key, value in options.items()}}
    return hours_asset("events", partitions_def=DAYS, metadata=metadata)


@dg.asset(
    io_manager_key="iceberg",
    metadata=APPEND,
    ins={"events": dg.AssetIn(metadata={"iceberg/read": "changes"}, partition_mapping=dg.AllPartitionMapping())},
)
def counts(events: pa.Table) -> pl.DataFrame:
    return pl.DataFrame({"rows": [events.num_rows]})


def count(lake: Lake) -> None:
    lake.materialize(events(), counts, selection=[counts])


def test_a_table_is_compacted_and_expired_and_its_reader_goes_on(lake: Lake) -> None:
    for day in ("2013-01-01", "2013-01-01", "2013-01-02"):
        lake.materialize(events(), partition_key=day)
    count(lake)
    position = lake.head("events").snapshot_id
    for _ in range(3):
        lake.materialize(events(), partition_key="2013-01-03")
    planned = maintain(lake, events(), counts, dry_run=True)["events"]
    assert len(lake.table("events").snapshots()) == 6
    assert "iceberg/done" not in planned
    found = maintain(lake, events(), counts)
    assert figures(found["events"])["files"] == (6, 3)
    assert figures(found["events"])["manifests"] == (6, 1)
    kept = {item.data["snapshot"]: item.data["needed_by"] for item in found["events"]["iceberg/kept"]}
    assert "counts" in kept[str(position)]
    assert "continues to read changes after it" in kept[str(position)]
    assert len(lake.arrow("events")) == 6 * 24
    count(lake)
    assert lake.rows("counts", "rows") == [72, 72]


@pytest.mark.full
def test_statistics_are_computed_once_rows_have_changed(lake: Lake) -> None:
    policy = AT_ONCE.model_copy(update={"statistics": True})

    def computed() -> list[str]:
        found = maintain(lake, events(), policy=policy)["events"]
        actions = done(found) if "iceberg/done" in found else {}
        return [action for action in actions if action.startswith("compute the statistics")]

    def described() -> list[int]:
        return [item.snapshot_id for item in lake.table("events").metadata.statistics]

    for day in ("2013-01-01", "2013-01-02"):
        lake.materialize(events(partition_by=["day(ts)"]), partition_key=day)
    assert computed() == ["compute the statistics of columns and partitions"]
    assert described() == [lake.head("events").snapshot_id]
    assert lake.table("events").metadata.partition_statistics
    assert computed() == [], "no row has changed"
    lake.materialize(events(partition_by=["day(ts)"]), partition_key="2013-01-03")
    assert len(computed()) == 1
    assert lake.head("events").snapshot_id in described()
    description = lake.spark.catalog_description
    files = table_files(description, TableIdentifier(("db",), "events"))
    assert lake.head("events").snapshot_id in files.statistics


@pytest.mark.full
def test_others_that_expire_the_table_keep_what_a_reader_needs(lake: Lake) -> None:
    lake.materialize(events(), partition_key="2013-01-01")
    count(lake)
    since = lake.head("events").snapshot_id
    lake.materialize(events(), partition_key="2013-01-02")
    between = lake.head("events").snapshot_id
    lake.materialize(events(), partition_key="2013-01-03")
    maintain(lake, events(), counts)
    lake.session.sql(
        f"call {lake.spark.iceberg_session.catalog.name}.system.expire_snapshots"
        f"(`table` => 'db.events', older_than => {sql.instant(int(time.time() * 1000))}, retain_last => 1)"
    ).collect()
    count(lake)
    assert lake.rows("counts", "rows") == [24, 48]
    maintain(lake, events(), counts)
    left = {snapshot.snapshot_id for snapshot in lake.table("events").snapshots()}
    assert (between in left, since in left) == (False, True), "nobody needs the snapshots between two reads"


@pytest.mark.full
def test_the_position_of_an_asset_that_is_stored_elsewhere_is_kept(kept_lake: Lake) -> None:
    lake, seen = kept_lake, list[int]()

    @dg.asset(
        ins={
            "events": dg.AssetIn(
                metadata={"iceberg/read": "changes"},
                partition_mapping=dg.AllPartitionMapping(),
                input_manager_key="iceberg",
            )
        }
    )
    def sender(events: pa.Table) -> None:
        seen.append(events.num_rows)

    def send() -> None:
        lake.materialize(events(), sender, selection=[sender])

    def maintained() -> Maintained:
        definitions = dg.Definitions([events(), sender], resources=lake.resources)
        [found] = maintain_location(
            definitions, dry_run=False, instance=lake.instance, report=lambda _: None, policy=AT_ONCE
        )
        return found

    lake.materialize(events(), partition_key="2013-01-01")
    send()
    position = lake.head("events").snapshot_id
    for _ in range(3):
        lake.materialize(events(), partition_key="2013-01-02")
    plan = maintained().plan
    assert plan is not None
    kept = {item.snapshot_id: " ".join(item.needed_by) for item in plan.kept}
    assert "sender, run" in kept[position]
    assert "which continues to read changes after it" in kept[position]
    send()
    assert seen == [24, 72]
    maintained()
    assert position not in {snapshot.snapshot_id for snapshot in lake.table("events").snapshots()}


@pytest.mark.full
def test_the_lineage_of_expired_snapshots_is_kept_once(lake: Lake) -> None:
    runs = [lake.materialize(events(), partition_key="2013-01-01").run_id for _ in range(3)]
    for _ in range(2):
        maintain(lake, events())
    kept = lake.arrow("dagster_expired_snapshots").to_pylist()
    assert {dict(row["summary"]).get("dagster.run_id") for row in kept} <= {*runs, None}
    assert len(kept) == len({row["snapshot_id"] for row in kept}) >= 2
    assert {row["table_name"] for row in kept} == {"db.events"}


@pytest.mark.full
def test_files_of_no_snapshot_are_removed_by_the_second_run(lake: Lake) -> None:
    lake.materialize(events(), partition_key="2013-01-01")
    directory = lake.directory / "wh" / "db" / "events" / "data"
    old, young = directory / "00000-0-old.parquet", directory / "00000-0-young.parquet"
    for path in (old, young):
        path.write_bytes(b"nothing")
    os.utime(old, (1.7e9, 1.7e9))
    policy = MaintenancePolicy(compact=False)
    first = maintain(lake, events(), policy=policy)["events"]
    assert (done(first), old.exists()) == ({"look for files that belong to no snapshot": "listed files: 1"}, True)
    second = maintain(lake, events(), policy=policy)["events"]
    assert done(second) == {"look for files that belong to no snapshot": "removed files: 1"}
    assert (old.exists(), young.exists(), len(lake.arrow("events"))) == (False, True, 24)
    assert lake.arrow("dagster_orphan_files").num_rows == 0


@pytest.mark.full
def test_files_stay_where_they_may_belong_to_somebody_else(classic_lake: Lake) -> None:
    lake, asset = classic_lake, events()
    lake.materialize(asset, partition_key="2013-01-01")
    inside = {"write.data.path": f"{lake.table('events').location()}/inside"}
    lake.materialize(frame_asset("other", "select 1 as id", metadata={"iceberg/table_properties": inside}))
    for path in (lake.directory / "wh" / "db" / "events" / "inside").rglob("*.parquet"):
        os.utime(path, (1.7e9, 1.7e9))
    for dry_run in (True, False, False):
        found = maintain(lake, asset, policy=MaintenancePolicy(), dry_run=dry_run)["events"]
        assert "files that belong to no snapshot stay: the table db.other has files inside of" in found["iceberg/plan"]
    assert lake.rows("other") == [1]


@pytest.mark.full
def test_rows_are_deleted_after_their_retention_and_readers_of_changes_go_on(lake: Lake) -> None:
    days = dg.DailyPartitionsDefinition("2013-01-01")
    metadata = {"partition_expr": "ts", **APPEND, "iceberg/retain": "30 days"}
    asset = hours_asset("events", partitions_def=days, metadata=metadata)
    today = dt.datetime.now(dt.timezone.utc).date()
    kept = [str(today - dt.timedelta(days=age)) for age in (2, 29)]
    for day in ("2013-01-01", "2020-02-02", *kept):
        lake.materialize(asset, partition_key=day)
    lake.materialize(asset, counts, selection=[counts])
    found = maintain(lake, asset, policy=MaintenancePolicy(compact=False, remove_orphans=False))["events"]
    assert list(done(found).values()) == ["deleted rows: 48"]
    assert sorted({str(row.date()) for row in lake.arrow("events").column("ts").to_pylist()}) == sorted(kept)
    summary = lake.summaries("events")[-1]
    assert (summary["operation"], summary["dagster.write_disposition"]) == ("delete", "retention")
    assert summary["dagster.asset_key"] == "events"
    lake.materialize(asset, partition_key=kept[0])
    lake.materialize(asset, counts, selection=[counts])
    assert lake.rows("counts", "rows") == [24, 96]
    again = maintain(lake, asset, policy=MaintenancePolicy(compact=False, remove_orphans=False))["events"]
    assert "iceberg/done" not in again, "nothing is left to delete"


@pytest.mark.full
def test_the_rows_of_other_assets_do_not_end_with_the_retention_of_one(classic_lake: Lake) -> None:
    shared = {"partition_expr": "ts", **APPEND, "iceberg/table": "db.shared"}
    first = hours_asset("first", partitions_def=DAYS, metadata={**shared, "iceberg/retain": "30 days"})
    second = hours_asset("second", partitions_def=DAYS, metadata=shared)
    classic_lake.materialize(first, second, partition_key="2013-01-01")
    error = error_of(run_job(classic_lake, first))
    assert (error.class_name, error.allow_retries) == ("MetadataKeyError", False)
    assert "`iceberg/retain` of first: expected a table that no other asset writes" in str(error)
    assert len(classic_lake.arrow("shared")) == 48


def test_a_table_waits_while_a_run_writes_it(classic_lake: Lake) -> None:
    lake = classic_lake
    lake.materialize(events(), partition_key="2013-01-01")
    found: list[Mapping[str, Any]] = []

    @dg.asset(name="events", io_manager_key="iceberg", partitions_def=DAYS, metadata={"partition_expr": "ts", **APPEND})
    def busy() -> DataFrame:
        found.append(maintain(lake, events())["events"])
        return lake.session.sql("select timestamp_seconds(1357171200) as ts, 1 as v")

    run = lake.materialize(busy, partition_key="2013-01-03").run_id
    assert found[0]["iceberg/waits_for"] == f"the run {run} writes it"
    assert len(lake.arrow("events")) == 25


@pytest.mark.full
def test_two_runs_do_not_maintain_one_table_at_once(classic_lake: Lake) -> None:
    lake, table = classic_lake, TableIdentifier(("db",), "events")
    for _ in range(2):
        lake.materialize(events(), partition_key="2013-01-01")
    now, head = dt.datetime.now(dt.timezone.utc), lake.head("events").snapshot_id
    claims = [
        Claim(MAINTENANCE, f"run-{age}", int((now - dt.timedelta(hours=age)).timestamp() * 1000)) for age in (1, 25)
    ]
    change_tags(lake.spark.catalog_description, table, [SetTag(claims[0].tag, head, 2)])
    error = error_of(run_job(lake, events()))
    assert (error.class_name, error.allow_retries) == ("CommitConflictError", True)
    assert "expected a table that no other run maintains, found the run run-1" in str(error)
    assert len(lake.table("events").snapshots()) == 2
    lake.table("events").manage_snapshots().remove_tag(claims[0].tag).commit()
    change_tags(lake.spark.catalog_description, table, [SetTag(claims[1].tag, head, 2)])
    maintain(lake, events())
    assert list(lake.table("events").refs()) == ["main"], "an abandoned claim is dropped"


@pytest.mark.full
def test_the_health_of_a_table_is_a_check(classic_lake: Lake) -> None:
    lake, checks = classic_lake, build_health_checks([events()], policy=AT_ONCE)
    only_checks = dg.AssetSelection.checks(*checks)
    [evaluation] = lake.materialize(events(), *checks, selection=only_checks).get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.description) == (True, "The table does not exist yet.")
    for _ in range(2):
        lake.materialize(events(), partition_key="2013-01-01")
    [evaluation] = lake.materialize(events(), *checks, selection=only_checks).get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert str(evaluation.description).startswith("Needs compaction of 1 partition: ts_day=2013-01-01.")
    assert evaluation.metadata["iceberg/small_files"].value == 2
    maintain(lake, events())
    [evaluation] = lake.materialize(events(), *checks, selection=only_checks).get_asset_check_evaluations()
    assert evaluation.description == "Needs expiry of 2 of 3 snapshots, which frees 1.7 kB of data files."


def deletes_meanwhile(lake: Lake, condition: str) -> None:
    """Let another writer delete rows, by a commit that comes after the engine has written its files.

    The commit is made and taken back. A transaction of the catalog then makes it again when there is a new data file.
    """
    where, data = " where table_name = 'events'", lake.directory / "wh" / "db" / "events" / "data"
    before = lake.table("events").metadata_location
    lake.table("events").delete(condition)
    after, begun = lake.table("events").metadata_location, threading.Event()
    with sqlite3.connect(lake.directory / "catalog.db") as database:
        database.execute(f"update iceberg_tables set metadata_location = ?{where}", (before,))
    files = len([*data.rglob("*.parquet")])

    def commit() -> None:
        with closing(sqlite3.connect(lake.directory / "catalog.db", isolation_level=None)) as own:
            own.execute("begin immediate")
            own.execute(f"update iceberg_tables set metadata_location = ?{where}", (after,))
            begun.set()
            deadline = time.monotonic() + 30
            while len([*data.rglob("*.parquet")]) == files and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(0.3)
            own.execute("commit")

    threading.Thread(target=commit).start()
    assert begun.wait(30)


@pytest.mark.full
def test_an_action_that_conflicts_with_a_writer_is_skipped(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in ("2013-01-01", "2013-01-01", "2013-01-02"):
        lake.materialize(events(), partition_key=day)
    refresh = getattr(maintenance, "refresh")  # noqa: B009 - not exported

    def refreshed(session: Any, identifier: Any) -> None:
        refresh(session, identifier)
        deletes_meanwhile(lake, "ts < '2013-01-02T00:00:00+00:00'")

    monkeypatch.setattr(maintenance, "refresh", refreshed)
    found = maintain(lake, events(), policy=AT_ONCE.model_copy(update={"min_manifests": 100, "min_snapshots": 100}))[
        "events"
    ]
    [outcome] = done(found).values()
    assert outcome.startswith("skipped, and left for the next time. Cannot compact db.events: expected no other writer")
    assert len(lake.arrow("events")) == 24
    assert list(lake.table("events").refs()) == ["main"], "the claim is dropped"


@pytest.mark.full
@pytest.mark.parametrize("kind", ["hadoop", "format 3"])
def test_a_table_that_only_an_engine_can_commit_to_is_maintained(classic_lake: Lake, tmp_path: Path, kind: str) -> None:
    """pyiceberg writes neither, so Spark sets the tags."""

    def maintained(lake: Lake, asset: dg.AssetsDefinition) -> None:
        for day in ("2013-01-01", "2013-01-01", "2013-01-01"):
            lake.materialize(asset, partition_key=day)
        lake.materialize(asset, counts, selection=[counts])
        lake.materialize(asset, partition_key="2013-01-02")
        found = maintain(lake, asset, counts)["events"]
        assert figures(found)["files"] == (4, 2)
        assert [name.partition("_keep_")[0] for name in lake.table("events").refs()].count("dagster") == 2
        assert "dagster.maintained_at" in lake.table("events").properties
        lake.materialize(asset, counts, selection=[counts])
        assert lake.rows("counts", "rows") == [24, 72]

    if kind == "format 3":
        maintained(classic_lake, events(format_version=3))
        return
    for lake in open_lake(HadoopCatalog(warehouse=str(tmp_path / "hadoop")), tmp_path, None):
        maintained(lake, events())


@pytest.mark.full
@pytest.mark.parametrize("retain_last", [1, 3])
def test_a_planned_expiry_is_what_iceberg_does(classic_lake: Lake, retain_last: int) -> None:
    lake = classic_lake
    for day in range(1, 8):
        lake.materialize(events(), partition_key=f"2013-01-0{day}")
    ids = [snapshot.snapshot_id for snapshot in lake.table("events").snapshots()]
    name = f"{lake.spark.iceberg_session.catalog.name}.db.events"
    for statement in (
        f"create branch kept as of version {ids[3]} with snapshot retention 2 snapshots",
        f"create branch young as of version {ids[2]} with snapshot retention 1 days",
        f"create branch head as of version {ids[1]}",
        f"create tag tagged as of version {ids[0]}",
    ):
        lake.session.sql(f"alter table {name} {statement}")
    lake.session.sql(
        f"call {lake.spark.iceberg_session.catalog.name}.system.rollback_to_snapshot('db.events', {ids[5]})"
    )
    before = {snapshot.snapshot_id for snapshot in lake.table("events").snapshots()}
    policy = AT_ONCE.model_copy(
        update={"compact": False, "min_manifests": 100, "retain_last": retain_last, "keep_lineage": False}
    )
    run_id = "plan"
    readers = Readers(lake.spark.catalog_description, None)
    [spec] = events().specs
    planned = TableMaintenance(
        lake.io_manager, (spec,), TableIdentifier(("db",), "events"), policy, readers, run_id, print
    ).plan(dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=1))
    assert planned.plan is not None
    [action] = planned.plan.actions
    assert isinstance(action, ExpireSnapshots)
    maintain(lake, events(), policy=policy)
    left = {snapshot.snapshot_id for snapshot in lake.table("events").snapshots()}
    assert before - left == set(action.expiry.snapshots)
    assert ids[6] not in left, "no branch has it"
    assert ids[0] in left, "a tag has it"

"""Weeks of writes and reads, with maintenance every night, in minutes.

docs/maintenance.md: What it achieves
"""

import datetime as dt
import os
import random
import sys
from typing import Any, Final

import dagster as dg
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dagster_iceberg_spark import MaintenancePolicy, build_maintenance
from tests.lakes import Lake, dying, frame_asset, resuming

DAYS: Final = int(os.environ.get("MAINTENANCE_DAYS", "28"))
WRITES_OF_A_DAY: Final = 72
OWN_WRITES_OF_A_DAY: Final = 12
HOURS = dg.HourlyPartitionsDefinition("2013-01-01-00:00", end_date="2013-03-01-00:00")
APPEND = {"iceberg/write_disposition": "append"}

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3 * 3600)]

readings = frame_asset(
    "readings", "select {start} as ts, 1L as id", partitions_def=HOURS, metadata={"partition_expr": "ts", **APPEND}
)
rejected = frame_asset(
    "readings",
    "select {start} as ts, -1L as id",
    partitions_def=HOURS,
    metadata={"partition_expr": "ts", **APPEND, "iceberg/audits": {"positive": "min(id) > 0"}},
)


def reader(name: str) -> dg.AssetsDefinition:
    """Return an asset that appends the number of rows that are new in the readings."""

    @dg.asset(
        name=name,
        io_manager_key="iceberg",
        metadata=APPEND,
        ins={"readings": dg.AssetIn(metadata={"iceberg/read": "changes"}, partition_mapping=dg.AllPartitionMapping())},
    )
    def count(readings: pa.Table) -> pl.DataFrame:
        return pl.DataFrame({"rows": [readings.num_rows]})

    return count


daily, weekly, resumed = reader("daily"), reader("weekly"), reader("resumed")


def key_of(day: int, hour: int) -> str:
    return f"{dt.datetime(2013, 1, 1) + dt.timedelta(days=day, hours=hour):%Y-%m-%d-%H:%M}"  # noqa: DTZ001 - a key


def append_beside(lake: Lake, day: int, hour: int) -> None:
    """Let another engine add a row."""
    at = dt.datetime(2013, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(days=day, hours=hour)
    rows = pa.table({"ts": pa.array([at], pa.timestamp("us", "UTC")), "id": pa.array([2], pa.int64())})
    lake.table("readings").append(rows)


def maintained(lake: Lake, age: dt.timedelta) -> dict[str, Any]:
    """Maintain all tables, with snapshots of this age as the oldest that everybody keeps."""
    at_once = dt.timedelta(0)
    policy = MaintenancePolicy(
        min_input_files=2, settle=at_once, older_than=age, replayable_for=age, resumable_for=age, remove_orphans=False
    )
    assets = [readings, daily, weekly, resumed]
    built = build_maintenance(assets, policy=policy)
    definitions = dg.Definitions(assets, jobs=[built.job], resources=lake.resources)
    result = definitions.resolve_job_def("iceberg_maintenance").execute_in_process(instance=lake.instance)
    events = [item.asset_observation_data.asset_observation for item in result.get_asset_observation_events()]
    return {event.asset_key.path[-1]: event.metadata for event in events}


def die(lake: Lake, monkeypatch: pytest.MonkeyPatch, *, after_commit: bool) -> str:
    """Let a run of the reader `resumed` die before or after its commit, and return its id."""
    with dying(monkeypatch, after_commit=after_commit):
        result = lake.materialize(readings, resumed, selection=[resumed], raise_on_error=False)
    assert not result.success
    return result.run_id


@pytest.mark.parametrize("engine", ["classic"], indirect=True, scope="session")
def test_weeks_of_writes_with_maintenance_every_night(
    kept_lake: Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, chance, written = kept_lake, random.Random(7), 0
    began, dead = list[dt.datetime](), list[str]()
    for day in range(DAYS):
        began.append(dt.datetime.now(dt.timezone.utc))
        own = set(chance.sample(range(WRITES_OF_A_DAY), OWN_WRITES_OF_A_DAY)) | ({0} if day == 0 else set())
        for number in range(WRITES_OF_A_DAY):
            hour = number * 24 // WRITES_OF_A_DAY
            if number in own:
                lake.materialize(readings, partition_key=key_of(day, hour))
            else:
                append_beside(lake, day, hour)
            written += 1
        if day == 2:
            lake.failure(rejected, partition_key=key_of(day, 0))
        lake.materialize(readings, daily, selection=[daily])
        if dead:
            lake.materialize(readings, resumed, selection=[resumed], tags=resuming(dead.pop()))
        elif day % 2 == 0:
            dead.append(die(lake, monkeypatch, after_commit=day % 4 == 0))
        if day % 7 == 6:
            lake.materialize(readings, weekly, selection=[weekly])
        oldest = began[max(day - 6, 0)]
        maintained(lake, dt.datetime.now(dt.timezone.utc) - oldest)
        table = lake.table("readings")
        files = sum(1 for _ in table.scan().plan_files())
        size = len(table.io.new_input(table.metadata_location)) // 1000
        with capsys.disabled():
            sys.stdout.write(
                f"\nday {day + 1}: {written} writes, {len(table.snapshots())} snapshots, {files} files, "
                f"{len(table.refs())} refs, {size} kB of metadata"
            )
        assert len(table.snapshots()) < 9 * (WRITES_OF_A_DAY + 5)
        assert files < 24 * (day + 2)
    assert len(lake.arrow("readings")) == written
    lake.materialize(readings, resumed, selection=[resumed])
    for name in ("daily", "weekly", "resumed"):
        assert sum(lake.rows(name, "rows")) == written, "each row was read once"
    staged = [ref for ref in lake.table("readings").refs() if ref.startswith("dagster_") and "keep" not in ref]
    assert len(staged) == 1, "the rejected rows wait for somebody to look at them"
    kept = lake.arrow("dagster_expired_snapshots")
    expired = kept.filter(pc.equal(kept["table_name"], "db.readings"))
    seen = {*expired["snapshot_id"].to_pylist(), *(item.snapshot_id for item in lake.table("readings").snapshots())}
    assert len(seen) >= written, "every snapshot is known, although most have expired"

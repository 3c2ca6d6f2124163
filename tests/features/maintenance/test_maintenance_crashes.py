"""Maintenance is killed in the middle of each action: the table is whole, and the next run finishes.

docs/maintenance.md: What is done, and when
"""

import os
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pyarrow.compute as pc
import pytest

from tests.core.behaviour.crashing import Crash
from tests.core.behaviour.test_crashes import crash, report_dead_run, run_in_child
from tests.features.maintenance import crashing_maintenance
from tests.features.maintenance.crashing_maintenance import ACTIONS, events, maintain

__all__ = ["crash"]
pytestmark = [pytest.mark.spark, pytest.mark.full]
POINTS = [
    "while files are compacted",
    "while manifests are rewritten",
    "after the summaries are kept",
    "after orphans are removed",
    "after the tags",
]
BESIDE_ACTIONS = [f"{when} {action}" for action in ACTIONS for when in ("before", "after")]
"""Left to the long tests."""
RETAINED = {"2024-01-01": 72, "2024-01-02": 9_998}


def prepare(crash: Crash) -> None:
    """Write a table that needs each action: small files, delete files, rows that are too old, and an orphan."""
    resources, days = crash.resources(), ["2013-01-01", *["2024-01-01"] * 3]
    with dg.DagsterInstance.ephemeral() as instance:
        for day in days:
            assert dg.materialize([events], resources=resources, instance=instance, partition_key=day).success
    spark = resources["spark"]
    name = f"{spark.iceberg_session.catalog.name}.db.events"
    for first in (0, 5_000):  # files that are large enough
        spark.spark_session.sql(
            f"insert into {name} select /*+ coalesce(1) */ timestamp '2024-01-02 00:00:00 UTC' + "
            f"make_dt_interval(0, 0, 0, id), cast(id as int) from range({first}, {first + 5_000})"
        )
        spark.spark_session.sql(
            f"delete from {name} where v = {first + 7} and ts > timestamp '2024-01-02 00:00:00 UTC'"
        )
    orphan = orphan_of(crash)
    orphan.write_bytes(b"nothing")
    os.utime(orphan, (1.7e9, 1.7e9))


def orphan_of(crash: Crash) -> Path:
    return Path(crash.directory, "wh", "db", "events", "data", "00000-0-orphan.parquet")


def rows_of_days(crash: Crash) -> dict[str, int]:
    table = crash.resources()["spark"].pyiceberg_catalog.load_table(("db", "events"))
    days = pc.strftime(table.scan().to_arrow().column("ts"), "%Y-%m-%d")
    return {str(item["values"]): int(item["counts"].as_py()) for item in pc.value_counts(days)}


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("engine", "point"),
    [
        *(("classic", point) for point in POINTS),
        *(pytest.param("classic", point, marks=pytest.mark.slow) for point in BESIDE_ACTIONS),
        *(pytest.param("connect", point, marks=pytest.mark.connect) for point in POINTS[:1]),
    ],
    indirect=["engine"],
)
def test_a_killed_maintenance_leaves_the_table_whole_and_the_next_one_finishes(crash: Crash, point: str) -> None:
    prepare(crash)
    if point == "after orphans are removed":
        assert maintain(crash), "it lists the orphan"
    run_in_child(replace(crash, point=point), crashing_maintenance.__name__)
    assert crash.mark.exists(), "it has not come to this point"
    found = rows_of_days(crash)
    assert found in ({**RETAINED, "2013-01-01": 24}, RETAINED)
    report_dead_run(crash)
    for _ in range(2):  # the second removes what the first has listed
        assert maintain(crash)
    assert rows_of_days(crash) == RETAINED
    catalog = crash.resources()["spark"].pyiceberg_catalog
    table = catalog.load_table(("db", "events"))
    tasks = [*table.scan().plan_files()]
    assert len(tasks) == 3
    assert len({file.file_path for task in tasks for file in task.delete_files}) == 1
    assert not [ref for ref in table.refs() if ref.startswith("dagster_maintenance")]
    assert not orphan_of(crash).exists()
    expired = catalog.load_table(("db", "dagster_expired_snapshots")).scan().to_arrow().column("snapshot_id")
    assert len(expired) == len(set(expired.to_pylist())) >= 5
    assert not {snapshot.snapshot_id for snapshot in table.snapshots()} & set(expired.to_pylist())

"""What the figures of a table call for.

docs/maintenance.md: Health; What is done, and when
"""

import datetime as dt
from dataclasses import replace

import pytest

from dagster_iceberg_spark.features.maintenance.options import MaintenancePolicy
from dagster_iceberg_spark.features.maintenance.plan.actions import (
    Compact,
    ExpireSnapshots,
    OrphanGuards,
    RemoveOrphans,
    RewritePositionDeletes,
    plan_maintenance,
)
from dagster_iceberg_spark.features.maintenance.plan.health import (
    DEFAULT_TARGET_BYTES,
    PartitionFiles,
    TableFiles,
    compactable_partitions,
    milliseconds,
    readable_bytes,
    table_health,
)
from dagster_iceberg_spark.table.partitioning import SortField
from dagster_iceberg_spark.table.snapshot import TableState
from tests.core.table.samples import chain, snapshot, spec, table, utc, wall

NOW = utc(2026, 11, 26, 12)
MB = 1024 * 1024
POLICY = MaintenancePolicy(remove_orphans=False)
STATE = table(snapshots=chain(snapshot(1), snapshot(2), snapshot(3, operation="replace")), specs=[spec("day(ts)")])


def partition(day: int = 1, *, files: int = 5, size: int = MB, newest: int = 2, **more: int) -> PartitionFiles:
    start = wall(2026, 11, day)
    return PartitionFiles(
        partition=f"ts_day=2026-11-{day:02}",
        spec_id=0,
        sizes=(size,) * files,
        rows=100,
        delete_files=more.get("delete_files", 0),
        deleted_rows=more.get("deleted_rows", 0),
        position_deletes=more.get("delete_files", 0),
        newest_snapshot=newest,
        start=start,
        end=start + dt.timedelta(days=1),
    )


@pytest.mark.parametrize(
    ("files", "is_due"),
    [
        (partition(), True),
        (partition(files=4), False),
        (partition(size=400 * MB), False),
        (partition(size=383 * MB), True),
        (partition(newest=3), False),
        (partition(newest=9), True),
        (partition(day=24), True),
        (partition(day=25), False),
        (partition(files=1, delete_files=1, deleted_rows=30), True),
        (partition(files=1, delete_files=1, deleted_rows=29), False),
    ],
    ids=[
        "five small files",
        "four",
        "large files",
        "files below three quarters of the target",
        "compacted, and not written since",
        "written by a snapshot that has expired",
        "its day ended more than a day ago",
        "its day ended half a day ago",
        "many deleted rows",
        "few deleted rows",
    ],
)
def test_closed_partitions_with_small_files_or_deletes_are_compacted(files: PartitionFiles, is_due: bool) -> None:
    assert bool(compactable_partitions(STATE, TableFiles((files,)), POLICY, NOW)) is is_due


def actions(state: TableState, *files: PartitionFiles, policy: MaintenancePolicy = POLICY) -> list[object]:
    return list(plan_maintenance(state, TableFiles(files), [], policy, NOW).actions)


def test_the_window_of_the_compactable_partitions_is_compacted() -> None:
    [action] = actions(STATE, partition(3), partition(1), partition(26), partition(20, files=1))
    assert isinstance(action, Compact)
    assert (action.start, action.end, action.strategy) == (wall(2026, 11, 1), wall(2026, 11, 4), "binpack")
    assert str(action) == "compact ts_day=2026-11-03, ts_day=2026-11-01"


def test_a_table_without_time_partitions_is_compacted_as_a_whole() -> None:
    whole = replace(partition(), partition="", start=None, end=None)
    [action] = actions(replace(STATE, sort_order=(SortField("ts"),)), whole)
    assert isinstance(action, Compact)
    assert (action.field, action.strategy, str(action)) == (None, "sort", "compact the whole table, sorted")
    [action] = actions(STATE, whole, policy=POLICY.model_copy(update={"zorder_by": ("a", "b")}))
    assert str(action) == "compact the whole table, by the z-order of a, b"


def test_position_deletes_are_rewritten_where_the_data_files_stay() -> None:
    many = partition(files=1, delete_files=6, deleted_rows=6)
    assert actions(STATE, many) == [RewritePositionDeletes(6, POLICY.min_input_files)]
    assert actions(STATE, partition(delete_files=6, deleted_rows=60))[1:] == []


def test_a_rewrite_that_leaves_as_many_delete_files_is_not_repeated() -> None:
    """By default, the engine writes a delete file for each data file."""
    large = replace(partition(files=6, delete_files=6, deleted_rows=6), sizes=(DEFAULT_TARGET_BYTES,) * 6)
    assert actions(STATE, large) == []
    by_partition = replace(STATE, properties={"write.delete.granularity": "partition"})
    assert actions(by_partition, large) == [RewritePositionDeletes(6, POLICY.min_input_files)]


def test_few_snapshots_are_not_expired() -> None:
    line = chain(*map(snapshot, range(1, 20)))
    assert actions(table(snapshots=line)) == []
    line = chain(*map(snapshot, range(1, 21)))
    [action] = actions(table(snapshots=line))
    assert isinstance(action, ExpireSnapshots)
    assert action.expiry.snapshots == tuple(range(1, 11))
    assert str(action) == "expire 10 snapshots"


def test_a_table_whose_files_must_not_be_deleted_keeps_its_snapshots() -> None:
    state = table(snapshots=chain(*map(snapshot, range(1, 31))), properties={"gc.enabled": "false"})
    plan = plan_maintenance(state, TableFiles(), [], POLICY, NOW)
    assert (plan.actions, plan.notes) == ((), ("all snapshots stay: the table has `gc.enabled` = `false`",))


def test_every_old_snapshot_that_stays_says_who_needs_it() -> None:
    line = chain(*map(snapshot, range(1, 31)))
    state = table(snapshots=line, refs={"main": 30, "tagged": 3, "dagster_0123456789abcdef": 4}, branches=["main"])
    state = replace(state, branches=frozenset({"main", "dagster_0123456789abcdef"}))
    kept = {item.snapshot_id: item.needed_by for item in plan_maintenance(state, TableFiles(), [], POLICY, NOW).kept}
    assert kept[3] == ("the tag 'tagged'", "one of the newest snapshots of the branch 'dagster_0123456789abcdef'")
    assert kept[4][0] == "the staged branch 'dagster_0123456789abcdef'"
    assert kept[30] == ("one of the newest snapshots of `main`",)
    assert sorted(kept) == [1, 2, 3, 4, *range(21, 31)]


def test_the_health_of_a_table_names_what_it_needs() -> None:
    line = chain(*(replace(snapshot(number), summary={"removed-files-size": "1000"}) for number in range(1, 31)))
    state = table(snapshots=line, refs={"main": 30, "old": 5}, specs=[spec("day(ts)")])
    files = TableFiles((partition(1), partition(2)), manifests=(1000,) * 20, metadata_bytes=5000)
    health = table_health(state, files, POLICY, NOW)
    assert health.needs == (
        "compaction of 2 partitions: ts_day=2026-11-01, ts_day=2026-11-02",
        "fewer manifests: 20 of 1.0 kB on average",
        "expiry of 19 of 30 snapshots, which frees 4.0 kB of data files",
    )
    [ref] = health.refs
    assert (ref.name, ref.kind, ref.snapshots, ref.bytes) == ("old", "tag", 1, 16_000)
    figures = health.figures()
    assert (figures["files"], figures["small_files"], figures["median_file_bytes"]) == (10, 10, MB)
    assert table_health(STATE, TableFiles(), POLICY, NOW).is_healthy


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (150_000, "150 kB"), (2.4e9, "2.4 GB"), (3e12, "3.0 TB")],
)
def test_sizes_are_readable(size: float, text: str) -> None:
    assert readable_bytes(size) == text


def test_files_that_are_younger_than_a_run_in_progress_are_no_orphans() -> None:
    def older_than(run: dt.datetime | None) -> int:
        guards = OrphanGuards(run_ms=None if run is None else milliseconds(run))
        plan = plan_maintenance(table(), TableFiles(), [], MaintenancePolicy(), NOW, orphan_guards=guards)
        [action] = [item for item in plan.actions if isinstance(item, RemoveOrphans)]
        return action.older_than_ms

    day = dt.timedelta(days=1)
    assert older_than(None) == older_than(NOW - day) == milliseconds(NOW - 3 * day)
    assert older_than(NOW - 5 * day) == milliseconds(NOW - 5 * day)

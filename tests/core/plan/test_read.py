"""What an input reads: one snapshot, some rows, some columns."""

import datetime as dt
import re
from dataclasses import replace

import pytest

from dagster_iceberg_spark.errors import MetadataKeyError, PartitioningError, UpstreamMissingError
from dagster_iceberg_spark.plan.read.read_options import ReadOptions
from dagster_iceberg_spark.plan.read.read_plan import by_partition, plan_read, reads_everything
from dagster_iceberg_spark.table.predicate import EVERY_ROW
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState
from tests.core.table.evaluator import matches
from tests.core.table.samples import chain, daily, schema, snapshot, table, utc

OLD, NEW = schema(ts="timestamptz", carrier="string"), schema(ts="timestamptz", carrier="string", Delay="int")
WHOLE = PartitionScope()


def seconds(number: float) -> dt.datetime:
    return utc(1970, 1, 1) + dt.timedelta(seconds=number)


def history() -> TableState:
    """Return a table with the snapshots 10, 20 and 30, committed at these seconds. Snapshot 10 lacks a column."""
    items = chain(
        *(Snapshot(number, None, number * 1000, "append", {}, schema_id=int(number > 10)) for number in (10, 20, 30))
    )
    audit = snapshot(25, parent=20)
    refs = {"main": 30, "audit": 25, "v1": 10}
    return table(NEW, snapshots=(*items, audit), refs=refs, branches=("main", "audit"), schemas={0: OLD, 1: NEW})


@pytest.mark.parametrize(
    ("options", "snapshot_id"),
    [
        (ReadOptions(), 30),
        (ReadOptions(snapshot_id=10), 10),
        (ReadOptions(snapshot_id=25), 25),
        (ReadOptions(ref="audit"), 25),
        (ReadOptions(ref="v1"), 10),
        (ReadOptions(as_of_release="v1"), 10),
        (ReadOptions(as_of=seconds(10)), 10),
        (ReadOptions(as_of=seconds(19.999)), 10),
        (ReadOptions(as_of=seconds(20)), 20),
        (ReadOptions(as_of=seconds(99)), 30),
        (ReadOptions(as_of=seconds(99), ref="audit"), 25),
        (ReadOptions(as_of=seconds(24), ref="audit"), 20),
    ],
)
def test_an_input_is_pinned_to_the_requested_snapshot(options: ReadOptions, snapshot_id: int) -> None:
    assert plan_read(history(), WHOLE, options).snapshot_id == snapshot_id


@pytest.mark.parametrize(
    ("log", "second", "snapshot_id"),
    [
        ([(10, 10), (40, 30)], 39.999, 10),  # 20 and 30 were staged on a branch, and published at 40
        ([(10, 10), (40, 30)], 40, 30),
        ([(10, 10), (20, 20), (30, 30), (40, 10)], 35, 30),  # rolled back at 40
        ([(10, 10), (20, 20), (30, 30), (40, 10)], 40, 10),
        ([(10, 10), (20, 20), (30, 30), (40, 10), (50, 20)], 45, 10),  # and brought back at 50
        ([(10, 10), (21, 30), (20, 20)], 22, 20),  # committed by a slow clock
        ([(30, 30)], 30, 30),
    ],
)
def test_as_of_reads_what_main_showed_at_that_time(
    log: list[tuple[float, int]], second: float, snapshot_id: int
) -> None:
    state = replace(history(), snapshot_log=tuple((int(at * 1000), number) for at, number in log))
    assert plan_read(state, WHOLE, ReadOptions(as_of=seconds(second))).snapshot_id == snapshot_id
    assert plan_read(state, WHOLE, ReadOptions(as_of=seconds(second), ref="main")).snapshot_id == snapshot_id


@pytest.mark.parametrize(
    ("log", "second"),
    [
        ([(30, 30)], 29.999),  # the log starts later
        ([(10, 10), (15, 15), (20, 20)], 19),  # 15 has expired
        ([(5, 25), (10, 10), (20, 20)], 9),  # the log has lost the entries between 25 and 10
    ],
)
def test_as_of_refuses_a_snapshot_that_has_expired(log: list[tuple[int, int]], second: float) -> None:
    state = replace(history(), snapshot_log=tuple((at * 1000, number) for at, number in log))
    with pytest.raises(UpstreamMissingError, match="expected the snapshot that 'main' had at 1970-01-01T00:00:"):
        plan_read(state, WHOLE, ReadOptions(as_of=seconds(second)))


def test_as_of_finds_snapshots_to_the_millisecond() -> None:
    items = chain(*(Snapshot(number, None, 1_700_000_000_000 + number, "append", {}) for number in range(1000)))
    state = table(NEW, snapshots=items, snapshot_log=[(item.committed_at_ms, item.snapshot_id) for item in items])
    found = [
        plan_read(
            state, WHOLE, ReadOptions(as_of=seconds(1_700_000_000) + dt.timedelta(milliseconds=number))
        ).snapshot_id
        for number in range(1000)
    ]
    assert found == list(range(1000))


def test_the_time_zone_of_as_of_does_not_matter() -> None:
    tokyo = seconds(20).astimezone(dt.timezone(dt.timedelta(hours=9)))
    assert plan_read(history(), WHOLE, ReadOptions(as_of=tokyo)).snapshot_id == 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ReadOptions(snapshot_id=99), "expected the snapshot 99, found 4 other snapshots. Hint: it may have expired"),
        (ReadOptions(as_of_release="audit"), "expected the tag of the release 'audit', found the tags v1."),
        (ReadOptions(ref="gone"), "expected a branch or tag 'gone', found the refs audit, main, v1."),
        (ReadOptions(as_of=seconds(9.999)), "expected the snapshot that 'main' had at 1970-01-01T00:00:09.999"),
        (
            ReadOptions(columns=("ts", "no", "nor")),
            "expected the columns no, nor of `columns`, found the columns ts, carrier, Delay.",
        ),
    ],
)
def test_a_missing_table_must_be_materialized_first(options: ReadOptions, message: str) -> None:
    with pytest.raises(UpstreamMissingError, match=re.escape(f"Cannot read nyc.flights: {message}")):
        plan_read(history(), WHOLE, options)


def test_a_table_without_snapshots_has_columns_and_no_rows() -> None:
    plan = plan_read(table(NEW), WHOLE, ReadOptions())
    assert (plan.snapshot_id, plan.columns) == (None, NEW.names)
    assert plan_read(table(NEW), WHOLE, ReadOptions(ref="main")).snapshot_id is None
    with pytest.raises(UpstreamMissingError, match="the refs none"):
        plan_read(table(NEW), WHOLE, ReadOptions(ref="audit"))


def test_columns_are_read_in_the_requested_order_with_the_table_s_names() -> None:
    plan = plan_read(history(), WHOLE, ReadOptions(columns=("DELAY", "ts")))
    assert (plan.columns, plan.is_whole_row) == (("Delay", "ts"), False)
    assert plan_read(history(), WHOLE, ReadOptions()).is_whole_row


def test_an_old_snapshot_has_its_old_columns() -> None:
    plan = plan_read(history(), WHOLE, ReadOptions(snapshot_id=10))
    assert (plan.columns, plan.schema) == (OLD.names, OLD)
    assert plan_read(history(), WHOLE, ReadOptions()).columns == NEW.names


@pytest.mark.parametrize("columns", [("Delay", "Delay"), ("ts", "Delay", "TS")])
def test_a_column_may_be_requested_only_once(columns: tuple[str, ...]) -> None:
    with pytest.raises(MetadataKeyError, match=r"Cannot use `columns` of .*: expected each column once, found"):
        plan_read(history(), WHOLE, ReadOptions(columns=columns))


def test_only_rows_of_the_requested_partitions_are_read() -> None:
    plan = plan_read(history(), daily("2024-01-02"), ReadOptions())
    assert [matches(plan.predicate, {"ts": ts}) for ts in (utc(2024, 1, 2), utc(2024, 1, 3))] == [True, False]
    assert not reads_everything(plan)
    assert plan_read(history(), WHOLE, ReadOptions()).predicate == EVERY_ROW
    assert reads_everything(plan_read(history(), WHOLE, ReadOptions()))


def test_the_snapshot_must_have_the_partition_column() -> None:
    with pytest.raises(PartitioningError, match="expected the column 'Delay'"):
        plan_read(history(), daily("2024-01-02", column="Delay"), ReadOptions(snapshot_id=10))


def test_partitions_are_found_by_the_column_s_name_in_the_snapshot() -> None:
    before = NEW.like(replace(field, field_id=number) for number, field in enumerate(NEW, start=1))
    now = NEW.like(replace(field, name={"ts": "at", "carrier": "ts"}.get(field.name, field.name)) for field in before)
    state = replace(history(), schema=now, schemas={0: before, 1: now})
    scope = daily("2024-01-02", column="at")
    for snapshot_id, name in {10: "ts", 20: "at"}.items():
        plan = plan_read(state, scope, ReadOptions(snapshot_id=snapshot_id))
        assert [matches(plan.predicate, {name: ts}) for ts in (utc(2024, 1, 2), utc(2024, 1, 3))] == [True, False]
        assert [each.scope.columns for each in by_partition(state, plan, scope).values()] == [(name,)]

"""What an input reads: one snapshot, some rows, some columns."""

import datetime as dt
import re

import pytest

from dagster_iceberg_spark.errors import PartitioningError, UpstreamMissingError
from dagster_iceberg_spark.plan.read import plan_read, reads_everything
from dagster_iceberg_spark.plan.read_options import ReadOptions
from dagster_iceberg_spark.table.predicate import EVERY_ROW
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState
from tests.table.evaluator import matches
from tests.table.samples import chain, daily, schema, snapshot, table, utc

OLD, NEW = schema(ts="timestamptz", carrier="string"), schema(ts="timestamptz", carrier="string", Delay="int")
WHOLE = PartitionScope()


def seconds(number: float) -> dt.datetime:
    return utc(1970, 1, 1) + dt.timedelta(seconds=number)


def history() -> TableState:
    """Return a table of the snapshots 10, 20 and 30, committed at as many seconds; 10 had a column less."""
    items = chain(
        *(Snapshot(number, None, number * 1000, "append", {}, schema_id=int(number > 10)) for number in (10, 20, 30))
    )
    audit = snapshot(25, parent=20)
    return table(NEW, snapshots=(*items, audit), refs={"main": 30, "audit": 25, "v1": 10}, schemas={0: OLD, 1: NEW})


@pytest.mark.parametrize(
    ("options", "snapshot_id"),
    [
        (ReadOptions(), 30),
        (ReadOptions(snapshot_id=10), 10),
        (ReadOptions(snapshot_id=25), 25),
        (ReadOptions(ref="audit"), 25),
        (ReadOptions(ref="v1"), 10),
        (ReadOptions(as_of=seconds(10)), 10),
        (ReadOptions(as_of=seconds(19.999)), 10),
        (ReadOptions(as_of=seconds(20)), 20),
        (ReadOptions(as_of=seconds(99)), 30),
        (ReadOptions(as_of=seconds(99), ref="audit"), 25),
        (ReadOptions(as_of=seconds(24), ref="audit"), 20),
    ],
)
def test_an_input_is_pinned_to_the_snapshot_that_it_asks_for(options: ReadOptions, snapshot_id: int) -> None:
    assert plan_read(history(), WHOLE, options).snapshot_id == snapshot_id


def test_the_zone_of_an_instant_does_not_matter() -> None:
    tokyo = seconds(20).astimezone(dt.timezone(dt.timedelta(hours=9)))
    assert plan_read(history(), WHOLE, ReadOptions(as_of=tokyo)).snapshot_id == 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ReadOptions(snapshot_id=99), "expected the snapshot 99, found 4 other snapshots. Hint: it may have expired"),
        (ReadOptions(ref="gone"), "expected a branch or tag 'gone', found the refs audit, main, v1."),
        (ReadOptions(as_of=seconds(9.999)), "expected a snapshot of 'main' not younger than 1970-01-01T00:00:09.999"),
        (
            ReadOptions(columns=("ts", "no", "nor")),
            "expected the columns no, nor of `columns`, found the columns ts, carrier, Delay.",
        ),
    ],
)
def test_what_is_not_there_has_to_be_materialized_first(options: ReadOptions, message: str) -> None:
    with pytest.raises(UpstreamMissingError, match=re.escape(f"Cannot read nyc.flights: {message}")):
        plan_read(history(), WHOLE, options)


def test_a_table_without_snapshots_has_columns_and_no_rows() -> None:
    plan = plan_read(table(NEW), WHOLE, ReadOptions())
    assert (plan.snapshot_id, plan.columns) == (None, NEW.names)
    assert plan_read(table(NEW), WHOLE, ReadOptions(ref="main")).snapshot_id is None
    with pytest.raises(UpstreamMissingError, match="the refs none"):
        plan_read(table(NEW), WHOLE, ReadOptions(ref="audit"))


def test_columns_are_read_in_the_order_that_is_asked_by_the_tables_names() -> None:
    plan = plan_read(history(), WHOLE, ReadOptions(columns=("DELAY", "ts")))
    assert (plan.columns, plan.is_whole_row) == (("Delay", "ts"), False)
    assert plan_read(history(), WHOLE, ReadOptions()).is_whole_row


def test_an_old_snapshot_has_the_columns_that_it_had() -> None:
    plan = plan_read(history(), WHOLE, ReadOptions(snapshot_id=10))
    assert (plan.columns, plan.schema) == (OLD.names, OLD)
    assert plan_read(history(), WHOLE, ReadOptions()).columns == NEW.names


def test_only_the_rows_of_the_partitions_are_read() -> None:
    plan = plan_read(history(), daily("2024-01-02"), ReadOptions())
    assert [matches(plan.predicate, {"ts": ts}) for ts in (utc(2024, 1, 2), utc(2024, 1, 3))] == [True, False]
    assert not reads_everything(plan)
    assert plan_read(history(), WHOLE, ReadOptions()).predicate == EVERY_ROW
    assert reads_everything(plan_read(history(), WHOLE, ReadOptions()))


def test_partitions_need_their_column_in_the_snapshot_that_is_read() -> None:
    with pytest.raises(PartitioningError, match="expected the column 'Delay'"):
        plan_read(history(), daily("2024-01-02", column="Delay"), ReadOptions(snapshot_id=10))

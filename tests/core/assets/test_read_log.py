"""What a run's event log tells of the reads of its steps, to later runs."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark.assets.asking import input_facts
from dagster_iceberg_spark.assets.loading import unrecorded_partitions
from dagster_iceberg_spark.assets.read_log import reads_of_run, record_read, recorded_read
from dagster_iceberg_spark.assets.read_requests import ReadRequest, read_request
from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.plan.read.incremental import Changes

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-01-06")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


class Loads(dg.IOManager):
    """Calls a function with the context of the input."""

    def __init__(self, loads: Callable[[dg.InputContext], Any]) -> None:
        self.loads = loads

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Store nothing."""

    def load_input(self, context: dg.InputContext) -> Any:
        return self.loads(context)


@dg.asset(io_manager_key="iceberg", metadata={"iceberg/table": "db.up"})
def up() -> int:
    return 1


@dg.asset
def down(up: Any) -> None: ...


def requested(context: dg.InputContext) -> ReadRequest:
    return read_request(input_facts(context), namespace="db")


def run(instance: dg.DagsterInstance, loads: Callable[[dg.InputContext], Any], *assets: Any, **of: Any) -> str:
    chosen = assets or (up, down)
    return dg.materialize(chosen, instance=instance, resources={"iceberg": Loads(loads)}, **of).run_id


def records(snapshot_id: int | None, changes: Changes | None = None) -> Callable[[dg.InputContext], None]:
    def load(context: dg.InputContext) -> None:
        read = requested(context).upstream_read
        record_read(context, replace(read, snapshot_id=snapshot_id, asked_at=7.5), changes)

    return load


def test_a_read_is_found_as_it_was_recorded(instance: dg.DagsterInstance) -> None:
    earlier = run(instance, records(3))
    found: list[Any] = []
    run(instance, lambda context: found.append(recorded_read(context, requested(context), earlier)))
    [read] = found
    assert read is not None
    assert (read.asset_key, read.table, read.input_name) == ("up", "db.up", "up")
    assert (read.snapshot_id, read.kind, read.since, read.asked_at) == (3, None, None, 7.5)


def test_a_read_of_changes_has_its_range(instance: dg.DagsterInstance) -> None:
    earlier = run(instance, records(3, Changes("changes", 1, (2, 3), scan="appends")))
    found: list[Any] = []

    def load(context: dg.InputContext) -> None:
        found.extend(reads_of_run(context, requested(context), earlier, step_key=None))

    run(instance, load)
    assert [(read.since, read.snapshot_id) for read in found] == [(1, 3)]


def test_a_read_by_another_step_is_another_read(instance: dg.DagsterInstance) -> None:
    @dg.asset
    def other(up: Any) -> None: ...

    earlier = run(instance, records(3), up, other)
    found: list[Any] = []
    run(instance, lambda context: found.append(recorded_read(context, requested(context), earlier)))
    assert found == [None]


def test_a_script_has_no_earlier_run() -> None:
    context = dg.build_input_context(asset_key=dg.AssetKey("up"), dagster_type=dg.PythonObjectDagsterType(int))
    record_read(context, requested(context).upstream_read, None)
    with pytest.raises(MetadataKeyError, match="expected an input of a run's step, found an input of a script"):
        recorded_read(context, requested(context), "earlier")


@pytest.mark.parametrize(
    ("snapshot_id", "changes", "told"),
    [
        (3, None, "Reading db.up at snapshot 3."),
        (None, None, "Reading db.up at its beginning."),
        (3, Changes("changes", None), "Reading all rows of db.up at snapshot 3, all of which are new."),
        (
            3,
            Changes("changes", None, is_repeated=True),
            "Reading all rows of db.up at snapshot 3, because the changes cannot be determined.",
        ),
        (3, Changes("changes", 3), "Reading no rows of db.up, which has not changed since snapshot 3."),
        (
            3,
            Changes("changes", 1, (2, 3)),
            "Reading the rows added to db.up after snapshot 1 up to snapshot 3, in 2 commits.",
        ),
        (
            3,
            Changes("changelog", 2, (3,)),
            "Reading the changes of db.up after snapshot 2 up to snapshot 3, in 1 commit.",
        ),
    ],
)
def test_the_run_tells_what_it_reads(
    instance: dg.DagsterInstance, snapshot_id: int | None, changes: Changes | None, told: str
) -> None:
    run_id = run(instance, records(snapshot_id, changes))
    events = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT).records
    assert told in [event.event_log_entry.message for event in events]


@dg.asset(io_manager_key="iceberg", partitions_def=DAYS, metadata={"iceberg/table": "db.daily", "partition_expr": "ts"})
def daily() -> int:
    return 1


def missing(instance: dg.DagsterInstance, *, key: str, metadata: Any = None, start: int = -1) -> frozenset[str]:
    mapping = dg.TimeWindowPartitionMapping(start_offset=start)
    found: list[frozenset[str]] = []

    @dg.asset(partitions_def=DAYS, ins={"daily": dg.AssetIn(partition_mapping=mapping, metadata=metadata)})
    def next_day(daily: Any) -> None: ...

    def load(context: dg.InputContext) -> None:
        found.append(unrecorded_partitions(context, requested(context)))

    selected = dg.AssetSelection.assets(next_day)
    run(instance, load, daily, next_day, partition_key=key, selection=selected)
    return found[0]


def test_partitions_that_dagster_has_no_record_of_are_named(instance: dg.DagsterInstance) -> None:
    run(instance, lambda _: None, daily, partition_key="2013-01-02")
    assert missing(instance, key="2013-01-03") == {"2013-01-03"}


def test_no_partition_is_missing_from_a_read_of_another_time(instance: dg.DagsterInstance) -> None:
    assert missing(instance, key="2013-01-03", metadata={"iceberg/ref": "v1"}) == frozenset()


def test_no_partition_is_missing_from_a_read_of_all(instance: dg.DagsterInstance) -> None:
    assert missing(instance, key="2013-01-05", start=-4) == frozenset()

"""How far an asset of another IO manager has read an input, by Dagster's event log."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark.assets.asking import input_facts
from dagster_iceberg_spark.assets.read_log import record_read
from dagster_iceberg_spark.assets.read_position import StepOutput, read_position, step_outputs
from dagster_iceberg_spark.assets.read_requests import read_request
from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.plan.read.incremental import Changes, Position
from tests.core.table.samples import chain, snapshot, table

UPSTREAM = table(snapshots=chain(*map(snapshot, range(1, 6))))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


class Reads(dg.IOManager):
    """Finds the position of the input, and records a read up to a snapshot."""

    def __init__(self, snapshot_id: int | None, changes: Changes | None) -> None:
        self.snapshot_id, self.changes = snapshot_id, changes
        self.positions: list[Position] = []
        self.outputs: list[StepOutput] = []

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Store nothing."""

    def load_input(self, context: dg.InputContext) -> None:
        request = read_request(input_facts(context), namespace="db")
        self.outputs = step_outputs(context, request)
        self.positions.append(read_position(context, request, self.outputs, lambda: UPSTREAM))
        read = replace(request.upstream_read, snapshot_id=self.snapshot_id, asked_at=time.time())
        record_read(context, read, self.changes)


def run(instance: dg.DagsterInstance, snapshot_id: int | None, changes: Changes | None, *, fails: bool = False) -> Any:
    """Return the position of a run's input, which it reads up to a snapshot."""

    @dg.asset(io_manager_key="iceberg", metadata={"iceberg/table": "db.up"})
    def up() -> int:
        return 1

    @dg.asset(ins={"up": dg.AssetIn(metadata={"iceberg/read": "changes"})})
    def down(up: Any) -> int:
        if fails:
            raise ValueError
        return 2

    reads = Reads(snapshot_id, changes)
    dg.materialize([up, down], instance=instance, resources={"iceberg": reads}, raise_on_error=False)
    [output] = reads.outputs
    assert (output.stored, output.lacks_table) == (None, False)
    return reads.positions[0]


def since(position: Position) -> int | None:
    assert not isinstance(position, str), position
    return position.since


def test_nothing_has_been_read_before_the_first_run(instance: dg.DagsterInstance) -> None:
    assert since(run(instance, 3, Changes("changes", None))) is None


def test_a_run_continues_after_the_last_one(instance: dg.DagsterInstance) -> None:
    run(instance, 3, Changes("changes", None))
    assert since(run(instance, 5, Changes("changes", 3, (4, 5)))) == 3
    assert since(run(instance, 5, Changes("changes", 5))) == 5


def test_a_run_that_failed_has_read_nothing(instance: dg.DagsterInstance) -> None:
    run(instance, 3, Changes("changes", None), fails=True)
    assert since(run(instance, 5, Changes("changes", None))) is None


def test_an_input_of_a_script_has_no_position() -> None:
    context = dg.build_input_context(asset_key=dg.AssetKey("up"), dagster_type=dg.PythonObjectDagsterType(int))
    request = read_request(input_facts(context), namespace="db")
    with pytest.raises(MetadataKeyError, match=r"expected an input of an asset, .* found an op or a script"):
        read_position(context, request, [], lambda: UPSTREAM)


def test_an_input_of_an_op_has_no_position() -> None:
    @dg.op(out=dg.Out(io_manager_key="iceberg", metadata={"iceberg/table": "db.of_op"}))
    def writing() -> int:
        return 1

    @dg.op(ins={"rows": dg.In(metadata={"iceberg/read": "changes"})})
    def reading(rows: Any) -> None: ...

    @dg.job(resource_defs={"iceberg": Reads(3, None)})
    def job() -> None:
        reading(writing())

    (failure,) = [event for event in job.execute_in_process(raise_on_error=False).all_events if event.is_step_failure]
    assert "only assets track their progress, found an op or a script" in str(failure.step_failure_data.error)

"""Semi-private calls of Dagster in a real run. A test fails if Dagster changes the call's behavior."""

import datetime as dt
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark.assets.dagster_private.context import (
    StepFacts,
    add_partition_metadata,
    definition_metadata_of,
    record_evaluation,
    resumed_runs,
    set_data_version,
    step_facts,
)
from dagster_iceberg_spark.assets.dagster_private.event_log import (
    engine_events,
    has_failed_blocking_check,
    newest_runs,
    recorded_evaluations,
    recorded_events,
    recorded_snapshots,
)
from dagster_iceberg_spark.assets.dagster_private.graph import blocking_checks, definitions_in
from dagster_iceberg_spark.assets.dagster_private.partitions import downstream_partitions
from dagster_iceberg_spark.assets.dagster_private.runs import (
    PARENT_RUN_TAG,
    RESUME_TAGS,
    ROOT_RUN_TAG,
    has_ended,
    oldest_run_in_progress,
    resumable_runs,
    root_run_of,
    run_started_at_ms,
    runs_in_progress,
    runs_of_root,
)
from tests.instances import local_instance

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-01-05")


class Spy(dg.IOManager):
    """Calls the functions from `handle_output` and `load_input` and keeps the results."""

    def __init__(self) -> None:
        self.facts: dict[str, StepFacts | None] = {}
        self.definition: dict[str, Any] = {}

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        self.facts["output"] = step_facts(context)
        set_data_version(context, "snapshot-7")
        context.add_output_metadata({"iceberg/snapshot_id": "7"})
        if context.has_asset_partitions:
            for key in context.asset_partition_keys:
                add_partition_metadata(context, key, {"rows": int(key[-1])})

    def load_input(self, context: dg.InputContext) -> Any:
        self.facts["input"] = step_facts(context)
        self.definition = dict(definition_metadata_of(context))
        return 1


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with local_instance(tmp_path) as instance:
        yield instance


@dg.asset(metadata={"note": "mine"})
def up() -> int:
    return 1


@dg.asset
def down(up: int) -> int:
    return up


@dg.asset(partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
def daily() -> int:
    return 1


def test_outputs_and_inputs_know_their_step(instance: dg.DagsterInstance) -> None:
    spy = Spy()
    result = dg.materialize([up, down], resources={"io_manager": spy}, instance=instance, tags={"team": "a"})
    for facts in (spy.facts["output"], spy.facts["input"]):
        assert facts is not None
        assert (facts.run_id, facts.step_key, facts.attempt) == (result.run_id, "down", 0)
        assert facts.run_tags["team"] == "a"
        assert facts.instance is instance
    assert spy.definition["note"] == "mine"


def test_contexts_built_by_hand_have_no_step() -> None:
    assert step_facts(dg.build_output_context()) is None
    assert step_facts(dg.build_input_context()) is None


def test_a_retry_counts_its_attempts(instance: dg.DagsterInstance) -> None:
    attempts = []

    class Failing(Spy):
        def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
            facts = step_facts(context)
            assert facts is not None
            attempts.append(facts.attempt)
            if facts.attempt == 0:
                raise ConnectionError

    retried = dg.asset(name="retried", retry_policy=dg.RetryPolicy(max_retries=1))(lambda: 1)
    dg.materialize([retried], resources={"io_manager": Failing()}, instance=instance)
    assert attempts == [0, 1]


def test_the_data_version_and_the_snapshot_are_recorded(instance: dg.DagsterInstance) -> None:
    result = dg.materialize([up], resources={"io_manager": Spy()}, instance=instance)
    materialization = result.asset_materializations_for_node("up")[0]
    assert (materialization.tags or {})["dagster/data_version"] == "snapshot-7"
    assert recorded_snapshots(instance, result.run_id, up.key, ()) == {7}
    assert recorded_snapshots(instance, result.run_id, down.key, ()) == frozenset()
    assert recorded_snapshots(instance, "no-such-run", up.key, ()) == frozenset()


def test_each_partition_of_a_range_has_its_own_metadata(instance: dg.DagsterInstance) -> None:
    tags = {"dagster/asset_partition_range_start": "2013-01-01", "dagster/asset_partition_range_end": "2013-01-03"}
    result = dg.materialize([daily], resources={"io_manager": Spy()}, instance=instance, tags=tags)
    rows = {item.partition: item.metadata["rows"].value for item in result.asset_materializations_for_node("daily")}
    assert rows == {"2013-01-01": 1, "2013-01-02": 2, "2013-01-03": 3}
    recorded = recorded_snapshots(instance, result.run_id, daily.key, ("2013-01-02",))
    assert recorded == {7}
    assert recorded_snapshots(instance, result.run_id, daily.key, ("2013-01-04",)) == frozenset()


def test_the_start_of_a_run_is_known(instance: dg.DagsterInstance) -> None:
    result = dg.materialize([up], resources={"io_manager": Spy()}, instance=instance)
    started = run_started_at_ms(instance, result.run_id)
    record = instance.get_run_record_by_id(result.run_id)
    assert record is not None
    assert started == int(record.create_timestamp.timestamp() * 1000)
    assert run_started_at_ms(instance, "no-such-run") is None


def test_an_event_of_a_step_can_be_read(instance: dg.DagsterInstance) -> None:
    class Recording(Spy):
        def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
            facts = step_facts(context)
            assert facts is not None
            facts.record_event("Writing.", {"iceberg/tag": "a"})
            assert {"iceberg/tag": "a"} in list(engine_events(instance, facts.run_id))

    result = dg.materialize([up], resources={"io_manager": Recording()}, instance=instance)
    assert {"iceberg/tag": "a"} in list(engine_events(instance, result.run_id))
    assert list(engine_events(instance, "no-such-run")) == []


def test_an_evaluation_is_recorded_also_if_its_step_fails(instance: dg.DagsterInstance) -> None:
    class Recorder(Spy):
        def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
            found = dg.AssetCheckEvaluation(asset_key=context.asset_key, check_name="plausible", passed=False)
            record_evaluation(context, found)
            raise dg.Failure

    result = dg.materialize([up], resources={"io_manager": Recorder()}, instance=instance, raise_on_error=False)
    key = dg.AssetCheckKey(up.key, "plausible")
    recorded = recorded_evaluations(instance, result.run_id).get(key)
    assert recorded is not None
    assert not recorded.passed
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    assert latest.status.value == "FAILED"
    assert recorded_evaluations(instance, result.run_id).get(dg.AssetCheckKey(up.key, "other")) is None


def test_a_failed_blocking_check_is_known(instance: dg.DagsterInstance) -> None:
    def checked(name: str, *, blocking: bool, passed: bool) -> dg.AssetsDefinition:
        @dg.asset(name=name, check_specs=[dg.AssetCheckSpec("check", asset=name, blocking=blocking)])
        def asset() -> Any:
            yield dg.Output(1)
            yield dg.AssetCheckResult(passed=passed)

        return asset

    for blocking, passed in ((True, True), (True, False), (False, False)):
        name = f"asset_{blocking}_{passed}".lower()
        asset = checked(name, blocking=blocking, passed=passed)
        result = dg.materialize([asset], resources={"io_manager": Spy()}, instance=instance, raise_on_error=False)
        failed = has_failed_blocking_check(instance, result.run_id, dg.AssetKey(name))
        assert failed is (blocking and not passed)
        assert not has_failed_blocking_check(instance, result.run_id, dg.AssetKey("other"))


def test_resumed_runs_are_the_ancestors_up_to_the_first_full_run(instance: dg.DagsterInstance) -> None:
    def run_of(parent: str | None, *, resumes: bool) -> str:
        spy = Spy()
        tags = {} if parent is None else {"dagster/parent_run_id": parent}
        result = dg.materialize(
            [up],
            resources={"io_manager": spy},
            instance=instance,
            tags={**tags, **({"dagster/is_resume_retry": "true"} if resumes else {})},
        )
        facts = spy.facts["output"]
        assert facts is not None
        resumed.append(resumed_runs(facts))
        return result.run_id

    resumed: list[list[str]] = []
    first = run_of(None, resumes=False)
    again = run_of(first, resumes=False)
    second = run_of(again, resumes=True)
    third = run_of(second, resumes=True)
    gone = run_of("no-such-run", resumes=True)
    assert resumed == [[], [], [again], [second, again], ["no-such-run"]]
    assert third != gone


def test_resumed_runs_still_have_dagster_s_tags() -> None:
    from dagster._core.storage import tags

    assert PARENT_RUN_TAG == tags.PARENT_RUN_ID_TAG
    assert ROOT_RUN_TAG == tags.ROOT_RUN_ID_TAG
    assert tags.RESUME_RETRY_TAG in RESUME_TAGS
    assert tags.ASSET_RESUME_RETRY_TAG in RESUME_TAGS


def test_definitions_made_by_a_function_are_found() -> None:
    module = ModuleType("location")

    @dg.definitions
    def made() -> dg.Definitions:
        return dg.Definitions()

    vars(module).update(defs=dg.Definitions(), made=made, other=1)
    found = definitions_in(module)
    assert list(found) == ["defs", "made"]
    assert all(isinstance(item, dg.Definitions) for item in found.values())


def test_the_events_and_the_blocking_checks_of_runs_that_execute_one_another_are_found(
    instance: dg.DagsterInstance,
) -> None:
    found: dict[str, Any] = {}

    @dg.asset_check(asset=up, blocking=True)
    def blocking() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.asset_check(asset=up)
    def other() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False)

    @dg.asset(deps=[up])
    def last(context: dg.AssetExecutionContext) -> None:
        found["checks"] = blocking_checks(context)
        found["root"] = root_run_of(context.run)
        found["runs"] = runs_of_root(context.instance, context.run)
        found["events"] = list(recorded_events(context.instance, found["runs"]))

    assets: list[Any] = [up, blocking, other, last]
    spy = {"io_manager": Spy()}
    only_up = dg.AssetSelection.assets(up).without_checks()
    first = dg.materialize(assets, resources=spy, instance=instance, selection=only_up).run_id
    tags = {"dagster/parent_run_id": first, "dagster/root_run_id": first}
    again = dg.materialize(assets, resources=spy, instance=instance, tags=tags).run_id
    assert (found["root"], found["runs"]) == (first, [first, again])
    assert found["checks"] == {dg.AssetCheckKey(up.key, "blocking")}
    names = [getattr(item.event, "check_name", "stored") for item in found["events"]]
    assert (names[0], sorted(names[1:])) == ("stored", ["blocking", "other", "stored"])
    assert [(item.run_id, item.step_key) for item in found["events"][:2]] == [(first, "up"), (again, "up")]


def test_runs_in_progress_know_what_they_plan(instance: dg.DagsterInstance) -> None:
    found: dict[str, Any] = {}

    @dg.asset
    def busy(context: dg.AssetExecutionContext) -> None:
        found["runs"] = runs_in_progress(context.instance)
        found["oldest"] = oldest_run_in_progress(context.instance)
        found["besides"] = oldest_run_in_progress(context.instance, besides=context.run.run_id)
        found["has_ended"] = has_ended(context.instance, context.run.run_id)

    run = dg.materialize([busy], instance=instance)
    [own] = found["runs"]
    assert (own.run_id, own.status, own.planned) == (run.run_id, "started", {busy.key})
    assert abs(own.began_at - time.time()) < 60
    assert (found["oldest"], found["besides"]) == (own.began_at, None)
    assert found["has_ended"] is False
    assert has_ended(instance, run.run_id) is True
    assert has_ended(instance, "unknown") is False
    assert runs_in_progress(instance) == []


def test_a_failed_run_is_resumable_until_another_has_executed_it_again(instance: dg.DagsterInstance) -> None:
    @dg.asset
    def fails() -> None:
        raise ValueError

    def run(**tags: str) -> str:
        return dg.materialize([fails], instance=instance, raise_on_error=False, tags=tags).run_id

    def resumable(since: dt.datetime) -> list[str]:
        return [item.run_id for item in resumable_runs(instance, since)]

    now = dt.datetime.now(dt.timezone.utc)
    first = run()
    assert resumable(now - dt.timedelta(days=1)) == [first]
    assert resumable(now + dt.timedelta(days=1)) == []
    again = run(**{"dagster/parent_run_id": first})
    assert resumable(now - dt.timedelta(days=1)) == [again]


def test_the_newest_run_of_each_partition_is_found(instance: dg.DagsterInstance) -> None:
    runs = [
        dg.materialize([daily], instance=instance, partition_key=key).run_id
        for key in ("2013-01-01", "2013-01-02", "2013-01-01")
    ]
    assert newest_runs(instance, daily.key) == [runs[2], runs[1]]
    assert newest_runs(instance, dg.AssetKey("unknown")) == []


def test_the_partitions_downstream_of_others_are_found(instance: dg.DagsterInstance) -> None:
    hours = dg.HourlyPartitionsDefinition("2013-01-01-00:00", end_date="2013-01-04-00:00")
    hourly = dg.AssetSpec("hourly", partitions_def=hours)

    @dg.asset(partitions_def=DAYS, ins={"hourly": dg.AssetIn(partition_mapping=dg.TimeWindowPartitionMapping())})
    def by_day(hourly: int) -> int:
        return hourly

    keys = ["2013-01-01-05:00", "2013-01-01-06:00", "2013-01-03-00:00"]
    found = downstream_partitions(by_day, hourly, keys, instance)
    assert found == ["2013-01-01", "2013-01-03"]


LOCATION = """
import dagster as dg
from dagster_iceberg_spark.assets.dagster_private.graph import blocking_checks, downstream_assets

@dg.asset
def up(): ...

@dg.asset_check(asset=up, blocking=True)
def left_out():
    return dg.AssetCheckResult(passed=True)

@dg.asset(deps=[up])
def last(context: dg.AssetExecutionContext):
    context.log.info(f"checks: {[check.name for check in blocking_checks(context)]}")
    found = downstream_assets(context.op_execution_context)
    context.log.info(f"downstream: {[key.path for key in found[up.key]]}")

only = dg.define_asset_job("only", selection=dg.AssetSelection.assets("last").without_checks())
defs = dg.Definitions([up, last], asset_checks=[left_out], jobs=[only])
"""


@pytest.mark.full
def test_checks_of_the_code_location_that_the_run_leaves_out_are_found(tmp_path: Path) -> None:
    (tmp_path / "location.py").write_text(LOCATION)
    command = ["dagster", "job", "execute", "-f", "location.py", "-j", "only"]
    variables = {**os.environ, "DAGSTER_HOME": str(tmp_path)}
    run = subprocess.run(command, cwd=tmp_path, env=variables, check=True, capture_output=True, text=True)
    assert "checks: ['left_out']" in run.stderr
    assert "downstream: [['last']]" in run.stderr

"""The commit token: a step that is tried again finds what its earlier attempt has committed."""

from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource
from tests.lakes import Lake, frame_asset, metadata_of, resuming

pytestmark = pytest.mark.spark

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")


class Interrupted(IcebergPySparkIOManager):
    """Breaks off after the commit, as a process would that dies before Dagster records the materialization."""

    breaks: int = 1

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        super().handle_output(context, obj)
        if context.step_context.previous_attempt_count < self.breaks:
            message = "gone"
            raise ConnectionResetError(message)


def interrupted(lake: Lake, *, breaks: int = 1) -> Lake:
    io_manager = Interrupted(spark=lake.spark, namespace="db", breaks=breaks)
    return Lake(lake.spark, io_manager, lake.instance, lake.directory)


@pytest.mark.full
@pytest.mark.parametrize("disposition", ["replace", "append", "merge"])
def test_a_retried_step_adopts_its_own_snapshot(kept_lake: Lake, disposition: str) -> None:
    metadata = {"iceberg/write_disposition": disposition, "iceberg/merge_keys": ["id"]}
    asset = frame_asset("t", "select 1 as id", metadata=metadata, retry_policy=dg.RetryPolicy(max_retries=1))
    result = interrupted(kept_lake).materialize(asset)
    assert result.success
    reported = metadata_of(result, "t")
    assert reported["iceberg/adopted"] is True
    assert reported["iceberg/snapshot_id"] == str(kept_lake.head("t").snapshot_id)
    assert kept_lake.rows("t", "id") == [1]
    assert len(kept_lake.summaries("t")) == 1


@pytest.mark.full
def test_a_new_run_appends_again(kept_lake: Lake) -> None:
    asset = frame_asset("t", "select 1 as id", metadata={"iceberg/write_disposition": "append"})
    for _ in range(2):
        kept_lake.materialize(asset)
    assert kept_lake.rows("t", "id") == [1, 1]


@pytest.mark.each_engine("quick")
@pytest.mark.feature("a resumed run finds its snapshot")
def test_a_resumed_run_adopts_what_its_parent_committed(kept_lake: Lake) -> None:
    asset = frame_asset("t", "select 1 as id", metadata={"iceberg/write_disposition": "append"})
    first = interrupted(kept_lake, breaks=9).materialize(asset, raise_on_error=False)
    assert not first.success
    tags = {"dagster/parent_run_id": first.run_id, "dagster/root_run_id": first.run_id}
    resumed = kept_lake.materialize(asset, tags=resuming(first.run_id))
    assert metadata_of(resumed, "t")["iceberg/adopted"] is True
    assert kept_lake.rows("t", "id") == [1]
    deliberate = kept_lake.materialize(asset, tags=tags)
    assert "iceberg/adopted" not in metadata_of(deliberate, "t")
    assert kept_lake.rows("t", "id") == [1, 1]


@pytest.mark.full
def test_each_partition_has_a_token_of_its_own(kept_lake: Lake) -> None:
    asset = frame_asset(
        "t",
        "select {start} as ts",
        partitions_def=DAYS,
        metadata={"partition_expr": "ts"},
        retry_policy=dg.RetryPolicy(max_retries=1),
    )
    for key in ("2013-01-01", "2013-01-02"):
        assert interrupted(kept_lake).materialize(asset, partition_key=key).success
    tokens = [summary["dagster.commit_token"] for summary in kept_lake.summaries("t")]
    assert len(tokens) == len(set(tokens)) == 2


@pytest.mark.full
@pytest.mark.parametrize("engine", ["classic"], indirect=True)
def test_what_an_adopted_replace_reports_is_what_the_lost_report_would_have_said(kept_lake: Lake) -> None:
    asset = frame_asset(
        "t",
        "select {start} as ts",
        partitions_def=DAYS,
        metadata={"partition_expr": "ts"},
        retry_policy=dg.RetryPolicy(max_retries=1),
    )
    reported = metadata_of(interrupted(kept_lake).materialize(asset, partition_key="2013-01-01"), "t")
    plain = metadata_of(kept_lake.materialize(asset, partition_key="2013-01-02"), "t")
    same = {"dagster/partition_row_count", "iceberg/added_rows", "iceberg/deleted_rows", "iceberg/added_files"}
    assert {key: reported[key] for key in same} == {key: plain[key] for key in same}
    assert set(plain) - set(reported) == {"iceberg/parent_snapshot_id"}  # the first commit has none
    assert set(reported) - set(plain) == {"iceberg/adopted"}


@pytest.mark.full
def test_a_replace_that_another_run_overwrote_is_written_again(kept_lake: Lake) -> None:
    first = interrupted(kept_lake, breaks=9).materialize(frame_asset("t", "select 1 as id"), raise_on_error=False)
    kept_lake.materialize(frame_asset("t", "select 2 as id"))
    result = kept_lake.materialize(frame_asset("t", "select 1 as id"), tags=resuming(first.run_id))
    assert "iceberg/adopted" not in metadata_of(result, "t")
    assert kept_lake.rows("t", "id") == [1]
    assert len(kept_lake.summaries("t")) == 3


only_classic = pytest.mark.parametrize("engine", ["classic"], indirect=True, scope="session")
DISPOSITIONS = ["replace", "merge", "append"]


def metadata(disposition: str) -> dict[str, Any]:
    return {"iceberg/write_disposition": disposition, "iceberg/merge_keys": ["id"]}


@pytest.mark.full
@only_classic
@pytest.mark.parametrize(("disposition", "snapshots"), [("replace", 2), ("merge", 2), ("append", 1)])
def test_a_step_that_fails_after_its_record_and_is_retried_appends_once(
    kept_lake: Lake, disposition: str, snapshots: int
) -> None:
    """The output is recorded; then the step's second output fails."""

    @dg.multi_asset(
        outs={
            "first": dg.AssetOut(io_manager_key="iceberg", metadata=metadata(disposition)),
            "second": dg.AssetOut(io_manager_key="io_manager"),
        },
        retry_policy=dg.RetryPolicy(max_retries=1),
    )
    def both(context: dg.AssetExecutionContext, spark: IcebergSparkResource) -> Any:
        yield dg.Output(spark.spark_session.sql("select 1 as id"), "first")
        if context.retry_number == 0:
            raise ConnectionResetError
        yield dg.Output(2, "second")

    assert kept_lake.materialize(both).success
    assert kept_lake.rows("first", "id") == [1]
    assert len(kept_lake.summaries("first")) == snapshots


@only_classic
@pytest.mark.parametrize(("disposition", "snapshots"), [("replace", 2), ("merge", 2), ("append", 1)])
def test_a_resumed_run_whose_sibling_output_failed_appends_once(
    kept_lake: Lake, disposition: str, snapshots: int
) -> None:
    fails = [True, False]

    @dg.multi_asset(
        outs={
            "first": dg.AssetOut(io_manager_key="iceberg", metadata=metadata(disposition)),
            "second": dg.AssetOut(io_manager_key="io_manager"),
        }
    )
    def both(spark: IcebergSparkResource) -> Any:
        yield dg.Output(spark.spark_session.sql("select 1 as id"), "first")
        if fails.pop(0):
            raise ConnectionResetError
        yield dg.Output(2, "second")

    first = kept_lake.materialize(both, raise_on_error=False)
    assert kept_lake.materialize(both, tags=resuming(first.run_id)).success
    assert kept_lake.rows("first", "id") == [1]
    assert len(kept_lake.summaries("first")) == snapshots


@pytest.mark.full
@only_classic
@pytest.mark.parametrize(("disposition", "rows"), [("replace", [2]), ("merge", [1, 2]), ("append", [1, 2])])
def test_a_resumed_run_writes_again_what_a_blocking_check_has_rejected(
    kept_lake: Lake, disposition: str, rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    values, lines = [1, 2], list[str]()
    monkeypatch.setattr(dg.DagsterLogManager, "info", lambda _, line: lines.append(line))

    @dg.asset(
        name="t",
        io_manager_key="iceberg",
        metadata=metadata(disposition),
        check_specs=[dg.AssetCheckSpec("is_even", asset="t", blocking=True)],
    )
    def asset(spark: IcebergSparkResource) -> Any:
        value = values.pop(0)
        yield dg.Output(spark.spark_session.sql(f"select {value} as id"))
        yield dg.AssetCheckResult(passed=value % 2 == 0)

    first = kept_lake.materialize(asset, raise_on_error=False)
    assert not first.success
    assert kept_lake.materialize(asset, tags=resuming(first.run_id)).success
    assert kept_lake.rows("t", "id") == rows
    assert any("a blocking check has rejected" in line for line in lines) == (disposition == "append")


@pytest.mark.full
@only_classic
@pytest.mark.parametrize("disposition", DISPOSITIONS)
def test_a_snapshot_that_was_rolled_back_is_written_again(kept_lake: Lake, disposition: str) -> None:
    kept_lake.materialize(frame_asset("t", "select 0 as id", metadata=metadata(disposition)))
    before = kept_lake.head("t").snapshot_id
    asset = frame_asset("t", "select 1 as id", metadata=metadata(disposition))
    first = interrupted(kept_lake, breaks=9).materialize(asset, raise_on_error=False)
    kept_lake.table("t").manage_snapshots().rollback_to_snapshot(before).commit()
    result = kept_lake.materialize(asset, tags=resuming(first.run_id))
    assert "iceberg/adopted" not in metadata_of(result, "t")
    assert kept_lake.rows("t", "id") == ([1] if disposition == "replace" else [0, 1])


@pytest.mark.full
@only_classic
def test_a_run_that_resumes_a_resumed_run_adopts_what_the_first_one_committed(kept_lake: Lake) -> None:
    """The second run adopts the snapshot and dies before that is recorded."""
    asset = frame_asset("t", "select 1 as id", metadata=metadata("append"))
    first = interrupted(kept_lake, breaks=9).materialize(asset, raise_on_error=False)
    second = interrupted(kept_lake, breaks=9).materialize(asset, tags=resuming(first.run_id), raise_on_error=False)
    third = kept_lake.materialize(asset, tags=resuming(second.run_id))
    assert metadata_of(third, "t")["iceberg/adopted"] is True
    assert kept_lake.rows("t", "id") == [1]


@pytest.mark.full
@only_classic
def test_a_split_multi_asset_that_is_resumed_adopts_each_of_its_tables(kept_lake: Lake) -> None:
    """One asset of two is selected, so that its step has another key than before."""

    @dg.multi_asset(
        outs={
            name: dg.AssetOut(io_manager_key="iceberg", metadata=metadata("append"), is_required=False)
            for name in ("one", "two")
        },
        can_subset=True,
    )
    def both(context: dg.AssetExecutionContext, spark: IcebergSparkResource) -> Any:
        for name in sorted(context.op_execution_context.selected_output_names):
            yield dg.Output(spark.spark_session.sql("select 1 as id"), name)

    first = interrupted(kept_lake, breaks=9).materialize(both, raise_on_error=False)
    assert not first.success
    kept_lake.materialize(both, tags=resuming(first.run_id), selection=["one"])
    kept_lake.materialize(both, tags=resuming(first.run_id))
    assert (kept_lake.rows("one", "id"), kept_lake.rows("two", "id")) == ([1], [1])


@pytest.mark.full
@only_classic
@pytest.mark.parametrize(("disposition", "rows"), [("replace", [1]), ("merge", [1]), ("append", [1, 1])])
def test_one_run_id_twice_on_an_ephemeral_instance_writes_twice(
    kept_lake: Lake, disposition: str, rows: list[int]
) -> None:
    asset = frame_asset("t", "select 1 as id", metadata=metadata(disposition))
    job = dg.Definitions(assets=[asset], resources=kept_lake.resources).resolve_implicit_global_asset_job_def()
    for _ in range(2):
        with dg.DagsterInstance.ephemeral() as instance:
            assert job.execute_in_process(instance=instance, run_id="8f7a8b0e-6c0b-4a55-9d6b-0e2f0b6f3c11").success
    assert kept_lake.rows("t", "id") == rows


@pytest.mark.full
@only_classic
def test_the_outputs_of_a_dynamic_op_are_adopted_each(kept_lake: Lake) -> None:
    @dg.op(out=dg.DynamicOut(io_manager_key="iceberg", metadata={**metadata("append"), "iceberg/table": "db.parts"}))
    def parts(spark: IcebergSparkResource) -> Any:
        for key in ("a", "b"):
            yield dg.DynamicOutput(spark.spark_session.sql(f"select '{key}' as k"), mapping_key=key)

    @dg.job
    def job() -> None:
        parts()

    def run(lake: Lake, **kwargs: Any) -> dg.ExecuteInProcessResult:
        return job.execute_in_process(resources=lake.resources, instance=lake.instance, raise_on_error=False, **kwargs)

    first = run(interrupted(kept_lake, breaks=9))
    assert not first.success
    assert run(kept_lake, tags=resuming(first.run_id)).success
    assert (kept_lake.rows("parts__a", "k"), kept_lake.rows("parts__b", "k")) == (["a"], ["b"])


@pytest.mark.full
@only_classic
def test_an_interrupted_append_of_other_code_is_left_to_a_person(kept_lake: Lake) -> None:
    def asset(version: str) -> dg.AssetsDefinition:
        return frame_asset("t", "select 1 as id", metadata=metadata("append"), code_version=version)

    first = interrupted(kept_lake, breaks=9).materialize(asset("1"), raise_on_error=False)
    error = kept_lake.failure(asset("2"), tags=resuming(first.run_id))
    assert error.class_name == "OrphanedCommitError"
    assert not error.allow_retries
    assert kept_lake.rows("t", "id") == [1]


def test_a_context_built_by_hand_writes_without_looking(kept_lake: Lake) -> None:
    context = dg.build_output_context(
        asset_key=dg.AssetKey("t"), definition_metadata={"iceberg/write_disposition": "append"}, resources={}
    )
    for _ in range(2):
        kept_lake.io_manager.handle_output(context, kept_lake.session.range(1))
        context = dg.build_output_context(
            asset_key=dg.AssetKey("t"), definition_metadata={"iceberg/write_disposition": "append"}, resources={}
        )
    assert kept_lake.rows("t", "id") == [0, 0]

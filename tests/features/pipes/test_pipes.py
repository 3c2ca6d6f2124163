"""Jobs that `PipesSubprocessClient` runs.

docs/pipes.md: The asset; The job; The snapshot decides; After a crash; Jobs that do not use this package
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import ancestors_of

from dagster_iceberg_spark import (
    ConfigurationError,
    IcebergPipes,
    IcebergSparkResource,
    JobFailedError,
    ReadPlan,
    SqlCatalog,
)
from dagster_iceberg_spark.assets import table_io_manager
from dagster_iceberg_spark.assets.asking import output_facts
from dagster_iceberg_spark.features.pipes import extras as pipes_extras
from dagster_iceberg_spark.features.pipes.extras import JobCatalog, JobDocument, JobOutput, read_document
from tests.core.arrow.test_write import once
from tests.core.arrow.writing import DAYS, ArrowLake, metadata_of
from tests.test_docs import CHECKOUT


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[ArrowLake]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield ArrowLake(tmp_path, instance)


RESUMED = "dagster/is_resume_retry"


def lost() -> None:
    raise RuntimeError("the process is lost")


def command(job: str) -> list[str]:
    return [sys.executable, "-m", "tests.features.pipes.jobs", job]


def resources(lake: ArrowLake) -> dict[str, Any]:
    client = dg.PipesSubprocessClient(cwd=str(CHECKOUT))
    return {"iceberg": lake.io_manager, "client": client, "lake": IcebergPipes()}


def job_asset(job: str, *, extras: Any = None, **kwargs: Any) -> dg.AssetsDefinition:
    """Return an asset whose rows a job writes."""

    def launched(context: dg.AssetExecutionContext, client: dg.PipesSubprocessClient, lake: IcebergPipes) -> Any:
        return lake.run(context, client, command=command(job), extras=extras)

    asset: dg.AssetsDefinition = dg.asset(name="t", io_manager_key="iceberg", **kwargs)(launched)
    return asset


def materialize(lake: ArrowLake, *assets: Any, **kwargs: Any) -> dg.ExecuteInProcessResult:
    return dg.materialize(assets, resources=resources(lake), instance=lake.instance, **kwargs)


def run(lake: ArrowLake, job: str) -> dg.ExecuteInProcessResult:
    return materialize(lake, job_asset(job))


def daily(lake: ArrowLake, key: str, day: str, *, is_wrong: bool = False) -> dg.ExecuteInProcessResult:
    metadata = {"partition_expr": "at", "iceberg/audits": {"positive": "v > 0"}}
    extras = {"day": day, "is_wrong": is_wrong}
    asset = job_asset("write_days", extras=extras, partitions_def=DAYS, metadata=metadata)
    return materialize(lake, asset, partition_key=key, raise_on_error=False)


def commits(lake: ArrowLake) -> int:
    """Return how many snapshots of the table's history carry a commit token."""
    table = lake.table()
    found = [snapshot.summary for snapshot in ancestors_of(table.current_snapshot(), table.metadata)]
    return sum("dagster.commit_token" in summary.additional_properties for summary in found if summary is not None)


def evaluations(lake: ArrowLake) -> list[bool]:
    """Return whether the rows passed the audit, for each evaluation that Dagster has recorded."""
    events = dg.EventRecordsFilter(dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    found = lake.instance.event_log_storage.get_event_records(events, ascending=True)
    recorded = [record.event_log_entry.dagster_event for record in found]
    return [event.asset_check_evaluation_data.passed for event in recorded if event is not None]


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    [event] = [event for event in result.all_events if event.is_step_failure]
    return str(event.step_failure_data.error)


@pytest.mark.parametrize(
    "job", ["write", *(pytest.param(job, marks=pytest.mark.full) for job in ("write_and_fail", "write_and_die"))]
)
def test_a_job_with_a_snapshot_has_succeeded_however_it_ended(lake: ArrowLake, job: str) -> None:
    reported = metadata_of(run(lake, job))
    assert lake.rows("v") == [1, 2, 3]
    assert reported["iceberg/snapshot_id"] == str(lake.table().metadata.current_snapshot_id)
    assert (reported["iceberg/added_rows"], len(lake.operations())) == (3, 1)
    assert reported.get("model") == ("m1" if job == "write" else None)


@pytest.mark.parametrize(
    ("job", "found"), [("nothing", "the job has ended without an error"), ("fail", "the job has ended with an error")]
)
def test_a_job_without_a_snapshot_has_failed_however_it_ended(lake: ArrowLake, job: str, found: str) -> None:
    with pytest.raises(Exception, match=f"found no table; {found}") as caught:
        run(lake, job)
    assert type(caught.value).__name__ == "JobFailedError"
    assert not lake.spark.pyiceberg_catalog.table_exists(("db", "t"))


@pytest.mark.full
def test_the_environment_of_a_job_needs_neither_dagster_nor_spark(lake: ArrowLake) -> None:
    run(lake, "without_dagster")
    assert lake.rows("v") == [0]


def copying_asset(job: str, newer: ArrowLake) -> dg.AssetsDefinition:
    """Return an asset whose job reads a source that gets another snapshot after the run has read it."""

    @dg.asset(name="t", io_manager_key="iceberg", metadata={"iceberg/engine": "auto"})
    def asset(
        context: dg.AssetExecutionContext, client: dg.PipesSubprocessClient, lake: IcebergPipes, source: ReadPlan
    ) -> Any:
        newer.write(pa.table({"v": [8, 9]}), name="source")
        return lake.run(context, client, inputs={"source": source}, command=command(job))

    return asset


@pytest.mark.parametrize(
    ("job", "read"), [("copy", 7), pytest.param("count_by_spark", 1, marks=[pytest.mark.spark, pytest.mark.full])]
)
def test_inputs_are_pinned_to_the_snapshots_of_the_run(lake: ArrowLake, job: str, read: int) -> None:
    lake.write(pa.table({"v": [7]}), name="source")
    before = lake.table("source").metadata.current_snapshot_id
    asset = copying_asset(job, ArrowLake(lake.directory, lake.instance))
    materialize(lake, asset, dg.AssetSpec("source").with_io_manager_key("iceberg"), selection="t")
    snapshot = lake.table().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    (upstream,) = json.loads(snapshot.summary.additional_properties["dagster.upstream"])
    assert (lake.rows("v"), upstream["snapshot_id"]) == ([read], before)


@pytest.mark.full
def test_a_job_writes_the_rows_of_its_partition_alone(lake: ArrowLake) -> None:
    assert daily(lake, "2024-01-01", "2024-01-01").success
    assert daily(lake, "2024-01-02", "2024-01-02").success
    assert daily(lake, "2024-01-01", "2024-01-01").success
    assert lake.rows("v") == [1, 1, 2, 2, 3, 3]
    found = failure_of(daily(lake, "2024-01-01", "2024-01-03"))
    assert "JobFailedError" in found
    assert "found none; the job has ended with an error" in found
    assert lake.rows("v") == [1, 1, 2, 2, 3, 3]


@pytest.mark.full
def test_rows_that_fail_an_audit_in_the_job_are_not_published(lake: ArrowLake) -> None:
    result = daily(lake, "2024-01-01", "2024-01-01", is_wrong=True)
    assert "AuditFailedError" in failure_of(result)
    assert evaluations(lake) == [False]
    assert lake.rows("v") == []
    passed = daily(lake, "2024-01-01", "2024-01-01")
    assert passed.success
    assert evaluations(lake) == [False, True]
    assert lake.rows("v") == [1, 2, 3]


def test_the_rows_of_each_partition_are_reported(lake: ArrowLake) -> None:
    policy, metadata = dg.BackfillPolicy.single_run(), {"partition_expr": "at"}
    asset = job_asset("write_two_days", partitions_def=DAYS, metadata=metadata, backfill_policy=policy)
    tags = {"dagster/asset_partition_range_start": "2024-01-01", "dagster/asset_partition_range_end": "2024-01-02"}
    result = materialize(lake, asset, tags=tags)
    found = {event.partition: event.metadata["dagster/partition_row_count"].value for event in materializations(result)}
    assert found == {"2024-01-01": 2, "2024-01-02": 1}


def materializations(result: dg.ExecuteInProcessResult) -> list[dg.AssetMaterialization]:
    return [event.materialization for event in result.get_asset_materialization_events()]


@pytest.mark.full
def test_a_job_writes_several_outputs_and_another_writes_what_is_left(lake: ArrowLake) -> None:
    """The first job is lost between its outputs. The second adopts the first output, and writes the second."""
    options: dict[str, Any] = {"io_manager_key": "iceberg", "metadata": {"iceberg/write_disposition": "append"}}
    outs = {name: dg.AssetOut(**options) for name in ("first", "second", "local")}

    @dg.multi_asset(outs=outs, retry_policy=dg.RetryPolicy(max_retries=1))
    def several(context: dg.AssetExecutionContext, client: dg.PipesSubprocessClient, lake: IcebergPipes) -> Any:
        given = {"at": context.instance.storage_directory()}
        written = lake.run_for_outputs(
            context, client, ["first", "second"], extras=given, command=command("write_both")
        )
        yield from written
        yield dg.Output(pa.table({"v": [4]}), "local")

    assert materialize(lake, several).success
    assert {name: lake.rows("v", name=name) for name in outs} == {"first": [1, 2, 3], "second": [1, 2, 3], "local": [4]}


@pytest.mark.full
@pytest.mark.parametrize("disposition", ["append", "replace"])
def test_no_second_job_is_launched_after_a_commit(
    lake: ArrowLake, monkeypatch: pytest.MonkeyPatch, disposition: str
) -> None:
    """The step fails after the job has committed, and is retried."""
    once(monkeypatch, table_io_manager, "report_commit", before=lost)
    launched, genuine = list[Any](), dg.PipesSubprocessClient.run

    def counted(*args: Any, **kwargs: Any) -> Any:
        launched.append(kwargs)
        return genuine(*args, **kwargs)

    monkeypatch.setattr(dg.PipesSubprocessClient, "run", counted)
    metadata = {"iceberg/write_disposition": disposition}
    asset = job_asset("write", metadata=metadata, retry_policy=dg.RetryPolicy(max_retries=1))
    assert materialize(lake, asset).success
    assert (lake.rows("v"), commits(lake), len(launched)) == ([1, 2, 3], 1, 1)


@pytest.mark.full
@pytest.mark.parametrize("disposition", ["append", "replace"])
def test_a_run_that_is_resumed_takes_the_snapshot_of_the_first_job(
    lake: ArrowLake, monkeypatch: pytest.MonkeyPatch, disposition: str
) -> None:
    """The second run launches a job, which finds the snapshot under the token of the first run."""
    asset = job_asset("write", metadata={"iceberg/write_disposition": disposition})
    definitions = dg.Definitions([asset], resources=resources(lake))
    job = definitions.resolve_implicit_global_asset_job_def()
    once(monkeypatch, table_io_manager, "report_commit", before=lost)
    failed = job.execute_in_process(instance=lake.instance, raise_on_error=False)
    assert not failed.success
    tags = {"dagster/parent_run_id": failed.run_id, "dagster/root_run_id": failed.run_id, RESUMED: "true"}
    assert job.execute_in_process(instance=lake.instance, tags=tags).success
    assert (lake.rows("v"), commits(lake)) == ([1, 2, 3], 1)


@pytest.mark.full
def test_a_job_with_another_version_is_refused_by_name(
    lake: ArrowLake, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipes_extras, "PACKAGE_VERSION", "0.0.1")
    with pytest.raises(JobFailedError):
        run(lake, "write")
    assert "expected version 0.0.1 of dagster-iceberg-spark" in "".join(capfd.readouterr())


@pytest.mark.full
def test_rows_that_a_job_has_staged_are_published_if_it_dies_before(lake: ArrowLake) -> None:
    metadata = {"iceberg/audits": {"positive": "v > 0"}}
    result = materialize(lake, job_asset("die_before_the_publication", metadata=metadata))
    assert (lake.rows("v"), evaluations(lake)) == ([1, 2, 3], [True])
    assert metadata_of(result)["iceberg/publication"] == "fast-forward"
    assert list(lake.table().metadata.refs) == ["main"]


def test_another_io_manager_is_refused_by_name(lake: ArrowLake) -> None:
    asset = job_asset("write")
    others = {**resources(lake), "iceberg": dg.mem_io_manager}
    with pytest.raises(ConfigurationError, match="expected an IcebergPySparkIOManager to store the output"):
        dg.materialize([asset], resources=others, instance=lake.instance)


def test_a_job_writes_to_one_catalog(lake: ArrowLake, tmp_path: Path) -> None:
    other = ArrowLake(tmp_path / "other", lake.instance).io_manager

    @dg.multi_asset(outs={"a": dg.AssetOut(io_manager_key="iceberg"), "b": dg.AssetOut(io_manager_key="other")})
    def several(context: dg.AssetExecutionContext, client: dg.PipesSubprocessClient, lake: IcebergPipes) -> Any:
        yield from lake.run_for_outputs(context, client, ["a", "b"], command=command("nothing"))

    with pytest.raises(ConfigurationError, match=r"found another catalog for db\.b"):
        dg.materialize([several], resources={**resources(lake), "other": other}, instance=lake.instance)


def append_by_hand(lake: ArrowLake, *, times: int) -> dg.ExecuteInProcessResult:
    lake.write(pa.table({"v": [0]}))
    extras = {"at": str(lake.directory), "times": times}
    asset = job_asset("by_hand", metadata={"iceberg/write_disposition": "append"}, extras=extras)
    return materialize(lake, asset, raise_on_error=False)


@pytest.mark.full
def test_a_snapshot_that_a_job_wrote_by_itself_is_recognized(lake: ArrowLake) -> None:
    reported = metadata_of(append_by_hand(lake, times=1))
    assert lake.rows("v") == [0, 1, 2, 3]
    assert reported["iceberg/snapshot_id"] == str(lake.table().metadata.current_snapshot_id)


@pytest.mark.full
@pytest.mark.parametrize("job", ["two_at_once", "two_at_once_by_hand"])
def test_of_two_jobs_that_append_at_once_one_adopts(lake: ArrowLake, job: str) -> None:
    """A second attempt of the job starts before the first has committed. Both commit after both have searched."""
    lake.write(pa.table({"v": [0]}))
    asset = job_asset(job, metadata={"iceberg/write_disposition": "append"}, extras={"at": str(lake.directory)})
    assert materialize(lake, asset).success
    assert (lake.rows("v"), commits(lake)) == ([0, 1, 2, 3], 2)


@pytest.mark.full
def test_two_appends_under_one_token_are_refused_by_name(lake: ArrowLake) -> None:
    assert "DuplicateCommitError" in failure_of(append_by_hand(lake, times=2))


def test_secrets_stay_in_the_code_location() -> None:
    catalog = SqlCatalog(uri="postgresql+psycopg2://lake:hunter2@db/lake", warehouse="s3://lake")
    described = JobCatalog.of(IcebergSparkResource(catalog=catalog).catalog_description)
    assert "hunter2" not in json.dumps(JobDocument(described, {}, {}, 0, is_case_sensitive=False).extras())
    assert "uri" in described.left_out


def test_a_request_arrives_as_it_was_sent(lake: ArrowLake) -> None:
    metadata: dict[str, Any] = {
        "partition_expr": "at",
        "iceberg/partition_by": ["day(at)", "bucket(4, id)"],
        "iceberg/sort_by": ["id desc nulls last"],
        "iceberg/write_disposition": "merge",
        "iceberg/merge_keys": ["id"],
        "iceberg/merge": {"strategy": "scd2", "boundary": "2024-01-31T12:00:00+00:00"},
        "iceberg/audits": {"keys": {"unique": ["id"]}, "known": {"not_null": ["id"]}, "mean": "avg(v) > 0"},
        "iceberg/renames": {"v": "w"},
    }
    context = dg.build_output_context(
        asset_key=dg.AssetKey(["db", "t"]),
        definition_metadata=metadata,
        asset_partitions_def=DAYS,
        partition_key="2024-01-02",
        resources={},
    )
    _, request = lake.io_manager.write_request_of(output_facts(context))
    catalog = JobCatalog.of(lake.spark.catalog_description)
    sent = JobDocument(catalog, {}, {"result": JobOutput.of(request, None)}, 0, is_case_sensitive=False)
    assert read_document(json.loads(json.dumps(sent.extras()))) == sent
    shown = sent.extras()["dagster_iceberg_spark"]["outputs"]["result"]
    assert shown["summary"]["dagster.commit_token"] == request.materialization.commit_token


def test_a_document_names_no_other_classes() -> None:
    with pytest.raises(TypeError, match="subprocess:Popen"):
        pipes_extras.decode({"=": "subprocess:Popen", "fields": {"args": ["true"]}})

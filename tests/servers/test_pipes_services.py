"""Dagster's clients of AWS, against moto's server, which keeps what they ask for. The test runs the jobs.

docs/how-to/run-on-emr-serverless.md; docs/how-to/run-on-glue.md; docs/pipes.md: The snapshot decides
"""

import copy
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, ClassVar

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster_aws.pipes import (
    PipesEMRClient,
    PipesEMRServerlessClient,
    PipesGlueClient,
    PipesS3ContextInjector,
    PipesS3MessageReader,
)
from moto.emr.models import emr_backends
from moto.emrserverless.models import emrserverless_backends
from moto.glue.models import glue_backends
from moto.moto_api import state_manager

from dagster_iceberg_spark import IcebergPipes, reattachable
from tests.core.arrow.writing import ArrowLake, metadata_of
from tests.features.pipes.test_pipes import RESUMED, failure_of, lake, lost, resources  # noqa: F401
from tests.servers.s3 import REGION, S3Server
from tests.test_docs import CHECKOUT

pytestmark = pytest.mark.server

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/lake-job"
SECONDS = 0.1
"""How often the clients look for the state of a job."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    opened = S3Server()
    yield opened
    opened.close()


class Service:
    """A service: runs the job that its client has started, and ends it in a state.

    Without capacity, it holds the job back, and the client is lost when it looks at it.
    """

    name: ClassVar[str]
    starts: ClassVar[str]
    looks: ClassVar[str]
    states: ClassVar[Mapping[str, str]]

    def __init__(self, server: S3Server, job: str, end: str) -> None:
        self.server, self.job, self.end = server, job, end
        self.api = server.client(self.name)
        self.api.meta.events.register(f"after-call.{self.name}.{self.starts}", self._started)
        self.api.meta.events.register(f"before-call.{self.name}.{self.looks}", self._looked)
        self.runs: list[Any] = []
        self.capacity = Event()
        self.capacity.set()
        self._process: Thread | None = None

    @property
    def places(self) -> dict[str, Any]:
        s3 = self.server.client("s3")
        reader = PipesS3MessageReader(bucket=self.server.bucket, client=s3, interval=0)
        return {
            "context_injector": PipesS3ContextInjector(bucket=self.server.bucket, client=s3),
            "message_reader": reader,
        }

    def client(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        raise NotImplementedError

    def found(self, answer: Any) -> Any:
        raise NotImplementedError

    def move(self, run: Any, state: str) -> None:
        run.state = state

    def environment(self, run: Any) -> dict[str, str]:
        return {}

    def arguments(self, run: Any) -> Sequence[str]:
        return ()

    def join(self) -> None:
        if self._process is not None:
            self._process.join()

    def _started(self, parsed: Any, **_: Any) -> None:
        run = self.found(parsed)
        self.runs.append(run)
        self.move(run, "RUNNING")
        self._process = Thread(target=self._run, args=(run,), daemon=True)
        self._process.start()

    def _looked(self, **_: Any) -> None:
        if not self.capacity.is_set():
            lost()

    def _run(self, run: Any) -> None:
        self.capacity.wait()
        keys = {"AWS_ACCESS_KEY_ID": "role", "AWS_SECRET_ACCESS_KEY": "none"}
        place = {"AWS_ENDPOINT_URL": self.server.endpoint, "AWS_DEFAULT_REGION": REGION}
        command = [sys.executable, "-m", "tests.features.pipes.service_jobs", self.job, *self.arguments(run)]
        env = {**os.environ, **keys, **place, **self.environment(run)}
        subprocess.run(command, cwd=CHECKOUT, env=env, check=False)
        self.move(run, self.states[self.end])


class EmrServerless(Service):
    name, starts, looks = "emr-serverless", "StartJobRun", "GetJobRun"
    states: ClassVar = {"succeeded": "SUCCESS", "failed": "FAILED"}

    def client(self, monkeypatch: pytest.MonkeyPatch) -> PipesEMRServerlessClient:
        monkeypatch.setattr(self.api, "get_dashboard_for_job_run", lambda **_: {"url": ""})  # moto has none
        return PipesEMRServerlessClient(client=reattachable(self.api), poll_interval=SECONDS, **self.places)

    def options(self) -> dict[str, Any]:
        application = self.api.create_application(name="lake", releaseLabel="emr-7.9.0", type="SPARK")
        submit = {"entryPoint": "s3://lake/job.py", "sparkSubmitParameters": "--conf spark.executor.cores=1"}
        job_run = {"applicationId": application["applicationId"], "executionRoleArn": ROLE}
        return {"start_job_run_params": {**job_run, "jobDriver": {"sparkSubmit": submit}}}

    def found(self, answer: Any) -> Any:
        return emrserverless_backends[ACCOUNT][REGION].get_job_run(answer["applicationId"], answer["jobRunId"])

    def environment(self, run: Any) -> dict[str, str]:
        """Return the environment of the driver, as the parameters of `spark-submit` give it."""
        given = shlex.split(run.job_driver["sparkSubmit"]["sparkSubmitParameters"])[1::2]
        prefix = "spark.emr-serverless.driverEnv."
        return dict(text.removeprefix(prefix).split("=", 1) for text in given if text.startswith(prefix))


class Glue(Service):
    name, starts, looks = "glue", "StartJobRun", "GetJobRun"
    states: ClassVar = {"succeeded": "SUCCEEDED", "failed": "FAILED"}

    def client(self, monkeypatch: pytest.MonkeyPatch) -> PipesGlueClient:
        state_manager.set_transition("glue::job_run", {"progression": "manual", "times": sys.maxsize})
        monkeypatch.setattr("dagster_aws.pipes.clients.glue.time", SimpleNamespace(sleep=lambda _: time.sleep(SECONDS)))
        return PipesGlueClient(client=reattachable(self.api), **self.places)

    def options(self) -> dict[str, Any]:
        name = f"{self.job}-{self.end}"
        self.api.create_job(Name=name, Role=ROLE, Command={"Name": "glueetl"}, DefaultArguments={"--job": "daily"})
        return {"start_job_run_params": {"JobName": name}}

    def found(self, answer: Any) -> Any:
        [job_run] = glue_backends[ACCOUNT][REGION].jobs[f"{self.job}-{self.end}"].job_runs
        assert job_run.job_run_id == answer["JobRunId"]
        return job_run

    def move(self, run: Any, state: str) -> None:
        run.status = state

    def arguments(self, run: Any) -> Sequence[str]:
        return [text for pair in run.arguments.items() for text in pair]


class Emr(Service):
    name, starts, looks = "emr", "RunJobFlow", "DescribeCluster"
    states: ClassVar = {"succeeded": "TERMINATED", "failed": "TERMINATED_WITH_ERRORS"}

    def client(self, monkeypatch: pytest.MonkeyPatch) -> PipesEMRClient:
        genuine = self.api.get_waiter

        def quick(name: str) -> Any:
            waiter = genuine(name)
            waiter.config.delay, waiter.config.max_attempts = SECONDS, 600
            return waiter

        monkeypatch.setattr(self.api, "get_waiter", quick)
        return PipesEMRClient(client=reattachable(self.api), **self.places)

    def options(self) -> dict[str, Any]:
        step = {"Name": "job", "HadoopJarStep": {"Jar": "command-runner.jar", "Args": ["spark-submit", "job.py"]}}
        cluster = {"Name": "lake", "ReleaseLabel": "emr-7.9.0", "Steps": [step], "Instances": {}}
        return {"run_job_flow_params": cluster}

    def found(self, answer: Any) -> Any:
        return emr_backends[ACCOUNT]["us-east-1"].clusters[answer["JobFlowId"]]  # the address names no region

    def environment(self, run: Any) -> dict[str, str]:
        """Return what the configuration exports in `spark-env.sh`."""
        [given] = [item for item in run.configurations if item["Classification"] == "spark-env"]
        [exported] = given["Configurations"]
        return dict(exported["Properties"])


@pytest.fixture(params=[EmrServerless, Glue, Emr], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Iterator[type[Service]]:
    yield request.param
    state_manager.unset_transition("glue::job_run")


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait a second, not ten, for the messages of a job that has ended."""
    monkeypatch.setattr("dagster._core.pipes.utils.WAIT_FOR_LOGS_AFTER_EXECUTION_INTERVAL", 1)


def launch(lake: ArrowLake, service: Service, monkeypatch: Any) -> dg.ExecuteInProcessResult:  # noqa: F811
    result = execute(lake, launching(service, monkeypatch))
    service.join()
    return result


def launching(service: Service, monkeypatch: pytest.MonkeyPatch) -> dg.AssetsDefinition:
    options = service.options()

    @dg.asset(name="t", io_manager_key="iceberg")
    def asset(context: dg.AssetExecutionContext, lake: IcebergPipes) -> Any:  # noqa: F811
        return lake.run(context, service.client(monkeypatch), **copy.deepcopy(options))

    return asset


def execute(lake: ArrowLake, asset: dg.AssetsDefinition, **tags: str) -> dg.ExecuteInProcessResult:  # noqa: F811
    job = dg.Definitions([asset], resources=resources(lake)).resolve_implicit_global_asset_job_def()
    return job.execute_in_process(instance=lake.instance, tags=tags, raise_on_error=False)


@pytest.mark.parametrize("end", ["succeeded", "failed"])
def test_a_step_succeeds_with_the_snapshot_whatever_the_service_says(
    lake: ArrowLake,  # noqa: F811
    server: S3Server,
    kind: type[Service],
    end: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = kind(server, "write", end)
    result = launch(lake, service, monkeypatch)
    assert result.success
    reported = metadata_of(result)
    assert (lake.rows("v"), len(lake.operations()), len(service.runs)) == ([1, 2, 3], 1, 1)
    assert reported["iceberg/snapshot_id"] == str(lake.table().metadata.current_snapshot_id)
    assert reported.get("model") == ("m1" if end == "succeeded" else None)


@pytest.mark.parametrize("kind", [Glue], indirect=True)
def test_a_step_fails_without_a_snapshot_although_the_service_has_succeeded(
    lake: ArrowLake,  # noqa: F811
    server: S3Server,
    kind: type[Service],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = launch(lake, kind(server, "nothing", "succeeded"), monkeypatch)
    found = failure_of(result)
    assert "JobFailedError" in found
    assert "found no table; the job has ended without an error" in found


def test_a_resumed_run_waits_for_the_job_of_the_first(
    lake: ArrowLake,  # noqa: F811
    server: S3Server,
    kind: type[Service],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = kind(server, "write", "succeeded")
    asset = launching(service, monkeypatch)
    service.capacity.clear()
    first = execute(lake, asset)
    assert "JobFailedError" in failure_of(first)
    service.capacity.set()
    tags = {"dagster/parent_run_id": first.run_id, "dagster/root_run_id": first.run_id, RESUMED: "true"}
    assert execute(lake, asset, **tags).success
    assert (lake.rows("v"), len(lake.operations()), len(service.runs)) == ([1, 2, 3], 1, 1)


def test_a_job_is_cancelled_with_the_run(
    lake: ArrowLake,  # noqa: F811
    server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = EmrServerless(server, "nothing", "succeeded")
    monkeypatch.setattr(service, "_run", lambda _: None)

    def interrupted(**_: Any) -> None:
        raise DagsterExecutionInterruptedError

    monkeypatch.setattr(service.api, "get_job_run", interrupted)
    assert not launch(lake, service, monkeypatch).success
    assert [run.state for run in service.runs] == ["CANCELLED"]

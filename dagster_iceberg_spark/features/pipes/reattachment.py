"""Jobs that outlive the run that launched them. A later attempt of the step waits for such a job, and launches none."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.assets.dagster_private.context import StepFacts
from dagster_iceberg_spark.assets.dagster_private.event_log import engine_events
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.write.write_request import WriteRequest

_OUTPUT: Final = "iceberg/job_token"
_HANDLE: Final = "iceberg/job"
_KIND: Final = "kind"
_WAIT_SECONDS: Final = 0.5


@dataclass(frozen=True)
class LaunchedJobs:
    """The jobs that the attempts of a step have launched for an output. The event logs of their runs hold the handles.

    Args:
        step: The step, or None outside of a run.
    """

    step: StepFacts | None
    request: WriteRequest

    def record(self, kind: str, handle: Mapping[str, Any]) -> None:
        """Record the handle of a job that has just been launched. It is durable on return."""
        if self.step is not None:
            token = self.request.materialization.commit_token
            document = json.dumps({_KIND: kind, **handle})
            self.step.record_event(f"Launched the job of {self.request.subject}.", {_OUTPUT: token, _HANDLE: document})

    def newest(self, kind: str) -> dict[str, Any] | None:
        """Return the handle of the job that was launched last, if it is of this kind."""
        if self.step is None:
            return None
        for candidate in self.request.candidates:
            events = engine_events(self.step.instance, candidate.run_id)
            handles = [json.loads(event[_HANDLE]) for event in events if event.get(_OUTPUT) == candidate.token]
            if handles:
                return handles[-1] if handles[-1].pop(_KIND) == kind else None
        return None


_jobs: Final = ContextVar[LaunchedJobs | None]("jobs of the step", default=None)


@contextmanager
def recorded(jobs: LaunchedJobs) -> Iterator[None]:
    """Record what clients launch while the block runs."""
    before = _jobs.set(jobs)
    try:
        yield
    finally:
        _jobs.reset(before)


class ReattachableSubprocessClient(dg.PipesSubprocessClient):
    """Runs a job as `PipesSubprocessClient` does, in a session of its own, which outlives the run.

    If the run dies, a later attempt on the same machine waits for the job. If the run is terminated, the job and all
    processes that it has started are ended: by SIGINT, and after `termination_timeout_seconds` by SIGKILL.
    """

    def run(  # type: ignore[override]  # as in Dagster's own clients, the arguments are this client's
        self,
        *,
        context: dg.AssetExecutionContext,
        command: str | Sequence[str],
        extras: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> dg.PipesClientCompletedInvocation:
        """Run the command, or wait for the job of an earlier attempt.

        Args:
            context: The context of the asset.
            command: The command, as for `subprocess.Popen`.
            extras: The extras for the job.
            env: Further environment variables for the command.
            cwd: The directory to run the command in.

        Raises:
            Failure: The command has failed.
        """
        jobs = _jobs.get()
        earlier = jobs.newest("subprocess") if jobs else None
        with dg.open_pipes_session(
            context=context,
            context_injector=self.context_injector,
            message_reader=self.message_reader,
            extras=dict(extras or {}),
        ) as session:
            if earlier is not None and _runs(earlier):
                context.log.info(f"Waiting for the job of an earlier attempt, process {earlier['pid']}.")
                with self._ended_with_run(earlier["pid"]):
                    while _runs(earlier):
                        time.sleep(_WAIT_SECONDS)
                return dg.PipesClientCompletedInvocation(session)
            environment = {**os.environ, **self.env, **(env or {}), **session.get_bootstrap_env_vars()}
            output = None if self.forward_stdio else subprocess.PIPE
            process = subprocess.Popen(  # noqa: S603 - the command is the user's
                command, cwd=cwd or self.cwd, env=environment, stdout=output, stderr=output, start_new_session=True
            )
            with self._ended_with_run(process.pid, process.wait):
                if jobs:
                    jobs.record("subprocess", _handle_of(process.pid))
                code = process.wait()
        if code != 0:
            raise dg.Failure(f"the command has ended with exit code {code}")
        return dg.PipesClientCompletedInvocation(session)

    @contextmanager
    def _ended_with_run(self, pid: int, wait: Callable[[], object] = lambda: None) -> Iterator[None]:
        """End the job if the run is terminated while the block runs, and wait for the end."""
        try:
            yield
        except (dg.DagsterExecutionInterruptedError, KeyboardInterrupt):
            if self.forward_termination:
                handle = _handle_of(pid)
                _signal(pid, signal.SIGINT)
                deadline = time.monotonic() + self.termination_timeout_seconds
                while _runs(handle) and time.monotonic() < deadline:
                    time.sleep(_WAIT_SECONDS)
                _signal(pid, signal.SIGKILL)
                wait()
            raise


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _handle_of(pid: int) -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": pid, "started": _started(pid)}


def _runs(handle: Mapping[str, Any]) -> bool:
    """Return whether the process of a handle still runs on this machine. Another process may have its number now."""
    return handle["started"] is not None and _handle_of(handle["pid"]) == handle


def _started(pid: int) -> str | None:
    """Return what identifies the start of a process, or None if it has ended."""
    if Path("/proc/self/stat").exists():
        try:
            state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if state in "ZX" else f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {fields[18]}"
    done = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603,S607
    return done.stdout.strip() or None


@dataclass(frozen=True)
class _Service:
    """How a service of AWS starts a job, and how it reports its state.

    Args:
        start: The method that starts a job.
        look: The method that describes it.
        ids: The arguments of `look`, each by the name that it has in the start's arguments or answer.
        state: The path to the state in the answer of `look`.
        running: The states of a job that has not ended.
    """

    start: str
    look: str
    ids: Mapping[str, str]
    state: tuple[str, ...]
    running: frozenset[str]


_SERVICES: Final[Mapping[str, _Service]] = {
    "emr": _Service(
        "run_job_flow",
        "describe_cluster",
        {"ClusterId": "JobFlowId"},
        ("Cluster", "Status", "State"),
        frozenset({"STARTING", "BOOTSTRAPPING", "RUNNING"}),
    ),
    "emr-containers": _Service(
        "start_job_run",
        "describe_job_run",
        {"virtualClusterId": "virtualClusterId", "id": "id"},
        ("jobRun", "state"),
        frozenset({"PENDING", "SUBMITTED", "RUNNING"}),
    ),
    "emr-serverless": _Service(
        "start_job_run",
        "get_job_run",
        {"applicationId": "applicationId", "jobRunId": "jobRunId"},
        ("jobRun", "state"),
        frozenset({"SUBMITTED", "PENDING", "SCHEDULED", "RUNNING", "QUEUED"}),
    ),
    "glue": _Service(
        "start_job_run",
        "get_job_run",
        {"JobName": "JobName", "RunId": "JobRunId"},
        ("JobRun", "JobRunState"),
        frozenset({"STARTING", "RUNNING", "WAITING"}),
    ),
}
"""The services, by boto3's names (service models of botocore 1.43)."""


def reattachable(client: Any) -> Any:
    """Return a boto3 client for a Pipes client of dagster-aws, which waits for the job of an earlier attempt.

    Example:
        ```python
        PipesEMRServerlessClient(client=reattachable(boto3.client("emr-serverless")))
        ```

    Args:
        client: A boto3 client of EMR, EMR on EKS, EMR Serverless or Glue.

    Raises:
        ConfigurationError: The client is of another service.
    """
    name = getattr(getattr(getattr(client, "meta", None), "service_model", None), "service_name", type(client).__name__)
    if name not in _SERVICES:
        raise ConfigurationError.refusing(
            "wait for the jobs of",
            "an earlier attempt",
            expected=f"a boto3 client of {', '.join(_SERVICES)}",
            found=f"one of {name}",
            hint="pass the client to dagster-aws as it is. A second job then adopts the snapshot of the first.",
        )
    return _ReattachableClient(client, name, _SERVICES[name])


@dataclass(frozen=True)
class _ReattachableClient:
    client: Any
    name: str
    service: _Service

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)
        return self._starting(method) if name == self.service.start else method

    def _starting(self, start: Callable[..., Any]) -> Callable[..., Any]:
        def started(**arguments: Any) -> Any:
            jobs = _jobs.get()
            earlier = jobs.newest(self.name) if jobs else None
            if earlier is not None and self._runs(earlier):
                return earlier
            answer = start(**arguments)
            known = {**arguments, **answer}
            if jobs:
                jobs.record(self.name, {key: known[key] for key in self.service.ids.values()})
            return answer

        return started

    def _runs(self, handle: Mapping[str, Any]) -> bool:
        found = getattr(self.client, self.service.look)(**{key: handle[of] for key, of in self.service.ids.items()})
        for key in self.service.state:
            found = found[key]
        return found in self.service.running

"""Launches a job through any client of Dagster Pipes, with what its tables need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from pydantic import Field

from dagster_iceberg_spark.assets.asking import OutputFacts, output_facts
from dagster_iceberg_spark.assets.dagster_private.context import output_of
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.catalog.description import CatalogDescription, first_line
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.commit.outcome import committed_snapshots, find_commit
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.pipes.extras import JobCatalog, JobDocument, JobOutput, JobReport, reports_in
from dagster_iceberg_spark.features.pipes.reattachment import LaunchedJobs, recorded
from dagster_iceberg_spark.features.pipes.watch import CommitWatch
from dagster_iceberg_spark.plan.read.read_plan import ReadPlan
from dagster_iceberg_spark.plan.write.write_request import WriteRequest, WrittenElsewhere


class IcebergPipes(dg.ConfigurableResource[None]):
    """Launches jobs that write the tables of assets.

    Example:
        ```python
        @dg.asset(io_manager_key="iceberg")
        def daily(context, pipes: dg.PipesSubprocessClient, lake: IcebergPipes, orders: ReadPlan):
            return lake.run(context, pipes, inputs={"orders": orders}, command=["spark-submit", "job.py"])
        ```
    """

    extras: dict[str, Any] = Field(default={}, description="Extras that each job gets.")
    watch_seconds: float = Field(
        default=30.0, gt=0, description="Seconds between two looks for the snapshot while a job runs."
    )
    ends_after_seconds: float | None = Field(
        default=None,
        ge=0,
        description="Seconds that a job may go on after its commit. Then it is ended, as if its run were terminated, "
        "and the step succeeds. Default: as long as it takes.",
    )

    def run(
        self,
        context: dg.AssetExecutionContext,
        client: dg.PipesClient,
        *,
        inputs: Mapping[str, ReadPlan] | None = None,
        output: str = "result",
        extras: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> dg.Output[WrittenElsewhere]:
        """Launch a job, and wait until it has ended. Return what the asset has to return.

        The IO manager then looks for the snapshot that the job has committed. Without a snapshot, the step fails, also
        if the job has ended without an error.

        Args:
            context: The context of the asset.
            client: The client that launches the job, such as `PipesSubprocessClient` or that of EMR.
            inputs: The inputs of the asset that the job reads, by the names that the job uses. Annotate them as
                `ReadPlan` in the asset's function.
            output: The name of the output that the job writes.
            extras: Further extras for the job.
            options: Further arguments of the client's `run`, such as `command`.

        Raises:
            IcebergSparkError: The configuration is wrong. No job is launched.
        """
        return self.run_for_outputs(context, client, [output], inputs=inputs, extras=extras, **options)[0]

    def run_for_outputs(
        self,
        context: dg.AssetExecutionContext,
        client: dg.PipesClient,
        outputs: Sequence[str],
        *,
        inputs: Mapping[str, ReadPlan] | None = None,
        extras: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> tuple[dg.Output[WrittenElsewhere], ...]:
        """Launch a job that writes several outputs. Return the output of each, for the asset to return or to yield.

        Each output is committed on its own. No job is launched if all of them are committed already.

        Args:
            context: The context of the asset.
            client: The client that launches the job.
            outputs: The names of the outputs that the job writes.
            inputs: The inputs of the asset that the job reads, as for `run`.
            extras: Further extras for the job.
            options: Further arguments of the client's `run`.

        Raises:
            IcebergSparkError: The configuration is wrong. No job is launched.
        """
        context.set_requires_typed_event_stream(error_message="Return what `IcebergPipes.run` returns.")
        planned = [_Planned.of(context, name) for name in outputs]
        first, subjects = planned[0], ", ".join(each.request.subject for each in planned)
        others = [each.request.subject for each in planned if each.catalog.identity != first.catalog.identity]
        if others:
            raise ConfigurationError.refusing(
                "launch",
                f"a job for {subjects}",
                expected="tables of one catalog",
                found=f"another catalog for {', '.join(others)}",
                hint="launch a job for each catalog.",
            )
        if all(each.is_committed for each in planned):
            context.log.info(f"The job of an earlier attempt has committed {subjects}: none is launched.")
            return tuple(each.ended("no job was launched") for each in planned)
        document = JobDocument(
            JobCatalog.of(first.catalog),
            dict(inputs or {}),
            {each.name: each.sent for each in planned},
            first.io_manager.arrow_bytes,
            first.io_manager.spark.is_case_sensitive,
        )
        sent = {**self.extras, **(extras or {}), **document.extras()}
        watch = CommitWatch(
            lambda: all(each.has_committed() for each in planned),
            context.log.info,
            interval_seconds=self.watch_seconds,
            ends_after_seconds=self.ends_after_seconds,
        )
        try:
            with recorded(LaunchedJobs(first.facts.step, first.request)):
                done = watch.run(lambda: client.run(context=context, extras=sent, **options))
        except Exception as error:  # noqa: BLE001 - of any client: the snapshot decides
            found = first.catalog.redact(f"the job has ended with an error: {first_line(error)}")
            context.log.warning(f"{subjects}: {found}")
            return tuple(each.ended(found, error) for each in planned)
        if done is None:
            return tuple(each.ended("the job was ended after its commit") for each in planned)
        reports, results = reports_in(done.get_custom_messages()), done.get_results(implicit_materializations=False)
        found = "the job has ended without an error"
        return tuple(each.ended(found, report=reports.get(each.name), results=results) for each in planned)


@dataclass(frozen=True)
class _Planned:
    """An output that a job is to write.

    Args:
        known: The snapshots that the table had before the job.
        is_committed: Whether an earlier attempt has committed it.
    """

    name: str
    facts: OutputFacts
    io_manager: TableIOManager
    catalog: CatalogDescription
    request: WriteRequest
    sent: JobOutput
    known: frozenset[int]
    is_committed: bool

    @classmethod
    def of(cls, context: dg.AssetExecutionContext, name: str) -> "_Planned":
        """Plan an output, and look for it in its table."""
        output_context, io_manager = output_of(context, name)
        if not isinstance(io_manager, TableIOManager):
            raise ConfigurationError.refusing(
                "launch",
                f"a job for the output {name!r} of {context.op_execution_context.op_handle}",
                expected="an IcebergPySparkIOManager to store the output",
                found=type(io_manager).__name__,
                hint="set `io_manager_key` of the asset.",
            )
        facts = output_facts(output_context)
        catalog, request = io_manager.write_request_of(facts)
        state = look(catalog, request.identifier)
        known = frozenset[int]() if state is None else frozenset(state.snapshots)
        is_committed = state is not None and find_commit(state, request, known) is not None
        sent = JobOutput.of(request, state)
        return cls(name, facts, io_manager, catalog, request, sent, known, is_committed)

    def has_committed(self) -> bool:
        """Return whether the job has committed the output."""
        return bool(committed_snapshots(look(self.catalog, self.request.identifier), self.request, self.known))

    def ended(
        self,
        found: str,
        cause: Exception | None = None,
        *,
        report: JobReport | None = None,
        results: Sequence[Any] = (),
    ) -> dg.Output[WrittenElsewhere]:
        """Return the output after the job has ended, with the metadata that it has reported for the asset."""
        given = report or JobReport(self.name)
        written = WrittenElsewhere(found, cause, given.audits, self.known, given.snapshot_id, given.counts)
        metadata = dict[str, Any]()
        for result in results:
            if isinstance(result, dg.MaterializeResult) and result.asset_key == self.facts.asset_key:
                metadata |= result.metadata or {}
        return dg.Output(written, self.name, metadata=metadata)

"""Launches a job through any client of Dagster Pipes, with what its tables need."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from dagster_iceberg_spark.assets.asking import output_facts
from dagster_iceberg_spark.assets.dagster_private.context import output_of
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.catalog.description import first_line
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.commit.outcome import committed_snapshots, find_commit
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.pipes.extras import JobCatalog, JobDocument, JobOutput, audits_in
from dagster_iceberg_spark.features.pipes.reattachment import LaunchedJobs, recorded
from dagster_iceberg_spark.features.pipes.watch import CommitWatch
from dagster_iceberg_spark.plan.read.read_plan import ReadPlan
from dagster_iceberg_spark.plan.write.adoption import searched_since_ms
from dagster_iceberg_spark.plan.write.write_request import WriteRequest, WrittenElsewhere
from dagster_iceberg_spark.table.snapshot import TableState


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
        context.set_requires_typed_event_stream(error_message="Return what `IcebergPipes.run` returns.")
        output_context, io_manager = output_of(context, output)
        if not isinstance(io_manager, TableIOManager):
            raise ConfigurationError.refusing(
                "launch",
                f"a job for the output {output!r} of {context.op_execution_context.op_handle}",
                expected="an IcebergPySparkIOManager to store the output",
                found=type(io_manager).__name__,
                hint="set `io_manager_key` of the asset.",
            )
        facts = output_facts(output_context)
        catalog, request = io_manager.write_request_of(facts)
        state = look(catalog, request.identifier)
        known = _known(state, request)
        if state is not None and find_commit(state, request, known):
            context.log.info(f"The job of an earlier attempt has committed {request.subject}: none is launched.")
            return dg.Output(WrittenElsewhere("no job was launched", known=known), output)
        document = JobDocument(
            JobCatalog.of(catalog),
            dict(inputs or {}),
            {output: JobOutput.of(request, state)},
            io_manager.arrow_bytes,
            io_manager.spark.is_case_sensitive,
        )
        sent = {**self.extras, **(extras or {}), **document.extras()}
        done: dg.PipesClientCompletedInvocation | None = None
        watch = CommitWatch(
            lambda: bool(committed_snapshots(look(catalog, request.identifier), request, known)),
            context.log.info,
            interval_seconds=self.watch_seconds,
            ends_after_seconds=self.ends_after_seconds,
        )
        try:
            with recorded(LaunchedJobs(facts.step, request)), watch:
                done = client.run(context=context, extras=sent, **options)
        except Exception as error:  # noqa: BLE001 - of any client: the snapshot decides
            found = catalog.redact(f"the job has ended with an error: {first_line(error)}")
            context.log.warning(f"{request.subject}: {found}")
            return dg.Output(WrittenElsewhere(found, error, known=known), output)
        if done is None:
            return dg.Output(WrittenElsewhere("the job was ended after its commit", known=known), output)
        audits = audits_in(done.get_custom_messages())
        written = WrittenElsewhere("the job has ended without an error", audits=audits, known=known)
        return dg.Output(written, output, metadata=_reported(done))


def _known(state: TableState | None, request: WriteRequest) -> frozenset[int]:
    """Return the snapshots that are older than the attempts of the step."""
    if state is None:
        return frozenset()
    since_ms = searched_since_ms(request.candidates)
    return frozenset(
        snapshot.snapshot_id
        for snapshot in state.snapshots.values()
        if since_ms is None or snapshot.committed_at_ms < since_ms
    )


def _reported(done: dg.PipesClientCompletedInvocation) -> dict[str, Any]:
    """Return the metadata that the job has reported of its materialization."""
    found = dict[str, Any]()
    for result in done.get_results(implicit_materializations=False):
        if isinstance(result, dg.MaterializeResult):
            found |= result.metadata or {}
    return found

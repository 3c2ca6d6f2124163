"""The step of a context: what it executes, what it records, and what was recorded of its asset."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import dagster as dg
from dagster._core.events import DagsterEvent, EngineEventData
from dagster._core.execution.plan.outputs import StepOutputHandle

from dagster_iceberg_spark.assets.dagster_private import step_context
from dagster_iceberg_spark.assets.dagster_private.event_log import PAGE, snapshot_of
from dagster_iceberg_spark.assets.dagster_private.runs import RESUME_TAGS, parents_of, root_run_of
from dagster_iceberg_spark.table.lineage import SNAPSHOT_ID


@dataclass(frozen=True, slots=True)
class StepFacts:
    """The step that handles an output or loads an input. Attempts count from 0.

    The root run is the first of the runs that re-execute the same run, or the run itself.
    """

    run_id: str
    job_name: str
    step_key: str
    attempt: int
    run_tags: Mapping[str, str]
    instance: dg.DagsterInstance
    root_run_id: str

    def record_event(self, message: str, facts: Mapping[str, str]) -> None:
        """Record an engine event of the step, with facts for later attempts. The event is durable on return."""
        self.instance.report_engine_event(
            message,
            job_name=self.job_name,
            run_id=self.run_id,
            step_key=self.step_key,
            engine_event_data=EngineEventData(metadata=dict(facts)),
        )


def step_facts(context: dg.OutputContext | dg.InputContext) -> StepFacts | None:
    """Return the step of the context, or None if the context was built by hand or belongs to a script."""
    step = step_context(context)
    if step is None:
        return None
    return StepFacts(
        run_id=step.run_id,
        job_name=step.job_name,
        step_key=step.step.key,
        attempt=step.previous_attempt_count,
        run_tags=step.dagster_run.tags,
        instance=step.instance,
        root_run_id=root_run_of(step.dagster_run),
    )


def record_evaluation(context: dg.OutputContext, evaluation: dg.AssetCheckEvaluation) -> None:
    """Record the evaluation of an asset check in the step that stores the output. The event is durable on return."""
    step = step_context(context)
    if step is not None:
        DagsterEvent.asset_check_evaluation(step, evaluation)


def set_data_version(context: dg.OutputContext, version: str) -> None:
    """Record the data version of the output's asset, unless the asset sets one itself."""
    step = step_context(context)
    if step is not None and context.has_asset_key and not step.has_data_version(context.asset_key):
        step.set_data_version(context.asset_key, dg.DataVersion(version))


def add_partition_metadata(context: dg.OutputContext, partition_key: str, metadata: Mapping[str, Any]) -> None:
    """Add metadata to the materialization of one partition, in a run of several partitions."""
    step = step_context(context)
    if step is not None:
        step.add_asset_metadata(metadata=metadata, asset_key=context.asset_key, partition_key=partition_key)


def resumed_runs(facts: StepFacts) -> list[str]:
    """Return the runs that the step's run resumes: its parent, the run that the parent resumed, and so on."""
    parents = parents_of(facts.instance, facts.run_tags)
    resumed = takewhile(lambda item: any(item[1].get(tag) == "true" for tag in RESUME_TAGS), parents)
    return [parent for parent, _ in resumed]


def definition_metadata_of(context: dg.InputContext) -> Mapping[str, Any]:
    """Return the definition metadata of the asset that an input loads."""
    upstream = context.upstream_output
    if upstream is not None:
        return upstream.definition_metadata or {}
    step = step_context(context)
    if step is None or not context.has_asset_key:
        return {}
    layer = step.job_def.asset_layer
    return layer.get(context.asset_key).metadata if layer.has(context.asset_key) else {}


def output_of(context: dg.AssetExecutionContext, output: str) -> tuple[dg.OutputContext, Any]:
    """Return the IO manager of an output of the step, and the context with which it will store the output."""
    step: Any = context.op_execution_context.get_step_execution_context()
    handle = StepOutputHandle(step.step.key, output)
    return step.get_output_context(handle), step.get_io_manager(handle)


def specs_of_job(context: dg.OutputContext) -> list[dg.AssetSpec]:
    """Return the specs of the assets that the job of an output knows: those that it materializes and their inputs."""
    step = step_context(context)
    layer = None if step is None else step.job_def.asset_layer
    return [] if layer is None else [node.to_asset_spec() for node in layer.asset_graph.asset_nodes]


def instance_of(context: dg.InputContext) -> dg.DagsterInstance | None:
    """Return the instance of the context's run, or the instance that a script passed, if any."""
    step = step_context(context)
    instance: dg.DagsterInstance | None = context._instance if step is None else step.instance
    return instance


def outputs_of(context: dg.InputContext) -> list[tuple[dg.OutputContext, Any]]:
    """Return the output contexts of the assets that the input's step materializes.

    Each comes with its IO manager, or with None if the output has no value to store.
    """
    step = step_context(context)
    assets = set() if step is None else step.get_output_asset_keys()
    found = []
    for output in () if step is None else step.step.step_outputs:
        handle = StepOutputHandle(step.step.key, output.name)
        output_context = step.get_output_context(handle)
        if output_context.has_asset_key and output_context.asset_key in assets:
            is_stored = not output_context.dagster_type.is_nothing
            found.append((output_context, step.get_io_manager(handle) if is_stored else None))
    return found


def materializations(context: dg.OutputContext, partition_key: str | None) -> Iterator[tuple[str, str | None, float]]:
    """Yield run id, step key and seconds since 1970 of an asset's or a partition's materializations, newest first."""
    step = step_context(context)
    keys = None if partition_key is None else [partition_key]
    records = dg.AssetRecordsFilter(asset_key=context.asset_key, asset_partitions=keys)
    cursor: str | None = None
    while step is not None:
        answer = step.instance.fetch_materializations(records, limit=20, cursor=cursor)
        yield from ((record.run_id, record.event_log_entry.step_key, record.timestamp) for record in answer.records)
        if not answer.has_more:
            return
        cursor = answer.cursor


def newest_materializations(
    context: dg.InputContext, partition_keys: Sequence[str]
) -> Iterator[tuple[str, dg.AssetMaterialization]]:
    """Yield the newest materialization of each of these partitions of the input's asset that has one."""
    instance, left, cursor = instance_of(context), set(partition_keys), None
    while instance is not None and left:
        records = dg.AssetRecordsFilter(asset_key=context.asset_key, asset_partitions=sorted(left))
        answer = instance.fetch_materializations(records, limit=PAGE, cursor=cursor)
        for record in answer.records:
            event = record.asset_materialization
            if event is not None and event.partition in left:
                left.remove(event.partition)
                yield event.partition, event
        if not answer.has_more:
            return
        cursor = answer.cursor


def is_stored_elsewhere(context: dg.OutputContext) -> bool:
    """Return whether the last materialization of an output's asset was not stored by this package."""
    step = step_context(context)
    event = None if step is None else _latest(step, context.asset_key)
    return event is not None and SNAPSHOT_ID not in event.metadata


def latest_materializations(context: dg.OutputContext, partition_keys: Sequence[str]) -> dict[str, int | None]:
    """Return the snapshot that Dagster recorded last for each partition of an output."""
    step, asset = step_context(context), context.asset_key
    return {
        key: snapshot_of(_latest(step, dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[key])))
        for key in partition_keys
    }


def _latest(step: Any, records: dg.AssetKey | dg.AssetRecordsFilter) -> dg.AssetMaterialization | None:
    found = step.instance.fetch_materializations(records, limit=1).records
    return found[0].asset_materialization if found else None

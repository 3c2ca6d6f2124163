"""The calls of Dagster that are not part of its public API. Each has a test that fails when Dagster changes it."""

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.definitions.partitions.utils import infer_partition_mapping
from dagster._core.events import DagsterEvent, EngineEventData
from dagster._core.execution.plan.outputs import StepOutputHandle
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.load_target import PyProjectFileTarget, WorkspaceFileTarget
from dagster.components.definitions import LazyDefinitions
from dagster_shared.check import CheckError

from dagster_iceberg_spark.table.lineage import SNAPSHOT_ID

RESUME_TAGS: Final = ("dagster/is_resume_retry", "dagster/is_asset_resume_retry")
"""Tags of a run that resumes another run. Parent and root run ids alone do not distinguish it from a new execution."""
PARENT_RUN_TAG: Final = "dagster/parent_run_id"
ROOT_RUN_TAG: Final = "dagster/root_run_id"
_PAGE: Final = 1000
"""Events that are fetched at a time."""


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


def engine_events(instance: dg.DagsterInstance, run_id: str) -> Iterator[Mapping[str, str]]:
    """Yield the facts of the run's engine events, oldest first."""
    for event in _events(instance, run_id, dg.DagsterEventType.ENGINE_EVENT):
        metadata = event.engine_event_data.metadata
        yield {key: value.value for key, value in metadata.items() if isinstance(value, dg.TextMetadataValue)}


def _events(instance: dg.DagsterInstance, run_id: str, *types: dg.DagsterEventType) -> Iterator[DagsterEvent]:
    """Yield the run's events of these types, oldest first; none for a run that is unknown."""
    if not instance.has_run(run_id):
        return
    for record in instance.get_records_for_run(run_id, of_type=set(types)).records:
        event = record.event_log_entry.dagster_event
        if event is not None:
            yield event


def step_facts(context: dg.OutputContext | dg.InputContext) -> StepFacts | None:
    """Return the step of the context, or None if the context was built by hand or belongs to a script."""
    step = _step_context(context)
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
    step = _step_context(context)
    if step is not None:
        DagsterEvent.asset_check_evaluation(step, evaluation)


def recorded_evaluations(instance: dg.DagsterInstance, run_id: str) -> dict[dg.AssetCheckKey, dg.AssetCheckEvaluation]:
    """Return the newest evaluation of each asset check that a run has recorded."""
    return {item.asset_check_key: item for item in _evaluations(instance, run_id)}


def _evaluations(instance: dg.DagsterInstance, run_id: str) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the evaluations of asset checks that a run has recorded, oldest first."""
    for event in _events(instance, run_id, dg.DagsterEventType.ASSET_CHECK_EVALUATION):
        yield event.asset_check_evaluation_data


def set_data_version(context: dg.OutputContext, version: str) -> None:
    """Record the data version of the output's asset, unless the asset sets one itself."""
    step = _step_context(context)
    if step is not None and context.has_asset_key and not step.has_data_version(context.asset_key):
        step.set_data_version(context.asset_key, dg.DataVersion(version))


def add_partition_metadata(context: dg.OutputContext, partition_key: str, metadata: Mapping[str, Any]) -> None:
    """Add metadata to the materialization of one partition, in a run of several partitions."""
    step = _step_context(context)
    if step is not None:
        step.add_asset_metadata(metadata=metadata, asset_key=context.asset_key, partition_key=partition_key)


def recorded_snapshots(
    instance: dg.DagsterInstance, run_id: str, asset_key: dg.AssetKey, partition_keys: Sequence[str]
) -> frozenset[int]:
    """Return the snapshots that a run's materializations of the asset, or of these partitions of it, recorded."""
    wanted = frozenset(partition_keys)
    stored = _events(instance, run_id, dg.DagsterEventType.ASSET_MATERIALIZATION)
    events = (event.step_materialization_data.materialization for event in stored)
    recorded = (
        snapshot_of(event)
        for event in events
        if event.asset_key == asset_key and (not wanted or event.partition in wanted)
    )
    return frozenset(snapshot_id for snapshot_id in recorded if snapshot_id is not None)


def has_failed_blocking_check(instance: dg.DagsterInstance, run_id: str, asset_key: dg.AssetKey) -> bool:
    """Return whether a blocking check of the asset failed in the run."""
    evaluations = _evaluations(instance, run_id)
    return any(item.asset_key == asset_key and item.blocking and not item.passed for item in evaluations)


def root_run_of(run: dg.DagsterRun) -> str:
    """Return the id of the first of the runs that re-execute the same run, or of the run itself."""
    return run.tags.get(ROOT_RUN_TAG, run.run_id)


def runs_of_root(instance: dg.DagsterInstance, run: dg.DagsterRun) -> list[str]:
    """Return the runs from the root run to this one, each of which executes the one before again."""
    return [run.run_id, *(parent for parent, _ in _parents(instance, run.tags))][::-1]


@contextmanager
def copied_instance(
    instance: dg.DagsterInstance | None, run_id: str, partitions: Mapping[str, Sequence[str]]
) -> Iterator[dg.DagsterInstance]:
    """Yield an instance for a run that leaves no trace. It knows what a run has read, and these dynamic partitions.

    It has the storage directory of the instance, so that an embedded catalog and pickled inputs are found.
    """
    with dg.DagsterInstance.ephemeral(None if instance is None else instance.root_directory) as copy:
        run = None if instance is None else instance.get_run_by_id(run_id)
        if instance is not None and run is not None:
            copy.add_run(dg.DagsterRun(run.job_name, run_id, status=run.status, tags=run.tags))
            for record in instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT).records:
                copy.store_event(record.event_log_entry)
        for name, keys in partitions.items():
            copy.add_dynamic_partitions(name, keys)
        yield copy


def _parents(instance: dg.DagsterInstance, tags: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the runs that a run with these tags re-executes, nearest first, each with the tags that name it."""
    found = set[str]()
    while (parent := tags.get(PARENT_RUN_TAG)) is not None and parent not in found:
        found.add(parent)
        yield parent, tags
        run = instance.get_run_by_id(parent)
        tags = {} if run is None else run.tags


@dataclass(frozen=True, slots=True)
class RecentRun:
    """A run that is in progress or has failed.

    Args:
        status: The status, in lower case.
        began_at: When the run was created, in seconds since 1970.
        planned: The assets that it plans to materialize.
    """

    run_id: str
    status: str
    began_at: float
    planned: frozenset[dg.AssetKey]


_ENDED_EARLY: Final = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


def runs_in_progress(instance: dg.DagsterInstance) -> list[RecentRun]:
    """Return the runs that are queued or in progress and plan to materialize assets."""
    records = instance.get_run_records(dg.RunsFilter(statuses=NOT_FINISHED_STATUSES))
    return [run for run in (_recent(instance, record) for record in records) if run.planned]


def oldest_run_in_progress(instance: dg.DagsterInstance, *, besides: str | None = None) -> float | None:
    """Return when the oldest run that is queued or in progress was created, in seconds since 1970, or None."""
    filters = dg.RunsFilter(statuses=NOT_FINISHED_STATUSES)
    records = instance.get_run_records(filters, limit=2, ascending=True)
    found = [record.create_timestamp.timestamp() for record in records if record.dagster_run.run_id != besides]
    return found[0] if found else None


def resumable_runs(instance: dg.DagsterInstance, since: dt.datetime) -> list[RecentRun]:
    """Return the runs that have ended early since, and that no other run has re-executed."""
    failed = instance.get_run_records(dg.RunsFilter(statuses=_ENDED_EARLY, updated_after=since))
    later = instance.get_run_records(dg.RunsFilter(updated_after=since))
    repeated = {record.dagster_run.tags.get(PARENT_RUN_TAG) for record in later}
    left = [record for record in failed if record.dagster_run.run_id not in repeated]
    return [run for run in (_recent(instance, record) for record in left) if run.planned]


def has_ended(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Return whether the instance knows a run, and that it has ended."""
    run = instance.get_run_by_id(run_id)
    return run is not None and run.is_finished


def _recent(instance: dg.DagsterInstance, record: dg.RunRecord) -> RecentRun:
    run = record.dagster_run
    planned = _events(instance, run.run_id, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    keys = frozenset(event.asset_key for event in planned if event.asset_key is not None)
    return RecentRun(run.run_id, run.status.value.lower(), record.create_timestamp.timestamp(), keys)


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """A materialization or the evaluation of a check, with the run and the step that recorded it."""

    run_id: str
    step_key: str | None
    event: dg.AssetMaterialization | dg.AssetCheckEvaluation


def recorded_events(instance: dg.DagsterInstance, run_ids: Iterable[str]) -> Iterator[RecordedEvent]:
    """Yield the materializations and the evaluations of checks that the runs have recorded, in the order of events."""
    types = (dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    for run_id in run_ids:
        for event in _events(instance, run_id, *types):
            if event.is_step_materialization:
                yield RecordedEvent(run_id, event.step_key, event.step_materialization_data.materialization)
            else:
                yield RecordedEvent(run_id, event.step_key, event.asset_check_evaluation_data)


def _location_graph(context: dg.OpExecutionContext | dg.AssetExecutionContext) -> AssetGraph | None:
    """Return the assets of the code location. A script that executes the run with `dg.materialize` has none."""
    try:
        return context.repository_def.asset_graph
    except CheckError:
        return None


def downstream_assets(context: dg.OpExecutionContext) -> Mapping[dg.AssetKey, frozenset[dg.AssetKey]]:
    """Return the assets that depend on each asset of the code location. A script has no code location, and none."""
    graph = _location_graph(context)
    return {} if graph is None else children_in(graph)


def location_assets(context: dg.OpExecutionContext) -> list[dg.AssetsDefinition]:
    """Return the assets of the code location that its runs materialize. A script has no code location, and fails."""
    return [assets for assets in context.repository_def.asset_graph.assets_defs if assets.is_executable]


def children_in(graph: AssetGraph) -> Mapping[dg.AssetKey, frozenset[dg.AssetKey]]:
    """Return the assets that depend on each asset of a graph."""
    return {node.key: frozenset(node.child_keys) for node in graph.asset_nodes}


def newest_runs(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[str]:
    """Return the runs that have materialized an asset, or each of its newest partitions, last."""
    newest: dict[str | None, str] = {}
    for record in instance.fetch_materializations(key, limit=_PAGE).records:
        newest.setdefault(record.partition_key, record.run_id)
    return list(dict.fromkeys(newest.values()))


def blocking_checks(context: dg.AssetExecutionContext) -> frozenset[dg.AssetCheckKey]:
    """Return the blocking checks of the code location or, if a script executes the run, those that the run selects."""
    found = _location_graph(context)
    graph = context.job_def.asset_layer.asset_graph if found is None else found
    return frozenset(key for key in graph.asset_check_keys if graph.get_check_spec(key).blocking)


def resumed_runs(facts: StepFacts) -> list[str]:
    """Return the runs that the step's run resumes: its parent, the run that the parent resumed, and so on."""
    parents = _parents(facts.instance, facts.run_tags)
    resumed = takewhile(lambda item: any(item[1].get(tag) == "true" for tag in RESUME_TAGS), parents)
    return [parent for parent, _ in resumed]


def run_started_at_ms(instance: dg.DagsterInstance, run_id: str) -> int | None:
    """Return when the run was created, in milliseconds since 1970."""
    record = instance.get_run_record_by_id(run_id)
    return None if record is None else int(record.create_timestamp.timestamp() * 1000)


def definition_metadata_of(context: dg.InputContext) -> Mapping[str, Any]:
    """Return the definition metadata of the asset that an input loads."""
    upstream = context.upstream_output
    if upstream is not None:
        return upstream.definition_metadata or {}
    step = _step_context(context)
    if step is None or not context.has_asset_key:
        return {}
    layer = step.job_def.asset_layer
    return layer.get(context.asset_key).metadata if layer.has(context.asset_key) else {}


def job_without_checks(definitions: dg.Definitions, selection: Collection[dg.AssetKey]) -> dg.JobDefinition:
    """Return the job that materializes these assets, and evaluates no check that a step can leave out."""
    bound = {
        key
        for assets in definitions.resolve_asset_graph().assets_defs
        if not assets.keys.isdisjoint(selection) and not assets.can_subset
        for key in assets.check_keys
    }
    job = definitions.resolve_implicit_global_asset_job_def()
    return job.get_subset(asset_selection={*selection}, asset_check_selection=bound)


def loaded_inputs(node: Any) -> list[str]:
    """Return the names of the inputs that an op or a graph loads. Dependencies without a value are not loaded."""
    return [item.name for item in node.input_defs if not item.dagster_type.is_nothing]


def specs_of_job(context: dg.OutputContext) -> list[dg.AssetSpec]:
    """Return the specs of the assets that the job of an output knows: those that it materializes and their inputs."""
    step = _step_context(context)
    layer = None if step is None else step.job_def.asset_layer
    return [] if layer is None else [node.to_asset_spec() for node in layer.asset_graph.asset_nodes]


def instance_of(context: dg.InputContext) -> dg.DagsterInstance | None:
    """Return the instance of the context's run, or the instance that a script passed, if any."""
    step = _step_context(context)
    instance: dg.DagsterInstance | None = context._instance if step is None else step.instance
    return instance


def written_partitions(context: dg.InputContext) -> frozenset[str]:
    """Return the partition keys that the step writes, if the input is the asset that the step materializes."""
    step = _step_context(context)
    if step is None or context.asset_key not in step.get_output_asset_keys() or not step.has_partition_key_range:
        return frozenset()
    with partition_loading_context(dynamic_partitions_store=step.instance):
        return frozenset(map(str, context.asset_partitions_def.get_partition_keys_in_range(step.partition_key_range)))


def maps_to_all_partitions(context: dg.InputContext) -> bool:
    """Return whether an input maps to all partitions of its asset, including future ones."""
    step = _step_context(context)
    if step is None or not context.has_asset_partitions:
        return False
    assets = step.job_def.asset_layer.get_assets_def_for_node(step.node_handle)
    given = assets.get_partition_mapping_for_dep(context.asset_key) if assets else None
    downstream = step.entity_partitions_def if assets else None
    return isinstance(infer_partition_mapping(given, downstream, context.asset_partitions_def), dg.AllPartitionMapping)


def downstream_partitions(
    downstream: dg.AssetsDefinition, upstream: dg.AssetSpec, keys: Sequence[str], instance: dg.DagsterInstance
) -> Sequence[str]:
    """Return the partitions of an asset that read one of these partitions of an upstream asset."""
    own, theirs = downstream.partitions_def, upstream.partitions_def
    if own is None or theirs is None:
        return ()
    mapping = infer_partition_mapping(downstream.get_partition_mapping_for_dep(upstream.key), own, theirs)
    with partition_loading_context(dynamic_partitions_store=instance):
        subset = theirs.subset_with_partition_keys(keys)
        found = mapping.get_downstream_partitions_for_partitions(subset, theirs, own)
        return sorted(map(str, found.get_partition_keys()))


def outputs_of(context: dg.InputContext) -> list[tuple[dg.OutputContext, Any]]:
    """Return the output contexts of the assets that the input's step materializes.

    Each comes with its IO manager, or with None if the output has no value to store.
    """
    step = _step_context(context)
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
    step = _step_context(context)
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
        answer = instance.fetch_materializations(records, limit=_PAGE, cursor=cursor)
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
    step = _step_context(context)
    event = None if step is None else _latest(step, context.asset_key)
    return event is not None and SNAPSHOT_ID not in event.metadata


def latest_materializations(context: dg.OutputContext, partition_keys: Sequence[str]) -> dict[str, int | None]:
    """Return the snapshot that Dagster recorded last for each partition of an output."""
    step, asset = _step_context(context), context.asset_key
    return {
        key: snapshot_of(_latest(step, dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[key])))
        for key in partition_keys
    }


def _latest(step: Any, records: dg.AssetKey | dg.AssetRecordsFilter) -> dg.AssetMaterialization | None:
    found = step.instance.fetch_materializations(records, limit=1).records
    return found[0].asset_materialization if found else None


def snapshot_of(event: dg.AssetMaterialization | dg.AssetCheckEvaluation | None) -> int | None:
    """Return the snapshot that a materialization or a check has recorded, or None if it has recorded none."""
    value = None if event is None else event.metadata.get(SNAPSHOT_ID)
    return int(text) if value is not None and (text := str(value.value)).isdecimal() else None


def _step_context(context: dg.OutputContext | dg.InputContext) -> Any:
    return context._step_context


def targets_in(path: Path) -> list[LoadableTargetOrigin | None]:
    """Return the target of each code location in a workspace.yaml or pyproject.toml, or None for a server."""
    target = PyProjectFileTarget(str(path)) if path.suffix == ".toml" else WorkspaceFileTarget([str(path)])
    origins = target.create_origins()
    is_server = GrpcServerCodeLocationOrigin
    return [None if isinstance(origin, is_server) else origin.loadable_target_origin for origin in origins]


def definitions_in(module: ModuleType) -> dict[str, dg.Definitions]:
    """Return the `Definitions` in a module by name, including those that a function creates."""
    found = (
        (name, value) for name, value in vars(module).items() if isinstance(value, dg.Definitions | LazyDefinitions)
    )
    return {name: value() if isinstance(value, LazyDefinitions) else value for name, value in found}

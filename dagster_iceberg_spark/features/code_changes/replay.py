"""Replays runs: materializes their assets again, on branches, from the very snapshots that the runs had read."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.assets.address import plain_metadata, spec_scope
from dagster_iceberg_spark.assets.branch_changes import create_branch, drop_branch
from dagster_iceberg_spark.assets.dagster_private.graph import job_without_checks, loaded_inputs
from dagster_iceberg_spark.assets.dagster_private.runs import RANGE_TAGS, copied_instance
from dagster_iceberg_spark.assets.stored_tables import stored_members
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.errors import ConfigurationError, ReplayFailedError, UpstreamMissingError
from dagster_iceberg_spark.features.code_changes.plan.replay_plan import (
    ReplayedTable,
    RowComparison,
    compare,
    snapshots_of_run,
    start_of,
)
from dagster_iceberg_spark.features.lineage.lineage_catalogs import keys_by
from dagster_iceberg_spark.features.lineage.observer import NEW_COLUMNS, READ_BY_NAME
from dagster_iceberg_spark.plan.publication.branch import REPLAYED_RUN, Environment, replay_environment
from dagster_iceberg_spark.plan.read.read_options import AS_OF_RUN, RUN_KEYS, ReadOptions
from dagster_iceberg_spark.plan.read.read_plan import plan_read
from dagster_iceberg_spark.resource import require_pyspark
from dagster_iceberg_spark.table import lineage
from dagster_iceberg_spark.table.lineage import has_all_reads, upstream_reads
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

_PARTITION: Final = "dagster/partition"
"""Tag of a run with its partition key."""
_CONFIG: Final = ("ops", "resources", "inputs")


@dataclass(frozen=True, slots=True)
class _Member:
    """An asset that the run has stored, with its table and its snapshots, newest first."""

    io_manager: TableIOManager
    spec: dg.AssetSpec
    state: TableState
    snapshots: tuple[Snapshot, ...]

    @property
    def asset(self) -> str:
        return "/".join(self.spec.key.path)

    def keys(self) -> list[str]:
        """Return the partition keys of the run, or none if the asset has no partitions.

        Raises:
            ConfigurationError: The summaries of the snapshots do not contain them.
        """
        listed, found = keys_by(self.spec.partitions_def), dict[str, None]()
        for snapshot in self.snapshots:
            described = snapshot.summary.get(lineage.PARTITION_KEYS)
            keys = frozenset[str]() if described is None else listed(described)
            if keys is None:
                raise ConfigurationError.refusing(
                    "replay",
                    self.asset,
                    expected="partition keys that Dagster or the snapshot records",
                    found=f"only {described}, which the partitions definition does not resolve",
                    hint="set DAGSTER_HOME to the instance of the run.",
                )
            found |= dict.fromkeys(sorted(keys))
        return list(found)

    def scope(self, keys: Sequence[str]) -> PartitionScope:
        return spec_scope(self.spec, keys) if keys else PartitionScope()


def replay_run(
    definitions: dg.Definitions,
    run_id: str,
    *,
    assets: Collection[str] = (),
    compare: bool = False,
    keep: bool = False,
    instance: dg.DagsterInstance | None = None,
    report: Callable[[str], None] = print,
) -> list[ReplayedTable]:
    """Materialize the assets of a run again, each in a branch of its table that no other run reads.

    Each input reads the snapshot that it had read in the run. Dagster's own record of the assets stays as it is.

    Args:
        definitions: The code location, with the code to run.
        run_id: The run.
        assets: The assets of the run that are materialized again, or none for all.
        compare: Whether the rows are compared with those of the run. The branches are dropped afterwards.
        keep: Whether the branches stay after a comparison.
        instance: The Dagster instance with the configuration, the tags and the reads of the run, or None if only the
            tables record it.
        report: Writes a line about progress.

    Raises:
        UpstreamMissingError: No table has a snapshot of the run, or a snapshot that the replay needs has expired.
    """
    require_pyspark()
    environment = replay_environment(run_id)
    with stored_members(definitions, action="replay a run in") as stored, ExitStack() as stack:
        members = [member for member in _members(stored, run_id) if not assets or member.asset in assets]
        if not members:
            names = ", ".join(assets)
            raise UpstreamMissingError.refusing(
                "replay",
                f"run {run_id}",
                expected=f"a table{f' of {names}' if names else ''} with a snapshot of the run",
                found="none",
                hint="list the snapshots of a table with `dagster-iceberg-spark history`. The snapshot may have "
                "expired.",
            )
        _refuse_shared_tables(members)
        selection = _selection(definitions, {member.spec.key: member for member in members})
        run = None if instance is None else instance.get_run_by_id(run_id)
        one = None if run is None else run.tags.get(_PARTITION)
        keys = {each.asset: each.keys() if one is None else [one] for each in members}
        for member in members:
            _branch_off(member, environment)
            stack.callback(drop_branch, member.io_manager, member.state.identifier, environment.branch)
        report(f"Replaying {', '.join(member.asset for member in members)}.")
        found = _execute(definitions, run_id, run, selection, keys, instance)
        loaded = _inputs_of_steps(definitions, selection)
        replayed = [
            _describe(member, environment, keys[member.asset], found, loaded[member.spec.key], compare=compare)
            for member in members
        ]
        if keep or not compare:
            stack.pop_all()
        return replayed


def _members(stored: Iterable[tuple[TableIOManager, dg.AssetSpec]], run_id: str) -> list[_Member]:
    from dagster_iceberg_spark.catalog.look import look

    found = []
    for io_manager, spec in stored:
        request = io_manager.definition_of(spec).request
        state = look(io_manager.spark.catalog_description, request.identifier)
        if state is None:
            continue
        snapshots = snapshots_of_run(state, run_id, "/".join(spec.key.path), request.options.branch)
        if snapshots:
            found.append(_Member(io_manager, spec, state, snapshots))
    return found


def _refuse_shared_tables(members: Sequence[_Member]) -> None:
    by_table: dict[str, str] = {}
    for member in members:
        other = by_table.setdefault(str(member.state.identifier), member.asset)
        if other != member.asset:
            raise ConfigurationError.refusing(
                "replay",
                " and ".join(sorted((other, member.asset))),
                expected="assets of a run with a table each",
                found=f"one table for both, {member.state.identifier}",
                hint="replay runs that have written them one by one.",
            )


def _selection(definitions: dg.Definitions, members: Mapping[dg.AssetKey, _Member]) -> list[dg.AssetKey]:
    """Return the assets to materialize: those of the run, and all others of steps that cannot leave some out.

    Raises:
        ConfigurationError: The replay would also store an asset elsewhere.
    """
    graph, selected = definitions.resolve_asset_graph(), dict[dg.AssetKey, None]()
    for assets in graph.assets_defs:
        wanted = assets.keys & members.keys()
        if not wanted:
            continue
        keys = wanted if assets.can_subset else assets.keys
        for key in sorted(keys - members.keys()):
            raise ConfigurationError.refusing(
                "replay",
                "/".join(key.path),
                expected="an asset that the run has stored as an Iceberg table",
                found="none, and its step cannot leave it out",
                hint="define its step with `can_subset=True`.",
            )
        selected |= dict.fromkeys(sorted(keys))
    return list(selected)


def _branch_off(member: _Member, environment: Environment) -> None:
    """Create the branch of the replay at what the run had found, in place of one that an earlier replay has left."""
    identifier, branch = member.state.identifier, environment.branch
    start = start_of(member.state, member.snapshots[-1])
    drop_branch(member.io_manager, identifier, branch)
    create_branch(member.io_manager, identifier, branch, start.snapshot_id, retention_days=environment.retention_days)
    if start.is_emptied:
        from dagster_iceberg_spark.spark.tables import delete_rows

        delete_rows(member.io_manager.spark.iceberg_session, identifier, branch)


def _execute(
    definitions: dg.Definitions,
    run_id: str,
    run: dg.DagsterRun | None,
    selection: Sequence[dg.AssetKey],
    keys: Mapping[str, Sequence[str]],
    instance: dg.DagsterInstance | None,
) -> Mapping[str, Mapping[str, Any]]:
    """Run the steps without their checks, outside the instance. Return the metadata of each asset.

    A check that a step evaluates itself is a part of it.
    """
    tags = _tags(run, keys) | {AS_OF_RUN: run_id, REPLAYED_RUN: run_id}
    with copied_instance(instance, run_id, _dynamic_partitions(definitions, keys, instance)) as copy:
        result = job_without_checks(definitions, selection).execute_in_process(
            instance=copy,
            partition_key=tags.pop(_PARTITION, None),
            run_config=_config(definitions, run),
            tags=tags,
            raise_on_error=False,
        )
    if not result.success:
        raise _failure(result)
    events = [event.step_materialization_data.materialization for event in result.get_asset_materialization_events()]
    return {"/".join(event.asset_key.path): plain_metadata(event.metadata) for event in events}


def _inputs_of_steps(
    definitions: dg.Definitions, selection: Sequence[dg.AssetKey]
) -> Mapping[dg.AssetKey, frozenset[str]]:
    """Return the assets that the step of each asset loads as inputs."""
    found = dict[dg.AssetKey, frozenset[str]]()
    for assets in definitions.resolve_asset_graph().assets_defs:
        wanted, keys = assets.keys & {*selection}, assets.keys_by_input_name
        if wanted:
            loaded = (keys[name] for name in loaded_inputs(assets.node_def) if name in keys)
            found |= dict.fromkeys(wanted, frozenset("/".join(key.path) for key in loaded))
    return found


def _failure(result: dg.ExecuteInProcessResult) -> ReplayFailedError:
    hint = "the log above has the whole error."
    failed = next((event for event in result.all_events if event.is_step_failure), None)
    if failed is None:
        return ReplayFailedError.refusing(
            "replay", "the run", expected="a run that succeeds", found="one that did not begin its steps", hint=hint
        )
    error = failed.step_failure_data.error
    return ReplayFailedError.refusing(
        "replay",
        f"the step {failed.step_key}",
        expected="a step that succeeds",
        found="no message" if error is None else (error.cause or error).message.strip(),
        hint=hint,
    )


def _config(definitions: dg.Definitions, run: dg.DagsterRun | None) -> dict[str, Any]:
    """Return the configuration of the run, without that of its executor and its loggers.

    Dagster's own logger shows warnings and errors only.
    """
    own = {} if run is None else {key: run.run_config[key] for key in _CONFIG if key in run.run_config}
    return own if definitions.loggers else {**own, "loggers": {"console": {"config": {"log_level": "WARNING"}}}}


def _dynamic_partitions(
    definitions: dg.Definitions, keys: Mapping[str, Sequence[str]], instance: dg.DagsterInstance | None
) -> dict[str, list[str]]:
    """Return the keys of dynamic partitions that the instance knows, and those of the run."""
    found = dict[str, dict[str, None]]()
    for spec in definitions.resolve_all_asset_specs():
        for name, own in _dynamic_keys(spec.partitions_def, keys.get("/".join(spec.key.path), ())):
            known = found.setdefault(name, {})
            known |= dict.fromkeys((*(instance.get_dynamic_partitions(name) if instance else ()), *own))
    return {name: list(known) for name, known in found.items()}


def _dynamic_keys(
    definition: dg.PartitionsDefinition | None, keys: Sequence[str]
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the name of each dynamic partitions definition, with its part of the keys."""
    if isinstance(definition, dg.MultiPartitionsDefinition):
        for item in definition.partitions_defs:
            parts = [definition.get_partition_key_from_str(key).keys_by_dimension[item.name] for key in keys]
            yield from _dynamic_keys(item.partitions_def, parts)
    elif isinstance(definition, dg.DynamicPartitionsDefinition) and definition.name is not None:
        yield definition.name, keys


def _tags(run: dg.DagsterRun | None, keys: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the tags that select the partitions of the run, with its own, but without its time travel."""
    own = {} if run is None else {key: value for key, value in run.tags.items() if not key.startswith("dagster/")}
    tags = {key: value for key, value in own.items() if key not in RUN_KEYS}
    recorded = {} if run is None else {key: run.tags[key] for key in (_PARTITION, *RANGE_TAGS) if key in run.tags}
    longest = max(keys.values(), key=len, default=())
    if recorded or not longest:
        return tags | recorded
    if len(longest) == 1:
        return {**tags, _PARTITION: longest[0]}
    return {**tags, **dict(zip(RANGE_TAGS, (longest[0], longest[-1]), strict=True))}


def _describe(
    member: _Member,
    environment: Environment,
    keys: Sequence[str],
    found: Mapping[str, Mapping[str, Any]],
    loaded: frozenset[str],
    *,
    compare: bool,
) -> ReplayedTable:
    """Return how the replay has changed a table."""
    from dagster_iceberg_spark.catalog.look import look

    catalog, identifier = member.io_manager.spark.catalog_description, member.state.identifier
    state, newest = look(catalog, identifier), member.snapshots[0]
    head = None if state is None else state.head(environment.branch)
    if state is None or head is None:
        raise UpstreamMissingError.refusing(
            "compare", str(identifier), expected=f"the branch {environment.branch!r}", found="none"
        )
    summary, metadata = newest.summary, found.get(member.asset, {})
    comparison = _comparison(member, state, head, keys) if compare else None
    document = head.summary.get(lineage.UPSTREAM, "")
    pinned = {read.asset_key for read in upstream_reads(document)}
    unpinned = sorted(loaded - pinned) if has_all_reads(document) else []
    return ReplayedTable(
        member.asset,
        str(identifier),
        summary.get(lineage.PARTITION_KEYS),
        keys,
        newest.snapshot_id,
        head.snapshot_id,
        environment.branch,
        (summary.get(lineage.CODE_VERSION), head.summary.get(lineage.CODE_VERSION)),
        metadata.get(NEW_COLUMNS, ()),
        [*unpinned, *metadata.get(READ_BY_NAME, ())],
        comparison=comparison,
        differing=_differing(member, state, head, keys, comparison),
    )


def _differing(
    member: _Member, state: TableState, head: Snapshot, keys: Sequence[str], whole: RowComparison | None
) -> Sequence[str] | None:
    """Return the partitions whose rows differ, or None if the rows were not compared."""
    if whole is None or whole.whole != "differs" or len(keys) <= 1:
        return None if whole is None else keys if whole.whole == "differs" else ()
    return [key for key in keys if _comparison(member, state, head, [key]).whole == "differs"]


def _comparison(member: _Member, state: TableState, replayed: Snapshot, keys: Sequence[str]) -> RowComparison:
    """Compare the rows of the partitions in the run's snapshot and in that of the replay."""
    from dagster_iceberg_spark.features.code_changes.spark import row_digest

    session, scope = member.io_manager.spark.iceberg_session, member.scope(keys)
    before, after = (
        row_digest(session, plan_read(state, scope, ReadOptions(snapshot_id=snapshot_id)))
        for snapshot_id in (member.snapshots[0].snapshot_id, replayed.snapshot_id)
    )
    return compare(before, after)

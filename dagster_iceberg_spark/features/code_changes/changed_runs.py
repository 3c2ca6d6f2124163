"""What changed code makes of the inputs of old runs, and which partitions to rebuild."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from dagster_iceberg_spark.assets.dagster_private.partitions import downstream_partitions
from dagster_iceberg_spark.features.code_changes.code_impact import (
    CodeStates,
    StoredAssetTable,
    recorded_lineage,
    stored_by_key,
)
from dagster_iceberg_spark.features.code_changes.plan.effects import AssetLineage, with_readers
from dagster_iceberg_spark.features.code_changes.plan.rebuilds import ChangedRuns, Rebuild, ReplayedAsset, effects_of
from dagster_iceberg_spark.features.code_changes.plan.replay_plan import snapshots_of_asset
from dagster_iceberg_spark.features.code_changes.revisions import Checkout, Range, checked_out, last_line
from dagster_iceberg_spark.table import lineage

_COMPARED = (0, 1)
"""Exit codes of a replay that has compared rows."""


def replay_changed(
    locations: Sequence[dg.Definitions],
    states: CodeStates,
    span: Range,
    options: Mapping[str, Any],
    instance: dg.DagsterInstance | None,
    *,
    runs: int = 1,
    report: Callable[[str], None] = print,
) -> ChangedRuns:
    """Replay the last runs of the assets whose code changes, with the old code and with the new.

    Args:
        locations: The code locations as they are. Their IO managers know the tables.
        states: The assets of both revisions.
        span: The revisions.
        options: The options that name the code locations.
        instance: The Dagster instance with the runs, or None if only the tables record them.
        runs: The number of runs of each asset, newest first.
        report: Writes a line about progress.
    """
    changed = [key for key, change in states.changes.items() if change.before is not None and change.has_other_code]
    with stored_by_key(locations) as stored:
        by_run = dict[str, list[str]]()
        for key in changed:
            for run_id in _last_runs(stored.get(key), runs):
                by_run.setdefault(run_id, []).append(key)
        replayed = list[ReplayedAsset]()
        with checked_out(span.root, span.before) as old, checked_out(span.root, span.after) as new:
            for run_id, keys in by_run.items():
                report(f"Replaying {', '.join(keys)} of run {run_id}, with the old code and with the new.")
                before, after = (replay(side, run_id, keys, options) for side in (old, new))
                replayed += [ReplayedAsset.of(key, run_id, before, after) for key in keys]
        never = [key for key in changed if not any(key in keys for keys in by_run.values())]
        return ChangedRuns(
            tuple(replayed), tuple(never), tuple(_rebuilds(replayed, states, stored, locations, instance))
        )


def _last_runs(table: StoredAssetTable | None, count: int) -> list[str]:
    if table is None or table.state is None:
        return []
    stored = snapshots_of_asset(table.state, "/".join(table.spec.key.path), table.options.branch)
    runs = dict.fromkeys(snapshot.summary.get(lineage.RUN_ID) for snapshot in stored)
    return [run_id for run_id in runs if run_id is not None][:count]


def replay(side: Checkout, run_id: str, keys: Sequence[str], options: Mapping[str, Any]) -> Mapping[str, Any] | str:
    """Return what a replay prints for each asset, or why it has failed."""
    own = [f"--run={run_id}", *(f"--asset={key}" for key in keys), "--compare", "--json"]
    done = side.run(["-m", "dagster_iceberg_spark", "replay", *own, *side.arguments(options)])
    if done.returncode not in _COMPARED:
        return last_line(done.stderr)
    try:
        return {item["asset"]: item for item in json.loads(done.stdout)}
    except ValueError:
        return last_line(done.stderr)


def _rebuilds(
    replayed: Sequence[ReplayedAsset],
    states: CodeStates,
    stored: Mapping[str, StoredAssetTable],
    locations: Sequence[dg.Definitions],
    instance: dg.DagsterInstance | None,
) -> Iterator[Rebuild]:
    """Yield the partitions to rebuild: of assets whose rows differ, and of those that are derived from them."""
    own = effects_of(replayed)
    lineages = dict[str, AssetLineage]()
    for key, each in stored.items():
        known = None if instance is None else recorded_lineage(instance, key, each)
        if known is not None:
            lineages[key] = known
    found = dict[str, Rebuild]()
    for key in with_readers(own, states.inputs, lineages):
        table = stored.get(key)
        if table is None or table.state is None:
            continue
        differing = {partition for item in replayed if item.key == key for partition in item.differing}
        is_partitioned, existing = table.spec.partitions_def is not None, _existing(table, instance)
        for upstream in states.inputs[key]:
            if upstream in found and is_partitioned:
                differing |= _read_by(key, stored[upstream].spec, found[upstream], locations, instance, existing)
        tried = {partition for item in replayed if item.key == key for partition in item.partitions}
        untried = len(existing - tried) if key in own and existing is not None else 0
        found[key] = Rebuild(key, tuple(sorted(differing)) if is_partitioned else None, untried)
        yield found[key]


def _existing(table: StoredAssetTable, instance: dg.DagsterInstance | None) -> set[str] | None:
    """Return the partitions that have been materialized, or None if they are not known."""
    if instance is None or table.spec.partitions_def is None:
        return None
    return {*instance.get_materialized_partitions(table.spec.key)}


def _read_by(
    key: str,
    upstream: dg.AssetSpec,
    rebuilt: Rebuild,
    locations: Sequence[dg.Definitions],
    instance: dg.DagsterInstance | None,
    existing: set[str] | None,
) -> set[str]:
    """Return the partitions of an asset that read what is rebuilt, as far as they exist."""
    if rebuilt.partitions is None or instance is None:
        return existing or set()
    for definitions in locations:
        for assets in definitions.resolve_asset_graph().assets_defs:
            if any("/".join(name.path) == key for name in assets.keys):
                found = downstream_partitions(assets, upstream, rebuilt.partitions, instance)
                return {*found} & (existing if existing is not None else {*found})
    return set()

"""The assets and checks of a code location, a job or a node."""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.load_target import PyProjectFileTarget, WorkspaceFileTarget
from dagster.components.definitions import LazyDefinitions
from dagster_shared.check import CheckError


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


def blocking_checks(context: dg.AssetExecutionContext) -> frozenset[dg.AssetCheckKey]:
    """Return the blocking checks of the code location or, if a script executes the run, those that the run selects."""
    found = _location_graph(context)
    graph = context.job_def.asset_layer.asset_graph if found is None else found
    return frozenset(key for key in graph.asset_check_keys if graph.get_check_spec(key).blocking)


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


def functions_in(node: Any) -> Iterator[Callable[..., Any]]:
    """Yield the functions of an op, or of the ops of a graph."""
    if isinstance(node, dg.GraphDefinition):
        for inner in node.node_defs:
            yield from functions_in(inner)
    else:
        yield getattr(node.compute_fn, "decorated_fn", node.compute_fn)


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

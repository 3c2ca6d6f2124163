"""The partitions that a step writes, and those that an asset reads."""

from collections.abc import Sequence

import dagster as dg
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.definitions.partitions.utils import infer_partition_mapping

from dagster_iceberg_spark.assets.dagster_private import step_context


def written_partitions(context: dg.InputContext) -> frozenset[str]:
    """Return the partition keys that the step writes, if the input is the asset that the step materializes."""
    step = step_context(context)
    if step is None or context.asset_key not in step.get_output_asset_keys() or not step.has_partition_key_range:
        return frozenset()
    with partition_loading_context(dynamic_partitions_store=step.instance):
        return frozenset(map(str, context.asset_partitions_def.get_partition_keys_in_range(step.partition_key_range)))


def maps_to_all_partitions(context: dg.InputContext) -> bool:
    """Return whether an input maps to all partitions of its asset, including future ones."""
    step = step_context(context)
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

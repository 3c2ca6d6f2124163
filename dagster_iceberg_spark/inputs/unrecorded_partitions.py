"""The partitions of an input that have no materialization in Dagster, or one that waits for a release."""

import dagster as dg

from dagster_iceberg_spark.dagster_private import (
    instance_of,
    newest_materializations,
    snapshot_of,
    written_partitions,
)
from dagster_iceberg_spark.inputs.read_request import ReadRequest
from dagster_iceberg_spark.table.lineage import COMMIT_TOKEN, STAGED_TOKEN
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, TableState


def unrecorded_partitions(context: dg.InputContext, request: ReadRequest) -> frozenset[str]:
    """Return the keys of the input's partitions that have no materialization in Dagster.

    There are none if the input asks for all partitions of the asset, or reads the table as of another time. Partitions
    that the step itself writes are left out: a run of several days may read the day before each day.
    """
    instance = instance_of(context)
    if instance is None or not request.is_of_now or not context.has_asset_partitions or not context.has_asset_key:
        return frozenset()
    requested = frozenset(str(key) for key in context.asset_partition_keys)
    unrecorded = requested - written_partitions(context)
    if unrecorded:
        unrecorded -= set(instance.get_materialized_partitions(context.asset_key))
    every = context.asset_partitions_def.get_partition_keys(dynamic_partitions_store=instance) if unrecorded else ()
    return frozenset() if requested >= set(every) else unrecorded


def unpublished_partitions(context: dg.InputContext, request: ReadRequest, state: TableState) -> frozenset[str]:
    """Return the keys of the input's partitions whose newest materialization waits for a release.

    Partitions that the step itself writes are left out, and so are those whose staged snapshot has expired: its
    published snapshot may have expired too.
    """
    if not request.is_released or not request.is_of_now or request.scope.is_whole_table:
        return frozenset()
    if request.staged_branch in state.refs:  # this run has staged them
        return frozenset()
    keys = frozenset(request.scope.keys) - written_partitions(context)
    tokens = {
        key: str(event.metadata[STAGED_TOKEN].value)
        for key, event in newest_materializations(context, sorted(keys))
        if STAGED_TOKEN in event.metadata and snapshot_of(event) in state.snapshots
    }
    if not tokens:
        return frozenset()
    line = state.ancestors(request.options_in(state).ref or MAIN_BRANCH)
    published = {snapshot.summary.get(COMMIT_TOKEN) for snapshot in line}
    return frozenset(key for key, token in tokens.items() if token not in published)

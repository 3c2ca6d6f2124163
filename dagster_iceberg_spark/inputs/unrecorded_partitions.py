"""The partitions of an input that have no materialization in Dagster."""

import dagster as dg

from dagster_iceberg_spark.dagster_private import instance_of, written_partitions
from dagster_iceberg_spark.inputs.read_request import ReadRequest


def unrecorded_partitions(context: dg.InputContext, request: ReadRequest) -> frozenset[str]:
    """Return the keys of the input's partitions that have no materialization in Dagster.

    There are none if the input asks for all partitions of the asset, or reads the table as of another time. Partitions
    that the step itself writes are left out: a run of several days may read the day before each day.
    """
    instance = instance_of(context)
    is_now = request.options.is_head and request.options.ref is None
    if instance is None or not is_now or not context.has_asset_partitions or not context.has_asset_key:
        return frozenset()
    requested = frozenset(str(key) for key in context.asset_partition_keys)
    unrecorded = requested - written_partitions(context)
    if unrecorded:
        unrecorded -= set(instance.get_materialized_partitions(context.asset_key))
    every = context.asset_partitions_def.get_partition_keys(dynamic_partitions_store=instance) if unrecorded else ()
    return frozenset() if requested >= set(every) else unrecorded

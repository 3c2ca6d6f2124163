"""The tables that the step of an input writes. Their lineage records how far the step has read the input."""

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Protocol, runtime_checkable

import dagster as dg

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.dagster_private import is_stored_elsewhere, latest_materializations, outputs_of
from dagster_iceberg_spark.inputs.read_request import ReadRequest
from dagster_iceberg_spark.plan.adoption import has_read_changes
from dagster_iceberg_spark.plan.incremental import OutputTable, position_in
from dagster_iceberg_spark.plan.write_request import WriteRequest


@runtime_checkable
class StoresTables(Protocol):
    """An IO manager of this package."""

    def write_request_of(self, context: dg.OutputContext) -> tuple[CatalogDescription, WriteRequest]:
        """Return the catalog of an output's table, and the write request of the output."""


@dataclass(frozen=True, slots=True)
class StepOutput:
    """An asset that the step materializes.

    Args:
        context: Dagster's context of the output.
        stored: The asset's table and its catalog, or None if this package does not store the asset.
        lacks_table: Whether the asset's IO manager is one of this package, but another one has stored the asset so far.
    """

    context: dg.OutputContext
    stored: tuple[OutputTable, CatalogDescription] | None = None
    lacks_table: bool = False


def step_outputs(context: dg.InputContext, request: ReadRequest) -> list[StepOutput]:
    """Return the assets that the input's step materializes, with the current state of their tables."""
    return [_step_output(request, *each) for each in outputs_of(context)]


def _step_output(request: ReadRequest, output: dg.OutputContext, io_manager: object) -> StepOutput:
    if not isinstance(io_manager, StoresTables):
        return StepOutput(output)
    catalog, write = io_manager.write_request_of(output)
    recorded = cache(partial(latest_materializations, output, write.materialization.scope.keys))
    table = OutputTable(
        asset=write.materialization.asset_key,
        branch=write.table.options.branch,
        scope=write.materialization.scope,
        state=None,
        is_pending=partial(has_read_changes, candidates=write.candidates),
        is_recorded=lambda snapshot: set(recorded().values()) == {snapshot.snapshot_id},
        former=write.table.options.takes_over,
    )
    now, keys = request.upstream_read, request.scope.keys
    state = look(catalog, write.table.identifier, back_to=lambda item: position_in(item, table, now, keys) is not None)
    if state is None and is_stored_elsewhere(output):
        return StepOutput(output, lacks_table=True)  # the function returns no value, whatever its IO manager
    return StepOutput(output, (replace(table, state=state), catalog))

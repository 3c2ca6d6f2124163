"""Asks Dagster's contexts once. Everything after it works with these facts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dagster as dg

from dagster_iceberg_spark.assets.address import partition_scope, plain_metadata
from dagster_iceberg_spark.assets.dagster_private.context import StepFacts, definition_metadata_of, step_facts
from dagster_iceberg_spark.assets.dagster_private.partitions import maps_to_all_partitions
from dagster_iceberg_spark.plan.options.output_options import PARTITION_EXPR, parse_key
from dagster_iceberg_spark.table.scope import PartitionScope


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The partitions of an asset that an output writes or an input reads."""

    definition: dg.PartitionsDefinition
    keys: Sequence[str]


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """An output.

    Args:
        step: The step that handles it, or None if the context was built by hand.
        asset_key: The asset, or None for the output of an op.
        name: Its name in the lineage: the asset's key, or the names of step and output.
        subject: Its name in messages.
        definition: The metadata of its definition.
        run: The metadata that the run has attached, as plain values.
        mapping_key: The key of the output of a dynamic op, or None.
        partitions: The partitions of the run, or None without any.
        spec: The spec of the asset, if a step handles the output.
        report: Writes a line to the run's log.
    """

    step: StepFacts | None
    asset_key: dg.AssetKey | None
    name: str
    subject: str
    definition: Mapping[str, Any]
    run: Mapping[str, Any]
    mapping_key: str | None
    partitions: PartitionFacts | None
    spec: dg.AssetSpec | None
    report: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class InputFacts:
    """An input.

    Args:
        step: The step that loads it, or None if the context was built by hand.
        asset_key: The upstream asset, or None for the output of an op.
        name: Its name, or an empty text.
        subject: The upstream asset or the input, for messages.
        definition: The metadata of the upstream definition, as plain values.
        metadata: The metadata of the input, as plain values.
        config: The run's configuration of the input, or None.
        mapping_key: The key of the upstream output of a dynamic op, or None.
        partitions: The partitions that are read, or None without any.
        annotation: The annotated type, or None if the context was built without one.
        maps_to_all: Returns whether the partition mapping leads to all upstream partitions.
    """

    step: StepFacts | None
    asset_key: dg.AssetKey | None
    name: str
    subject: str
    definition: Mapping[str, Any]
    metadata: Mapping[str, Any]
    config: Mapping[str, Any] | None
    mapping_key: str | None
    partitions: PartitionFacts | None
    annotation: object
    maps_to_all: Callable[[], bool]


def output_facts(context: dg.OutputContext) -> OutputFacts:
    """Ask the context of an output."""
    asset_key, step = context.asset_key if context.has_asset_key else None, step_facts(context)
    parts = asset_key.path if asset_key else filter(None, (context.step_key, context.name, context.mapping_key))
    name = "/".join(parts)
    return OutputFacts(
        step=step,
        asset_key=asset_key,
        name=name,
        subject=name if asset_key else f"the output {context.name!r} of {context.step_key}",
        definition=context.definition_metadata or {},
        run=plain_metadata(context.output_metadata),
        mapping_key=context.mapping_key,
        partitions=_partitions(context),
        spec=context.asset_spec if asset_key and step else None,
        report=context.log.info,
    )


def input_facts(context: dg.InputContext) -> InputFacts:
    """Ask the context of an input."""
    asset_key, upstream = context.asset_key if context.has_asset_key else None, context.upstream_output
    name = context.name if context.has_input_name else ""
    return InputFacts(
        step=step_facts(context),
        asset_key=asset_key,
        name=name,
        subject="/".join(asset_key.path) if asset_key else f"the input {name!r}",
        definition=plain_metadata(definition_metadata_of(context)),
        metadata=plain_metadata(context.definition_metadata),
        config=context.config or None,
        mapping_key=upstream.mapping_key if upstream is not None and asset_key is None else None,
        partitions=_partitions(context),
        annotation=_annotation(context),
        maps_to_all=partial(maps_to_all_partitions, context),
    )


def scope_of(partitions: PartitionFacts | None, definition: Mapping[str, Any], *, subject: str) -> PartitionScope:
    """Return the rows of partitions, by the columns that a definition names. Without any, that is the whole table."""
    if partitions is None:
        return PartitionScope()
    columns = parse_key(PARTITION_EXPR, definition, subject=subject)
    return partition_scope(partitions.definition, partitions.keys, columns, subject=subject)


def _partitions(context: dg.OutputContext | dg.InputContext) -> PartitionFacts | None:
    if not context.has_asset_partitions:
        return None
    return PartitionFacts(context.asset_partitions_def, context.asset_partition_keys)


def _annotation(context: dg.InputContext) -> object:
    try:
        return context.dagster_type.typing_type
    except dg.DagsterInvariantViolationError:
        return None

"""The read request of an input: its table, partitions, options and annotated type."""

import types
from dataclasses import dataclass
from functools import partial
from typing import Final, Union, get_args, get_origin

import dagster as dg

from dagster_iceberg_spark.assets.address import table_of
from dagster_iceberg_spark.assets.asking import InputFacts, scope_of
from dagster_iceberg_spark.errors import MetadataKeyError, PartitioningError
from dagster_iceberg_spark.plan.options.output_options import PUBLISH, TABLE
from dagster_iceberg_spark.plan.publication.branch import Environment
from dagster_iceberg_spark.plan.read.read_options import LIMIT, RUN_KEYS, ReadOptions, parse_read_options
from dagster_iceberg_spark.plan.write.write_request import staged_branch
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import UpstreamRead
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, PublishedBy, TableState

RUN_CONFIG: Final = {
    key.option: dg.Field(dg.Noneable(str), is_required=False, description=f"{key.values[0].upper()}{key.values[1:]}.")
    for key in RUN_KEYS.values()
}
"""The run configuration of an input, `ops: <op>: inputs: <input>: as_of: ...`.

Dagster accepts it for inputs that name their IO manager by `input_manager_key`."""


@dataclass(frozen=True, slots=True)
class InputAnnotation:
    """The parsed annotation of an input.

    Args:
        type: The type of the rows: the `T` of `dict[str, T]` and `Optional[T]`.
        is_by_partition: Whether the input is a dict by partition key.
        is_optional: Whether None represents rows that have not been written; in a dict, for each partition.
        is_optional_whole: Whether None represents the whole dict if the table does not exist.
    """

    type: object
    is_by_partition: bool = False
    is_optional: bool = False
    is_optional_whole: bool = False


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The read request of an input.

    Args:
        asset: The upstream asset, for messages and the lineage.
        input_name: The name of the input, or an empty string if a script loads it.
        step_key: The step that loads the input, or None if a script does.
        is_of_asset: Whether the input is an asset, and not the output of an op.
        is_of_all: Whether the input reads the changes of all partitions.
        is_released: Whether a release publishes the rows of the upstream asset.
        environment_branch: The branch of the environment, if the input reads the newest rows and there is one, or None.
        staged_branch: The branch of the rows that the run has staged for a release, if it has staged any, or None.
    """

    identifier: TableIdentifier
    asset: str
    input_name: str
    scope: PartitionScope
    options: ReadOptions
    annotation: InputAnnotation
    step_key: str | None = None
    is_of_asset: bool = True
    is_of_all: bool = False
    is_released: bool = False
    environment_branch: str | None = None
    staged_branch: str | None = None

    @property
    def is_of_now(self) -> bool:
        """Whether the input reads the newest rows of `main`."""
        return self.options.is_head and self.options.ref is None

    def options_in(self, state: TableState) -> ReadOptions:
        """Return the options for a table: what the run has staged is read, else what the environment has written."""
        for branch in (self.staged_branch, self.environment_branch):
            if branch is not None and branch in state.refs:
                return self.options.model_copy(update={"ref": branch})
        return self.options

    @property
    def read_scope(self) -> PartitionScope:
        """The partitions whose rows are read.

        Changes of all partitions are read from the whole table, because new partitions may be added later.
        """
        return PartitionScope() if self.is_of_all else self.scope

    @property
    def upstream_read(self) -> UpstreamRead:
        """The read as the lineage describes it."""
        return UpstreamRead(
            self.asset,
            str(self.identifier),
            None,
            None if self.read_scope.is_whole_table else self.read_scope.describe(),
            kind=self.options.kind,
            digest=self.read_scope.digest,
            input_name=self.input_name,
            left_out=self.options.left_out,
            is_pinned=not self.options.is_head,
            is_of_asset=self.is_of_asset,
        )


def read_request(
    facts: InputFacts, *, namespace: str | None, publish: PublishedBy = "step", environment: Environment | None = None
) -> ReadRequest:
    """Return the read request of an input of an IO manager.

    `namespace`, `publish` and `environment` are the IO manager's: its namespace, its default for `iceberg/publish`, and
    its environment.
    """
    asset_key, definition, mapping_key = facts.asset_key, facts.definition, facts.mapping_key
    step, subject, metadata = facts.step, facts.subject, facts.metadata
    refused = partial(MetadataKeyError.refusing, "load", subject)
    has_source = asset_key is not None or definition.get(TABLE) is not None
    if metadata.get(TABLE) is not None:
        if has_source:
            raise refused(
                expected=f"`{TABLE}` in the definition of the upstream asset or output",
                found="it in the metadata of the input",
                hint="remove it from the input. To read another table, define an `AssetSpec` for that table.",
            )
        definition, mapping_key = {TABLE: metadata[TABLE]}, None
    elif not has_source:
        raise refused(
            expected=f"the table's name in its metadata, as `{TABLE}`",
            found="none, and the input of an op has no asset key",
            hint=f'use `In(input_manager_key=..., metadata={{"{TABLE}": "namespace.table"}})`.',
        )
    options = parse_read_options(
        metadata, subject=f"the input of {subject}", config=facts.config, tags=step.run_tags if step else None
    )
    own_branch = environment.branch if environment and options.ref is None and options.is_head else None
    request = ReadRequest(
        identifier=table_of(asset_key, definition, namespace, mapping_key=mapping_key, subject=subject),
        asset=subject,
        input_name=facts.name,
        scope=scope_of(facts.partitions, definition, subject=subject),
        options=options,
        annotation=parse_annotation(facts.annotation),
        step_key=step.step_key if step else None,
        is_of_all=options.kind is not None and facts.maps_to_all(),
        is_of_asset=asset_key is not None,
        is_released=(definition.get(PUBLISH) or publish) == "release",
        environment_branch=own_branch,
        staged_branch=staged_branch(
            root_run_id=step.root_run_id, output=subject, scope=None, target=own_branch or options.ref or MAIN_BRANCH
        )
        if step and asset_key and options.is_head
        else None,
    )
    if request.annotation.is_by_partition:
        _require_partitions(request)
    return request


def _require_partitions(request: ReadRequest) -> None:
    """Reject a dict by partition key if the input cannot be loaded one partition at a time."""
    hint = "annotate the input with the type of its rows instead of a dict"
    if request.is_of_all:
        expected = "a mapping to some of the partitions, for the changes by partition key"
        found = "a mapping to all partitions, to which new ones may be added"
        raise PartitioningError.refusing("load", request.asset, expected=expected, found=found, hint=f"{hint}.")
    if request.options.limit is not None:
        raise MetadataKeyError.refusing(
            "use",
            f"`{LIMIT}` of the input of {request.asset}",
            expected="no limit for an input by partition key",
            found=str(request.options.limit),
            hint=f"{hint}: the limit applies to all rows.",
        )
    if request.scope.is_whole_table:
        expected, found = (
            "partitions, for an input by partition key",
            "none: the asset has none, or the load names none",
        )
        raise PartitioningError.refusing("load", request.asset, expected=expected, found=found, hint=f"{hint}.")


def parse_annotation(annotation: object) -> InputAnnotation:
    """Parse `T`, `dict[str, T]` (by partition key) and `Optional[T]`."""
    inner, is_optional = _without_none(annotation)
    if get_origin(inner) is dict and get_args(inner)[0] is str:
        value, is_value_optional = _without_none(get_args(inner)[1])
        return InputAnnotation(
            value, is_by_partition=True, is_optional=is_value_optional, is_optional_whole=is_optional
        )
    return InputAnnotation(inner, is_optional=is_optional)


def _without_none(annotation: object) -> tuple[object, bool]:
    """Return the T of `Optional[T]`, or any other annotation as it is, and whether it was optional."""
    others = [item for item in get_args(annotation) if item is not type(None)]
    is_optional = get_origin(annotation) in (Union, types.UnionType) and len(others) == 1
    return (others[0], True) if is_optional else (annotation, False)

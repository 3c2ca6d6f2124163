"""From an InputContext to what is asked: the table, the partitions, the options, the type; and what was read of it."""

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Union, get_args, get_origin

import dagster as dg

from dagster_iceberg_spark.context import asset_scope, plain_metadata, table_of
from dagster_iceberg_spark.dagster_private import (
    definition_metadata_of,
    engine_events,
    instance_of,
    maps_to_all_partitions,
    step_facts,
    written_partitions,
)
from dagster_iceberg_spark.errors import MetadataKeyError, PartitioningError
from dagster_iceberg_spark.ledger import LEDGER
from dagster_iceberg_spark.plan.incremental import Changes
from dagster_iceberg_spark.plan.options import TABLE
from dagster_iceberg_spark.plan.read import EarlierRead, RecordedRead, chosen_read
from dagster_iceberg_spark.plan.read_options import AS_OF_RUN, LIMIT, RUN_KEYS, ReadOptions, parse_read_options
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import UpstreamRead
from dagster_iceberg_spark.table.scope import PartitionScope, share_of

RUN_CONFIG: Final = {
    key.removeprefix("iceberg/"): dg.Field(
        dg.Noneable(str), is_required=False, description=f"{text[0].upper()}{text[1:]}."
    )
    for key, text in RUN_KEYS.items()
}
"""What the configuration of a run may say of an input: `ops: <op>: inputs: <input>: as_of: ...`.

Dagster takes it of inputs that name their IO manager by `input_manager_key`."""
_READ: Final = {
    "input": "iceberg/input",
    "step": "iceberg/step",
    "asset": "iceberg/asset",
    "table": "iceberg/table",
    "partitions": "iceberg/partition_digest",
    "snapshot_id": "iceberg/read_snapshot_id",
    "since": "iceberg/read_since_snapshot_id",
    "scope": "iceberg/partitions",
    "kind": "iceberg/read",
    "left_out": "iceberg/left_out",
    "asked_at": "iceberg/asked_at",
}
"""Keys of an engine event that says what a step has read."""


@dataclass(frozen=True, slots=True)
class WantedInput:
    """What an input's annotation says.

    Args:
        annotation: The type of the rows: of `dict[str, T]` and `Optional[T]` the `T`.
        is_by_partition: Whether each partition is wanted alone, by its key.
        is_optional: Whether None stands for rows that nobody has written; of partitions, for each of them.
        is_optional_whole: Whether None stands for all partitions, where there is no table.
    """

    annotation: object
    is_by_partition: bool = False
    is_optional: bool = False
    is_optional_whole: bool = False


@dataclass(frozen=True, slots=True)
class ReadQuestion:
    """What an input asks for.

    Args:
        identifier: The table.
        asset: The upstream asset in words, for messages and the lineage.
        scope: The partitions to read.
        options: What the input asks for.
        wanted: What it is to be loaded as.
        step_key: The step that loads it; None: a script does.
        is_of_all: Whether changes are asked for, of all partitions.
    """

    identifier: TableIdentifier
    asset: str
    scope: PartitionScope
    options: ReadOptions
    wanted: WantedInput
    step_key: str | None = None
    is_of_all: bool = False

    @property
    def read_scope(self) -> PartitionScope:
        """The partitions whose rows are read.

        Of changes to all partitions, the whole table: there are more of them tomorrow, whose rows are new then.
        """
        return PartitionScope() if self.is_of_all else self.scope

    @property
    def described_scope(self) -> str | None:
        """The partitions as the lineage names them; None: the whole table."""
        return None if self.read_scope.is_whole_table else self.read_scope.describe()


def read_question(context: dg.InputContext, *, namespace: str | None) -> ReadQuestion:
    """Read an input's context.

    Args:
        context: Dagster's.
        namespace: The IO manager's namespace.

    Raises:
        MetadataKeyError: A metadata key or value is wrong.
        PartitioningError: `partition_expr` of the upstream asset is missing or does not fit, or each partition is
            wanted of an asset that has none.
    """
    asset_key = context.asset_key if context.has_asset_key else None
    upstream = context.upstream_output
    definition = plain_metadata(definition_metadata_of(context))
    mapping_key = upstream.mapping_key if upstream is not None and asset_key is None else None
    subject = "/".join(asset_key.path) if asset_key else f"the input {context.name!r}"
    facts, asked = step_facts(context), plain_metadata(context.definition_metadata)
    if TABLE in asked:
        _require_own_table(definition, asset_key, subject=subject)
        definition, mapping_key = {TABLE: asked[TABLE]}, None
    elif asset_key is None and TABLE not in definition:
        raise MetadataKeyError.refusing(
            "load",
            subject,
            expected=f"the table's name in its metadata, as `{TABLE}`",
            found="none: the input of an op has no asset key that a table is named after",
            hint=f'write `In(input_manager_key=..., metadata={{"{TABLE}": "namespace.table"}})`.',
        )
    options = parse_read_options(
        asked,
        subject=f"the input of {subject}",
        config=context.config or None,
        tags=facts.run_tags if facts else None,
    )
    question = ReadQuestion(
        identifier=table_of(asset_key, definition, namespace, mapping_key=mapping_key, subject=subject),
        asset=subject,
        scope=asset_scope(context, definition, subject),
        options=options,
        wanted=wanted_input(context.dagster_type.typing_type),
        step_key=facts.step_key if facts else None,
        is_of_all=options.kind is not None and maps_to_all_partitions(context),
    )
    if question.wanted.is_by_partition and question.is_of_all:
        raise PartitioningError.refusing(
            "load",
            subject,
            expected="a mapping to some of the partitions, for what is new in each by its key",
            found="one to all of them, of which there may be more tomorrow",
            hint="annotate the input with the type of its rows alone: what is new, whatever its partition.",
        )
    if question.wanted.is_by_partition and options.limit is not None:
        raise MetadataKeyError.refusing(
            "use",
            f"`{LIMIT}` of the input of {subject}",
            expected="no limit for an input of each partition by its key",
            found=str(options.limit),
            hint="annotate the input with the type of its rows alone: a limit is of all of them.",
        )
    if question.wanted.is_by_partition and question.scope.is_whole_table:
        raise PartitioningError.refusing(
            "load",
            subject,
            expected="an asset with partitions, for an input of each partition by its key",
            found="one without",
            hint="annotate the input with the type of its rows alone.",
        )
    return question


def _require_own_table(definition: Mapping[str, object], asset_key: dg.AssetKey | None, *, subject: str) -> None:
    """Refuse an input that names a table where what it comes from does.

    Raises:
        MetadataKeyError: It comes from an asset, or from an op's output that names its table.
    """
    if asset_key is None and TABLE not in definition:
        return
    raise MetadataKeyError.refusing(
        "load",
        subject,
        expected=f"`{TABLE}` where the rows come from, in the definition of the asset or of the output",
        found="it in the metadata of the input",
        hint="leave it out of the input, or read another table by an `AssetSpec` of that table.",
    )


def wanted_input(annotation: object) -> WantedInput:
    """Take `dict[str, T]`, of each partition, and `Optional[T]` apart."""
    inner = _without_none(annotation)
    is_optional = inner is not None
    annotation = annotation if inner is None else inner
    if get_origin(annotation) is dict and get_args(annotation)[0] is str:
        of_partition = get_args(annotation)[1]
        inner = _without_none(of_partition)
        return WantedInput(
            of_partition if inner is None else inner,
            is_by_partition=True,
            is_optional=inner is not None,
            is_optional_whole=is_optional,
        )
    return WantedInput(annotation, is_optional=is_optional)


def _without_none(annotation: object) -> object | None:
    """Return the T of `Optional[T]`; None of anything else."""
    arguments = get_args(annotation)
    if get_origin(annotation) not in (Union, types.UnionType) or type(None) not in arguments or len(arguments) != 2:  # noqa: PLR2004
        return None
    inner: object = next(item for item in arguments if item is not type(None))
    return inner


def input_identity(context: dg.InputContext, question: ReadQuestion) -> UpstreamRead:
    """Return what tells an input of changes from others, in the lineage."""
    return UpstreamRead(
        question.asset,
        str(question.identifier),
        None,
        question.described_scope,
        kind=question.options.kind,
        digest=question.read_scope.digest,
        input_name=_input_name(context),
        left_out=question.options.left_out,
    )


def _input_name(context: dg.InputContext) -> str:
    return context.name if context.has_input_name else ""


def record_read(
    context: dg.InputContext,
    question: ReadQuestion,
    snapshot_id: int | None,
    changes: Changes | None = None,
    upon: tuple[tuple[str, int | None], ...] = (),
    *,
    asked_at: float,
) -> None:
    """Remember what the step has loaded, for what it writes and for runs that are to read the same.

    Args:
        context: Dagster's.
        question: What the input asked for.
        snapshot_id: The snapshot that was read.
        changes: Which changes until then; None: its rows.
        upon: The snapshot that each table of the step had, by its asset.
        asked_at: When the load began, in seconds since 1970.
    """
    facts = step_facts(context)
    if facts is None:
        return
    scope, name = question.described_scope, _input_name(context)
    read = replace(input_identity(context, question), snapshot_id=snapshot_id)
    since = None if changes is None else changes.since
    if changes is None:
        read = replace(read, digest=None, input_name=None, is_pinned=not question.options.is_head)
    else:
        read = replace(read, since=since, upon=upon, is_repeated=changes.is_repeated)
    LEDGER.record(facts.run_id, facts.step_key, f"{name}\0{question.asset}\0{question.identifier}", read)
    facts.record_event(
        f"Reading {_described_range(question, snapshot_id, changes)}{f', partitions {scope}' if scope else ''}.",
        {
            _READ["input"]: name,
            _READ["step"]: facts.step_key,
            _READ["asset"]: question.asset,
            _READ["table"]: str(question.identifier),
            _READ["partitions"]: question.read_scope.digest,
            _READ["snapshot_id"]: "" if snapshot_id is None else str(snapshot_id),
            _READ["since"]: "" if since is None else str(since),
            _READ["scope"]: scope or "",
            _READ["kind"]: question.options.read,
            _READ["asked_at"]: str(asked_at),
            _READ["left_out"]: question.options.left_out or "",
        },
    )


def _described_range(question: ReadQuestion, snapshot_id: int | None, changes: Changes | None) -> str:
    at = f"snapshot {snapshot_id}" if snapshot_id else "its beginning"
    if changes is None:
        return f"{question.identifier} at {at}"
    if changes.since is None:
        why = "as it cannot be told what is new" if changes.is_repeated else "all of which is new"
        return f"{question.identifier} at {at}, {why}"
    if not changes.snapshots:
        return f"nothing of {question.identifier}, which has no rows that are newer than snapshot {changes.since}"
    what = "what was added to" if changes.kind == "changes" else "the changes of"
    return f"{what} {question.identifier} after snapshot {changes.since} until {at}, {len(changes.snapshots)} commits"


def recorded_read(context: dg.InputContext, question: ReadQuestion, run_id: str) -> EarlierRead | None:
    """Return what that run's step of this name has read for this input, by its event log."""
    facts = step_facts(context)
    if facts is None:
        raise MetadataKeyError.refusing(
            "use", f"`{AS_OF_RUN}` of {question.asset}", expected="an input of a run's step", found="a load of a script"
        )
    return chosen_read(run_id, reads_of_run(context, question, run_id, step_key=facts.step_key))


def reads_of_run(
    context: dg.InputContext, question: ReadQuestion, run_id: str, *, step_key: str | None
) -> list[RecordedRead]:
    """Return what a run has read for this input, by its event log, oldest first.

    Args:
        context: Dagster's.
        question: What the input asks for.
        run_id: The run.
        step_key: Its step; None: any that has an input of this name.
    """
    facts = step_facts(context)
    wanted = {
        _READ["input"]: _input_name(context),
        _READ["asset"]: question.asset,
        _READ["table"]: str(question.identifier),
    }
    if step_key is not None:
        wanted[_READ["step"]] = step_key
    return [
        RecordedRead(
            share=_share_of(event, question.read_scope),
            snapshot_id=int(event[_READ["snapshot_id"]] or 0) or None,
            since=int(event.get(_READ["since"]) or 0) or None,
            is_of_changes=event.get(_READ["kind"], "snapshot") != "snapshot",
            left_out=event.get(_READ["left_out"]) or None,
            asked_at=float(event.get(_READ["asked_at"], "inf")),
        )
        for event in (engine_events(facts.instance, run_id) if facts else ())
        if wanted.items() <= event.items()
    ]


def _share_of(event: Mapping[str, str], scope: PartitionScope) -> Literal["all", "some", "none"]:
    if event[_READ["partitions"]] == scope.digest:
        return "all"
    described = event.get(_READ["scope"])
    if described == "":
        return "all"
    return "some" if described is None or scope.is_whole_table else share_of(described, scope.keys) or "some"


def unrecorded_partitions(context: dg.InputContext, question: ReadQuestion) -> frozenset[str]:
    """Return the keys of the input's partitions that Dagster has no materialization of.

    None of them, where the input is all that there is of the asset, or what there was of it at another time; and none
    that the step itself writes: a run of several days reads the day before each.
    """
    instance = instance_of(context)
    is_now = question.options.is_head and question.options.ref is None
    if instance is None or not is_now or not context.has_asset_partitions or not context.has_asset_key:
        return frozenset()
    asked = frozenset(str(key) for key in context.asset_partition_keys)
    unrecorded = asked - written_partitions(context)
    if unrecorded:
        unrecorded -= set(instance.get_materialized_partitions(context.asset_key))
    if unrecorded and asked >= set(_all_keys(context.asset_partitions_def, instance)):
        return frozenset()
    return unrecorded


def _all_keys(partitions_def: dg.PartitionsDefinition, instance: dg.DagsterInstance) -> Sequence[str]:
    return partitions_def.get_partition_keys(dynamic_partitions_store=instance)

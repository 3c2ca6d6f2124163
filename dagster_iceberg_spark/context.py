"""From Dagster's contexts to what is asked: the table, the partitions, the options, the lineage."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.dagster_private import (
    StepFacts,
    engine_events,
    has_failed_blocking_check,
    recorded_snapshots,
    resumed_runs,
    run_started_at_ms,
    step_facts,
)
from dagster_iceberg_spark.distribution import PACKAGE_VERSION
from dagster_iceberg_spark.errors import ConfigurationError, MetadataKeyError, PartitioningError
from dagster_iceberg_spark.ledger import LEDGER
from dagster_iceberg_spark.plan.adoption import Record, RecordCheck, RemoteAttempt, TokenCandidate
from dagster_iceberg_spark.plan.calendar import coarsest_granule
from dagster_iceberg_spark.plan.comparison import COLUMN_SCHEMA, DefinedTable
from dagster_iceberg_spark.plan.merging import OF_RUN
from dagster_iceberg_spark.plan.options import (
    PARTITION_EXPR,
    TABLE,
    OptionDefaults,
    WriteOptions,
    parse_namespace,
    parse_partition_columns,
    parse_table_name,
    parse_write_options,
)
from dagster_iceberg_spark.plan.request import TableCreation, TableRequest
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import Materialization, commit_token
from dagster_iceberg_spark.table.scope import (
    Dimension,
    PartitionScope,
    PartitionSlice,
    TimeCalendar,
    TimeWindow,
)

DEFAULT_NAMESPACE: Final = "public"
RUN_WITHOUT_STEP: Final = "no-run"
"""The run id of a context that was built by hand: such writes are never looked up."""
_ATTEMPT: Final = {
    "tag": "iceberg/tag",
    "session_id": "iceberg/session",
    "user_id": "iceberg/user",
    "server": "iceberg/server",
}
"""Keys of an engine event that says where an attempt writes, by the field of `RemoteAttempt`."""


@dataclass(frozen=True, slots=True)
class WriteQuestion:
    """What an output asks for.

    Args:
        table: The table and how it is written.
        materialization: What the snapshot will say.
        candidates: Tokens that may be in the table already.
        record_of: Says what Dagster has recorded of a snapshot.
        announce: Records in the run's event log where on a Spark Connect server the step writes.
        earlier_attempts: Returns what earlier attempts have recorded so.
    """

    table: TableRequest
    materialization: Materialization
    candidates: tuple[TokenCandidate, ...]
    record_of: RecordCheck
    announce: Callable[[RemoteAttempt], None]
    earlier_attempts: Callable[[], Sequence[RemoteAttempt]]


def write_question(
    context: dg.OutputContext,
    *,
    namespace: str | None,
    defaults: OptionDefaults,
    creation: TableCreation,
) -> WriteQuestion:
    """Read an output's context.

    Args:
        context: Dagster's.
        namespace: The IO manager's namespace.
        defaults: The IO manager's options.
        creation: How the IO manager lets tables come to be.

    Raises:
        MetadataKeyError: A metadata key or value is wrong.
        PartitioningError: `partition_expr` is missing or does not fit the partitions definition.
    """
    asset_key = context.asset_key if context.has_asset_key else None
    definition, run = plain_metadata(context.definition_metadata), plain_metadata(context.output_metadata)
    facts = step_facts(context)
    subject = "/".join(asset_key.path) if asset_key else f"the output {context.name!r} of {context.step_key}"
    options = parse_write_options(definition, run, defaults, subject=subject)
    identifier = table_of(asset_key, definition, namespace, mapping_key=context.mapping_key, subject=subject)
    scope = asset_scope(context, definition, subject)
    _require_partitions(context, scope, subject)
    output = "/".join(asset_key.path) if asset_key else _output_label(context)
    materialization = Materialization(
        asset_key=output,
        run_id=facts.run_id if facts else RUN_WITHOUT_STEP,
        job=facts.job_name if facts else None,
        step_key=facts.step_key if facts else None,
        scope=scope,
        code_version=_code_version(context),
        upstream=LEDGER.reads_of(facts.run_id, facts.step_key) if facts else (),
        write_disposition=options.write_disposition,
        commit_token=commit_token(
            run_id=facts.run_id if facts else _random_run(), output=output, scope=scope, branch=options.branch
        ),
        package_version=PACKAGE_VERSION,
        started_at=_started_at(facts) if options.merge.boundary == OF_RUN and options.merge.validity else None,
    )
    candidates = _candidates(facts, output=output, scope=scope, branch=options.branch)
    return WriteQuestion(
        table=_table_request(identifier, asset_key, context.definition_metadata, options, creation),
        materialization=materialization,
        candidates=candidates,
        record_of=_record_check(facts, asset_key, scope, candidates),
        announce=partial(_announce, facts, str(identifier)),
        earlier_attempts=partial(_earlier_attempts, facts, candidates),
    )


def defined_table(spec: dg.AssetSpec, *, namespace: str | None, defaults: OptionDefaults) -> DefinedTable:
    """Read an asset's definition, outside of any run.

    Args:
        spec: Dagster's.
        namespace: The IO manager's namespace.
        defaults: The IO manager's options.

    Raises:
        MetadataKeyError: A metadata key or value is wrong.
        PartitioningError: `partition_expr` is missing or does not fit the partitions definition.
    """
    definition, subject = plain_metadata(spec.metadata), "/".join(spec.key.path)
    options = parse_write_options(definition, None, defaults, subject=subject)
    identifier = table_of(spec.key, definition, namespace, subject=subject)
    columns: Mapping[str | None, str] = {}
    if spec.partitions_def is not None:
        names = tuple(_by_dimension(spec.partitions_def))
        columns = _columns_by_dimension(names, parse_partition_columns(definition, subject=subject), subject=subject)
    declared = _declared_schema(spec.metadata)
    return DefinedTable(
        request=_table_request(identifier, spec.key, spec.metadata, options),
        partition_columns=tuple(columns.values()),
        declared_types=None if declared is None else {column.name: column.type for column in declared.columns},
    )


def table_of(
    asset_key: dg.AssetKey | None,
    definition: Mapping[str, Any],
    namespace: str | None,
    *,
    mapping_key: str | None = None,
    subject: str,
) -> TableIdentifier:
    """Say which table an asset, or an op's output, is stored in.

    The name is `iceberg/table`, else the last part of the asset key; the namespace is `schema`, else the IO manager's,
    else the last of the key's prefix, else `public`. Each output of a dynamic op has a table of its own.

    Raises:
        MetadataKeyError: An op's output names no table, or the name is none.
    """
    named = parse_table_name(definition, subject=subject)
    if named is not None:
        return named if mapping_key is None else TableIdentifier(named.namespace, f"{named.name}__{mapping_key}")
    if asset_key is None:
        raise MetadataKeyError.refusing(
            "store",
            subject,
            expected=f"the table's name in its metadata, as `{TABLE}`",
            found="none: the output of an op has no asset key to name a table after",
            hint=f'write `Out(io_manager_key=..., metadata={{"{TABLE}": "namespace.table"}})`, or give the op another '
            "IO manager.",
        )
    prefix = asset_key.path[:-1]
    configured = (namespace,) if namespace else None
    default = (prefix[-1],) if prefix else (DEFAULT_NAMESPACE,)
    return TableIdentifier(parse_namespace(definition, subject=subject) or configured or default, asset_key.path[-1])


def partition_scope(
    partitions_def: dg.PartitionsDefinition,
    keys: Sequence[str],
    columns: str | Mapping[str, str] | None,
    *,
    subject: str,
) -> PartitionScope:
    """Say which partitions the keys are, in which columns.

    Args:
        partitions_def: The asset's partitions definition.
        keys: Dagster's partition keys, any set of them.
        columns: `partition_expr`.
        subject: The asset, for messages.

    Raises:
        PartitioningError: `partition_expr` is missing or does not fit the definition.
    """
    definitions = _by_dimension(partitions_def)
    names = tuple(definitions)
    parts: list[Mapping[Any, str]]
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        parts = [partitions_def.get_partition_key_from_str(str(key)).keys_by_dimension for key in keys]
    else:
        parts = [{None: key} for key in keys]
    by_dimension = _columns_by_dimension(names, columns, subject=subject)
    slices = {name: _Slices(definitions[name]) for name in names}
    return PartitionScope(
        dimensions=tuple(Dimension(name, by_dimension[name], slices[name].calendar) for name in names),
        partitions=tuple(tuple(slices[name].of(part[name]) for name in names) for part in parts),
        keys=tuple(str(key) for key in keys),
    )


def plain_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return metadata with Dagster's wrappers taken off."""
    return {
        key: value.value if isinstance(value, dg.MetadataValue) else value for key, value in (metadata or {}).items()
    }


class _Slices:
    """The slices of one dimension by key."""

    def __init__(self, partitions_def: dg.PartitionsDefinition) -> None:
        self._windows = partitions_def if isinstance(partitions_def, dg.TimeWindowPartitionsDefinition) else None
        self._known: dict[str, PartitionSlice] = {}

    @property
    def calendar(self) -> TimeCalendar | None:
        windows = self._windows
        if windows is None:
            return None
        return TimeCalendar(windows.timezone, windows.fmt, coarsest_granule(windows.cron_schedule))

    def of(self, key: str) -> PartitionSlice:
        if key not in self._known:
            self._known[key] = PartitionSlice(key, self._window(key))
        return self._known[key]

    def _window(self, key: str) -> TimeWindow | None:
        if self._windows is None:
            return None
        window = self._windows.time_window_for_partition_key(key)
        return TimeWindow(window.start, window.end)


def _by_dimension(partitions_def: dg.PartitionsDefinition) -> dict[str | None, dg.PartitionsDefinition]:
    """Return the definition of each dimension by its name; of a single one by None."""
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return {item.name: item.partitions_def for item in partitions_def.partitions_defs}
    return {None: partitions_def}


def _columns_by_dimension(
    names: Sequence[str | None], columns: str | Mapping[str, str] | None, *, subject: str
) -> dict[str | None, str]:
    is_multi = names != (None,)
    expected = (
        f"`{PARTITION_EXPR}` with a column for each of the dimensions {', '.join(map(str, names))}"
        if is_multi
        else f"`{PARTITION_EXPR}` with the name of the column that holds the partition"
    )
    example = "{" + ", ".join(f'"{name}": "<column>"' for name in names) + "}" if is_multi else '"<column>"'
    hint = f'add metadata {{"{PARTITION_EXPR}": {example}}} to the asset.'
    if not is_multi and isinstance(columns, str):
        return {None: columns}
    if is_multi and isinstance(columns, Mapping) and set(columns) == set(names):
        return {name: columns[str(name)] for name in names}
    found = "none" if columns is None else repr(columns)
    raise PartitioningError.refusing("partition", subject, expected=expected, found=found, hint=hint)


def asset_scope(
    context: dg.OutputContext | dg.InputContext, definition: Mapping[str, Any], subject: str
) -> PartitionScope:
    """Say which partitions of its asset an output or an input is about; of an asset without any, the whole table.

    Raises:
        PartitioningError: `partition_expr` is missing or does not fit the definition.
    """
    if not context.has_asset_partitions:
        return PartitionScope()
    columns = parse_partition_columns(definition, subject=subject)
    return partition_scope(context.asset_partitions_def, context.asset_partition_keys, columns, subject=subject)


def _require_partitions(context: dg.OutputContext, scope: PartitionScope, subject: str) -> None:
    """Refuse a partitioned asset in a run without partitions: it would replace all of them.

    Dagster's own launchers ask for a partition; `dg.materialize` does not, and takes the empty key for none.
    """
    if not scope.is_whole_table or not context.has_asset_key or step_facts(context) is None:
        return
    if context.asset_spec.partitions_def is not None:
        raise PartitioningError.refusing(
            "write",
            subject,
            expected="a run of some of the asset's partitions",
            found="a run without partitions",
            hint="give `dg.materialize` a `partition_key`; Dagster takes the empty text for none.",
        )


def _output_label(context: dg.OutputContext) -> str:
    parts = (context.step_key, context.name, context.mapping_key)
    return "/".join(part for part in parts if part)


def _random_run() -> str:
    """Return a run id that no other write has."""
    return dg.DagsterRun(job_name=RUN_WITHOUT_STEP).run_id


def _code_version(context: dg.OutputContext) -> str | None:
    if not context.has_asset_key or step_facts(context) is None:
        return None
    return context.asset_spec.code_version


def _table_request(
    identifier: TableIdentifier,
    asset_key: dg.AssetKey | None,
    metadata: Mapping[str, Any] | None,
    options: WriteOptions,
    creation: TableCreation | None = None,
) -> TableRequest:
    declared = _declared_schema(metadata)
    return TableRequest(
        identifier=identifier,
        asset_key="/".join(asset_key.path) if asset_key else None,
        is_named_explicitly=TABLE in (metadata or {}),
        options=options,
        column_docs={column.name: column.description for column in declared.columns if column.description}
        if declared
        else {},
        creation=creation or TableCreation(),
    )


def _declared_schema(metadata: Mapping[str, Any] | None) -> dg.TableSchema | None:
    """Return the `dagster/column_schema` of a definition, if it has one."""
    value = (metadata or {}).get(COLUMN_SCHEMA)
    schema = value.value if isinstance(value, dg.MetadataValue) else value
    if schema is not None and not isinstance(schema, dg.TableSchema):
        raise ConfigurationError.refusing(
            "use", f"`{COLUMN_SCHEMA}`", expected="a dagster.TableSchema", found=type(schema).__name__
        )
    return schema


def _started_at(facts: StepFacts | None) -> dt.datetime:
    """Return when the run was created: the same for every attempt of a step."""
    milliseconds = run_started_at_ms(facts.instance, facts.run_id) if facts else None
    now = dt.datetime.now(dt.timezone.utc)
    return now if milliseconds is None else dt.datetime.fromtimestamp(milliseconds / 1000, dt.timezone.utc)


def _candidates(
    facts: StepFacts | None, *, output: str, scope: PartitionScope, branch: str
) -> tuple[TokenCandidate, ...]:
    """Return the tokens to look for: this run's, and those of the runs that it resumes.

    An in-process run with a fixed id may repeat on an ephemeral instance: there only a second attempt looks.
    """
    if facts is None or (facts.instance.is_ephemeral and facts.attempt == 0):
        return ()
    runs = [facts.run_id, *resumed_runs(facts)]
    return tuple(
        TokenCandidate(
            token=commit_token(run_id=run_id, output=output, scope=scope, branch=branch),
            run_id=run_id,
            run_started_at_ms=run_started_at_ms(facts.instance, run_id),
            is_same_run=run_id == facts.run_id,
            has_begun=run_id != facts.run_id or facts.attempt > 0,
        )
        for run_id in runs
    )


def _record_check(
    facts: StepFacts | None, asset_key: dg.AssetKey | None, scope: PartitionScope, candidates: Sequence[TokenCandidate]
) -> RecordCheck:
    """Return what asks the runs that may have written the snapshot, or taken it over from one another."""

    def record_of(snapshot_id: int) -> Record:
        record: Record = "none"
        if facts is None or asset_key is None:
            return record
        for candidate in candidates:
            if snapshot_id in recorded_snapshots(facts.instance, candidate.run_id, asset_key, scope.keys):
                if has_failed_blocking_check(facts.instance, candidate.run_id, asset_key):
                    return "rejected"
                record = "recorded"
        return record

    return record_of


def _announce(facts: StepFacts | None, table: str, attempt: RemoteAttempt) -> None:
    """Record where an attempt writes, so that a later one can stop it; of a write without a step there is none."""
    if facts is not None:
        facts.record_event(
            f"Writing {table} in session {attempt.session_id} of the Spark Connect server {attempt.server}.",
            {key: getattr(attempt, field) for field, key in _ATTEMPT.items()},
        )


def _earlier_attempts(facts: StepFacts | None, candidates: Sequence[TokenCandidate]) -> Sequence[RemoteAttempt]:
    if facts is None:
        return ()
    tags = {candidate.tag for candidate in candidates}
    events = (event for candidate in candidates for event in engine_events(facts.instance, candidate.run_id))
    return tuple(
        RemoteAttempt(**{field: event[key] for field, key in _ATTEMPT.items()})
        for event in events
        if event.get(_ATTEMPT["tag"]) in tags and set(_ATTEMPT.values()) <= set(event)
    )

"""What a change of the code changes in tables, found without running an asset."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import dagster as dg

from dagster_iceberg_spark.assets.stored_tables import stored_members
from dagster_iceberg_spark.assets.table_io_manager import TableIOManager
from dagster_iceberg_spark.errors import IcebergSparkError, SchemaMismatchError
from dagster_iceberg_spark.features.code_changes.plan.code_state import (
    AssetCode,
    CodeChange,
    CodeState,
    compare_states,
    in_order,
)
from dagster_iceberg_spark.features.code_changes.plan.effects import (
    AssetLineage,
    Effect,
    QueryColumns,
    compare_queries,
    with_readers,
)
from dagster_iceberg_spark.features.code_changes.plan.report import AssetImpact
from dagster_iceberg_spark.features.code_changes.revisions import Range, checked_out
from dagster_iceberg_spark.features.components.plan import parse_query
from dagster_iceberg_spark.features.lineage.observer import COLUMN_LINEAGE, ROW_COLUMNS
from dagster_iceberg_spark.plan.options.output_options import WriteOptions
from dagster_iceberg_spark.plan.schema.schema_evolution import plan_schema_changes
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, TableState


@dataclass(frozen=True, slots=True)
class CodeStates:
    """The assets of two revisions."""

    before: CodeState
    after: CodeState

    @property
    def changes(self) -> dict[str, CodeChange]:
        """The assets that the revisions define differently."""
        return compare_states(self.before, self.after)

    @property
    def inputs(self) -> dict[str, tuple[str, ...]]:
        """The inputs of each asset in both revisions."""
        keys = sorted(self.before.keys() | self.after.keys())
        sides = {key: [side[key].inputs for side in (self.before, self.after) if key in side] for key in keys}
        return {key: tuple(dict.fromkeys(name for each in found for name in each)) for key, found in sides.items()}


def states_of(span: Range, options: Mapping[str, Any]) -> CodeStates:
    """Load the code locations of two revisions, in processes of their own."""
    with (
        checked_out(span.root, span.before) as old,
        checked_out(span.root, span.after) as new,
        ThreadPoolExecutor(2) as pool,
    ):
        before, after = (
            pool.submit(old.state, options, f"the revision {span.before[:10]}"),
            pool.submit(new.state, options, "the new code"),
        )
        return CodeStates(before.result(), after.result())


_Analysis: TypeAlias = QueryColumns | IcebergSparkError
"""What a query returns, or why it fails."""


@dataclass(frozen=True, slots=True)
class StoredAssetTable:
    """An asset of the code location, with its IO manager and its table as it is."""

    io_manager: TableIOManager
    spec: dg.AssetSpec
    options: WriteOptions
    state: TableState | None


def code_impact(
    locations: Sequence[dg.Definitions], states: CodeStates, instance: dg.DagsterInstance | None
) -> list[AssetImpact]:
    """Return what changes in which assets, each after its inputs.

    Args:
        locations: The code locations as they are. Their IO managers know the tables.
        states: The two revisions.
        instance: The Dagster instance with the last runs, or None if only queries show columns.
    """
    with stored_by_key(locations) as stored:
        return _impact(stored, states, instance)


def _impact(
    stored: Mapping[str, StoredAssetTable], states: CodeStates, instance: dg.DagsterInstance | None
) -> list[AssetImpact]:
    changes, inputs = states.changes, states.inputs
    wanted = _with_downstream(changes, inputs)
    before, after = (_analyze(side, stored, wanted) for side in (states.before, states.after))
    own, lineages = dict[str, Effect](), dict[str, AssetLineage]()
    for key in wanted:
        old, new = before.get(key), after.get(key)
        change = changes.get(key)
        if isinstance(new, QueryColumns):
            lineages[key] = new.lineage
        elif isinstance(old, QueryColumns):
            lineages[key] = old.lineage
        elif instance is not None and (recorded := recorded_lineage(instance, key, stored.get(key))) is not None:
            lineages[key] = recorded
        effect = _own_effect(change, old, new)
        if isinstance(new, QueryColumns) and key in stored:
            effect = _with_refusal(effect, stored[key], new.schema)
        if effect is not None:
            own[key] = effect
    effects = with_readers(own, inputs, lineages)
    keys = [key for key in in_order(inputs) if key in effects or key in changes]
    return [_described(key, changes.get(key), effects.get(key, Effect()), stored.get(key), instance) for key in keys]


@contextmanager
def stored_by_key(locations: Sequence[dg.Definitions]) -> Iterator[dict[str, StoredAssetTable]]:
    """Yield the assets of code locations with their tables. Their IO managers are open inside the block."""
    from dagster_iceberg_spark.catalog.look import look

    with ExitStack() as stack:
        found = dict[str, StoredAssetTable]()
        for definitions in locations:
            for io_manager, spec in stack.enter_context(stored_members(definitions, action="compare revisions of")):
                request = io_manager.definition_of(spec).request
                state = look(io_manager.spark.catalog_description, request.identifier)
                found["/".join(spec.key.path)] = StoredAssetTable(io_manager, spec, request.options, state)
        yield found


def _with_downstream(keys: Mapping[str, Any], inputs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return assets and all that are derived from them, each after its inputs."""
    found = dict[str, None]()
    for key in in_order(inputs):
        if key in keys or not found.keys().isdisjoint(inputs[key]):
            found[key] = None
    return list(found)


def _analyze(side: CodeState, stored: Mapping[str, StoredAssetTable], wanted: Sequence[str]) -> dict[str, _Analysis]:
    """Return what the queries of a revision return, given what those before them return, or why they fail.

    Queries with an input that is not known are left out.
    """
    found = dict[str, _Analysis]()
    for key in wanted:
        asset, table = side.get(key), stored.get(key)
        if asset is None or asset.query is None or table is None:
            continue
        schemas = dict[tuple[str, ...], tuple[str, Schema]]()
        for parts, name in asset.tables:
            schema = _schema_of(name, found, stored)
            if schema is not None:
                schemas[parts] = (name, schema)
        if len(schemas) == len(asset.tables):
            found[key] = _analyzed(asset, table, schemas)
    return found


def _schema_of(key: str, found: Mapping[str, _Analysis], stored: Mapping[str, StoredAssetTable]) -> Schema | None:
    """Return the columns of an asset: those of its query in the revision, or else those of its table."""
    known, table = found.get(key), stored.get(key)
    if known is not None:
        return known.schema if isinstance(known, QueryColumns) else None
    return None if table is None or table.state is None else table.state.schema


def _analyzed(
    asset: AssetCode, table: StoredAssetTable, schemas: Mapping[tuple[str, ...], tuple[str, Schema]]
) -> _Analysis:
    from dagster_iceberg_spark.features.code_changes.spark import query_columns

    session = table.io_manager.spark.iceberg_session
    try:
        return query_columns(session, parse_query(asset.query or ""), schemas, subject=asset.key)
    except IcebergSparkError as error:
        return error


def _own_effect(
    change: CodeChange | None,
    old: QueryColumns | IcebergSparkError | None,
    new: QueryColumns | IcebergSparkError | None,
) -> Effect | None:
    """Return what changes in an asset by its own code or, if it is a query, by the columns of its inputs."""
    if change is not None and change.after is None:
        return Effect(is_whole=True, source="unknown")
    if isinstance(new, IcebergSparkError):
        return None if isinstance(old, IcebergSparkError) else Effect(is_whole=True, breaks=(_first_line(new),))
    if isinstance(new, QueryColumns) and isinstance(old, QueryColumns):
        return compare_queries(old, new)
    if isinstance(new, QueryColumns) and change is not None and change.before is None:
        return Effect(added=new.schema.names)
    if change is not None and change.has_other_code:
        return Effect(is_whole=True, source="unknown")
    return None


def _with_refusal(effect: Effect | None, table: StoredAssetTable, schema: Schema) -> Effect | None:
    """Return the effect, with the reason why the table would refuse the columns."""
    if table.state is None or effect is None or effect.is_none:
        return effect
    try:
        plan_schema_changes(
            schema,
            table.state.schema,
            policy=table.options.schema_evolution,
            docs={},
            subject=str(table.state.identifier),
        )
    except SchemaMismatchError as error:
        return replace(effect, breaks=(*effect.breaks, _first_line(error)))
    return effect


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def recorded_lineage(instance: dg.DagsterInstance, key: str, table: StoredAssetTable | None) -> AssetLineage | None:
    """Return what the last materialization of an asset has recorded, or None if that is nothing."""
    event = instance.get_latest_materialization_event(dg.AssetKey(key.split("/")))
    materialization = None if event is None else event.asset_materialization
    if materialization is None:
        return None
    lineage, rows = (materialization.metadata.get(name) for name in (COLUMN_LINEAGE, ROW_COLUMNS))
    if not isinstance(lineage, dg.TableColumnLineageMetadataValue):
        return None
    columns = {
        name: frozenset(("/".join(dep.asset_key.path), dep.column_name) for dep in deps)
        for name, deps in lineage.column_lineage.deps_by_column.items()
    }
    row_columns: Any = rows.value if isinstance(rows, dg.JsonMetadataValue) else None
    known = None if table is None or table.state is None else table.state.schema
    return AssetLineage(
        columns,
        None
        if row_columns is None
        else frozenset((asset, name) for asset, names in row_columns.items() for name in names),
        "recorded",
        () if known is None else tuple(name for name in known.names if name not in columns),
    )


def _described(
    key: str,
    change: CodeChange | None,
    effect: Effect,
    table: StoredAssetTable | None,
    instance: dg.DagsterInstance | None,
) -> AssetImpact:
    head = None if table is None or table.state is None else table.state.head(MAIN_BRANCH)
    is_rebuilt = head is not None and (effect.reaches_readers or bool(effect.added))
    definition = None if table is None else table.spec.partitions_def
    keys = None
    if is_rebuilt and instance is not None and definition is not None and table is not None:
        keys = len(instance.get_materialized_partitions(table.spec.key))
    return AssetImpact(
        key,
        tuple(change.words()) if change else (),
        effect,
        None if head is None or table is None or table.state is None else str(table.state.identifier),
        keys,
        head.count("total-files-size") if head is not None and is_rebuilt else None,
    )

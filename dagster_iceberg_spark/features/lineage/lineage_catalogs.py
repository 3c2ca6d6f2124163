"""The catalogs and tables that questions are about."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import product
from typing import Any, Final

import dagster as dg

from dagster_iceberg_spark.assets.address import known_scope
from dagster_iceberg_spark.assets.stored_tables import AssetTable, stored_members, tables_of_assets
from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.look import find_table, translated_answers
from dagster_iceberg_spark.errors import ConfigurationError, NotAnIcebergTableError, UpstreamMissingError
from dagster_iceberg_spark.features.lineage.plan.provenance import Provenance, TableHistory
from dagster_iceberg_spark.resource import IcebergSparkResource
from dagster_iceberg_spark.table.identifier import NotationError, TableIdentifier
from dagster_iceberg_spark.table.lineage import EXPIRED_SNAPSHOTS_TABLE, FIRST_ROW_ID, SEQUENCE_NUMBER, UpstreamRead
from dagster_iceberg_spark.table.scope import PartitionScope, first_and_last, listed_keys
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH, Snapshot, TableState


def expired_snapshots(description: CatalogDescription, namespace: tuple[str, ...]) -> Mapping[str, list[Snapshot]]:
    """Return the expired snapshots of a namespace's tables by the uuid of the table."""
    identifier = TableIdentifier(namespace, EXPIRED_SNAPSHOTS_TABLE)
    table = find_table(description, identifier)
    found: dict[str, list[Snapshot]] = {}
    if table is None:
        return found
    with translated_answers(description, action=f"read {identifier} from"):
        for row in table.scan().to_arrow().to_pylist():
            found.setdefault(row["table_uuid"], []).append(_snapshot_of(row))
    return found


def _snapshot_of(row: Mapping[str, Any]) -> Snapshot:
    summary = dict(row["summary"] or ())
    sequence_number, first_row_id = (summary.pop(key, None) for key in (SEQUENCE_NUMBER, FIRST_ROW_ID))
    return Snapshot(
        row["snapshot_id"],
        row["parent_snapshot_id"],
        round(row["committed_at"].timestamp() * 1000),
        row["operation"],
        summary,
        sequence_number=None if sequence_number is None else int(sequence_number),
        first_row_id=None if first_row_id is None else int(first_row_id),
    )


@dataclass(frozen=True)
class CatalogTables:
    """Tables of a catalog.

    Args:
        spark: The resource with the catalog. It starts a session only if something needs one.
        identifiers: The tables of the code locations' assets, or all tables of the catalog.
        partitions: The partitions of the tables' assets, if they are known.
        keys: The columns that identify a row, of tables whose assets merge by them.
        specs: The assets by key, with slashes between its parts.
    """

    spark: IcebergSparkResource
    identifiers: Collection[TableIdentifier]
    partitions: Mapping[TableIdentifier, dg.PartitionsDefinition] = field(default_factory=dict)
    keys: Mapping[TableIdentifier, Sequence[str]] = field(default_factory=dict)
    specs: Mapping[str, dg.AssetSpec] = field(default_factory=dict)

    def scope_of(self, read: UpstreamRead) -> PartitionScope | None:
        """Return the partitions of a read, or None if they are not known."""
        if read.scope is None:
            return PartitionScope()
        spec = self.specs.get(read.asset_key)
        keys = None if spec is None else keys_by(spec.partitions_def)(read.scope)
        return None if spec is None or keys is None else known_scope(spec, keys)

    def keys_of(self, state: TableState) -> Sequence[str]:
        """Return the columns that identify a row of a table, or none."""
        return state.identifier_fields or self.keys.get(state.identifier, ())

    def find(self, identifier: TableIdentifier) -> TableState | None:
        """Return the state of a table, or None if it does not exist."""
        from dagster_iceberg_spark.catalog.look import look

        return look(self.spark.catalog_description, identifier)

    def history_of(self, state: TableState) -> TableHistory:
        """Return the history of a table, with the expired snapshots that maintenance has kept."""
        kept = {
            item.snapshot_id: item for item in self._expired_snapshots(state) if item.snapshot_id not in state.snapshots
        }
        snapshots = {**state.snapshots, **kept}
        listed = keys_by(self.partitions.get(state.identifier))
        head = state.refs.get(MAIN_BRANCH)
        name, expired = str(state.identifier), frozenset(kept)
        return TableHistory(name, snapshots, head, expired, listed, state.refs, state.once_current)

    def provenance(self, *known: TableState) -> Provenance:
        """Return the histories of all tables, and of those whose state is known."""
        others = {*self.identifiers} - {state.identifier for state in known}
        states = [*known, *(state for identifier in others if (state := self._readable(identifier)) is not None)]
        ordered = sorted(states, key=lambda state: state.identifier.parts)
        return Provenance({str(state.identifier): self.history_of(state) for state in ordered})

    def _readable(self, identifier: TableIdentifier) -> TableState | None:
        try:
            return None if identifier.name == EXPIRED_SNAPSHOTS_TABLE else self.find(identifier)
        except NotAnIcebergTableError:
            return None

    def _expired_snapshots(self, state: TableState) -> Sequence[Snapshot]:
        namespace = state.identifier.namespace
        if namespace not in self._ledgers:
            self._ledgers[namespace] = expired_snapshots(self.spark.catalog_description, namespace)
        return self._ledgers[namespace].get(state.uuid, ())

    @cached_property
    def _ledgers(self) -> dict[tuple[str, ...], Mapping[str, Sequence[Snapshot]]]:
        return {}


@contextmanager
def catalog_tables(locations: Sequence[dg.Definitions], *, action: str) -> Iterator[list[CatalogTables]]:
    """Yield the tables of the assets of code locations, by catalog. Their resources are open inside the block."""
    with ExitStack() as stack:
        by_catalog: dict[object, list[AssetTable]] = {}
        for definitions in locations:
            for table in tables_of_assets(stack.enter_context(stored_members(definitions, action=action))):
                by_catalog.setdefault(table.io_manager.spark.catalog_description.identity, []).append(table)
        yield [_of_one_catalog(tables) for tables in by_catalog.values()]


def _of_one_catalog(tables: Sequence[AssetTable]) -> CatalogTables:
    partitions = {
        table.identifier: definition
        for table in tables
        if len(definitions := {spec.partitions_def for spec in table.specs}) == 1
        for definition in definitions
        if definition is not None
    }
    identifiers = dict.fromkeys(table.identifier for table in tables)
    options = ((table, table.io_manager.definition_of(table.specs[0]).request.options) for table in tables)
    keys = {table.identifier: each.merge_keys for table, each in options if each.merge_keys and not each.merge.validity}
    specs = {"/".join(spec.key.path): spec for table in tables for spec in table.specs}
    return CatalogTables(tables[0].io_manager.spark, list(identifiers), partitions, keys, specs)


def keys_by(definition: dg.PartitionsDefinition | None) -> Callable[[str], frozenset[str] | None]:
    """Return a function that returns the partition keys which a summary describes, or None if they are not known.

    A summary has the first and the last of many keys, with their number. If the definition has as many keys between
    the two, these are the keys.
    """
    if not isinstance(definition, _LISTED):
        return listed_keys

    @cache
    def listed(described: str) -> frozenset[str] | None:
        ends = first_and_last(described)
        if ends is None:
            return listed_keys(described)
        first, last, count = ends
        keys = frozenset(_between(definition, first, last))
        return keys if len(keys) == count else None

    return listed


_LISTED: Final = (dg.TimeWindowPartitionsDefinition, dg.StaticPartitionsDefinition, dg.MultiPartitionsDefinition)


def _between(definition: dg.PartitionsDefinition, first: str, last: str) -> Iterator[str]:
    """Yield the keys between two. Of several dimensions, each lies between its own keys."""
    if isinstance(definition, dg.MultiPartitionsDefinition):
        ends = [definition.get_partition_key_from_str(key).keys_by_dimension for key in (first, last)]
        by_dimension = {
            item.name: list(_between(item.partitions_def, *(end[item.name] for end in ends)))
            for item in definition.partitions_defs
        }
        for parts in product(*by_dimension.values()):
            yield dg.MultiPartitionKey(dict(zip(by_dimension, parts, strict=True)))
    elif isinstance(definition, _LISTED):  # others, only an instance knows
        yield from (key for key in definition.get_partition_keys() if first <= key <= last)


def every_table(resource: IcebergSparkResource) -> CatalogTables:
    """Return all tables of a catalog."""
    from dagster_iceberg_spark.catalog.tables import tables_of

    return CatalogTables(resource, tables_of(resource.catalog_description))


def table_named(lakes: Sequence[CatalogTables], name: str, *, action: str) -> tuple[CatalogTables, TableState]:
    """Return the first table of this name, and the tables of its catalog.

    Raises:
        ConfigurationError: The name is not one of a table. The message names the action.
        UpstreamMissingError: No catalog has it.
    """
    try:
        identifier = TableIdentifier.parse(name)
    except NotationError as error:
        raise ConfigurationError.refusing(action, name, expected=error.expected, found=error.found) from error
    for lake in lakes:
        state = lake.find(identifier)
        if state is not None:
            return lake, state
    places = ", ".join(str(lake.spark.catalog_description) for lake in lakes)
    raise UpstreamMissingError.refusing(
        action, name, expected=f"a table in the {places}", found="none of this name", hint="name it with its namespace."
    )


def snapshot_of(history: TableHistory, name: str, *, action: str) -> Snapshot:
    """Return a snapshot of a table, which may have expired.

    Args:
        history: The history of the table.
        name: The id of the snapshot, or a branch or tag, which names its newest.
        action: What the snapshot is needed for, for the message.

    Raises:
        UpstreamMissingError: The table never had it, or it has expired without a record.
    """
    snapshot_id = int(name) if name.isdecimal() else history.refs.get(name)
    snapshot = None if snapshot_id is None else history.snapshots.get(snapshot_id)
    if snapshot is None:
        raise UpstreamMissingError.refusing(
            action,
            history.table,
            expected=f"the snapshot {name}, or a record of it" if name.isdecimal() else f"a branch or tag {name!r}",
            found="neither" if name.isdecimal() else ", ".join(sorted(history.refs)) or "none",
            hint=f"`dagster-iceberg-spark history {history.table}` shows the snapshots that are known.",
        )
    return snapshot

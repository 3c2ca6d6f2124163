"""Discovers the tables of a catalog, from their metadata and, for their partitions, their manifest lists."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.table import Table
from pyiceberg.types import IntegerType

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.catalog.files import data_manifests, entries_in
from dagster_iceberg_spark.catalog.look import known_table, look, translated_answers
from dagster_iceberg_spark.catalog.tables import tables_of
from dagster_iceberg_spark.catalog.values import granule_window
from dagster_iceberg_spark.errors import NotAnIcebergTableError
from dagster_iceberg_spark.plan.discovery import (
    MAXIMUM_KEYS,
    DiscoveredPartitions,
    DiscoveredTable,
    TableSelection,
    discovered,
    granule_of,
    partition_field,
)
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.partitioning import PartitionField
from dagster_iceberg_spark.table.snapshot import TableState

_AT_A_TIME: Final = 8
_ORDINAL: Final = IntegerType()
"""Years, months, days and hours since 1970, and dates, are stored alike (Iceberg spec, appendix D)."""


def discover_tables(
    description: CatalogDescription, selection: TableSelection, *, warn: Callable[[str], None]
) -> list[DiscoveredTable]:
    """Return the selected tables, by name. What is no Iceberg table is left out, with a warning.

    Raises:
        CatalogUnavailableError: The catalog or the store does not respond.
    """

    def find(identifier: TableIdentifier) -> DiscoveredTable | None:
        try:
            state = look(description, identifier)
        except NotAnIcebergTableError as error:
            warn(f"Left out {identifier}: {error}")
            return None
        if state is None or not selection.has_state(state):  # dropped in the meantime, or not selected
            return None
        return discovered(state, _partitions(description, state))

    names = [name for name in tables_of(description, selection.has_namespace) if selection.has_table(name)]
    with ThreadPoolExecutor(1 if description.is_local else _AT_A_TIME) as pool:
        return [table for table in pool.map(find, names) if table is not None]


def _partitions(description: CatalogDescription, state: TableState) -> DiscoveredPartitions | None:
    """Return the partitions of a table with rows, if they are partitions of an asset."""
    field = partition_field(state)
    granule = None if field is None else granule_of(state, field)
    if field is None or granule is None or state.head() is None:
        return None
    table = known_table(description, state.identifier, action="list the partitions of")
    with translated_answers(description, action=f"read the manifests of {state.identifier} in"):
        if granule == "key":
            keys = _values(table, field)
            return DiscoveredPartitions(field.column, "key", keys=keys) if 0 < len(keys) <= MAXIMUM_KEYS else None
        window = granule_window(granule, lowest) if (lowest := _lowest(table, field)) is not None else None
    return None if window is None else DiscoveredPartitions(field.column, granule, window[0].isoformat())


def _lowest(table: Table, field: PartitionField) -> int | None:
    """Return the least value of a partition field, from the manifest list, or None if some manifest does not tell."""
    found = list[int]()
    for manifest in data_manifests(table, table.current_snapshot()):
        place = _place(table, manifest.partition_spec_id, field)
        if place is None or not manifest.partitions:
            return None  # files of an older spec
        bound = manifest.partitions[place].lower_bound
        if bound is not None:  # otherwise it only has files without a value
            found.append(from_bytes(_ORDINAL, bound))  # type: ignore[arg-type]
    return min(found, default=None)


def _values(table: Table, field: PartitionField) -> tuple[str, ...]:
    """Return the values of a partition field, or none if some file does not tell."""

    def value(entry: Any) -> str | None:
        place = _place(table, entry.data_file.spec_id, field)
        return None if place is None else entry.data_file.partition[place]

    values = set(entries_in(table, data_manifests(table, table.current_snapshot()), value))
    return () if None in values else tuple(sorted(map(str, values)))


def _place(table: Table, spec_id: int, field: PartitionField) -> int | None:
    """Return the position of a field in a spec, if the spec has it."""
    schema = table.schema()
    for place, known in enumerate(table.specs()[spec_id].fields):
        if (schema.find_column_name(known.source_id), str(known.transform)) == (field.column, str(field.transform)):
            return place
    return None

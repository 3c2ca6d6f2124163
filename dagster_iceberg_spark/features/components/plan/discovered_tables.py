"""What becomes known of the tables that others keep in a catalog: their columns and partitions, as plain values.

The values are stored as JSON between two discoveries.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias

from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import EXPIRED_SNAPSHOTS_TABLE, OWNER_PROPERTY
from dagster_iceberg_spark.table.partitioning import TIME_TRANSFORMS, PartitionField, TimeTransform
from dagster_iceberg_spark.table.schema import DATE, STRING
from dagster_iceberg_spark.table.snapshot import TableState

_VERSION: Final = 1
MAXIMUM_KEYS: Final = 1_000
"""A table with more values in its partition column has no partitions as an asset."""

Granule: TypeAlias = TimeTransform | Literal["key"]


@dataclass(frozen=True, slots=True)
class DiscoveredColumn:
    """A column: its name, its type in Iceberg's notation, whether it is required, and its description."""

    name: str
    type: str
    is_required: bool = False
    doc: str | None = None


@dataclass(frozen=True, slots=True)
class DiscoveredPartitions:
    """The partitions of a table.

    Args:
        column: The column that holds them.
        granule: The length of their time windows, or `key` if each has a value of the column.
        start: When the first of the time windows begins, in ISO 8601 without a zone. Iceberg's windows are in UTC.
        keys: The values of the column.
    """

    column: str
    granule: Granule
    start: str | None = None
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DiscoveredTable:
    """A table of the catalog.

    Args:
        name: Its namespace and name.
        location: The URI of its directory.
        columns: Its columns.
        partitions: Its partitions, or None if they are no partitions of an asset.
        description: The property `comment`.
    """

    name: tuple[str, ...]
    location: str
    columns: tuple[DiscoveredColumn, ...]
    partitions: DiscoveredPartitions | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class TableSelection:
    """Which tables of a catalog are discovered. The patterns have `*`, `?` and `[...]`, as in a shell.

    Args:
        namespaces: Patterns of namespaces, with dots between their parts, or none for all.
        tables: Patterns of the names of tables in their namespace.
        exclude: Patterns of full names that are left out.
        includes_owned: Whether tables that an asset of Dagster owns are discovered too.
    """

    namespaces: Sequence[str] = ()
    tables: Sequence[str] = ("*",)
    exclude: Sequence[str] = ()
    includes_owned: bool = False

    def has_namespace(self, namespace: Sequence[str]) -> bool:
        """Return whether the tables of a namespace are selected."""
        return not self.namespaces or _fits(".".join(namespace), self.namespaces)

    def has_table(self, identifier: TableIdentifier) -> bool:
        """Return whether a table is selected by its name."""
        return (
            identifier.name != EXPIRED_SNAPSHOTS_TABLE
            and self.has_namespace(identifier.namespace)
            and _fits(identifier.name, self.tables)
            and not _fits(".".join(identifier.parts), self.exclude)
        )

    def has_state(self, state: TableState) -> bool:
        """Return whether a table is selected by what is known of it."""
        return self.includes_owned or OWNER_PROPERTY not in state.properties


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def partition_field(state: TableState) -> PartitionField | None:
    """Return the field of a spec that makes the partitions of an asset, or None if no field does, or several do.

    That is the only field with a time transform or a date, whatever other fields there are; or else a text, alone.
    """
    fields = state.spec.live_fields
    timed = [field for field in fields if granule_of(state, field) not in (None, "key")]
    if timed:
        return timed[0] if len(timed) == 1 else None
    return fields[0] if len(fields) == 1 and granule_of(state, fields[0]) == "key" else None


def granule_of(state: TableState, field: PartitionField) -> Granule | None:
    """Return what a partition of a field is, or None if it is nothing that an asset's partition can be."""
    column = state.schema.field(field.column)
    if column is None:  # a field of a struct
        return None
    if field.transform.name == "identity":
        return "day" if column.type == DATE else "key" if column.type == STRING else None
    return next((granule for granule in TIME_TRANSFORMS if granule == field.transform.name), None)


def discovered(state: TableState, partitions: DiscoveredPartitions | None) -> DiscoveredTable:
    """Return what is kept of a table."""
    columns = (
        DiscoveredColumn(field.name, str(field.type), is_required=field.is_required, doc=field.doc)
        for field in state.schema
    )
    description = state.properties.get("comment")
    return DiscoveredTable(state.identifier.parts, state.location, tuple(columns), partitions, description)


def document_of(tables: Iterable[DiscoveredTable]) -> str:
    """Return tables as JSON."""
    return json.dumps({"version": _VERSION, "tables": [asdict(table) for table in tables]}, indent=2)


def tables_in(document: str) -> list[DiscoveredTable]:
    """Return the tables of a document. It is empty if another version of the package has written it."""
    written = json.loads(document)
    return [_table(item) for item in written["tables"]] if written.get("version") == _VERSION else []


def _table(item: dict[str, Any]) -> DiscoveredTable:
    partitions = item["partitions"]
    return DiscoveredTable(
        name=tuple(item["name"]),
        location=item["location"],
        columns=tuple(DiscoveredColumn(**column) for column in item["columns"]),
        partitions=None
        if partitions is None
        else DiscoveredPartitions(**{**partitions, "keys": tuple(partitions["keys"])}),
        description=item["description"],
    )

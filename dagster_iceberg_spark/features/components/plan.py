"""Decides what a SQL file means, and which tables of a catalog are known. No engine is imported.

A query stays as it was written: names are replaced in place. What becomes known of tables that others keep is stored as
JSON between two discoveries.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias

import sqlglot
from sqlglot import expressions as syntax
from sqlglot.errors import SqlglotError

from dagster_iceberg_spark.table.identifier import NotationError, TableIdentifier, quote_part
from dagster_iceberg_spark.table.lineage import EXPIRED_SNAPSHOTS_TABLE, OWNER_PROPERTY
from dagster_iceberg_spark.table.partitioning import TIME_TRANSFORMS, PartitionField, TimeTransform
from dagster_iceberg_spark.table.schema import DATE, STRING
from dagster_iceberg_spark.table.snapshot import TableState

_DIALECT: Final = "spark"
_REFERENCE: Final = "ref "
"""Begins the name of a table that stands for `ref('key')`."""
_FILE_FORMATS: Final = frozenset(("avro", "binaryfile", "csv", "json", "orc", "parquet", "text", "xml"))
"""The formats of files, which may stand in place of a namespace: ``parquet.`/path` `` (Spark, "Run SQL on files")."""
_PARTS_OF_FILES: Final = 2


def reference(key: str) -> str:
    """Return the name of a table that stands for `ref('key')`."""
    return quote_part(f"{_REFERENCE}{key}")


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table in a query, by its parts, and where it begins and ends in the text.

    Args:
        needs_alias: Whether the query may refer to the table by the last part of its name, as it gives it no alias.
        is_versioned: Whether the query selects a version of the table, or a time.
    """

    parts: tuple[str, ...]
    start: int
    end: int
    needs_alias: bool = True
    is_versioned: bool = False

    @property
    def reference(self) -> str | None:
        """The key in `ref('key')`, or None for the plain name of a table."""
        name = self.parts[0]
        return name.removeprefix(_REFERENCE) if len(self.parts) == 1 and name.startswith(_REFERENCE) else None

    @property
    def last_part(self) -> str:
        """The last part of the name or the key, by which the query may refer to the table."""
        return self.parts[-1] if self.reference is None else self.reference.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """A query, and the names of the tables that it reads, in the order of the text."""

    text: str
    tables: tuple[TableName, ...]

    def with_names(self, name_of: Callable[[tuple[str, ...]], str | None], between: Callable[[str], str]) -> str:
        """Return the text with other names for some tables, which keep their old names as aliases.

        Args:
            name_of: Returns the new name of a table, or None to keep it.
            between: Returns what stands for the text between new names.
        """
        pieces, begun = [], 0
        for table in self.tables:
            name = name_of(table.parts)
            if name is not None:
                alias = f" AS {quote_part(table.last_part)}" if table.needs_alias else ""
                pieces += [between(self.text[begun : table.start]), name, between(alias)]
                begun = table.end
        return "".join([*pieces, between(self.text[begun:])])


def parse_query(text: str) -> SqlQuery:
    """Return a query in Spark's dialect. Common table expressions are not among its tables.

    Raises:
        NotationError: The text is not one query.
    """
    try:
        parsed = [statement for statement in sqlglot.parse(text, dialect=_DIALECT) if statement is not None]
    except SqlglotError as error:
        raise NotationError("a query in Spark SQL", str(error).splitlines()[0]) from error
    statements = [statement for statement in parsed if not isinstance(statement, syntax.Semicolon)]  # or a comment
    if len(statements) != 1 or not isinstance(statements[0], syntax.Query):
        kinds = ", ".join(type(statement).__name__.upper() for statement in statements)
        raise NotationError("one SELECT", kinds or "an empty file")
    found = [name for table in statements[0].find_all(syntax.Table) if (name := _name_of(table)) is not None]
    return SqlQuery(text, tuple(sorted(found, key=lambda name: name.start)))


def _name_of(table: syntax.Table) -> TableName | None:
    """Return the name, or None for a function, files, a common table expression or the alias in a hint."""
    parts = table.parts
    if not all(isinstance(part, syntax.Identifier) and "start" in part.meta for part in parts):
        return None
    names = tuple(part.name for part in parts)
    if table.find_ancestor(syntax.Hint) is not None or (len(names) == 1 and _is_defined_above(table, names[0])):
        return None
    if len(names) == _PARTS_OF_FILES and names[0].lower() in _FILE_FORMATS and not names[1].isidentifier():
        return None
    needs_alias = not table.alias and not table.args.get("sample")  # Spark takes no alias before a sample
    is_versioned = table.args.get("version") is not None
    return TableName(names, parts[0].meta["start"], parts[-1].meta["end"] + 1, needs_alias, is_versioned)


def _is_defined_above(table: syntax.Table, name: str) -> bool:
    """Return whether a common table expression around a table has its name, and is visible there.

    A common table expression sees those before it and, only if it is recursive, itself.
    """
    inside: Any = table
    while (parent := inside.parent) is not None:
        clause = parent.args.get("with_") or parent.args.get("with")
        for definition in clause.expressions if isinstance(clause, syntax.With) else ():
            is_around = definition is inside or _contains(definition, table)
            if definition.alias.lower() == name.lower() and (clause.recursive or not is_around):
                return True
            if is_around:
                break
        inside = parent
    return False


def _contains(outer: Any, inner: Any) -> bool:
    node = inner
    while node is not None and node is not outer:
        node = node.parent
    return node is outer


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


def discover(state: TableState, partitions: DiscoveredPartitions | None) -> DiscoveredTable:
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

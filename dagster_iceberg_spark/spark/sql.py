"""The SQL statements that the package sends to Spark, and how they write names, texts and types."""

import datetime as dt
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

from dagster_iceberg_spark.plan.write.merging import NullKeys
from dagster_iceberg_spark.plan.write.write_plan import CreateTable
from dagster_iceberg_spark.table import schema, updates
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.partitioning import PartitionField, SortField
from dagster_iceberg_spark.table.predicate import Column
from dagster_iceberg_spark.table.sql_text import column_name, dotted_name, quote, table_name, text_literal
from dagster_iceberg_spark.table.updates import TableUpdate

_TYPES: Final = {
    "int": "INT",
    "long": "BIGINT",
    "timestamptz": "TIMESTAMP_LTZ",
    "timestamp": "TIMESTAMP_NTZ",
    "uuid": "STRING",
    "unknown": "VOID",
}
"""Spark's names of types that differ from Iceberg's (Iceberg documentation, "Spark Writes", type compatibility)."""


def rows_at(table: str, snapshot_id: int) -> str:
    """Return the query of the rows of a snapshot of the table, with that snapshot's columns.

    The reader option `versionAsOf` of Spark 3.5 is ignored for tables, which are then read as they are now.
    """
    return f"SELECT * FROM {table} VERSION AS OF {snapshot_id}"


def rows_of_branch(catalog: str, identifier: TableIdentifier, branch: str) -> str:
    """Return the query of the rows of a branch, with the current columns of the table."""
    return f"SELECT * FROM {table_name(catalog, identifier)} VERSION AS OF {text_literal(branch)}"


def delete_rows(catalog: str, identifier: TableIdentifier, branch: str) -> str:
    """Return the statement that deletes all rows of a branch."""
    return f"DELETE FROM {table_name(catalog, identifier, branch)} WHERE TRUE"


def call(catalog: str, procedure: str, identifier: TableIdentifier, **arguments: str) -> str:
    """Return the call of a procedure on a table, with other arguments in SQL (Iceberg docs, "Spark Procedures")."""
    named = {"`table`": text_literal(dotted_name(catalog, *identifier.parts)), **arguments}
    return f"CALL {quote(catalog)}.system.{procedure}({', '.join(f'{key} => {item}' for key, item in named.items())})"


def string_map(items: Mapping[str, str]) -> str:
    """Return a map of texts."""
    return f"map({', '.join(text_literal(part) for item in items.items() for part in item)})"


def instant(milliseconds: int) -> str:
    """Return an instant, given in milliseconds since 1970. Iceberg's parser for Spark 3.5 takes literals only."""
    utc = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(milliseconds=milliseconds)
    return f"TIMESTAMP '{utc:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03d} UTC'"


def time_window(column: Column, column_type: schema.IcebergType, start: dt.datetime, end: dt.datetime) -> str:
    """Return the condition that a column is within a time window: of UTC, or of wall clocks without a zone."""
    name, kind = column_name(column), str(column_type)
    keyword, zone = {"date": ("DATE", ""), "timestamptz": ("TIMESTAMP_LTZ", " UTC")}.get(kind, ("TIMESTAMP_NTZ", ""))
    form = "%Y-%m-%d" if kind == "date" else "%Y-%m-%d %H:%M:%S"
    first, last = (f"{keyword} '{edge.strftime(form)}{zone}'" for edge in (start, end))
    return f"{name} >= {first} AND {name} < {last}"


def fast_forward(catalog: str, identifier: TableIdentifier, *, branch: str, to: str) -> str:
    """Return the call that moves a branch to the head of another one (Iceberg documentation, "Spark Procedures")."""
    return call(catalog, "fast_forward", identifier, branch=text_literal(branch), to=text_literal(to))


def create_changelog_view(catalog: str, identifier: TableIdentifier, *, view: str, ends: Mapping[str, str]) -> str:
    """Return the call that creates a view of the changes in a range (Iceberg documentation, "Spark Procedures")."""
    return call(
        catalog, "create_changelog_view", identifier, options=string_map(ends), changelog_view=text_literal(view)
    )


def type_name(column_type: schema.IcebergType) -> str:
    """Return Spark's name of the type."""
    match column_type:
        case schema.PrimitiveType(name=name):
            return "BINARY" if name.startswith("fixed") else _TYPES.get(name, name.upper())
        case schema.DecimalType():
            return f"DECIMAL({column_type.precision}, {column_type.scale})"
        case schema.ListType():
            return f"ARRAY<{type_name(column_type.element)}>"
        case schema.MapType():
            return f"MAP<{type_name(column_type.key)}, {type_name(column_type.value)}>"
        case schema.StructType():
            fields = (f"{quote(it.name)}: {type_name(it.type)}{_comment(it.doc)}" for it in column_type.fields)
            return f"STRUCT<{', '.join(fields)}>"


def create_namespace(
    catalog: str, namespace: Sequence[str], properties: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Create the namespace if it does not exist. An existing namespace keeps its properties.

    Spark accepts a comment only as a clause of its own.
    """
    comment = f" COMMENT {text_literal(properties['comment'])}" if "comment" in properties else ""
    free = {key: value for key, value in properties.items() if key != "comment"}
    others = f" WITH PROPERTIES ({_properties(free)})" if free else ""
    return f"CREATE NAMESPACE IF NOT EXISTS {dotted_name(catalog, *namespace)}{comment}{others}"


def create_table(catalog: str, identifier: TableIdentifier, create: CreateTable, location: str | None) -> str:
    """Create the table if it does not exist. Spark cannot name partition fields in this statement."""
    columns, fields = ", ".join(map(_column, create.schema)), ", ".join(map(transform, create.spec.fields))
    partitioned = f" PARTITIONED BY ({fields})" if fields else ""
    located = f" LOCATION {text_literal(location)}" if location else ""
    return (
        f"CREATE TABLE IF NOT EXISTS {table_name(catalog, identifier)} ({columns}) USING iceberg{partitioned}{located} "
        f"TBLPROPERTIES ({_properties(create.properties)})"
    )


_ALTERED: Final = "ALTER COLUMN {}"
_JOINED: Final[dict[type[TableUpdate], str]] = {
    updates.AddColumn: "ADD COLUMNS ({})",
    updates.DropColumn: "DROP COLUMNS ({})",
    updates.WidenColumn: _ALTERED,
    updates.DescribeColumn: _ALTERED,
    updates.RelaxColumn: _ALTERED,
}
"""The clause of several changes, which share a statement."""


def change_table(
    catalog: str, identifier: TableIdentifier, changes: Sequence[TableUpdate], *, alters_together: bool = True
) -> list[str]:
    """Return the statements that make the changes in order, as few as Spark allows, because each is a commit.

    Consecutive changes of a kind share a statement, which must not change a column twice. ALTER COLUMN changes several
    columns in some versions of Spark only.
    """
    groups: list[list[TableUpdate]] = []
    for change in changes:
        joined, group = _JOINED.get(type(change)), groups[-1] if groups else []
        if joined == _ALTERED and not alters_together:
            joined = None
        if joined and group and joined == _JOINED.get(type(group[0])) and _path(change) not in map(_path, group):
            group.append(change)
        else:
            groups.append([change])
    return [f"ALTER TABLE {table_name(catalog, identifier)} {_clause_of_all(group)}" for group in groups]


def _clause_of_all(changes: Sequence[TableUpdate]) -> str:
    clauses = [_clause(change) for change in changes]
    if len(clauses) == 1:
        return clauses[0]
    return _JOINED[type(changes[0])].format(", ".join(clause.split(" ", 2)[2] for clause in clauses))  # without verbs


def _path(change: TableUpdate) -> tuple[str, ...]:
    return getattr(change, "path", ())


def _clause(change: TableUpdate) -> str:  # noqa: C901, PLR0911, PLR0912 - one for each kind of change
    match change:
        case updates.AddColumn():
            return f"ADD COLUMN {dotted_name(*change.path)} {type_name(change.type)}{_comment(change.doc)}"
        case updates.SetDefault():
            raise TypeError(f"Spark cannot {change}")  # the catalog does it
        case updates.WidenColumn():
            return f"ALTER COLUMN {dotted_name(*change.path)} TYPE {type_name(change.after)}"
        case updates.DescribeColumn():
            return f"ALTER COLUMN {dotted_name(*change.path)} COMMENT {text_literal(change.doc)}"
        case updates.RelaxColumn():
            return f"ALTER COLUMN {dotted_name(*change.path)} DROP NOT NULL"
        case updates.RenameColumn():
            return f"RENAME COLUMN {dotted_name(*change.path)} TO {quote(change.name)}"
        case updates.DropColumn():
            return f"DROP COLUMN {dotted_name(*change.path)}"
        case updates.MoveColumn():
            place = f"AFTER {quote(change.after)}" if change.after else "FIRST"
            return f"ALTER COLUMN {dotted_name(*change.path)} {place}"
        case updates.AddPartitionField():
            named = f" AS {quote(change.field.name)}" if change.field.name else ""
            return f"ADD PARTITION FIELD {transform(change.field)}{named}"
        case updates.DropPartitionField():
            return f"DROP PARTITION FIELD {_name_of(change.field)}"
        case updates.RenamePartitionField():
            # Iceberg makes this a rename if both fields partition in the same way.
            before, same = _name_of(change.field), transform(change.field)
            return f"REPLACE PARTITION FIELD {before} WITH {same} AS {quote(change.name)}"
        case updates.SetProperties():
            return f"SET TBLPROPERTIES ({_properties(change.properties)})"
        case updates.RemoveProperties():
            return f"UNSET TBLPROPERTIES IF EXISTS ({', '.join(map(text_literal, change.keys))})"
        case updates.SetIdentifierFields():
            verb, columns = ("SET", change.columns) if change.columns else ("DROP", change.before)
            return f"{verb} IDENTIFIER FIELDS {', '.join(map(quote, columns))}"
        case updates.SetSortOrder():
            # Rows are still distributed by partition.
            distribution = "DISTRIBUTED BY PARTITION " if change.is_partitioned else ""
            fields = ", ".join(sort_field(field) for field in change.fields)
            return f"WRITE {distribution}{f'LOCALLY ORDERED BY {fields}' if fields else 'UNORDERED'}"
        case updates.CreateBranch():
            start = "" if change.snapshot_id is None else f" AS OF VERSION {change.snapshot_id}"
            retention = "" if change.retention_days is None else f" RETAIN {change.retention_days} DAYS"
            if change.retention_days is not None and change.keeps_snapshots:
                retention += f" WITH SNAPSHOT RETENTION {change.retention_days} DAYS"
            return f"CREATE BRANCH IF NOT EXISTS {quote(change.name)}{start}{retention}"
        case updates.DropBranch():
            return f"DROP BRANCH IF EXISTS {quote(change.name)}"
        case updates.SetTag():
            retention = "" if change.retention_days is None else f" RETAIN {change.retention_days} DAYS"
            return f"CREATE OR REPLACE TAG {quote(change.name)} AS OF VERSION {change.snapshot_id}{retention}"
        case updates.DropTag():
            return f"DROP TAG IF EXISTS {quote(change.name)}"


def drop_table(catalog: str, identifier: TableIdentifier, *, files: Literal["deleted", "kept"]) -> str:
    """Drop the table if it exists."""
    return f"DROP TABLE IF EXISTS {table_name(catalog, identifier)}{' PURGE' if files == 'deleted' else ''}"


def describe_namespace(catalog: str, namespace: Sequence[str]) -> str:
    """Return a statement that fails if the namespace does not exist."""
    return f"DESCRIBE NAMESPACE {dotted_name(catalog, *namespace)}"


def drop_namespace(catalog: str, namespace: Sequence[str]) -> str:
    """Drop the namespace if it exists. It must be empty."""
    return f"DROP NAMESPACE IF EXISTS {dotted_name(catalog, *namespace)}"


def versions(catalog: str) -> str:
    """Return the query for the versions of Iceberg, Java and Scala that a session runs on."""
    java = "java_method('java.lang.System', 'getProperty', 'java.version')"
    scala = "java_method('scala.util.Properties', 'versionNumberString')"
    return f"SELECT {quote(catalog)}.system.iceberg_version(), {java}, {scala}"


def refresh(catalog: str, identifier: TableIdentifier) -> str:
    """Clear the session's cache of the table."""
    return f"REFRESH TABLE {table_name(catalog, identifier)}"


def remove_orphans(catalog: str, identifier: TableIdentifier) -> str:
    """Return the call with which a person removes the files that belong to no snapshot."""
    return f"CALL {quote(catalog)}.system.remove_orphan_files(table => {text_literal(dotted_name(*identifier.parts))})"


def create_own_table(
    catalog: str, identifier: TableIdentifier, columns: str, partition: str, properties: Mapping[str, str]
) -> str:
    """Create one of the package's own tables if it does not exist."""
    return (
        f"CREATE TABLE IF NOT EXISTS {table_name(catalog, identifier)} ({columns}) USING iceberg "
        f"PARTITIONED BY ({quote(partition)}) TBLPROPERTIES ({_properties(properties)})"
    )


def probe(catalog: str) -> str:
    """Return a query that makes the session open the catalog."""
    return f"SHOW NAMESPACES IN {quote(catalog)}"


def merge_condition(keys: Sequence[str], *, target: str, source: str, null_keys: NullKeys = "error") -> str:
    """Return the condition that joins a batch to its table by key."""
    equals = "<=>" if null_keys == "match" else "="
    return " AND ".join(f"{dotted_name(target, key)} {equals} {dotted_name(source, key)}" for key in keys)


def transform(field: PartitionField) -> str:
    """Return the partition transform in Spark's notation."""
    column, name, argument = quote(field.column), field.transform.name, field.transform.argument
    if name == "identity":
        return column
    return f"{name}({column})" if argument is None else f"{name}({argument}, {column})"


def _name_of(field: PartitionField) -> str:
    return quote(field.name) if field.name else transform(field)


def _column(field: schema.Field) -> str:
    required = " NOT NULL" if field.is_required else ""
    return f"{quote(field.name)} {type_name(field.type)}{required}{_comment(field.doc)}"


def _comment(doc: str | None) -> str:
    return f" COMMENT {text_literal(doc)}" if doc else ""


def _properties(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{text_literal(key)} = {text_literal(value)}" for key, value in sorted(properties.items()))


def sort_field(field: SortField) -> str:
    """Return a column with its sort direction and the position of NULL."""
    nulls = f" NULLS {field.nulls.upper()}" if field.nulls else ""
    return f"{quote(field.column)} {field.direction.upper()}{nulls}"

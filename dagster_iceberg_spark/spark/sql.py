"""All SQL that the package sends to Spark."""

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from dagster_iceberg_spark.plan.merging import NullKeys
from dagster_iceberg_spark.plan.write_plan import CreateTable
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import COMMIT_TOKEN
from dagster_iceberg_spark.table.ordering import SortField
from dagster_iceberg_spark.table.partitioning import PartitionField, Transform
from dagster_iceberg_spark.table.predicate import (
    EVERY_ROW,
    Always,
    And,
    Column,
    Comparison,
    In,
    InPartitions,
    IsNaN,
    IsNull,
    LiteralValue,
    Not,
    Or,
    Predicate,
    StartsWith,
)
from dagster_iceberg_spark.table.schema import (
    DATE,
    TIMESTAMP,
    TIMESTAMPTZ,
    DecimalType,
    Field,
    IcebergType,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
)
from dagster_iceberg_spark.table.snapshot import MAIN_BRANCH
from dagster_iceberg_spark.table.updates import (
    AddColumn,
    AddPartitionField,
    CreateBranch,
    DescribeColumn,
    DropColumn,
    DropPartitionField,
    MoveColumn,
    RelaxColumn,
    RemoveProperties,
    RenameColumn,
    RenamePartitionField,
    SetIdentifierFields,
    SetProperties,
    SetSortOrder,
    TableUpdate,
    WidenColumn,
)

FilesOfDropped: TypeAlias = Literal["deleted", "kept"]
"""Whether dropping a table deletes its files."""

NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})

_NAMESPACE_CLAUSES: Final = {"comment": "COMMENT"}
"""Namespace properties that Spark accepts only as separate clauses. `location` and `owner` are not allowed here."""

_LONG_LIMIT: Final = 2**63
_MICROS_OF_DAY: Final = "86400000000L"
_MICROS_OF_HOUR: Final = "3600000000L"
_PLAIN_TEXT = re.compile(r"[^'\\$]*")
_TYPES: Final = {
    "int": "INT",
    "long": "BIGINT",
    "timestamptz": "TIMESTAMP_LTZ",
    "timestamp": "TIMESTAMP_NTZ",
    "uuid": "STRING",
    "unknown": "VOID",
}
"""Spark's names of types that differ from Iceberg's (Iceberg documentation, "Spark Writes", type compatibility)."""


def quote(name: str) -> str:
    """Return one identifier in backticks."""
    return "`" + name.replace("`", "``") + "`"


def dotted(*parts: str) -> str:
    """Return a multi-part identifier."""
    return ".".join(quote(part) for part in parts)


def table_name(catalog: str, identifier: TableIdentifier, branch: str = MAIN_BRANCH) -> str:
    """Return the table's full name. A branch is another part (Iceberg documentation, "Spark Writes", branches)."""
    name = dotted(catalog, *identifier.parts)
    return name if branch == MAIN_BRANCH else f"{name}.{quote(f'branch_{branch}')}"


def changes_name(catalog: str, identifier: TableIdentifier) -> str:
    """Return the name of the table's changelog (Iceberg documentation, "Spark Queries", metadata tables)."""
    return f"{table_name(catalog, identifier)}.changes"


def rows_at(table: str, snapshot_id: int) -> str:
    """Return the query of the rows of a snapshot, with that snapshot's columns.

    The reader option `versionAsOf` of Spark 3.5 is ignored for tables, which are then read as they are now.

    Args:
        table: The full name of the table.
        snapshot_id: The snapshot.
    """
    return f"SELECT * FROM {table} VERSION AS OF {snapshot_id}"


def create_changelog_view(
    catalog: str, identifier: TableIdentifier, *, view: str, since: int, until: int | None
) -> str:
    """Return the call that creates a view of the changes in a range (Iceberg documentation, "Spark Procedures")."""
    ends = {"start-snapshot-id": since, **({} if until is None else {"end-snapshot-id": until})}
    options = ", ".join(f"{text(key)}, {text(str(value))}" for key, value in ends.items())
    return (
        f"CALL {quote(catalog)}.system.create_changelog_view(`table` => {text(dotted(catalog, *identifier.parts))}, "
        f"options => map({options}), changelog_view => {text(view)})"
    )


def text(value: str) -> str:
    """Return a string literal with Spark's default escaping."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("${", "\\u0024{") + "'"  # Spark would substitute a variable


def literal(value: LiteralValue) -> str:  # noqa: PLR0911 - one for each type
    """Return a literal that does not depend on the session's time zone or string escaping."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case dt.datetime():
            return timestamp(value)
        case dt.date():
            return date(value)
        case int():
            return str(value) if abs(value) < _LONG_LIMIT else f"{value}BD"
        case float():
            return f"DOUBLE({text(repr(value))})"
        case Decimal():
            return f"{value:f}BD"
        case bytes():
            return f"X'{value.hex()}'"
        case str():
            return constant_text(value)


def constant_text(value: str) -> str:
    """Return a constant expression of the text, whatever `spark.sql.parser.escapedStringLiterals` says."""
    if _PLAIN_TEXT.fullmatch(value):
        return f"'{value}'"
    return f"decode(unhex('{value.encode().hex()}'), 'UTF-8')"


def by_reference(value: LiteralValue) -> str:
    """Return the literal in a form that generated code refers to, so Spark compiles the same code once for all values.

    Spark writes numbers, dates and instants into the code, but refers to an array. The index of its first element must
    be unknown until the task runs, or the optimizer would replace the expression with the literal.
    """
    if isinstance(value, str | bytes | Decimal):
        return literal(value)
    return f"array({literal(value)})[CAST(spark_partition_id() < 0 AS INT)]"


def predicate(  # noqa: C901, PLR0911 - one for each kind
    rows: Predicate,
    qualifier: str | None = None,
    *,
    catalog: str | None = None,
    prefixes: Literal["pushed", "held back"] = "pushed",
    constant: Callable[[LiteralValue], str] = literal,
) -> str:
    """Return the predicate in SQL. A comparison with NULL is NULL.

    Args:
        rows: The predicate.
        qualifier: The alias or table that the columns belong to, in a join.
        catalog: The Iceberg catalog whose functions compute transforms. Predicates on partitions need it.
        prefixes: Whether Spark may push down a comparison of the start of a text. Iceberg 1.12 fails in such a
            comparison for partitions of NULL. Spark excludes these itself unless the comparison is part of an OR or a
            NOT.
        constant: Returns the SQL of a single value. Values in lists are literals.
    """
    of_term = partial(predicate, qualifier=qualifier, catalog=catalog, prefixes=prefixes, constant=constant)
    match rows:
        case Always():
            return "TRUE" if rows == EVERY_ROW else "FALSE"
        case Comparison():
            return _comparison(rows, _qualified(rows.column, qualifier), constant)
        case In():
            return _membership(rows, _qualified(rows.column, qualifier), constant)
        case InPartitions():
            listed = ", ".join(literal(value) for value in rows.values)
            return f"{partition_function(catalog, rows.transform, _qualified(rows.column, qualifier))} IN ({listed})"
        case IsNull():
            return f"{_qualified(rows.column, qualifier)} IS NULL"
        case IsNaN():
            return f"isnan({_qualified(rows.column, qualifier)})"
        case StartsWith() if prefixes == "held back":
            return f"left({_qualified(rows.column, qualifier)}, {len(rows.prefix)}) = {constant_text(rows.prefix)}"
        case StartsWith():
            return f"startswith({_qualified(rows.column, qualifier)}, {constant_text(rows.prefix)})"
        case Not(StartsWith() as term):
            return f"NOT ({of_term(term)})"
        case Not():
            return f"NOT ({of_term(rows.term, prefixes='held back')})"
        case And():
            return " AND ".join(f"({of_term(term)})" for term in rows.terms)
        case Or():
            return " OR ".join(f"({of_term(term, prefixes='held back')})" for term in rows.terms)


def _with_both_zeros(values: Sequence[LiteralValue]) -> list[LiteralValue]:
    """Return the values, with both 0.0 and -0.0 for a floating-point zero, which are equal in Spark.

    In Iceberg's metrics, which exclude files, -0.0 is less than 0.0.
    """
    is_zero = any(isinstance(value, float) and value == 0 for value in values)
    return [*(value for value in values if not is_zero or value != 0), *((0.0, -0.0) if is_zero else ())]


def _membership(rows: In, column: str, constant: Callable[[LiteralValue], str]) -> str:
    match _with_both_zeros(rows.values):
        case [False]:
            # Spark rewrites `= FALSE` as NOT, in which Iceberg includes NULL, as in `<` alone: an overwrite would
            # delete files of NULL.
            return f"({column} >= FALSE AND {column} < TRUE)"
        case [value]:
            return f"{column} = {constant(value)}"
        case values:
            return f"{column} IN ({', '.join(map(literal, values))})"


def _comparison(comparison: Comparison, column: str, constant: Callable[[LiteralValue], str]) -> str:
    value = comparison.value
    if isinstance(value, float) and value == 0:
        value = -0.0 if comparison.operator == ">=" else 0.0  # the zero that excludes no file with the other zero
    compared = f"{column} {comparison.operator} {constant(value)}"
    if not isinstance(value, float):
        return compared
    # NaN is greater than every number in Spark, but not in Iceberg's metrics, which exclude files.
    is_above = comparison.operator in (">", ">=")
    return f"({compared} OR isnan({column}))" if is_above else f"({compared} AND NOT isnan({column}))"


def partition_function(catalog: str | None, transform: Transform, column: str) -> str:
    """Return the value of a transform (Iceberg documentation, "Spark Queries", functions)."""
    if catalog is None or transform.argument is None:
        message = f"{transform} has to be a function of a catalog"
        raise ValueError(message)
    return f"{dotted(catalog, 'system', transform.name)}({transform.argument}, {column})"


def partition_value(field: PartitionField, column: Field, catalog: str) -> str:  # noqa: PLR0911 - one for each
    """Return the value of a partition field independent of the session's time zone: an ordinal or the value itself.

    Dates are days, and instants and wall clocks are microseconds since 1970. Years, months, days and hours are counted
    from 1970 in UTC (Iceberg spec, "Partition Transforms"). The column is cast to the table's type first, because
    `bucket` and `truncate` have other values for a narrower decimal.
    """
    name = f"CAST({quote(column.name)} AS {type_name(column.type)})"
    if field.transform.argument is not None:
        return partition_function(catalog, field.transform, name)
    if column.type == DATE:
        value = day = f"unix_date({name})"
    elif column.type in (TIMESTAMP, TIMESTAMPTZ):
        value = f"unix_micros({name})" if column.type == TIMESTAMPTZ else _wall_clock_micros(name)
        day = _floored(value, _MICROS_OF_DAY)
    else:
        return name
    date = f"date_from_unix_date(CAST({day} AS INT))"
    match field.transform.name:
        case "year":
            return f"year({date}) - 1970"
        case "month":
            return f"(year({date}) - 1970) * 12 + month({date}) - 1"
        case "day":
            return day
        case "hour":
            return _floored(value, _MICROS_OF_HOUR)
        case _:
            return value


def _wall_clock_micros(column: str) -> str:
    time_of_day = f"(hour({column}) * 60 + minute({column})) * 60000000L + date_part('SECOND', {column}) * 1000000"
    return f"unix_date(CAST({column} AS DATE)) * {_MICROS_OF_DAY} + CAST({time_of_day} AS BIGINT)"


def _floored(micros: str, unit: str) -> str:
    """Return the number of whole units, rounded down also before 1970. `/` would be a floating-point division."""
    return f"(({micros}) - pmod({micros}, {unit})) DIV {unit}"


def refusal_of_others(owned: Predicate, message: Sequence[str]) -> str:
    """Return a filter that keeps owned rows and raises an error for any other row.

    The filter reads the task's number so that it is not deterministic. The optimizer pushes deterministic filters below
    joins, aggregates and limits, where this filter would reject rows that are not even in the DataFrame.

    Args:
        owned: The rows to keep.
        message: Expressions of text, which are joined to the message.
    """
    kept = f"({predicate(owned, constant=by_reference)}) AND spark_partition_id() >= 0"
    return f"CASE WHEN {kept} THEN TRUE ELSE raise_error(concat({', '.join(message)})) END"


def shown_value(column: str, *, is_instant: bool) -> str:
    """Return a column as text for a message. An instant is in microseconds, independent of time zones."""
    name = quote(column)
    value = f"unix_micros({name})" if is_instant else name
    return f"coalesce(CAST({value} AS STRING), 'NULL')"


def refusal_of_nulls(column: str, message: str) -> str:
    """Return a filter that raises an error if the column is NULL. Like `refusal_of_others`, it is not pushed down."""
    kept = f"{quote(column)} IS NOT NULL AND spark_partition_id() >= 0"
    return f"CASE WHEN {kept} THEN TRUE ELSE raise_error({constant_text(message)}) END"


def held_back(column: str) -> str:
    """Return the column as an expression that no filter is pushed through.

    Iceberg resolves the column of a pushed filter in the table's newest schema, even if it reads an older snapshot in
    which the column has another name.
    """
    return f"CASE WHEN spark_partition_id() >= 0 THEN {quote(column)} END"


def timestamp(value: dt.datetime) -> str:
    """Return a timestamp literal independent of the session's time zone: an instant if aware, else a wall clock."""
    if value.tzinfo is None:
        return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ', timespec='microseconds')}'"
    instant = value.astimezone(dt.timezone.utc)
    return f"TIMESTAMP_LTZ '{instant.isoformat(sep=' ', timespec='microseconds')}'"


def date(value: dt.date) -> str:
    """Return a date literal."""
    return f"DATE '{value.isoformat()}'"


def type_name(column_type: IcebergType) -> str:
    """Return Spark's name of the type."""
    match column_type:
        case PrimitiveType(name=name):
            return "BINARY" if name.startswith("fixed") else _TYPES.get(name, name.upper())
        case DecimalType():
            return f"DECIMAL({column_type.precision}, {column_type.scale})"
        case ListType():
            return f"ARRAY<{type_name(column_type.element)}>"
        case MapType():
            return f"MAP<{type_name(column_type.key)}, {type_name(column_type.value)}>"
        case StructType():
            return f"STRUCT<{', '.join(_struct_field(field) for field in column_type.fields)}>"


def create_namespace(catalog: str, namespace: Sequence[str], properties: Mapping[str, str] = NO_PROPERTIES) -> str:
    """Create the namespace if it does not exist. An existing namespace keeps its properties."""
    clauses = [f"{_NAMESPACE_CLAUSES[key]} {text(properties[key])}" for key in _NAMESPACE_CLAUSES if key in properties]
    free = {key: value for key, value in properties.items() if key not in _NAMESPACE_CLAUSES}
    if free:
        clauses.append(f"WITH PROPERTIES ({_properties(free)})")
    return " ".join([f"CREATE NAMESPACE IF NOT EXISTS {dotted(catalog, *namespace)}", *clauses])


def create_table(catalog: str, identifier: TableIdentifier, create: CreateTable, location: str | None) -> str:
    """Create the table if it does not exist. Spark cannot name partition fields in this statement."""
    columns = ", ".join(_column(field) for field in create.schema)
    clauses = [f"CREATE TABLE IF NOT EXISTS {table_name(catalog, identifier)} ({columns}) USING iceberg"]
    if create.spec.fields:
        clauses.append(f"PARTITIONED BY ({', '.join(transform(field) for field in create.spec.fields)})")
    if location:
        clauses.append(f"LOCATION {text(location)}")
    clauses.append(f"TBLPROPERTIES ({_properties(create.properties)})")
    return " ".join(clauses)


def change_table(catalog: str, identifier: TableIdentifier, change: TableUpdate) -> str:
    """Return the statement that makes one change to the table's metadata."""
    return f"ALTER TABLE {table_name(catalog, identifier)} {_column_clause(change) or _layout_clause(change)}"


def change_table_by(
    catalog: str, identifier: TableIdentifier, changes: Sequence[TableUpdate], *, alters_together: bool = True
) -> list[str]:
    """Return the statements that make the changes in order, as few as Spark allows, because each is a commit.

    Consecutive changes of a kind share a statement, which must not change a column twice.

    Args:
        catalog: The catalog's name.
        identifier: The table.
        changes: The changes, in order.
        alters_together: Whether ALTER COLUMN changes several columns.
    """
    groups: list[list[TableUpdate]] = []
    for change in changes:
        joined = _joined(change)
        can_join = alters_together or joined is None or joined[0] != "ALTER COLUMN"
        is_joined = can_join and joined is not None and bool(groups) and joined == _joined(groups[-1][0])
        if is_joined and not {_path(change)} & set(map(_path, groups[-1])):
            groups[-1].append(change)
        else:
            groups.append([change])
    return [_change_at_once(catalog, identifier, group) for group in groups]


def _change_at_once(catalog: str, identifier: TableIdentifier, changes: Sequence[TableUpdate]) -> str:
    joined = _joined(changes[0])
    if joined is None or len(changes) == 1:
        return change_table(catalog, identifier, changes[0])
    verb, several = joined
    listed = ", ".join(str(_column_clause(change)).removeprefix(f"{verb} ") for change in changes)
    return f"ALTER TABLE {table_name(catalog, identifier)} {several.format(listed)}"


def _joined(change: TableUpdate) -> tuple[str, str] | None:
    """Return the start of a statement that changes columns, and how to join several changes, or None for others."""
    match change:
        case AddColumn():
            return "ADD COLUMN", "ADD COLUMNS ({})"
        case DropColumn():
            return "DROP COLUMN", "DROP COLUMNS ({})"
        case WidenColumn() | DescribeColumn() | RelaxColumn():
            return "ALTER COLUMN", "ALTER COLUMN {}"
    return None


def _path(change: TableUpdate) -> tuple[str, ...]:
    return getattr(change, "path", ())


def _column_clause(change: TableUpdate) -> str | None:  # noqa: PLR0911 - one for each kind of change
    match change:
        case AddColumn():
            comment = f" COMMENT {text(change.doc)}" if change.doc else ""
            return f"ADD COLUMN {dotted(*change.path)} {type_name(change.type)}{comment}"
        case WidenColumn():
            return f"ALTER COLUMN {dotted(*change.path)} TYPE {type_name(change.after)}"
        case DescribeColumn():
            return f"ALTER COLUMN {dotted(*change.path)} COMMENT {text(change.doc)}"
        case RelaxColumn():
            return f"ALTER COLUMN {dotted(*change.path)} DROP NOT NULL"
        case RenameColumn():
            return f"RENAME COLUMN {dotted(*change.path)} TO {quote(change.name)}"
        case DropColumn():
            return f"DROP COLUMN {dotted(*change.path)}"
        case MoveColumn():
            place = f"AFTER {quote(change.after)}" if change.after else "FIRST"
            return f"ALTER COLUMN {dotted(*change.path)} {place}"
    return None


def _layout_clause(change: TableUpdate) -> str | None:  # noqa: PLR0911 - one for each kind of change
    match change:
        case AddPartitionField():
            named = f" AS {quote(change.field.name)}" if change.field.name else ""
            return f"ADD PARTITION FIELD {transform(change.field)}{named}"
        case DropPartitionField():
            field = change.field
            return f"DROP PARTITION FIELD {quote(field.name) if field.name else transform(field)}"
        case RenamePartitionField():
            # Iceberg makes this a rename if both fields partition in the same way.
            field = change.field
            before = quote(field.name) if field.name else transform(field)
            return f"REPLACE PARTITION FIELD {before} WITH {transform(field)} AS {quote(change.name)}"
        case SetProperties():
            return f"SET TBLPROPERTIES ({_properties(change.properties)})"
        case RemoveProperties():
            return f"UNSET TBLPROPERTIES IF EXISTS ({', '.join(map(text, change.keys))})"
        case SetIdentifierFields():
            verb, columns = ("SET", change.columns) if change.columns else ("DROP", change.before)
            return f"{verb} IDENTIFIER FIELDS {', '.join(map(quote, columns))}"
        case SetSortOrder():
            # Rows are still distributed by partition.
            distribution = "DISTRIBUTED BY PARTITION " if change.is_partitioned else ""
            fields = ", ".join(sort_field(field) for field in change.fields)
            return f"WRITE {distribution}{f'LOCALLY ORDERED BY {fields}' if fields else 'UNORDERED'}"
        case CreateBranch():
            return f"CREATE BRANCH IF NOT EXISTS {quote(change.name)}"
    return None


def drop_table(catalog: str, identifier: TableIdentifier, *, files: FilesOfDropped) -> str:
    """Drop the table if it exists."""
    return f"DROP TABLE IF EXISTS {table_name(catalog, identifier)}{' PURGE' if files == 'deleted' else ''}"


def describe_namespace(catalog: str, namespace: Sequence[str]) -> str:
    """Return a statement that fails if the namespace does not exist."""
    return f"DESCRIBE NAMESPACE {dotted(catalog, *namespace)}"


def drop_namespace(catalog: str, namespace: Sequence[str]) -> str:
    """Drop the namespace if it exists. It must be empty."""
    return f"DROP NAMESPACE IF EXISTS {dotted(catalog, *namespace)}"


def versions(catalog: str) -> str:
    """Return the query for the versions of Iceberg, Java and Scala that a session runs on."""
    java = "java_method('java.lang.System', 'getProperty', 'java.version')"
    scala = "java_method('scala.util.Properties', 'versionNumberString')"
    return f"SELECT {quote(catalog)}.system.iceberg_version(), {java}, {scala}"


def refresh(catalog: str, identifier: TableIdentifier) -> str:
    """Clear the session's cache of the table."""
    return f"REFRESH TABLE {table_name(catalog, identifier)}"


def find_token(catalog: str, identifier: TableIdentifier, token: str) -> str:
    """Return the query with which a person finds the snapshot of a commit token."""
    snapshots = f"{table_name(catalog, identifier)}.snapshots"
    return f"SELECT snapshot_id FROM {snapshots} WHERE summary[{text(COMMIT_TOKEN)}] = {text(token)}"


def remove_orphans(catalog: str, identifier: TableIdentifier) -> str:
    """Return the call with which a person removes the files that belong to no snapshot."""
    return f"CALL {quote(catalog)}.system.remove_orphan_files(table => {text(dotted(*identifier.parts))})"


def probe(catalog: str) -> str:
    """Return a query that makes the session open the catalog."""
    return f"SHOW NAMESPACES IN {quote(catalog)}"


def merge_condition(keys: Sequence[str], *, target: str, source: str, null_keys: NullKeys = "error") -> str:
    """Return the condition that joins a batch to its table by key."""
    equals = "<=>" if null_keys == "match" else "="
    return " AND ".join(f"{dotted(target, key)} {equals} {dotted(source, key)}" for key in keys)


def transform(field: PartitionField) -> str:
    """Return the partition transform in Spark's notation."""
    column, name, argument = quote(field.column), field.transform.name, field.transform.argument
    if name == "identity":
        return column
    return f"{name}({column})" if argument is None else f"{name}({argument}, {column})"


def _qualified(column: Column, qualifier: str | None) -> str:
    path = (column,) if isinstance(column, str) else column
    return dotted(*path) if qualifier is None else dotted(qualifier, *path)


def _column(field: Field) -> str:
    required = " NOT NULL" if field.is_required else ""
    comment = f" COMMENT {text(field.doc)}" if field.doc else ""
    return f"{quote(field.name)} {type_name(field.type)}{required}{comment}"


def _struct_field(field: Field) -> str:
    comment = f" COMMENT {text(field.doc)}" if field.doc else ""
    return f"{quote(field.name)}: {type_name(field.type)}{comment}"


def _properties(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{text(key)} = {text(value)}" for key, value in sorted(properties.items()))


def sort_field(field: SortField) -> str:
    """Return a column with its sort direction and the position of NULL."""
    nulls = f" NULLS {field.nulls.upper()}" if field.nulls else ""
    return f"{quote(field.column)} {field.direction.upper()}{nulls}"

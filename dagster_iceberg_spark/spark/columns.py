"""Converts predicates and schemas between the values of `table/` and Spark."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, cast

from pyspark.sql import Column, DataFrame, SparkSession, functions, types

from dagster_iceberg_spark.errors import SchemaMismatchError
from dagster_iceberg_spark.plan.schema.renames import StoredNames
from dagster_iceberg_spark.spark import expressions, sql, versions
from dagster_iceberg_spark.spark.failures import VALUE_MARKER
from dagster_iceberg_spark.spark.session.runtime import is_connect
from dagster_iceberg_spark.table import schema as vocabulary
from dagster_iceberg_spark.table.predicate import Predicate
from dagster_iceberg_spark.table.sql_text import column_name, condition, literal

_TYPES: Final[dict[type[types.DataType], vocabulary.PrimitiveType]] = {
    types.BooleanType: vocabulary.BOOLEAN,
    types.ByteType: vocabulary.INT,
    types.ShortType: vocabulary.INT,
    types.IntegerType: vocabulary.INT,
    types.LongType: vocabulary.LONG,
    types.FloatType: vocabulary.FLOAT,
    types.DoubleType: vocabulary.DOUBLE,
    types.DateType: vocabulary.DATE,
    types.TimestampType: vocabulary.TIMESTAMPTZ,
    types.TimestampNTZType: vocabulary.TIMESTAMP,
    types.StringType: vocabulary.STRING,
    types.CharType: vocabulary.STRING,
    types.VarcharType: vocabulary.STRING,
    types.BinaryType: vocabulary.BINARY,
    types.NullType: vocabulary.PrimitiveType("unknown"),
    **{kind: vocabulary.PrimitiveType(name) for kind, name in versions.installed_version().primitive_types.items()},
}
"""Iceberg's types for Spark's types (Iceberg documentation, "Spark Writes", type compatibility)."""

_UUID: Final = r"\A[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z"
"""The pattern of a uuid. Java's parser would accept shorter texts and pad them."""


class Functions(Protocol):
    """The functions that create columns. Classic Spark and Spark Connect have separate modules of them."""

    array_sort: Callable[[Column], Column]
    coalesce: Callable[..., Column]
    col: Callable[[str], Column]
    concat: Callable[..., Column]
    count: Callable[[Column], Column]
    count_if: Callable[[Column], Column]
    expr: Callable[[str], Column]
    format_string: Callable[[str, Column], Column]
    hex: Callable[[Column], Column]
    length: Callable[[Column], Column]
    lit: Callable[[Any], Column]
    lower: Callable[[Column], Column]
    map_entries: Callable[[Column], Column]
    max: Callable[[Column | str], Column]
    raise_error: Callable[[Column], Column]
    struct: Callable[..., Column]
    sum: Callable[[Column | str], Column]
    to_json: Callable[[Column], Column]
    transform: Callable[[Column, Callable[[Column], Column]], Column]
    transform_keys: Callable[[Column, Callable[[Column, Column], Column]], Column]
    transform_values: Callable[[Column, Callable[[Column, Column], Column]], Column]
    when: Callable[[Column, Column], Column]
    xxhash64: Callable[..., Column]


def functions_of(session: SparkSession) -> Functions:
    """Return the functions that create columns for the session.

    `pyspark.sql.functions` depends on an environment variable instead of the session.
    """
    if is_connect(session):
        from pyspark.sql.connect import functions as connect_functions

        return cast("Functions", connect_functions)
    return cast("Functions", functions)


def column_of(
    functions: Functions, predicate: Predicate, *, qualifier: str | None = None, catalog: str | None = None
) -> Column:
    """Return the predicate as a column of booleans, with the NULLs of SQL. `qualifier` is a side of a join."""
    return functions.expr(condition(predicate, qualifier, catalog=catalog))


def named_column(functions: Functions, name: str, qualifier: str | None = None) -> Column:
    """Return the column of exactly this name."""
    return functions.col(column_name(name, qualifier))


def as_planned(
    frame: DataFrame, given: vocabulary.Schema, names: StoredNames, checked: Mapping[str, vocabulary.IcebergType]
) -> DataFrame:
    """Return the DataFrame with the table's names of its columns, including nested fields.

    Texts are compared by their bytes, as they are stored, because a collation would treat different texts as equal.
    Values of types that Spark lacks, which `checked` has by column, are converted to the form in which Spark reads
    them, or are rejected.
    """
    held = [field.dataType for field in frame.schema.fields]
    plain = [_without_collations(data_type) for data_type in held]
    if not names.changes and not checked and plain == held:
        return frame
    functions = functions_of(frame.sparkSession)
    columns = []
    for field, stored, before, after in zip(given, names.of_schema(given), held, plain, strict=True):
        column = named_column(functions, field.name)
        column = column if before == after else column.cast(after)
        column = column if stored.type == field.type else _cast(column, stored.type)
        if stored.name in checked:
            leaf = partial(_check, functions, label=stored.name)
            column = reshape(functions, column, stored.type, checked[stored.name], is_same=has_same_name, leaf=leaf)
        columns.append(column.alias(stored.name))
    return frame.select(*columns)


def _check(functions: Functions, column: Column, wanted: vocabulary.IcebergType, *, label: str) -> Column:
    """Return the values of a uuid, which are texts in Spark, in lower case. Values of a fixed do not change."""
    if wanted == vocabulary.UUID:
        value, is_one, shown = functions.lower(column), column.rlike(_UUID), column.cast("string")
    else:
        length = int(str(wanted)[len("fixed[") : -1])
        value, is_one, shown = column, functions.length(column) == length, functions.hex(column)
    message = functions.concat(functions.lit(f"{VALUE_MARKER}{wanted} in the column {label!r}: "), shown)
    return functions.when(column.isNull() | is_one, value).otherwise(functions.raise_error(message))


def _without_collations(data_type: types.DataType) -> types.DataType:
    match data_type:
        case types.StringType():
            return types.StringType()
        case types.ArrayType():
            return types.ArrayType(_without_collations(data_type.elementType), data_type.containsNull)
        case types.MapType():
            key, value = _without_collations(data_type.keyType), _without_collations(data_type.valueType)
            return types.MapType(key, value, data_type.valueContainsNull)
        case types.StructType():
            plain = types.StructType()
            for field in data_type.fields:
                plain.add(field.name, _without_collations(field.dataType), field.nullable, field.metadata)
            return plain
        case _:
            return data_type


def project(
    frame: DataFrame, held: vocabulary.Schema, wanted: vocabulary.Schema, *, is_current: bool = True
) -> DataFrame:
    """Return a snapshot's rows, which have the columns `held`, with the columns of another schema of the table.

    Field ids match the columns. `is_current` says whether the table still has the wanted columns under their names.
    Iceberg resolves the names in a filter in the table's current schema, so filters on other names are not pushed down.
    """
    if is_current and vocabulary.are_same_columns(held.fields, wanted.fields):
        return frame
    functions = functions_of(frame.sparkSession)
    known = {field.field_id: field for field in held}
    columns = []
    for field in wanted:
        stored = known.get(field.field_id)
        if stored is None:
            column = _initial_value(functions, field)
        elif is_current and vocabulary.are_same_columns([field], [stored]):
            column = named_column(functions, stored.name)
        else:
            column = functions.expr(expressions.held_back(stored.name))
            added = partial(_initial_value, functions)
            column = reshape(functions, column, stored.type, field.type, is_same=has_same_id, added=added)
        columns.append(column.alias(field.name))
    return frame.select(*columns)


def _initial_value(functions: Functions, field: vocabulary.Field) -> Column:
    """Return the value of a field in rows that are older than it (Iceberg spec, "Default values")."""
    return _default(functions, field, field.initial_default)


def written_value(functions: Functions, field: vocabulary.Field) -> Column:
    """Return the value of a field in new rows that lack it (Iceberg spec, "Default values")."""
    return _default(functions, field, field.write_default)


def _default(functions: Functions, field: vocabulary.Field, default: vocabulary.DefaultValue) -> Column:
    if default is not None and str(field.type).startswith(("binary", "fixed")):
        return functions.expr(literal(bytes.fromhex(str(default))))
    text = str(default).lower() if isinstance(default, bool) else str(default)
    return _cast(functions.lit(None if default is None else text), field.type)


def with_all_fields(
    frame: DataFrame, given: vocabulary.Schema, wanted: Mapping[str, vocabulary.IcebergType]
) -> DataFrame:
    """Return the DataFrame with NULL for fields that its structs lack, by the complete types of the columns."""
    functions = functions_of(frame.sparkSession)

    def complete(field: vocabulary.Field) -> Column:
        whole, column = wanted.get(field.name, field.type), named_column(functions, field.name)
        return reshape(functions, column, field.type, whole, is_same=has_same_name).alias(field.name)

    return frame.select(*map(complete, given))


def as_stored(frame: DataFrame, stored: DataFrame, *, is_case_sensitive: bool, subject: str) -> DataFrame:
    """Return the DataFrame's columns in the table's types. Fields of structs are matched by name at every depth.

    Spark's `unionByName` matches the fields of structs inside maps by position.
    """
    functions, is_same = functions_of(frame.sparkSession), names_alike(is_case_sensitive=is_case_sensitive)
    wanted = replace(schema_of(stored, subject=subject), is_case_sensitive=is_case_sensitive)
    columns = []
    for field in schema_of(frame, subject=subject):
        column, known = named_column(functions, field.name), wanted.field(field.name)
        if known is not None:
            # The last cast is for types that Iceberg lacks, such as small integers.
            column = _cast(reshape(functions, column, field.type, known.type, is_same=is_same), known.type)
        columns.append(column.alias(field.name))
    return frame.select(*columns)


def reshape(
    functions: Functions,
    column: Column,
    held: vocabulary.IcebergType,
    wanted: vocabulary.IcebergType,
    *,
    is_same: Callable[[vocabulary.Field, vocabulary.Field], bool],
    stored: Column | None = None,
    leaf: Callable[[Column, vocabulary.IcebergType], Column] | None = None,
    added: Callable[[vocabulary.Field], Column] | None = None,
) -> Column:
    """Return a column in another type with the same nesting. Fields of structs are converted one by one.

    `stored`, a column of the wanted type, has the values for fields that structs lack, or `added` returns them; by
    default they are NULL. `leaf` converts primitive values; by default it is a cast.
    """
    within = partial(reshape, functions, is_same=is_same, leaf=leaf, added=added)
    if vocabulary.is_same_type(held, wanted):
        return column
    match held, wanted:
        case vocabulary.StructType(), vocabulary.StructType():
            fields = []
            for field in wanted.fields:
                known = next((item for item in held.fields if is_same(item, field)), None)
                value = stand_in = None if stored is None else stored.getField(field.name)
                if known is not None:
                    value = within(column.getField(known.name), known.type, field.type, stored=stand_in)
                elif value is None:
                    value = _cast(functions.lit(None), field.type) if added is None else added(field)
                fields.append(value.alias(field.name))
            return functions.when(column.isNotNull(), functions.struct(*fields))
        case vocabulary.ListType(), vocabulary.ListType():
            return functions.transform(column, lambda item: within(item, held.element, wanted.element))
        case vocabulary.MapType(), vocabulary.MapType():
            if not vocabulary.is_same_type(held.key, wanted.key):
                column = functions.transform_keys(column, lambda key, _: within(key, held.key, wanted.key))
            return functions.transform_values(column, lambda _, item: within(item, held.value, wanted.value))
        case _:
            return (leaf or _cast)(column, wanted)


def comparable(functions: Functions, column: Column, held: vocabulary.IcebergType) -> Column | None:
    """Return a comparable value that is equal if the column's is, or None for types that Spark cannot compare.

    A map becomes its sorted entries.
    """
    if not isinstance(held, vocabulary.MapType):
        return None if _has_incomparable(held) else column
    if _has_incomparable(held.key) or _has_incomparable(held.value):
        return None
    return functions.array_sort(functions.map_entries(column))


def _has_incomparable(held: vocabulary.IcebergType) -> bool:
    match held:
        case vocabulary.MapType():
            return True
        case vocabulary.ListType():
            return _has_incomparable(held.element)
        case vocabulary.StructType():
            return any(_has_incomparable(field.type) for field in held.fields)
        case _:
            return str(held) == "variant"


def has_same_name(one: vocabulary.Field, other: vocabulary.Field) -> bool:
    """Return whether a field of a DataFrame and a field of a table have the same name."""
    return one.name == other.name


def names_alike(*, is_case_sensitive: bool) -> Callable[[vocabulary.Field, vocabulary.Field], bool]:
    """Return a function that compares the names of two fields as the session does."""
    if is_case_sensitive:
        return has_same_name
    return lambda one, other: vocabulary.fold(one.name) == vocabulary.fold(other.name)


def has_same_id(one: vocabulary.Field, other: vocabulary.Field) -> bool:
    """Return whether two fields in different schemas of a table are the same field."""
    return one.field_id == other.field_id


def _cast(column: Column, wanted: vocabulary.IcebergType) -> Column:
    return column.cast(sql.type_name(wanted))


def schema_of(frame: DataFrame, *, subject: str) -> vocabulary.Schema:
    """Return the DataFrame's columns as Iceberg would store them."""
    return vocabulary.Schema(tuple(_field(field, (), subject) for field in frame.schema.fields))


def _field(field: types.StructField, path: tuple[str, ...], subject: str) -> vocabulary.Field:
    column_type = iceberg_type(field.dataType, (*path, field.name), subject)
    return vocabulary.Field(field.name, column_type, doc=(field.metadata or {}).get("comment"))


def iceberg_type(data_type: types.DataType, path: tuple[str, ...], subject: str) -> vocabulary.IcebergType:
    """Return Iceberg's type for a Spark type."""
    match data_type:
        case types.DecimalType():
            return vocabulary.DecimalType(data_type.precision, data_type.scale)
        case types.StructType():
            return vocabulary.StructType(tuple(_field(field, path, subject) for field in data_type.fields))
        case types.ArrayType():
            return vocabulary.ListType(iceberg_type(data_type.elementType, (*path, "element"), subject))
        case types.MapType():
            key = iceberg_type(data_type.keyType, (*path, "key"), subject)
            return vocabulary.MapType(key, iceberg_type(data_type.valueType, (*path, "value"), subject))
        case types.UserDefinedType():
            return iceberg_type(data_type.sqlType(), path, subject)
    known = _TYPES.get(type(data_type))
    if known is None:
        raise SchemaMismatchError.refusing(
            "write",
            subject,
            expected=f"a type that Iceberg has for the column {'.'.join(path)!r}",
            found=data_type.simpleString(),
            hint=f"cast {'.'.join(path)!r}, for example to string or to a number.",
        )
    return known

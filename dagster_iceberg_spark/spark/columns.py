"""Predicates and schemas, between the vocabulary and Spark."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, cast

from pyspark.sql import Column, DataFrame, Observation, SparkSession, functions, types

from dagster_iceberg_spark.errors import SchemaMismatchError
from dagster_iceberg_spark.plan.renames import StoredNames
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.failures import VALUE_MARKER
from dagster_iceberg_spark.table import schema as vocabulary
from dagster_iceberg_spark.table.predicate import Predicate

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
    types.VariantType: vocabulary.PrimitiveType("variant"),
    types.NullType: vocabulary.PrimitiveType("unknown"),
}
"""What Iceberg makes of Spark's types (Iceberg documentation, "Spark Writes", type compatibility)."""

_UUID: Final = r"\A[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z"
"""The text of a uuid; Java's own reader fills up shorter ones."""


class Functions(Protocol):
    """The functions that the package makes columns with; each session has its own module of them."""

    def array_sort(self, column: Column) -> Column:
        """Return the array in order."""

    def coalesce(self, *columns: Column) -> Column:
        """Return the first value that is not NULL."""

    def col(self, name: str) -> Column:
        """Return a column by its name."""

    def concat(self, *columns: Column) -> Column:
        """Join texts."""

    def count(self, column: Column) -> Column:
        """Count values."""

    def count_if(self, column: Column) -> Column:
        """Count rows for which the column is true."""

    def expr(self, text: str) -> Column:
        """Parse SQL."""

    def hex(self, column: Column) -> Column:
        """Return bytes as text."""

    def length(self, column: Column) -> Column:
        """Return the number of characters, or of bytes."""

    def lit(self, value: Any) -> Column:
        """Return a literal."""

    def lower(self, column: Column) -> Column:
        """Return the text in lower case."""

    def map_entries(self, column: Column) -> Column:
        """Return the map as an array of its entries."""

    def max(self, column: Column | str) -> Column:
        """Return the greatest value."""

    def raise_error(self, message: Column) -> Column:
        """Fail."""

    def struct(self, *columns: Column) -> Column:
        """Return a struct of the columns."""

    def transform(self, column: Column, function: Callable[[Column], Column]) -> Column:
        """Return the array with each element put through the function."""

    def transform_keys(self, column: Column, function: Callable[[Column, Column], Column]) -> Column:
        """Return the map with each key put through the function, which gets its value too."""

    def transform_values(self, column: Column, function: Callable[[Column, Column], Column]) -> Column:
        """Return the map with each value put through the function, which gets its key too."""

    def xxhash64(self, *columns: Column) -> Column:
        """Return a hash of the columns."""

    def when(self, condition: Column, value: Column) -> Column:
        """Return the value where the condition holds, else NULL."""

    def sum(self, column: Column | str) -> Column:
        """Add values."""


def is_connect(session: SparkSession) -> bool:
    """Say whether the session is a client of a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def functions_of(session: SparkSession) -> Functions:
    """Return the functions that make columns for that session.

    `pyspark.sql.functions` follows an environment variable, not the session in hand.
    """
    if is_connect(session):
        from pyspark.sql.connect import functions as connect_functions

        return cast("Functions", connect_functions)
    return cast("Functions", functions)


def observation_for(session: SparkSession, name: str) -> Any:
    """Return an observation that the session can take."""
    if is_connect(session):
        from pyspark.sql.connect.observation import Observation as ConnectObservation

        return ConnectObservation(name)
    return Observation(name)


def column_of(
    functions: Functions, predicate: Predicate, *, qualifier: str | None = None, catalog: str | None = None
) -> Column:
    """Return the predicate as a column of booleans, NULL where SQL says so.

    Args:
        functions: The session's functions.
        predicate: The rows.
        qualifier: Alias or table that the columns belong to, in a join.
        catalog: The catalog whose functions tell partitions by a transform.
    """
    return functions.expr(sql.predicate(predicate, qualifier, catalog=catalog))


def named_column(functions: Functions, name: str, qualifier: str | None = None) -> Column:
    """Return the column of exactly that name."""
    return functions.col(sql.quote(name) if qualifier is None else sql.dotted(qualifier, name))


def as_planned(
    frame: DataFrame,
    given: vocabulary.Schema,
    names: StoredNames,
    checked: Mapping[str, vocabulary.IcebergType],
) -> DataFrame:
    """Return the frame under the names that the table still has for its columns, nested too.

    Its texts are compared by their bytes, as they are stored: a collation would make equal what the table keeps apart.
    Values of types that Spark lacks are in the form in which it reads them, or are refused.

    Args:
        frame: The rows.
        given: Its columns.
        names: The table's names.
        checked: The columns with values of such types, by the table's names, with the type that has them.
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
            leaf = partial(_checked, functions, label=stored.name)
            column = reshaped(functions, column, stored.type, checked[stored.name], is_same=has_same_name, leaf=leaf)
        columns.append(column.alias(stored.name))
    return frame.select(*columns)


def _checked(functions: Functions, column: Column, wanted: vocabulary.IcebergType, *, label: str) -> Column:
    """Return the values of a uuid, which Spark has as texts, in lower case; those of a fixed as they are."""
    if wanted == vocabulary.UUID:
        value, is_one = functions.lower(column), column.rlike(_UUID)
    else:
        value, is_one = column, functions.length(column) == int(str(wanted)[len("fixed[") : -1])
    shown = column.cast("string") if wanted == vocabulary.UUID else functions.hex(column)
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
            return types.StructType(
                [
                    types.StructField(field.name, _without_collations(field.dataType), field.nullable, field.metadata)
                    for field in data_type.fields
                ]
            )
        case _:
            return data_type


def with_all_fields(
    frame: DataFrame, given: vocabulary.Schema, wanted: Mapping[str, vocabulary.IcebergType]
) -> DataFrame:
    """Return the frame with NULL for the fields that structs lack.

    Args:
        frame: The frame.
        given: Its columns.
        wanted: The type that has all fields, by column.
    """
    if not wanted:
        return frame
    functions = functions_of(frame.sparkSession)
    columns = []
    for field in given:
        column = named_column(functions, field.name)
        if field.name in wanted:
            column = reshaped(functions, column, field.type, wanted[field.name], is_same=has_same_name)
        columns.append(column.alias(field.name))
    return frame.select(*columns)


def as_stored(frame: DataFrame, stored: DataFrame, *, is_case_sensitive: bool, subject: str) -> DataFrame:
    """Return the frame's columns in the types of the table's, fields of structs matched by name at every depth.

    Spark's own `unionByName` takes the fields of structs inside of maps by position.

    Args:
        frame: The rows.
        stored: The table.
        is_case_sensitive: Whether names that differ in case alone are different names.
        subject: The table, for messages.
    """
    functions, is_same = functions_of(frame.sparkSession), names_alike(is_case_sensitive=is_case_sensitive)
    wanted = replace(schema_of(stored, subject=subject), is_case_sensitive=is_case_sensitive)
    columns = []
    for field in schema_of(frame, subject=subject):
        column, known = named_column(functions, field.name), wanted.field(field.name)
        if known is not None:
            # Spark has more types than Iceberg, such as small integers: the last cast is for these.
            column = _cast(reshaped(functions, column, field.type, known.type, is_same=is_same), known.type)
        columns.append(column.alias(field.name))
    return frame.select(*columns)


def reshaped(
    functions: Functions,
    column: Column,
    held: vocabulary.IcebergType,
    wanted: vocabulary.IcebergType,
    *,
    is_same: Callable[[vocabulary.Field, vocabulary.Field], bool],
    stored: Column | None = None,
    leaf: Callable[[Column, vocabulary.IcebergType], Column] | None = None,
) -> Column:
    """Return a column of one type as one of another, fields of structs put in place one by one.

    Args:
        functions: The session's functions.
        column: The column.
        held: Its type.
        wanted: The type to have, in which lists are lists, maps are maps and structs are structs.
        is_same: Says whether a held field is a wanted one.
        stored: A column of the wanted type, whose fields stand in for those that structs lack; None: NULL does.
        leaf: Makes a value without parts one of another type; None: a cast does.
    """
    within = partial(reshaped, functions, is_same=is_same, leaf=leaf)
    if vocabulary.is_same_type(held, wanted):
        return column
    match held, wanted:
        case vocabulary.StructType(), vocabulary.StructType():
            fields = []
            for field in wanted.fields:
                known = next((item for item in held.fields if is_same(item, field)), None)
                stand_in = None if stored is None else stored.getField(field.name)
                if known is not None:
                    value = column.getField(known.name)
                    value = within(value, known.type, field.type, stored=stand_in)
                else:
                    value = _cast(functions.lit(None), field.type) if stand_in is None else stand_in
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
    """Return a value that is equal where the column's is; None for types whose values Spark cannot compare.

    A map becomes its entries in order.
    """
    if isinstance(held, vocabulary.MapType):
        return None if _has_incomparable(held.key, held.value) else functions.array_sort(functions.map_entries(column))
    return None if _has_incomparable(held) else column


def _has_incomparable(*held: vocabulary.IcebergType) -> bool:
    for item in held:
        match item:
            case vocabulary.MapType():
                return True
            case vocabulary.ListType():
                found = _has_incomparable(item.element)
            case vocabulary.StructType():
                found = _has_incomparable(*(field.type for field in item.fields))
            case _:
                found = str(item) == "variant"
        if found:
            return True
    return False


def has_same_name(one: vocabulary.Field, other: vocabulary.Field) -> bool:
    """Say whether two fields, of a frame and of a table, have the same name."""
    return one.name == other.name


def names_alike(*, is_case_sensitive: bool) -> Callable[[vocabulary.Field, vocabulary.Field], bool]:
    """Return what says whether two fields have the same name, as the session compares names."""
    if is_case_sensitive:
        return has_same_name
    return lambda one, other: vocabulary.folded(one.name) == vocabulary.folded(other.name)


def has_same_id(one: vocabulary.Field, other: vocabulary.Field) -> bool:
    """Say whether two fields of a table, at different times, are the same."""
    return one.field_id == other.field_id


def _cast(column: Column, wanted: vocabulary.IcebergType) -> Column:
    return column.cast(sql.type_name(wanted))


def schema_of(frame: DataFrame, *, subject: str) -> vocabulary.Schema:
    """Return the frame's columns as Iceberg would store them.

    Raises:
        SchemaMismatchError: A type is none that Iceberg has.
    """
    return vocabulary.Schema(tuple(_field(field, (), subject) for field in frame.schema.fields))


def _field(field: types.StructField, path: tuple[str, ...], subject: str) -> vocabulary.Field:
    return vocabulary.Field(
        name=field.name,
        type=iceberg_type(field.dataType, (*path, field.name), subject),
        doc=(field.metadata or {}).get("comment"),
    )


def iceberg_type(data_type: types.DataType, path: tuple[str, ...], subject: str) -> vocabulary.IcebergType:
    """Return what Iceberg makes of a Spark type.

    Args:
        data_type: Spark's type.
        path: The column's name, and those of the fields down to the type, for the message.
        subject: The table, for the message.

    Raises:
        SchemaMismatchError: Iceberg has no such type.
    """
    match data_type:
        case types.DecimalType():
            return vocabulary.DecimalType(data_type.precision, data_type.scale)
        case types.StructType():
            return vocabulary.StructType(tuple(_field(field, path, subject) for field in data_type.fields))
        case types.ArrayType():
            return vocabulary.ListType(iceberg_type(data_type.elementType, (*path, "element"), subject))
        case types.MapType():
            return vocabulary.MapType(
                iceberg_type(data_type.keyType, (*path, "key"), subject),
                iceberg_type(data_type.valueType, (*path, "value"), subject),
            )
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

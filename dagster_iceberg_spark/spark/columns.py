"""Predicates and schemas, between the vocabulary and Spark."""

import datetime as dt
import functools
import operator
from typing import Any, Final, Protocol, cast

from pyspark.sql import Column, DataFrame, Observation, SparkSession, functions, types

from dagster_iceberg_spark.errors import SchemaMismatchError
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.table import schema as vocabulary
from dagster_iceberg_spark.table.predicate import (
    EVERY_ROW,
    Always,
    And,
    Comparison,
    In,
    IsNull,
    LiteralValue,
    Or,
    Predicate,
)

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


class Functions(Protocol):
    """The functions that the package makes columns with; each session has its own module of them."""

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

    def lit(self, value: Any) -> Column:
        """Return a literal."""

    def max(self, column: Column | str) -> Column:
        """Return the greatest value."""

    def raise_error(self, message: Column) -> Column:
        """Fail the query."""

    def spark_partition_id(self) -> Column:
        """Return the task's number."""

    def struct(self, *columns: Column) -> Column:
        """Make a struct."""

    def sum(self, column: Column | str) -> Column:
        """Add values."""

    def to_json(self, column: Column, options: dict[str, str]) -> Column:
        """Write a struct as JSON."""

    def when(self, condition: Column, value: Column) -> Column:
        """Begin a CASE."""


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


def column_of(functions: Functions, predicate: Predicate, *, qualifier: str | None = None) -> Column:
    """Return the predicate as a column of booleans, NULL where SQL says so.

    Args:
        functions: The session's functions.
        predicate: The rows.
        qualifier: Alias or table that the columns belong to, in a join.
    """
    recurse = functools.partial(column_of, functions, qualifier=qualifier)
    match predicate:
        case Always():
            return functions.lit(predicate == EVERY_ROW)
        case Comparison():
            column, value = named_column(functions, predicate.column, qualifier), literal(functions, predicate.value)
            return column >= value if predicate.operator == ">=" else column < value
        case In():
            column = named_column(functions, predicate.column, qualifier)
            values = [literal(functions, value) for value in predicate.values]
            return column == values[0] if len(values) == 1 else column.isin(*values)
        case IsNull():
            return named_column(functions, predicate.column, qualifier).isNull()
        case And():
            return functools.reduce(operator.and_, map(recurse, predicate.terms))
        case Or():
            return _balanced_or([recurse(term) for term in predicate.terms])


def named_column(functions: Functions, name: str, qualifier: str | None = None) -> Column:
    """Return the column of exactly that name."""
    return functions.col(sql.quote(name) if qualifier is None else sql.dotted(qualifier, name))


def literal(functions: Functions, value: LiteralValue) -> Column:
    """Return the value as a literal that no time zone moves."""
    if isinstance(value, dt.datetime):
        return functions.expr(sql.timestamp(value))
    if isinstance(value, dt.date):
        return functions.expr(sql.date(value))
    return functions.lit(value)


def schema_of(frame: DataFrame, *, subject: str) -> vocabulary.Schema:
    """Return the frame's columns as Iceberg would store them.

    Raises:
        SchemaMismatchError: A type is none that Iceberg has.
    """
    return vocabulary.Schema(tuple(_field(field, (), subject) for field in frame.schema.fields))


def _balanced_or(terms: list[Column]) -> Column:
    """Join many terms as a balanced tree: a chain of 1,000 would overflow the analyser's stack."""
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    return _balanced_or(terms[:middle]) | _balanced_or(terms[middle:])


def _field(field: types.StructField, path: tuple[str, ...], subject: str) -> vocabulary.Field:
    return vocabulary.Field(
        name=field.name,
        type=_type(field.dataType, (*path, field.name), subject),
        doc=(field.metadata or {}).get("comment"),
    )


def _type(data_type: types.DataType, path: tuple[str, ...], subject: str) -> vocabulary.IcebergType:
    match data_type:
        case types.DecimalType():
            return vocabulary.DecimalType(data_type.precision, data_type.scale)
        case types.StructType():
            return vocabulary.StructType(tuple(_field(field, path, subject) for field in data_type.fields))
        case types.ArrayType():
            return vocabulary.ListType(_type(data_type.elementType, (*path, "element"), subject))
        case types.MapType():
            return vocabulary.MapType(
                _type(data_type.keyType, (*path, "key"), subject),
                _type(data_type.valueType, (*path, "value"), subject),
            )
        case types.UserDefinedType():
            return _type(data_type.sqlType(), path, subject)
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

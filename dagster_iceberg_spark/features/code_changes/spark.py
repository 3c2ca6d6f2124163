"""Digests of rows, and what Spark says of a query."""

from typing import Final

from pyspark.sql import Column

from dagster_iceberg_spark.features.code_changes.plan.replay_plan import RowDigest
from dagster_iceberg_spark.plan.read.read_plan import ReadPlan
from dagster_iceberg_spark.spark.columns import Functions, comparable, functions_of, named_column
from dagster_iceberg_spark.spark.failures import translating
from dagster_iceberg_spark.spark.read.frames import read
from dagster_iceberg_spark.spark.session.session import IcebergSession
from dagster_iceberg_spark.table.schema import DOUBLE, FLOAT, Field

_DECIMAL: Final = "decimal(28,0)"
"""Holds a hash of 64 bits. Spark adds such numbers up to a decimal with ten more digits."""
_SEVEN_DIGITS: Final = "%.6e"


def row_digest(session: IcebergSession, plan: ReadPlan) -> RowDigest:
    """Return the digest of the plan's rows: the sum of the hashes of the values in each column, and of the rows."""
    functions = functions_of(session.spark)
    fields = [field for field in plan.schema if field.name in plan.columns]
    exact = [_hash(functions, field) for field in fields]
    rounded = [_hash(functions, field, is_rounded=True) for field in fields]
    hashes = [*exact, *rounded, functions.xxhash64(*exact), functions.xxhash64(*rounded)]
    sums = [functions.sum(value.cast(_DECIMAL)).alias(f"s{index}") for index, value in enumerate(hashes)]
    frame = read(session, plan)
    with translating(session.catalog, action="compare the rows of", subject=str(plan.identifier)):
        rows, *found = map(str, frame.agg(functions.count(functions.lit(1)).alias("rows"), *sums).collect()[0])
    count = len(fields)
    columns = {
        field.name: (one, other)
        for field, one, other in zip(fields, found[:count], found[count : 2 * count], strict=True)
    }
    return RowDigest(int(rows), columns, (found[-2], found[-1]))


def _hash(functions: Functions, field: Field, *, is_rounded: bool = False) -> Column:
    """Return the hash of a column. That of NULL is a number too."""
    column = named_column(functions, field.name)
    if is_rounded and field.type in (FLOAT, DOUBLE):
        return functions.xxhash64(functions.format_string(_SEVEN_DIGITS, column))
    value = comparable(functions, column, field.type)
    return functions.xxhash64(functions.to_json(functions.struct(column)) if value is None else value)

"""Digests of rows, and what Spark says of a query without running it."""

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column

from dagster_iceberg_spark.features.code_changes.plan.effects import AssetLineage, QueryColumns
from dagster_iceberg_spark.features.code_changes.plan.replay_plan import RowDigest
from dagster_iceberg_spark.features.components.plan import SqlQuery
from dagster_iceberg_spark.features.components.spark import run_query
from dagster_iceberg_spark.features.lineage.plan.column_lineage import column_lineage, with_tables
from dagster_iceberg_spark.features.lineage.plan.column_origins import SourceColumn, parse_plan
from dagster_iceberg_spark.features.lineage.spark import analyzed_plan
from dagster_iceberg_spark.plan.read.read_plan import ReadPlan
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.spark.columns import Functions, comparable, functions_of, named_column, schema_of
from dagster_iceberg_spark.spark.failures import translating
from dagster_iceberg_spark.spark.read.frames import read
from dagster_iceberg_spark.spark.session.session import IcebergSession
from dagster_iceberg_spark.table.identifier import quote_part
from dagster_iceberg_spark.table.schema import DOUBLE, FLOAT, Field, Schema
from dagster_iceberg_spark.table.sql_text import column_name

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


_VIEW: Final = "dagster_asset_"


def query_columns(
    session: IcebergSession, query: SqlQuery, inputs: Mapping[tuple[str, ...], tuple[str, Schema]], *, subject: str
) -> QueryColumns:
    """Return what a query returns, without running it.

    Args:
        session: The session.
        query: The query.
        inputs: The asset and the columns of each table in the query, by the parts of its name.
        subject: The asset of the query, for messages.

    Raises:
        SparkExecutionError: Spark cannot resolve the query.
    """
    spark: Any = session.spark
    views = {f"{_VIEW}{place}": asset for place, (asset, _) in enumerate(inputs.values())}
    with translating(session.catalog, action="analyze the query of", subject=subject):
        for view, (_, schema) in zip(views, inputs.values(), strict=True):
            spark.sql(_empty(schema)).createOrReplaceTempView(view)
        try:
            frames = {parts: spark.table(view) for parts, view in zip(inputs, views, strict=True)}
            frame = run_query(spark, query, frames)
            schema = schema_of(frame, subject=subject)
            lineage = column_lineage(with_tables(parse_plan(analyzed_plan(frame)), views), frame.columns)
        finally:
            for view in views:
                spark.catalog.dropTempView(view)
    names, assets = frame.columns, {quote_part(asset): asset for asset in views.values()}
    known = {name: _columns_of(origins, assets) for name, origins in zip(names, lineage.columns, strict=True)}
    own = AssetLineage(
        {name: origins for name, origins in known.items() if origins is not None},
        _columns_of(lineage.row_columns, assets),
        "query",
        tuple(name for name, origins in known.items() if origins is None),
    )
    return QueryColumns(schema, own, dict(zip(names, lineage.digests, strict=False)), lineage.row_digest)


def _empty(schema: Schema) -> str:
    """Return a query without rows."""
    columns = (f"CAST(NULL AS {sql.type_name(field.type)}) AS {column_name(field.name)}" for field in schema)
    return f"SELECT {', '.join(columns) or '1'} WHERE false"


def _columns_of(
    origins: frozenset[SourceColumn] | None, assets: Mapping[str, str]
) -> frozenset[tuple[str, str]] | None:
    """Return the columns of assets. What else the query reads, no change of the code changes."""
    if origins is None:
        return None
    return frozenset((assets[origin.table], origin.column) for origin in origins if origin.table in assets)

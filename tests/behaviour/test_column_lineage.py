"""The columns of upstream assets that each column of a materialization is made of."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import DataFrame

from dagster_iceberg_spark import IcebergSparkResource
from dagster_iceberg_spark.plan.analyzed_plan import parse_plan
from dagster_iceberg_spark.plan.column_lineage import column_lineage
from dagster_iceberg_spark.spark.analyzed_plan import analyzed_plan
from dagster_iceberg_spark.spark.columns import functions_of
from tests.behaviour.lineage_queries import QUERIES, TABLES
from tests.conftest import Lake, annotation_of, frame_asset, metadata_of

pytestmark = pytest.mark.spark

orders = frame_asset("orders", "select 1 as id, 'a' as customer, 2.5D as price, date'2013-01-01' as day, 'x' as note")
customers = frame_asset("customers", "select 'a' as name, 'DE' as country")


def lineage_of(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, list[str]]:
    lineage = metadata_of(result, asset)["dagster/column_lineage"]
    return {
        column: [f"{'/'.join(dep.asset_key.path)}.{dep.column_name}" for dep in deps]
        for column, deps in lineage.deps_by_column.items()
    }


@pytest.mark.each_engine
def test_a_materialization_reports_the_columns_that_its_columns_are_made_of(lake: Lake) -> None:
    @dg.asset(io_manager_key="iceberg", ins={"orders": dg.AssetIn(metadata={"columns": ["customer", "price", "day"]})})
    def revenue(orders: Any, customers: Any) -> Any:
        sf = functions_of(orders.sparkSession)
        joined = orders.join(customers, sf.expr("customer = name"), "left").where("price > 1")
        return joined.groupBy("country").agg(
            sf.sum("price").alias("Total"), sf.max("day").alias("newest"), sf.count("*").alias("orders")
        )

    result = lake.materialize(orders, customers, revenue)
    assert lineage_of(result, "revenue") == {
        "country": ["customers.country"],
        "Total": ["orders.price"],
        "newest": ["orders.day"],
        "orders": [],
    }
    assert metadata_of(result, "revenue")["iceberg/row_columns"] == {
        "customers": ["country", "name"],
        "orders": ["customer", "price"],
    }
    assert "dagster/column_lineage" not in metadata_of(result, "orders")


@pytest.mark.each_engine
def test_the_lineage_of_queries_is_as_written_by_hand(lake: Lake) -> None:
    spark = lake.session
    spark.sql("create namespace lake.tpch")
    for name, columns in TABLES.items():
        spark.sql(f"create table lake.tpch.{name} ({columns}) using iceberg")
    spark.sql("use lake.tpch")
    wrong = {}
    for name, query in QUERIES.items():
        frame = spark.sql(query.sql)
        found = column_lineage(parse_plan(analyzed_plan(frame)), frame.columns)
        answer = {column: _known(origins) for column, origins in zip(frame.columns, found.columns, strict=True)}
        expected = {column: None if made_of is None else _names(made_of) for column, made_of in query.columns.items()}
        rows = None if query.rows is None else _names(query.rows)
        if (answer, _known(found.row_columns)) != (expected, rows):
            wrong[name] = (answer, _known(found.row_columns), expected, rows)
    spark.sql("use spark_catalog.default")
    assert not wrong


def _known(origins: Any) -> set[str] | None:
    return None if origins is None else {origin.column for origin in origins}


def _names(text: str) -> set[str]:
    return {text} if text == "e note, #1" else set(text.split())

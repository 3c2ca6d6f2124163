"""The columns of upstream assets that each column of a materialization is derived from.

docs/lineage.md: Which columns is a column derived from?
"""

from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog
from dagster_iceberg_spark.errors import CatalogUnavailableError
from dagster_iceberg_spark.features.lineage.observer import UpstreamTables
from dagster_iceberg_spark.features.lineage.plan.column_lineage import column_lineage
from dagster_iceberg_spark.features.lineage.plan.column_origins import parse_plan
from dagster_iceberg_spark.features.lineage.spark import analyzed_plan
from dagster_iceberg_spark.spark.columns import functions_of
from tests.features.lineage.lineage_queries import QUERIES, TABLES
from tests.lakes import SPARK_CONF, Lake, annotation_of, frame_asset, metadata_of

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
        sf: Any = functions_of(orders.sparkSession)
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


@pytest.mark.full
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


@pytest.mark.full
def test_tables_that_are_read_by_name_belong_to_the_assets_that_write_or_name_them(lake: Lake) -> None:
    lake.session.sql("create namespace lake.raw")
    lake.session.sql("create table lake.raw.rates (country string, rate double) using iceberg")
    rates = dg.AssetSpec("exchange_rates", metadata={"iceberg/table": "raw.rates"})

    @dg.asset(io_manager_key="iceberg", deps=[orders, rates])
    def prices(spark: IcebergSparkResource) -> Any:
        return spark.spark_session.sql(
            "select o.price * r.rate as price, f._file as file from lake.db.orders o "
            "join lake.raw.rates r on true join lake.db.orders.branch_main f on f.id = o.id"
        )

    result = lake.materialize(orders, rates, prices)
    assert lineage_of(result, "prices") == {"price": ["exchange_rates.rate", "orders.price"], "file": []}
    assert metadata_of(result, "prices")["iceberg/row_columns"] == {"orders": ["id"]}


@pytest.mark.full
def test_nothing_is_reported_of_what_python_makes_of_rows(lake: Lake) -> None:
    @dg.asset(io_manager_key="iceberg")
    def renamed(orders: Any) -> Any:
        functions = functions_of(orders.sparkSession)
        frame = orders.mapInPandas(lambda parts: parts, orders.schema).withColumn("made", functions.lit(1))
        return frame.join(orders.select("id", functions.col("price").alias("known")), "id")

    result = lake.materialize(orders, renamed)
    assert lineage_of(result, "renamed") == {"made": [], "known": ["orders.price"]}
    assert "iceberg/row_columns" not in metadata_of(result, "renamed")


@pytest.mark.full
@pytest.mark.parametrize("library", [pd.DataFrame, pa.Table])
def test_rows_of_other_libraries_have_the_columns_of_their_only_input(lake: Lake, library: Any) -> None:
    @dg.asset(io_manager_key="iceberg")
    def copied(orders: library) -> library:
        if library is pa.Table:
            return orders.append_column("extra", pa.array([1]))
        return orders.assign(extra=1)

    @dg.asset(io_manager_key="iceberg")
    def joined(orders: library, customers: library) -> library:
        return orders

    result = lake.materialize(orders, customers, copied, joined)
    names = ("id", "customer", "price", "day", "note")
    assert lineage_of(result, "copied") == {name: [f"orders.{name}"] for name in names}
    assert "dagster/column_lineage" not in metadata_of(result, "joined")


@pytest.mark.full
def test_each_way_to_read_an_asset_and_to_write_one_reports_its_columns(lake: Lake) -> None:
    days = dg.StaticPartitionsDefinition(["a", "b"])
    parts = frame_asset("parts", "select '{key}' as k, 1 as v", partitions_def=days, metadata={"partition_expr": "k"})
    added = frame_asset("added", "select 1 as v, 2 as w", metadata={"iceberg/write_disposition": "append"})

    @dg.asset(io_manager_key="iceberg")
    def by_key(parts: annotation_of(dict[str, DataFrame], lake)) -> Any:  # type: ignore[valid-type]
        return parts["a"].union(parts["b"])

    @dg.asset(
        io_manager_key="iceberg",
        ins={"added": dg.AssetIn(metadata={"iceberg/read": "changes"})},
        metadata={"iceberg/write_disposition": "append"},
    )
    def consumed(added: Any) -> Any:
        return added.selectExpr("v + w as Total")

    @dg.asset(
        io_manager_key="iceberg", metadata={"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["total"]}
    )
    def merged(consumed: Any) -> Any:
        return consumed.selectExpr("TOTAL").distinct()

    for key in ("a", "b"):
        lake.materialize(parts, partition_key=key)
    for _ in range(2):  # the second read takes what was added
        result = lake.materialize(added, consumed, merged)
    assert lineage_of(result, "consumed") == {"Total": ["added.v", "added.w"]}
    assert lineage_of(result, "merged") == {"TOTAL": ["consumed.Total"]}
    result = lake.materialize(by_key, parts, selection=[by_key])
    assert lineage_of(result, "by_key") == {"k": ["parts.k"], "v": ["parts.v"]}


@pytest.mark.full
def test_the_lineage_can_be_switched_off_and_given_by_the_asset(lake: Lake) -> None:
    given = dg.TableColumnLineage({"id": [dg.TableColumnDep(dg.AssetKey("elsewhere"), "x")]})

    @dg.asset(io_manager_key="iceberg")
    def copied(context: dg.AssetExecutionContext, orders: Any) -> Any:
        context.add_output_metadata({"dagster/column_lineage": given})
        return orders

    assert lineage_of(lake.materialize(orders, copied), "copied") == {"id": ["elsewhere.x"]}
    silent = frame_asset("silent", "select * from lake.db.orders")
    reported = metadata_of(lake.with_options(column_lineage=False).materialize(silent), "silent")
    assert not {"dagster/column_lineage", "iceberg/row_columns"} & reported.keys()


@pytest.mark.full
def test_a_failure_to_determine_the_lineage_does_not_fail_the_run(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any) -> Any:
        raise CatalogUnavailableError("the catalog does not respond")

    lake.materialize(orders)
    monkeypatch.setattr(UpstreamTables, "_assets_of", fails)
    result = lake.materialize(frame_asset("copied", "select * from lake.db.orders"))
    assert "dagster/column_lineage" not in metadata_of(result, "copied")
    assert "Cannot determine the column lineage: the catalog does not respond" in capfd.readouterr().err
    assert lake.rows("copied", "id") == [1]


@pytest.mark.full
@pytest.mark.parametrize("name", ["branch_offices", "changes", "snapshot_id_map"])
def test_a_table_may_be_called_like_what_iceberg_selects(classic_lake: Lake, name: str) -> None:
    @dg.asset(io_manager_key="iceberg", ins={"rows": dg.AssetIn(name)})
    def copied(rows: DataFrame) -> DataFrame:
        return rows.select("id")

    result = classic_lake.materialize(frame_asset(name, "select 1 as id"), copied)
    assert lineage_of(result, "copied") == {"id": [f"{name}.id"]}


@pytest.mark.full
def test_columns_of_other_catalogs_and_io_managers_are_not_known(classic_lake: Lake, tmp_path: Path) -> None:
    """They are not made of nothing, and not of the only input that is known."""
    catalog = SqlCatalog(name="other", uri=f"sqlite:///{tmp_path}/other.db", warehouse=str(tmp_path / "other"))
    spark = IcebergSparkResource(catalog=catalog, spark_config=SPARK_CONF)
    resources = {
        **classic_lake.resources,
        "other": IcebergPySparkIOManager(spark=spark, namespace="db"),
        "memory": dg.mem_io_manager,
    }
    near = frame_asset("near", "select 1L as id, 2 as v")

    @dg.asset(io_manager_key="other")
    def far(near: DataFrame) -> DataFrame:
        return near.selectExpr("id", "'n' as name")

    @dg.asset(io_manager_key="iceberg")
    def both(near: DataFrame, far: DataFrame) -> DataFrame:
        return near.join(far, "id")

    @dg.asset(io_manager_key="memory")
    def prices() -> pd.DataFrame:
        return pd.DataFrame({"id": [1], "v": [9]})

    @dg.asset(io_manager_key="iceberg")
    def priced(near: pd.DataFrame, prices: pd.DataFrame) -> pd.DataFrame:
        return near[["id"]].merge(prices, on="id")

    result = dg.materialize([near, far, both, prices, priced], resources=resources)
    assert lineage_of(result, "both") == {"id": ["near.id"], "v": ["near.v"]}
    assert "dagster/column_lineage" not in metadata_of(result, "priced")

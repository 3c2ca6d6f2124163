"""A lake for the tests of users.

docs/testing.md: A first test; A code location; IO managers by hand
"""

import datetime as dt
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.types import DecimalType

from dagster_iceberg_spark import DuckLakeMirror, IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.testing import Lake, assert_rows

DAYS = dg.DailyPartitionsDefinition("2024-01-01")
DAY, NEXT = dt.datetime.fromisoformat("2024-01-02"), dt.datetime.fromisoformat("2024-01-03")
KEY, RANGE = "2024-01-02", ("2024-01-02", "2024-01-03")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path / "lake")
    yield lake
    lake.close()


@dg.asset(
    io_manager_key="warehouse",
    partitions_def=DAYS,
    metadata={"partition_expr": "at", "iceberg/write_disposition": "append", "schema": "shop"},
)
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    windows = [DAYS.time_window_for_partition_key(key).start.replace(tzinfo=None) for key in context.partition_keys]
    return pa.table({"at": windows, "amount": [1] * len(windows)})


@dg.asset(io_manager_key="warehouse", partitions_def=DAYS, metadata={"partition_expr": "at"})
def daily(orders: pa.Table) -> pa.Table:
    return orders.group_by("at").aggregate([("amount", "sum")])


@dg.asset(io_manager_key="warehouse")
def total(daily: pa.Table) -> pa.Table:
    return daily.group_by([]).aggregate([("amount_sum", "sum")])


def test_an_asset_reads_what_was_given(lake: Lake) -> None:
    lake.given(orders, [{"at": DAY, "amount": 3}, {"at": DAY, "amount": 4}], partition=KEY)
    lake.given(orders, [{"at": NEXT, "amount": 5}], partition="2024-01-03")
    result = lake.materialize(daily, partition=KEY)
    assert result.success
    assert_rows(lake.rows(daily), [{"at": DAY, "amount_sum": 7}])
    assert lake.rows(daily, "amount_sum", partition=KEY) == [{"amount_sum": 7}]
    assert lake.rows(daily, partition="2024-01-05") == []
    assert lake.table(daily).name() == ("public", "daily")
    assert lake.table(orders).name() == ("shop", "orders")


def test_what_is_given_replaces_what_was_there(lake: Lake) -> None:
    lake.given(orders, [{"at": DAY, "amount": 3}, {"at": NEXT, "amount": 4}])
    lake.given(orders, [{"at": DAY, "amount": 5}], partition=KEY)
    assert_rows(lake.rows(orders), [{"at": DAY, "amount": 5}, {"at": NEXT, "amount": 4}])
    lake.given(orders, [], columns={"at": "timestamp", "amount": "long"})
    assert lake.rows(orders) == []


def test_a_range_and_several_assets_are_one_run(lake: Lake) -> None:
    lake.materialize(orders, daily, partition=RANGE)
    lake.materialize(total)
    assert lake.rows(total) == [{"amount_sum_sum": 2}]
    assert len(lake.table(orders).snapshots()) == 1


def test_a_given_day_without_rows_counts_as_materialized(lake: Lake) -> None:
    lake.given(orders, [], partition=KEY, columns={"at": "timestamp", "amount": "long"})
    lake.materialize(daily, partition=KEY)
    assert lake.rows(daily) == []
    with pytest.raises(dg.Failure, match="expected a materialization of the partitions 2024-01-03"):
        lake.materialize(daily, partition="2024-01-03")


def test_a_table_of_another_team_is_given_by_its_key(lake: Lake) -> None:
    @dg.asset(ins={"prices": dg.AssetIn(key=["market", "prices"])}, io_manager_key="warehouse")
    def cheapest(prices: pa.Table) -> pa.Table:
        return prices.slice(0, 1)

    lake.given("market/prices", [{"price": 1.5}], columns={"price": "decimal(9, 2)"})
    lake.materialize(cheapest)
    assert_rows(lake.rows(cheapest), [{"price": 1.5}])
    assert lake.table(cheapest).schema().find_type("price") == DecimalType(9, 2)


def test_an_empty_lake_has_forgotten_everything(lake: Lake) -> None:
    lake.materialize(orders, partition=KEY)
    lake.empty()
    assert lake.spark.pyiceberg_catalog.list_namespaces() == []
    assert lake.instance.get_runs() == []
    lake.materialize(orders, partition=KEY)
    assert len(lake.rows(orders)) == 1


def test_errors_of_an_asset_are_raised_or_returned(lake: Lake) -> None:
    @dg.asset(io_manager_key="warehouse")
    def broken() -> pa.Table:
        message = "no rows today"
        raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="no rows today"):
        lake.materialize(broken)
    assert not lake.materialize(broken, raise_on_error=False).success


@pytest.mark.parametrize(
    ("rows", "arguments", "message"),
    [
        ([], {}, r"Cannot store the rows of prices: expected rows or `columns`, found neither"),
        ([{"a": None}], {}, "expected a type for a, which has no value"),
        ([{"a": 1}, {"a": "x"}], {}, "expected values of one type in a"),
        ([{"a": "x"}], {"columns": {"a": "long"}}, "expected values of int64 in a"),
        (
            [{"a": 1}],
            {"columns": {"a": "number"}},
            "expected types of Iceberg, such as `timestamptz`, found `number` for a",
        ),
        ([{"a": 1}], {"partition": KEY}, "expected an asset with partitions"),
    ],
)
def test_rows_that_cannot_be_given(lake: Lake, rows: Any, arguments: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        lake.given("prices", rows, **arguments)


def test_a_key_without_a_code_location_cannot_run(lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match="Cannot run daily: expected an asset, or the key"):
        lake.materialize("daily")


def test_a_code_location_runs_in_the_lake(tmp_path: Path) -> None:
    @dg.asset(io_manager_key="iceberg", metadata={"iceberg/location": f"{tmp_path}/elsewhere/placed"})
    def placed(api: dg.ResourceParam[str]) -> pa.Table:
        return pa.table({"answer": [api]})

    production = IcebergSparkResource(
        catalog=SqlCatalog(uri=f"sqlite:///{tmp_path}/production.db", warehouse=f"{tmp_path}/production"),
        spark_config={"spark.master": "yarn", "spark.sql.session.timeZone": "Asia/Tokyo"},
    )
    manager = IcebergPySparkIOManager(
        spark=production,
        namespace="nyc",
        environment="pr-7",
        table_location=f"{tmp_path}/elsewhere/{{table}}",
        table_properties={"write.parquet.compression-codec": "snappy"},
        mirror=DuckLakeMirror(catalog=f"sqlite:///{tmp_path}/mirror.ducklake"),
    )
    resources = {"iceberg": manager, "warehouse": manager, "spark": production, "api": "production"}
    lake = Lake(tmp_path / "lake", definitions=dg.Definitions([placed, orders, daily], resources=resources))

    lake.materialize("placed", resources={"api": "fake"})
    lake.given("orders", [{"at": DAY, "amount": 3}], partition=KEY)
    lake.materialize("daily", partition=KEY)
    assert lake.rows("placed") == [{"answer": "fake"}]
    assert lake.rows("daily", partition=KEY) == [{"at": DAY, "amount_sum": 3}]
    assert lake.table("daily").name() == ("nyc", "daily")
    assert lake.table("daily").properties["write.parquet.compression-codec"] == "snappy"
    assert lake.spark.spark_config["spark.sql.session.timeZone"] == "Asia/Tokyo"
    assert lake.spark.spark_config["spark.master"] == "local[2]"
    assert {path.name for path in tmp_path.iterdir()} == {"lake"}
    lake.close()


def test_rows_are_given_whatever_publishes_and_creates_the_tables(tmp_path: Path) -> None:
    manager = IcebergPySparkIOManager(publish="release", auto_create_table=False, auto_create_namespace=False)
    lake = Lake(tmp_path / "lake", definitions=dg.Definitions([orders], resources={"warehouse": manager}))
    lake.given("orders", [{"at": DAY, "amount": 3}], partition=KEY)
    assert lake.rows("orders", "amount") == [{"amount": 3}]
    lake.close()


def test_an_io_manager_is_called_by_hand(lake: Lake) -> None:
    output, loaded = lake.contexts(orders, partition=RANGE, as_type=pa.Table)
    assert list(output.asset_partition_keys) == list(RANGE)
    lake.io_manager.handle_output(output, pa.table({"at": [DAY, NEXT], "amount": [1, 2]}))
    assert lake.io_manager.load_input(loaded).num_rows == 2
    assert len(lake.rows(orders)) == 2


WITHOUT_PYSPARK = """
import sys
from pathlib import Path
sys.modules["pyspark"] = None
from dagster_iceberg_spark import versions
versions.installed_pyspark = lambda: None
from dagster_iceberg_spark.testing import Lake
lake = Lake(Path(sys.argv[1]))
with lake.conflicts():
    lake.given("numbers", [{"a": 1}])
assert lake.rows("numbers") == [{"a": 1}]
lake.empty()
lake.close()
"""


def test_a_lake_needs_no_pyspark(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_PYSPARK, str(tmp_path / "lake")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]

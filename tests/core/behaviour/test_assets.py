"""Every way of writing an asset or an op whose output the IO manager stores."""

from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from dagster_iceberg_spark import IcebergSparkResource
from tests.lakes import Lake, metadata_of

pytestmark = pytest.mark.spark


def test_a_multi_asset_stores_each_output_and_a_subset_of_them(lake: Lake) -> None:
    @dg.multi_asset(
        outs={
            name: dg.AssetOut(io_manager_key="iceberg", is_required=False, metadata={"iceberg/partition_by": ["id"]})
            for name in ("left", "right")
        },
        can_subset=True,
    )
    def both(context: dg.AssetExecutionContext, spark: IcebergSparkResource):  # type: ignore[no-untyped-def] # noqa: ANN202
        for name in context.op_execution_context.selected_output_names:
            yield dg.Output(spark.spark_session.sql(f"select '{name}' as id"), output_name=name)

    lake.materialize(both)
    lake.materialize(both, selection=[dg.AssetKey("left")])
    assert (lake.rows("left", "id"), lake.rows("right", "id")) == (["left"], ["right"])
    assert (len(lake.summaries("left")), len(lake.summaries("right"))) == (2, 1)
    assert (
        len({summary["dagster.commit_token"] for summary in (*lake.summaries("left"), *lake.summaries("right"))}) == 3
    )


def test_a_graph_asset_is_stored(lake: Lake) -> None:
    @dg.op
    def numbers() -> int:
        return 3

    @dg.op(out=dg.Out(io_manager_key="iceberg"))
    def frame(context: dg.OpExecutionContext, spark: IcebergSparkResource, count: int) -> DataFrame:
        return spark.spark_session.range(count)

    @dg.graph_asset
    def ids() -> DataFrame:
        return frame(numbers())  # type: ignore[no-any-return]

    lake.materialize(ids)
    assert lake.rows("ids", "id") == [0, 1, 2]


def test_an_output_s_metadata_chooses_how_it_is_written(lake: Lake) -> None:
    @dg.asset(io_manager_key="iceberg")
    def log(spark: IcebergSparkResource) -> dg.Output[DataFrame]:
        return dg.Output(
            spark.spark_session.range(1), metadata={"iceberg/write_disposition": "append", "dagster/row_count": 77}
        )

    lake.materialize(log)
    result = lake.materialize(log)
    assert lake.rows("log", "id") == [0, 0]
    assert metadata_of(result, "log")["dagster/row_count"] == 77


def test_a_materialize_result_carries_a_value_and_its_version_wins(lake: Lake) -> None:
    @dg.asset(io_manager_key="iceberg")
    def ids(spark: IcebergSparkResource) -> dg.MaterializeResult[DataFrame]:
        return dg.MaterializeResult(
            value=spark.spark_session.range(2), metadata={"note": "mine"}, data_version=dg.DataVersion("own")
        )

    result = lake.materialize(ids)
    materialization = result.asset_materializations_for_node("ids")[0]
    assert lake.rows("ids", "id") == [0, 1]
    assert metadata_of(result, "ids")["note"] == "mine"
    assert (materialization.tags or {})["dagster/data_version"] == "own"


def test_op_outputs_are_stored_under_the_table_they_name(lake: Lake) -> None:
    @dg.op(out=dg.Out(io_manager_key="iceberg", metadata={"iceberg/table": "db.from_op"}))
    def make(spark: IcebergSparkResource) -> DataFrame:
        return spark.spark_session.range(2)

    @dg.op
    def count(frame: DataFrame) -> int:
        return frame.count()

    @dg.job(resource_defs=lake.resources)
    def job() -> None:
        count(make())

    result = job.execute_in_process(instance=lake.instance)
    assert result.output_for_node("count") == 2
    assert lake.summaries("from_op")[0]["dagster.asset_key"] == "make/result"


def test_each_dynamic_output_has_a_table_of_its_own(lake: Lake) -> None:
    @dg.op(out=dg.DynamicOut(io_manager_key="iceberg", metadata={"iceberg/table": "db.part"}))
    def parts(spark: IcebergSparkResource):  # type: ignore[no-untyped-def] # noqa: ANN202
        for size in (1, 2):
            yield dg.DynamicOutput(spark.spark_session.range(size), mapping_key=f"of_{size}")

    @dg.op
    def count(frame: DataFrame) -> int:
        return frame.count()

    @dg.job(resource_defs=lake.resources)
    def job() -> None:
        parts().map(count)

    result = job.execute_in_process(instance=lake.instance)
    assert result.output_for_node("count") == {"of_1": 1, "of_2": 2}
    assert lake.rows("part__of_2", "id") == [0, 1]


def test_an_asset_that_returns_nothing_on_purpose_is_left_alone(lake: Lake) -> None:
    @dg.asset(io_manager_key="iceberg")
    def side_effect() -> None: ...

    assert lake.materialize(side_effect).success
    assert not lake.exists("side_effect")


@pytest.mark.full
def test_the_namespace_comes_from_schema_then_the_io_manager_then_the_prefix(lake: Lake) -> None:
    def ids(**kwargs: object) -> dg.AssetsDefinition:
        def _ids(spark: IcebergSparkResource) -> DataFrame:
            return spark.spark_session.range(1)

        decorate: Any = dg.asset
        asset: dg.AssetsDefinition = decorate(name="ids", io_manager_key="iceberg", **kwargs)(_ids)
        return asset

    lake.materialize(ids(key_prefix=["raw", "nyc"], metadata={"schema": "mine"}))
    lake.with_options().materialize(ids(key_prefix="other"))
    lake.with_options(namespace=None).materialize(ids(key_prefix=["raw", "nyc"]))
    lake.with_options(namespace=None).materialize(ids())
    catalog = lake.spark.pyiceberg_catalog
    assert all(catalog.table_exists((namespace, "ids")) for namespace in ("mine", "db", "nyc", "public"))

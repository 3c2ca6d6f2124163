"""Bad input gets a clear error, and nothing is committed."""

from collections.abc import Iterable, Iterator
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from dagster_iceberg_spark import EmbeddedCatalog, IcebergPySparkIOManager, IcebergSparkResource, RestCatalog
from tests.instances import local_instance
from tests.lakes import Lake, frame_asset, free_port, hours_asset

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")

pytestmark = pytest.mark.spark


def test_bad_metadata_is_named_and_creates_no_table(classic_lake: Lake) -> None:
    metadata = {"partition_expr": "ts", "iceberg/partition_by": ["ts"]}
    error = classic_lake.failure(hours_asset(partitions_def=DAYS, metadata=metadata), partition_key="2013-01-01")
    assert error.class_name == "PartitioningError"
    assert "day(ts)" in str(error)
    assert str(error).startswith("Cannot ")
    assert not error.allow_retries
    assert not classic_lake.exists("hours")


def test_an_output_that_is_no_frame_says_what_it_is(classic_lake: Lake) -> None:
    @dg.asset(io_manager_key="iceberg")
    def t() -> Any:
        return [1]

    error = classic_lake.failure(t)
    assert error.class_name == "OutputTypeError"
    assert "builtins.list" in str(error)
    assert not classic_lake.exists("t")


@pytest.mark.full
def test_a_streaming_frame_is_refused(lake: Lake) -> None:
    error = lake.failure(frame_asset("t", lambda spark: spark.readStream.format("rate").load()))
    assert error.class_name == "OutputTypeError"
    assert "streaming" in str(error)


@pytest.mark.full
def test_an_op_s_input_names_its_table(classic_lake: Lake) -> None:
    classic_lake.materialize(frame_asset("up", "select 7 as id"))
    read: list[Any] = []

    @dg.op(ins={"rows": dg.In(input_manager_key="iceberg", metadata={"iceberg/table": "db.up"})})
    def take(rows: pa.Table) -> None:
        read.extend(rows.to_pylist())

    @dg.job(resource_defs=classic_lake.resources)
    def job() -> None:
        take()

    assert job.execute_in_process(instance=classic_lake.instance).success
    assert read == [{"id": 7}]


def test_a_second_asset_on_the_same_table_is_refused_unless_both_name_it(lake: Lake) -> None:
    lake.materialize(frame_asset("t", "select 1 as a", key_prefix="x"))
    error = lake.failure(frame_asset("t", "select 2 as a", key_prefix="y"))
    assert error.class_name == "TableOwnershipError"
    assert "'x/t'" in str(error)
    assert lake.rows("t", "a") == [1]
    shared = {"iceberg/table": "db.shared", "iceberg/write_disposition": "append"}
    for name in ("one", "two"):
        lake.materialize(frame_asset(name, "select 1 as a", metadata=shared))
    assert lake.rows("shared", "a") == [1, 1]


@pytest.mark.full
def test_an_asset_takes_its_table_over_when_its_key_has_changed(classic_lake: Lake) -> None:
    lake = classic_lake
    lake.materialize(frame_asset("t", "select 1 as id", key_prefix="old"))
    for former, is_allowed in (("wrong/t", False), ("old/t", True), ("old/t", True)):
        renamed = frame_asset("t", "select 2 as id", key_prefix="new", metadata={"iceberg/takes_over": former})
        result = lake.materialize(renamed, raise_on_error=False)
        assert result.success == is_allowed
    assert (lake.rows("t"), lake.table("t").properties["dagster.asset_key"]) == ([2], "new/t")
    assert len(lake.table("t").history()) == 3
    error = lake.failure(frame_asset("t", "select 3 as id", key_prefix="old"))
    assert "found a table of the asset 'new/t'" in str(error)


@pytest.mark.full
def test_a_view_under_the_table_s_name_is_told_from_a_table(lake: Lake) -> None:
    lake.materialize(frame_asset("t", "select 1 as a"))
    lake.session.sql("create view lake.db.v as select 1 as a")
    error = lake.failure(frame_asset("v", "select 1 as a"))
    assert error.class_name == "NotAnIcebergTableError"
    assert "a view" in str(error)
    below = frame_asset("files", "select 1 as b", metadata={"schema": "db.t"})
    assert lake.failure(below).class_name == "NotAnIcebergTableError", "Spark finds the metadata table db.t.files"
    assert not lake.spark.pyiceberg_catalog.table_exists(("db", "t", "files"))


def test_addressing_keys_at_run_time_are_refused(classic_lake: Lake) -> None:
    @dg.asset(io_manager_key="iceberg")
    def t(spark: IcebergSparkResource) -> dg.Output[Any]:
        return dg.Output(spark.spark_session.range(1), metadata={"iceberg/table": "db.other"})

    error = classic_lake.failure(t)
    assert error.class_name == "MetadataKeyError"
    assert "`iceberg/table`" in str(error)
    assert not classic_lake.exists("t")


@pytest.mark.full
def test_an_unknown_key_of_an_input_is_named(classic_lake: Lake) -> None:
    upstream = frame_asset("up", "select 1 as a")
    classic_lake.materialize(upstream)

    @dg.asset(ins={"up": dg.AssetIn(metadata={"iceberg/snapshot": 1})})
    def reader(up: Any) -> None: ...

    error = classic_lake.failure(reader, upstream.to_source_asset(), selection=[reader])
    assert error.class_name == "MetadataKeyError"
    assert "iceberg/snapshot_id" in str(error)


@pytest.mark.full
def test_an_unknown_annotation_of_an_input_lists_the_known_ones(classic_lake: Lake) -> None:
    upstream = frame_asset("up", "select 1 as a")
    classic_lake.materialize(upstream)

    @dg.asset
    def reader(up: dict) -> None: ...  # type: ignore[type-arg]

    error = classic_lake.failure(reader, upstream.to_source_asset(), selection=[reader])
    assert "pyarrow.Table" in str(error)


@pytest.mark.timeout(60)
def test_a_catalog_that_does_not_answer_is_found_in_seconds(classic_lake: Lake) -> None:
    spark = IcebergSparkResource(catalog=RestCatalog(uri=f"http://127.0.0.1:{free_port()}"))
    lake = Lake(spark, IcebergPySparkIOManager(spark=spark), classic_lake.instance, classic_lake.directory)

    @dg.asset(io_manager_key="iceberg")
    def t() -> Any:
        return classic_lake.session.range(1)

    error = lake.failure(t)
    assert error.class_name == "CatalogUnavailableError"
    assert error.allow_retries


@pytest.mark.full
def test_the_embedded_catalog_lies_under_the_instance(classic_lake: Lake, tmp_path: Any) -> None:
    spark = IcebergSparkResource(spark_config=dict(classic_lake.spark.spark_config))
    assert isinstance(spark.catalog, EmbeddedCatalog)
    with local_instance(tmp_path) as instance:
        resources = {"iceberg": IcebergPySparkIOManager(spark=spark), "spark": spark}
        result = dg.materialize([frame_asset("t", "select 1 as a")], resources=resources, instance=instance)
        storage = instance.storage_directory()
    (uri,) = [
        event.step_materialization_data.materialization.metadata["dagster/uri"].value
        for event in result.get_asset_materialization_events()
    ]
    assert uri == f"file://{storage}/iceberg/warehouse/public/t"


def test_a_run_without_partitions_does_not_replace_all_of_them(classic_lake: Lake) -> None:
    keys = dg.StaticPartitionsDefinition(["a", ""])
    metadata = {"partition_expr": "k"}
    asset = frame_asset("t", "select '{key}' as k", partitions_def=keys, metadata=metadata)
    classic_lake.materialize(asset, partition_key="a")
    careless = frame_asset("t", "select 'b' as k", partitions_def=keys, metadata=metadata)
    error = classic_lake.failure(careless)
    assert "expected a run of some of the asset's partitions, found a run without partitions" in str(error)
    assert classic_lake.rows("t", "k") == ["a"]


@pytest.mark.by_spark
@pytest.mark.full
def test_the_error_of_a_python_function_is_told(lake: Lake) -> None:
    def refuse(batches: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for _ in batches:
            message = "bad row"
            raise ValueError(message)
        yield pd.DataFrame()

    error = lake.failure(frame_asset("t", lambda spark: spark.range(1).mapInPandas(refuse, "id bigint")))
    assert error.class_name == "WriteFailedError"
    assert "found ValueError: bad row. Hint: " in str(error)


@pytest.mark.by_spark
@pytest.mark.full
def test_a_session_that_stages_writes_elsewhere_is_refused(lake: Lake) -> None:
    setting, wap = "spark.wap.branch", {"iceberg/table_properties": {"write.wap.enabled": True}}
    lake.session.conf.set(setting, "audit")
    try:
        error = lake.failure(frame_asset("t", "select 1 as id", metadata=wap))
        assert (error.class_name, error.allow_retries) == ("ConfigurationError", False)
        assert f"expected a session without `{setting}`" in str(error)
        assert not lake.exists("t")
        assert lake.materialize(frame_asset("other", "select 1 as id")).success
    finally:
        lake.session.conf.unset(setting)

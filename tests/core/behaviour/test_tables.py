"""How tables and namespaces come to be, and what happens to those that others make, drop or move."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog
from tests.lakes import SPARK_CONF, Lake, frame_asset

pytestmark = pytest.mark.spark

ONE = frame_asset("t", "select 1 as id")
TWO = frame_asset("t", "select 2 as id")


def test_a_table_that_must_be_there_is_not_created(lake: Lake) -> None:
    error = lake.with_options(auto_create_table=False).failure(ONE)
    assert error.class_name == "ConfigurationError"
    assert "create it with the columns id int" in str(error)
    assert not error.allow_retries
    assert lake.spark.pyiceberg_catalog.list_namespaces() == []
    lake.materialize(ONE)
    lake.with_options(auto_create_table=False).materialize(TWO)
    assert lake.rows("t", "id") == [2]


@pytest.mark.full
def test_partition_fields_of_one_decimal_type_are_refused_by_name(classic_lake: Lake) -> None:
    rows = "select cast(1 as decimal(20, 0)) as a, cast(2 as decimal(20, 0)) as b, 'x' as part"
    fields = {"iceberg/partition_by": ["a", "b"], "partition_expr": "part"}
    asset = frame_asset("t", rows, metadata=fields, partitions_def=dg.StaticPartitionsDefinition(["x"]))
    classic_lake.materialize(asset, partition_key="x")  # it has no manifests to read yet
    error = classic_lake.failure(asset, partition_key="x")
    assert error.class_name == "ConfigurationError"
    assert "expected at most one partition field of each decimal type" in str(error)
    assert len(classic_lake.session.table("lake.db.t").collect()) == 1


@pytest.mark.full
def test_a_namespace_that_must_be_there_is_not_created(lake: Lake) -> None:
    careful = lake.with_options(auto_create_namespace=False)
    error = careful.failure(ONE)
    assert error.class_name == "ConfigurationError"
    assert "`auto_create_namespace`" in str(error)
    assert lake.spark.pyiceberg_catalog.list_namespaces() == []
    lake.spark.pyiceberg_catalog.create_namespace("db")
    careful.materialize(ONE)
    assert lake.rows("t", "id") == [1]


def test_a_namespace_is_created_with_properties_and_keeps_its_own(lake: Lake) -> None:
    lake.with_options(namespace_properties={"team": "nyc's own", "comment": "Flights."}).materialize(ONE)
    lake.with_options(namespace_properties={"team": "nobody"}).materialize(frame_asset("u", "select 1 as id"))
    properties = lake.spark.pyiceberg_catalog.load_namespace_properties("db")
    assert (properties["team"], properties["comment"]) == ("nyc's own", "Flights.")


def test_properties_that_namespaces_cannot_share_are_refused(classic_lake: Lake) -> None:
    error = classic_lake.with_options(namespace_properties={"location": "x"}).failure(ONE)
    assert error.class_name == "ConfigurationError"
    assert "`namespace_properties`" in str(error)
    assert classic_lake.spark.pyiceberg_catalog.list_namespaces() == []


def test_namespaces_are_nested(lake: Lake) -> None:
    asset = frame_asset("t", "select 1 as id", metadata={"schema": "raw.nyc"})
    for _ in range(2):
        lake.materialize(asset)
    table = lake.spark.pyiceberg_catalog.load_table(("raw", "nyc", "t"))
    assert table.scan().to_arrow().to_pydict() == {"id": [1]}
    assert len(table.snapshots()) == 2
    assert table.location().endswith("/raw/nyc/t")


@pytest.mark.full
@pytest.mark.parametrize("template", ["{namespace}/tables/{table}", "{wh}/elsewhere/{namespace}/{table}"])
def test_tables_are_placed_by_a_template(classic_lake: Lake, template: str) -> None:
    lake = classic_lake
    lake.materialize(ONE)
    where = template.replace("{wh}", str(lake.directory))
    placed = lake.with_options(table_location=where)
    placed.materialize(
        TWO,
        frame_asset("u", "select 3 as id"),
        frame_asset("v", "select 4 as id", metadata={"iceberg/location": f"file://{lake.directory}/own"}),
    )
    assert lake.table("t").location().endswith("/wh/db/t"), "a table stays where it is"
    assert lake.table("u").location().endswith(where.format(namespace="db", table="u"))
    assert lake.table("v").location().endswith("/own")
    assert (lake.rows("t"), lake.rows("u"), lake.rows("v")) == ([2], [3], [4])


def test_a_table_that_was_dropped_is_made_again(lake: Lake) -> None:
    lake.materialize(ONE)
    lake.spark.pyiceberg_catalog.drop_table("db.t")
    lake.materialize(TWO)
    assert lake.rows("t", "id") == [2]
    assert len(lake.summaries("t")) == 1


def test_a_table_that_was_renamed_goes_on_under_the_name_that_the_definition_follows(lake: Lake) -> None:
    lake.materialize(ONE)
    lake.spark.pyiceberg_catalog.rename_table("db.t", "db.moved")
    lake.materialize(frame_asset("t", "select 2 as id", metadata={"iceberg/table": "db.moved"}))
    assert lake.rows("moved", "id") == [2]
    assert len(lake.summaries("moved")) == 2
    assert not lake.exists("t")
    lake.materialize(ONE)
    assert (lake.rows("moved", "id"), lake.rows("t", "id")) == ([2], [1])


@pytest.mark.full
def test_a_table_that_was_registered_from_its_metadata_is_adopted_with_its_history(lake: Lake) -> None:
    """As one moves tables between catalogs."""
    lake.materialize(ONE)
    catalog = lake.spark.pyiceberg_catalog
    metadata_location = lake.table("t").metadata_location
    catalog.drop_table("db.t")
    catalog.register_table("db.t", metadata_location)
    lake.materialize(TWO)
    assert lake.rows("t", "id") == [2]
    assert len(lake.summaries("t")) == 2
    assert lake.table("t").properties["dagster.asset_key"] == "t"


def test_a_table_that_others_made_is_adopted_with_what_it_has(lake: Lake) -> None:
    lake.session.sql("create namespace if not exists lake.db").collect()
    lake.session.sql(
        "create table lake.db.t (id int, note string) using iceberg partitioned by (bucket(2, id)) "
        "tblproperties ('team' = 'somebody')"
    ).collect()
    lake.session.sql("insert into lake.db.t values (7, 'theirs')").collect()
    lake.materialize(frame_asset("t", "select 2 as id", metadata={"iceberg/write_disposition": "append"}))
    table = lake.table("t")
    assert lake.rows("t", "id", "note") == [(2, None), (7, "theirs")]
    assert [field.name for field in table.spec().fields] == ["id_bucket"]
    assert (table.properties["team"], table.properties["dagster.asset_key"]) == ("somebody", "t")


@pytest.mark.full
@pytest.mark.parametrize("name", ["my-lake", "lake_2", "Zürich", "select"])
def test_a_catalog_whose_name_needs_quoting_is_used(tmp_path: Path, name: str) -> None:
    catalog = SqlCatalog(name=name, uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "wh"))
    spark = IcebergSparkResource(catalog=catalog, spark_config=SPARK_CONF)
    merged = frame_asset(
        "t",
        "select 1 as id",
        metadata={"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"], "iceberg/sort_by": ["id"]},
    )
    with dg.DagsterInstance.ephemeral() as instance:
        lake = Lake(spark, IcebergPySparkIOManager(spark=spark, namespace="db"), instance, tmp_path)
        for _ in range(2):
            lake.materialize(merged)
        assert lake.rows("t", "id") == [1]
        assert len(lake.summaries("t")) == 2


@pytest.mark.full
def test_the_name_that_a_partition_field_would_get_stands_in_the_way_of_no_column(lake: Lake) -> None:
    days = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-10")
    of_a_day = "select timestamp'2024-01-02 12:00:00' as at, 1 as v"
    with_day = f"select *, date'2024-01-02' as at_day, 'x' as at_day_2 from ({of_a_day})"
    options: Any = {"partitions_def": days, "metadata": {"partition_expr": "at"}}
    for _ in range(2):
        lake.materialize(frame_asset("t", with_day, **options), partition_key="2024-01-02")
    assert [field.name for field in lake.table("t").spec().fields] == ["at_day_3"]
    lake.materialize(frame_asset("late", of_a_day, **options), partition_key="2024-01-02")
    error = lake.failure(frame_asset("late", with_day, **options), partition_key="2024-01-02")
    assert (error.class_name, error.allow_retries) == ("PartitioningError", False)
    assert (lake.rows("t", "v"), lake.rows("late", "v")) == ([1], [1])

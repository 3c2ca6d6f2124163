"""Why rows are as they are: through compaction, merges and expiry.

docs/lineage.md: Why is this row here?; After expiry
"""

from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from dagster_iceberg_spark.features.lineage.lineage_catalogs import CatalogTables, catalog_tables, table_named
from dagster_iceberg_spark.features.lineage.why import Explanation, Origin, recorded_copies
from tests.features.maintenance.maintaining import maintain
from tests.lakes import Lake, frame_asset

pytestmark = pytest.mark.spark

KEYS = dg.StaticPartitionsDefinition(["a", "b"])


def tables_in(lake: Lake, *names: str) -> CatalogTables:
    return CatalogTables(lake.spark, [lake.io_manager.table_of(dg.AssetSpec(name)) for name in names])


def why(lake: Lake, table: str, where: str, *others: str, is_deep: bool = False) -> list[Origin]:
    tables = tables_in(lake, table, *others)
    _, state = table_named([tables], f"db.{table}", action="explain")
    return Explanation(tables, state, is_deep=is_deep).origins(where, limit=10)


def runs_of(origins: list[Origin]) -> list[str | None]:
    return [None if origin.entry is None else origin.entry.run_id for origin in origins]


def keyed(version: int) -> dg.AssetsDefinition:
    return frame_asset(
        "t",
        "select '{key}' as k, id from range(3)",
        partitions_def=KEYS,
        metadata={"partition_expr": "k", "iceberg/partition_by": [], "iceberg/format_version": version},
        code_version="7",
    )


@pytest.mark.full
@pytest.mark.each_engine
def test_format_3_tells_the_run_of_a_row_through_compaction(lake: Lake) -> None:
    asset = keyed(3)
    first, second = (lake.materialize(asset, partition_key=key) for key in "ab")
    maintain(lake, asset)
    assert runs_of(why(lake, "t", "k = 'a' and id = 1")) == [first.run_id]
    newest, oldest = why(lake, "t", "id = 1")
    assert runs_of([newest, oldest]) == [second.run_id, first.run_id]
    assert (oldest.rows, oldest.code_version, oldest.doubt) == ([{"k": "a", "id": 1}], "7", None)


@pytest.mark.full
def test_older_formats_tell_the_run_until_a_compaction_and_say_so(lake: Lake) -> None:
    asset = keyed(2)
    first, _ = (lake.materialize(asset, partition_key=key) for key in "ab")
    (origin,) = why(lake, "t", "k = 'a' and id = 1")
    assert (runs_of([origin]), origin.doubt) == ([first.run_id], None)
    maintain(lake, asset)
    (origin,) = why(lake, "t", "k = 'a' and id = 1")
    assert origin.entry is not None
    assert origin.entry.change == "compaction"
    assert "Format version 3" in (origin.doubt or "")


@pytest.mark.full
def test_rows_that_a_merge_leaves_are_in_doubt_before_format_3(lake: Lake) -> None:
    metadata = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}
    for version, name in ((2, "old"), (3, "new")):
        options = {**metadata, "iceberg/format_version": version}
        first = lake.materialize(frame_asset(name, "select id, 1 as v from range(2)", metadata=options))
        second = lake.materialize(frame_asset(name, "select 1L as id, 2 as v", metadata=options))
        left, changed = why(lake, name, "id = 0"), why(lake, name, "id = 1")
        assert runs_of(changed) == [second.run_id]
        assert runs_of(left) == [second.run_id if version == 2 else first.run_id]
        assert [origin.doubt is None for origin in left] == [version == 3]


@pytest.mark.full
def test_what_was_made_of_a_snapshot_survives_expiry_by_the_ledger(lake: Lake) -> None:
    source = frame_asset("source", "select 1L as id")

    @dg.asset(io_manager_key="iceberg")
    def copied(source: Any) -> Any:
        return source

    first, second = (lake.materialize(source, copied) for _ in range(2))
    read = lake.table("source").snapshots()[0].snapshot_id
    maintain(lake, source, copied)
    tables = tables_in(lake, "source", "copied")
    _, state = table_named([tables], "db.source", action="explain")
    entries = [(entry.run_id, entry.is_expired) for entry in tables.history_of(state).entries()]
    assert entries[-1] == (first.run_id, True)
    assert second.run_id in dict(entries)
    (made,) = tables.provenance().made_of("db.source", read)
    assert (made.table, made.entry.run_id, made.entry.is_expired) == ("db.copied", first.run_id, True)
    assert not made.is_current


@pytest.mark.full
@pytest.mark.parametrize("version", [2, 3])
def test_inputs_are_followed_by_the_keys_that_rows_have_copied(classic_lake: Lake, version: int) -> None:
    lake = classic_lake
    metadata = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"], "iceberg/format_version": version}

    def customers(query: str) -> dg.AssetsDefinition:
        return frame_asset("customers", query, metadata={**metadata, "iceberg/identifier_fields": ["id"]})

    old = lake.materialize(customers("select id, 'old' as name from range(1, 4)"))
    new = lake.materialize(customers("select 2L as id, 'new' as name"))

    @dg.asset(io_manager_key="iceberg")
    def orders(customers: DataFrame) -> DataFrame:
        return customers.where("id < 3").selectExpr("id as customer", "upper(name) as name")

    lake.materialize(customers("select 1"), orders, selection=[orders])
    lake.materialize(customers("select 2L as id, 'newest' as name"))
    tables = tables_in(lake, "customers", "orders")
    _, state = table_named([tables], "db.orders", action="explain")
    explanation = Explanation(tables, state, is_deep=True, copied=recorded_copies(lake.instance))
    by_name = {}
    for origin in explanation.origins("customer > 0", limit=10):
        (read,) = origin.inputs
        by_name = {row["name"]: runs_of([source])[0] for source in read.sources for row in source.rows}
    assert by_name == {"old": old.run_id if version == 3 else new.run_id, "new": new.run_id}
    (origin,) = why(lake, "orders", "customer = 2", "customers", is_deep=True)
    assert [len(source.rows) for source in origin.inputs[0].sources] == [0, 0], "without a record, by partition"


@pytest.mark.full
def test_rows_that_another_engine_wrote_again_are_in_doubt_before_format_3(classic_lake: Lake) -> None:
    lake = classic_lake
    for version, name in ((2, "old"), (3, "new")):
        metadata = {"iceberg/format_version": version}
        first = lake.materialize(frame_asset(name, "select id, 0 as v from range(0, 4, 1, 1)", metadata=metadata))
        lake.session.sql(f"update lake.db.{name} set v = 9 where id = 1")
        (origin,) = why(lake, name, "id = 3")
        assert origin.entry is not None
        assert origin.entry.run_id == (None if version == 2 else first.run_id)
        assert (origin.doubt is None) == (version == 3)
        lake.session.sql(f"insert into lake.db.{name} values (7, 7)")
        assert [origin.doubt for origin in why(lake, name, "id = 7")] == [None]


@pytest.mark.full
def test_rows_of_a_table_that_was_upgraded_are_known_as_well_as_before(classic_lake: Lake) -> None:
    lake = classic_lake
    metadata = {"iceberg/format_version": 2, "iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}
    lake.materialize(frame_asset("t", "select id, 1 as v from range(0, 2, 1, 1)", metadata=metadata))
    second = lake.materialize(frame_asset("t", "select 1L as id, 2 as v", metadata=metadata))
    lake.session.sql("alter table lake.db.t set tblproperties ('format-version' = '3')")
    for _ in range(2):  # row ids are given to older rows by the first commit after the upgrade
        (origin,) = why(lake, "t", "id = 0")
        assert runs_of([origin]) == [second.run_id]
        assert origin.doubt is not None
        lake.session.sql("insert into lake.db.t values (7, 7)")
    assert [origin.doubt for origin in why(lake, "t", "id = 7")] == [None, None]


@pytest.mark.full
def test_inputs_are_followed_within_the_partitions_and_the_changes_that_were_read(classic_lake: Lake) -> None:
    lake, days = classic_lake, dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-03")
    placed = {"partition_expr": "d"}
    up = frame_asset(
        "up",
        "select {start} as d, 1L as id, '{key}' as src",
        partitions_def=days,
        metadata={**placed, "iceberg/identifier_fields": ["id"]},
    )

    @dg.asset(io_manager_key="iceberg", partitions_def=days, metadata=placed)
    def down(up: DataFrame) -> DataFrame:
        return up.select("d", "id")

    ups = {key: lake.materialize(up, partition_key=key) for key in days.get_partition_keys()}
    for key in days.get_partition_keys():
        lake.materialize(up, down, selection=[down], partition_key=key)
    definitions = dg.Definitions(assets=[up, down], resources=lake.resources)
    with catalog_tables([definitions], action="explain") as [tables]:
        _, state = table_named([tables], "db.down", action="explain")
        found = Explanation(tables, state, is_deep=True, copied=recorded_copies(lake.instance)).origins(
            "id = 1", limit=9
        )
    read = {origin.entry.partitions: origin.inputs[0].sources for origin in found if origin.entry}
    assert {key: runs_of(list(sources)) for key, sources in read.items()} == {
        key: [run.run_id] for key, run in ups.items()
    }

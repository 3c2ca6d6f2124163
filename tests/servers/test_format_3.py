"""Format 3 on real catalogs: rows keep their ids when they are published and undone.

docs/releases.md: Limits
docs/undo.md: Limits
"""

from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark import build_release
from dagster_iceberg_spark.catalog.branches import change_tags
from dagster_iceberg_spark.catalog.look import look
from dagster_iceberg_spark.features.releases import release_step as step
from dagster_iceberg_spark.features.releases.undo import undo_run
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.updates import SetTag
from tests.lakes import Lake, frame_asset, metadata_of

pytestmark = [pytest.mark.server, pytest.mark.spark]

PARTITIONS = dg.StaticPartitionsDefinition(["a", "b", "c"])
MODES = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
OPTIONS = {"partition_expr": "k", "iceberg/format_version": 3, "iceberg/table_properties": MODES}


def asset(key: str, *values: int, **options: Any) -> dg.AssetsDefinition:
    query = f"select '{key}' as k, explode(array({', '.join(map(str, values))})) as v"
    metadata = {**OPTIONS, **{f"iceberg/{name}": value for name, value in options.items()}}
    return frame_asset("t", query, partitions_def=PARTITIONS, metadata=metadata)


def rows(lake: Lake) -> list[tuple[Any, ...]]:
    """Return the rows with their ids as Spark reads them, after a look whether pyiceberg reads the same."""
    name = f"{lake.spark.catalog_description.name}.db.t"
    found = [tuple(row) for row in lake.session.sql(f"select k, v, _row_id from {name} order by k, v").collect()]
    assert lake.rows("t", "k", "v") == [row[:2] for row in found]
    assert len({row[2] for row in found}) == len(found), "no two rows have an id in common"
    return found


@pytest.mark.parametrize("catalog", ["rest", "postgresql", "hive", "glue"], indirect=True)
def test_rows_of_format_3_are_released_beside_others_and_undone(
    classic_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = classic_lake
    publish = getattr(step, "publish")  # noqa: B009 - not exported

    def run(*assets: Any, key: str) -> Any:
        return lake.materialize(*assets, partition_key=key)

    def released(key: str, *values: int) -> Any:
        member = asset(key, *values, publish="release")
        return run(member, build_release("release", [member]), key=key)

    run(asset("a", 1, 2, 3), key="a")
    run(asset("b", 4, 5), key="b")
    lake.session.sql(f"delete from {lake.spark.catalog_description.name}.db.t where v = 2")
    others = [row for row in rows(lake) if row[0] == "b"]

    def meanwhile(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(step, "publish", publish)
        run(asset("c", 6), key="c")
        return publish(*args, **options)

    monkeypatch.setattr(step, "publish", meanwhile)
    before = rows(lake)
    result = released("a", 7, 8)
    assert metadata_of(result, "release")["iceberg/tables"].records[0].data["publication"] == "rebase"
    after = rows(lake)
    assert [row[:2] for row in after if row[0] == "a"] == [("a", 7), ("a", 8)]
    assert [row for row in after if row[0] == "b"] == others

    def undo(run_id: str) -> str:
        definitions = dg.Definitions([asset("a", 1)], resources=lake.resources)
        return undo_run(definitions, run_id, instance=lake.instance, report=lambda _: None).by

    by = undo(result.run_id)
    assert [row for row in rows(lake) if row[0] != "c"] == before
    undo(by)
    assert rows(lake) == after
    run(asset("b", 9), key="b")
    assert [row[:2] for row in rows(lake)] == [("a", 7), ("a", 8), ("b", 9), ("c", 6)]


@pytest.mark.parametrize("catalog", ["rest", "postgresql", "hive", "glue"], indirect=True)
def test_default_values_are_set_by_the_catalog(classic_lake: Lake) -> None:
    lake, metadata = classic_lake, {"iceberg/format_version": 3, "iceberg/write_disposition": "append"}

    def rows_of(query: str, **defaults: Any) -> dg.AssetsDefinition:
        return frame_asset("t", query, metadata={**metadata, **({"iceberg/defaults": defaults} if defaults else {})})

    lake.materialize(rows_of("select 1 as id"))
    added = rows_of("select 2 as id, 'US' as region", region="EU")
    lake.materialize(added)
    lake.materialize(rows_of("select 3 as id", region="APAC"))
    found = lake.session.sql(f"select id, region from {lake.spark.catalog_description.name}.db.t order by id").collect()
    assert [tuple(row) for row in found] == [(1, "EU"), (2, "US"), (3, "APAC")] == lake.rows("t", "id", "region")


@pytest.mark.parametrize("catalog", ["glue"], indirect=True)
def test_columns_of_types_that_pyiceberg_lacks_stay(classic_lake: Lake) -> None:
    """pyiceberg moves the pointer, and would leave the column out of Glue's list. A Hive Metastore takes no VARIANT."""
    lake, name = classic_lake, f"{classic_lake.spark.catalog_description.name}.db.t"
    lake.session.sql(f"create namespace if not exists {name.rpartition('.')[0]}")
    lake.session.sql(f"create table {name} (id bigint, v variant) using iceberg tblproperties ('format-version'='3')")
    lake.session.sql(f"""insert into {name} select 1, parse_json('{{"a": 1}}')""")
    description, identifier = lake.spark.catalog_description, TableIdentifier(("db",), "t")
    before = look(description, identifier)
    assert before is not None
    catalog: Any = lake.spark.pyiceberg_catalog
    listed = catalog._get_glue_table("db", "t")["StorageDescriptor"]["Columns"]
    assert [column["Name"] for column in listed] == ["id", "v"]
    assert change_tags(description, identifier, [SetTag("kept", before.refs["main"], 2)])
    after = look(description, identifier)
    assert after is not None
    assert (after.schema, after.refs) == (before.schema, {**before.refs, "kept": before.refs["main"]})
    assert catalog._get_glue_table("db", "t")["StorageDescriptor"]["Columns"] == listed
    lake.session.sql(f"refresh table {name}")
    [row] = lake.session.sql(f"select id, to_json(v) from {name} version as of 'kept'").collect()
    assert tuple(row) == (1, '{"a":1}')

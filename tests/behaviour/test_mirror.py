"""A DuckLake shows the rows of Iceberg tables to DuckDB."""

import json
from typing import Any

import dagster as dg
import pytest

from tests.behaviour.mirroring import DEFAULT_CATALOG, in_order, mirrored, shown, snapshots, state_of, types_shown
from tests.conftest import Lake, frame_asset, hours_asset, metadata_of

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")
DUCKDB_FILE = "duckdb:///{directory}/deep/mirror.db"
ROW = (
    "select {id} as id, 'a text of more than sixteen characters' as name, "
    "named_struct('x', {id}, 'tags', array('p', 'q')) as s, map('k', {id}) as m, cast({id} as decimal(9, 2)) as d, "
    "timestamp '2013-01-01 05:00:00' as ts, timestamp_ntz '2013-01-01 05:00:00' as wall, date '2013-01-01' as day, "
    "double('NaN') as v, X'AA' as raw, true as flag"
)

pytestmark = pytest.mark.spark


def people(query: str, **options: Any) -> dg.AssetsDefinition:
    return frame_asset("people", query, metadata={f"iceberg/{key}": value for key, value in options.items()})


def hours(value: str = "1", **options: Any) -> dg.AssetsDefinition:
    metadata = {"partition_expr": "ts", **{f"iceberg/{key}": value for key, value in options.items()}}
    return hours_asset("hours", value, partitions_def=DAYS, metadata=metadata)


def agrees(lake: Lake, table: str) -> None:
    """Compare what DuckDB reads through the mirror with what pyiceberg reads of the table."""
    assert repr(shown(lake, table)) == repr(in_order(lake.arrow(table)))


@pytest.mark.each_engine
@pytest.mark.parametrize(
    ("mode", "catalog"),
    [
        ("register", DEFAULT_CATALOG),
        ("view", DEFAULT_CATALOG),
        ("copy", DEFAULT_CATALOG),
        ("register", DUCKDB_FILE),
        ("view", DUCKDB_FILE),
        ("copy", DUCKDB_FILE),
    ],
)
def test_a_mirror_shows_every_write(lake: Lake, mode: str, catalog: str) -> None:
    lake = mirrored(lake, mode, catalog)
    lake.materialize(people(ROW.format(id=1)))
    agrees(lake, "people")
    assert types_shown(lake, "people") == {
        "id": "INTEGER",
        "name": "VARCHAR",
        "s": "STRUCT(x INTEGER, tags VARCHAR[])",
        "m": "MAP(VARCHAR, INTEGER)",
        "d": "DECIMAL(9,2)",
        "ts": "TIMESTAMP WITH TIME ZONE",
        "wall": "TIMESTAMP",
        "day": "DATE",
        "v": "DOUBLE",
        "raw": "BLOB",
        "flag": "BOOLEAN",
    }
    append = {"write_disposition": "append"}
    lake.materialize(people(f"{ROW.format(id=2)} union all {ROW.format(id=3)}", **append))
    agrees(lake, "people")
    wider = ROW.format(id=4).replace("4 as id", "bigint(4) as id").replace("decimal(9, 2)", "decimal(12, 2)")
    lake.materialize(people(f"{wider}, 'new' as note", **append))
    agrees(lake, "people")
    renames = {"name": "label", "s.x": "xx"}
    renamed = wider.replace("as name", "as label").replace("'x'", "'xx'")
    lake.materialize(people(renamed, renames=renames, schema_evolution="full", **append))
    agrees(lake, "people")
    assert types_shown(lake, "people")["s"] == "STRUCT(xx INTEGER, tags VARCHAR[])"
    merge = {"write_disposition": "merge", "merge_keys": ["id"], "renames": renames}
    lake.materialize(people(f"{renamed} union all {renamed.replace('(4)', '(9)')}", **merge))
    agrees(lake, "people")
    lake.materialize(people(f"{renamed} where false", **append, renames=renames))
    agrees(lake, "people")
    lake.session.sql("call lake.system.rewrite_data_files(table => 'db.people', options => map('rewrite-all', 'true'))")
    lake.materialize(people(f"{renamed} where false", **append, renames=renames))
    agrees(lake, "people")
    lake.session.sql(
        f"call lake.system.rollback_to_snapshot('db.people', {lake.table('people').history()[2].snapshot_id})"
    )
    lake.materialize(people(f"{renamed} where false", **append, renames=renames))
    agrees(lake, "people")
    assert len(snapshots(lake)) == 8


@pytest.mark.parametrize("mode", ["register", "copy", "view"])
def test_replaced_partitions_are_replaced_in_the_mirror(lake: Lake, mode: str) -> None:
    lake = mirrored(lake, mode)
    for day, value in (("2013-01-01", "1"), ("2013-01-02", "2"), ("2013-01-01", "3")):
        result = lake.materialize(hours(value), partition_key=day)
        agrees(lake, "hours")
    state, head = state_of(metadata_of(result, "hours")), lake.head("hours")
    assert (state["state"], state["table"], state["mode"]) == ("current", "db.hours", mode)
    assert state["snapshot_id"] == str(head.snapshot_id)
    _, message, extra = snapshots(lake)[-1]
    assert message == f"hours: snapshot {head.snapshot_id} of lake.db.hours"
    assert json.loads(extra) == {
        "iceberg_table": "lake.db.hours",
        "iceberg_snapshot_id": str(head.snapshot_id),
        "asset_key": "hours",
        "run_id": result.run_id,
    }

"""A DuckLake shows the rows of Iceberg tables to DuckDB.

docs/mirror.md: Who wants which mode; What the mirror promises; What you must not do
"""

import json
from typing import Any, Final

import dagster as dg
import pytest

from dagster_iceberg_spark import build_mirror_checks, build_release, undo_run
from dagster_iceberg_spark.features.mirror.options import MirrorMode
from dagster_iceberg_spark.features.releases.environments import promote_environment
from tests.features.maintenance.maintaining import done, maintain
from tests.features.mirror.mirroring import (
    DEFAULT_CATALOG,
    compare,
    duckdb_of,
    in_order,
    mirrored,
    shown,
    snapshots,
    state_of,
    types_shown,
)
from tests.lakes import Lake, dying, error_of, frame_asset, hours_asset, metadata_of, resuming

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")
DUCKDB_FILE = "duckdb:///{directory}/deep/mirror.db"
ROW = (
    "select {id} as id, 'a text of more than sixteen characters' as name, "
    "named_struct('x', {id}, 'tags', array('p', 'q')) as s, map('k', {id}) as m, cast({id} as decimal(9, 2)) as d, "
    "timestamp '2013-01-01 05:00:00' as ts, timestamp_ntz '2013-01-01 05:00:00' as wall, date '2013-01-01' as day, "
    "double('NaN') as v, X'AA' as raw, true as flag"
)

CLASSIC: Final = pytest.mark.parametrize("engine", ["classic"], indirect=True)
"""For what the engine makes no difference to: the mirror follows the commit."""

pytestmark = pytest.mark.spark


def people(query: str, **options: Any) -> dg.AssetsDefinition:
    return frame_asset("people", query, metadata={f"iceberg/{key}": value for key, value in options.items()})


def hours(value: str = "1", **options: Any) -> dg.AssetsDefinition:
    metadata = {"partition_expr": "ts", **{f"iceberg/{key}": value for key, value in options.items()}}
    return hours_asset("hours", value, partitions_def=DAYS, metadata=metadata)


def agrees(lake: Lake, table: str) -> None:
    """Compare what DuckDB reads through the mirror with what pyiceberg reads of the table."""
    assert repr(shown(lake, table)) == repr(in_order(lake.arrow(table)))


@pytest.mark.sample(3)
@pytest.mark.full
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
def test_a_mirror_shows_every_write(lake: Lake, mode: MirrorMode, catalog: str) -> None:
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


@pytest.mark.full
@pytest.mark.parametrize("mode", ["register", "copy", "view"])
@CLASSIC
def test_replaced_partitions_are_replaced_in_the_mirror(lake: Lake, mode: MirrorMode) -> None:
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


@pytest.mark.sample(3)
@pytest.mark.full
@pytest.mark.parametrize(
    ("mode", "version", "how"),
    [
        ("register", "2", "merge-on-read"),
        ("view", "2", "merge-on-read"),
        ("copy", "2", "merge-on-read"),
        ("register", "3", "copy-on-write"),
        ("view", "3", "merge-on-read"),
        ("copy", "3", "merge-on-read"),
    ],
)
def test_deleted_rows_are_deleted_in_the_mirror(lake: Lake, mode: MirrorMode, version: str, how: str) -> None:
    """Merge-on-read leaves position deletes, at most one file for each data file, or deletion vectors."""
    lake = mirrored(lake, mode)
    properties = {"write.merge.mode": how, "write.delete.mode": how, "format-version": version}
    options = {"write_disposition": "merge", "merge_keys": ["id"], "table_properties": properties}
    lake.materialize(people("select id, 'a' as n from range(10)", **options))
    for number in (3, 4):
        lake.materialize(people(f"select {number} as id, 'b' as n", **options))
        agrees(lake, "people")
    assert len(shown(lake, "people")) == 10
    assert (int(lake.summaries("people")[-1]["total-position-deletes"]) > 0) == (how == "merge-on-read")


@pytest.mark.sample(2)
@pytest.mark.full
@pytest.mark.parametrize("mode", ["register", "copy", "view"])
@CLASSIC
def test_compactions_and_rollbacks_leave_the_same_rows(lake: Lake, mode: MirrorMode) -> None:
    """A compaction keeps delete files that apply to nothing any longer, until a rollback brings the data file back."""
    lake = mirrored(lake, mode)
    properties = {"write.merge.mode": "merge-on-read", "format-version": "2"}
    merge = {"write_disposition": "merge", "merge_keys": ["id"], "table_properties": properties}
    compact = "call lake.system.rewrite_data_files(table => 'db.people', options => map('rewrite-all', 'true'))"
    lake.materialize(people("select id, 'a' as n from range(10)", **merge))
    lake.materialize(people("select 3L as id, 'b' as n", **merge))
    agrees(lake, "people")
    deleted = lake.head("people").snapshot_id
    for statement in (
        compact,
        f"call lake.system.rollback_to_snapshot('db.people', {deleted})",
        "alter table lake.db.people add partition field n",
        compact,
        "delete from lake.db.people where id = 3",
        "insert into lake.db.people values (20, 'b')",
        "alter table lake.db.people drop partition field n",
        compact,
        "delete from lake.db.people where id = 4",
    ):
        lake.session.sql(statement).collect()
        compare(lake)


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"format-version": "3"}, "no deletion vectors, which DuckLake does not read, found some"),
        ({"write.delete.granularity": "partition"}, "one that covers several"),
        ({"write.format.default": "orc"}, "Parquet files, found a file in ORC"),
    ],
)
@CLASSIC
def test_files_that_ducklake_cannot_read_are_not_registered(lake: Lake, options: Any, found: str) -> None:
    """The rows are committed. A copy shows them, unless DuckDB does not read the files at all."""
    properties = {"write.merge.mode": "merge-on-read", "format-version": "2", **options}
    merge = {"write_disposition": "merge", "merge_keys": ["id"], "table_properties": properties}
    lake.materialize(people("select id, 'a' as n from range(5)", **merge))
    for start in (5, 10, 15):  # with four files, one of Spark's two tasks deletes rows of several
        lake.session.sql(f"insert into lake.db.people select id, 'a' from range({start}, {start + 5})")
    lake = mirrored(lake, "register")
    result = lake.materialize(people("select explode(array(0L, 5L, 10L, 15L)) as id, 'b' as n", **merge))
    state = state_of(metadata_of(result, "people"))
    assert (state["state"], found in state["error"]) == ("behind", True), state
    assert lake.session.table("lake.db.people").count() == 20
    lake = mirrored(lake, "copy")
    result = lake.materialize(people("select 3L as id, 'c' as n", **merge))
    if "ORC" in found:
        assert "'ORC' not supported" in state_of(metadata_of(result, "people"))["error"]
    else:
        agrees(lake, "people")


@CLASSIC
def test_an_asset_chooses_its_name_and_its_mode(lake: Lake) -> None:
    lake = mirrored(lake, "view")
    named = frame_asset("people", "select 1 as id", metadata={"iceberg/mirror": {"table": "a.b.c", "mode": "register"}})
    without = [
        frame_asset(name, "select 1 as id", metadata={"iceberg/mirror": value})
        for name, value in (("x", None), ("y", False))
    ]
    result = lake.materialize(named, *without)
    state = state_of(metadata_of(result, "people"))
    assert (state["table"], state["mode"], state["state"]) == ("`a.b`.c", "register", "current")
    with duckdb_of(lake) as connection:
        assert connection.sql('from m."a.b".c').fetchall() == [(1,)]
        assert connection.sql("select count(*) from duckdb_views() where database_name = 'm'").fetchall() == [(0,)]
    assert all("iceberg/mirror_state" not in metadata_of(result, name) for name in ("x", "y"))


@pytest.mark.full
@CLASSIC
def test_without_a_mirror_nothing_is_mirrored_and_settings_are_refused(lake: Lake) -> None:
    result = lake.materialize(people("select 1 as id", mirror=False))
    assert "iceberg/mirror_state" not in metadata_of(result, "people")
    error = lake.failure(people("select 2 as id", mirror={"mode": "view"}))
    assert (error.class_name, error.allow_retries) == ("MetadataKeyError", False)
    assert "set `mirror=DuckLakeMirror(catalog=...)` of the IO manager" in str(error)
    assert lake.rows("people") == [1]


def test_a_failure_warns_and_the_next_materialization_catches_up(lake: Lake) -> None:
    (lake.directory / "deep").write_text("a file in the place of a directory")
    lake = mirrored(lake, "register")
    asset = people("select 1 as id", write_disposition="append")
    checks = build_mirror_checks([asset])
    result = lake.materialize(asset, *checks)
    state = state_of(metadata_of(result, "people"))
    assert (state["state"], "expected a directory" in state["error"]) == ("behind", True)
    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert lake.rows("people") == [1]
    (lake.directory / "deep").unlink()
    result = lake.materialize(asset, *checks)
    assert [item.passed for item in result.get_asset_check_evaluations()] == [True]
    assert [row["id"] for row in shown(lake, "people")] == [1, 1]


@pytest.mark.full
@CLASSIC
def test_a_failure_can_fail_the_step_after_its_commit(kept_lake: Lake) -> None:
    (kept_lake.directory / "deep").write_text("a file in the place of a directory")
    lake = mirrored(kept_lake, "register", on_failure="error")
    asset = people("select 1 as id", write_disposition="append")
    result = lake.materialize(asset, raise_on_error=False)
    error = error_of(result)
    assert (error.class_name, error.allow_retries) == ("MirrorFailedError", False)
    assert str(error).startswith("The rows of db.people are committed, but its mirror does not show them yet. Cannot")
    (lake.directory / "deep").unlink()
    lake.materialize(asset, tags=resuming(result.run_id))
    assert lake.rows("people") == [1]
    assert [row["id"] for row in shown(lake, "people")] == [1]


@pytest.mark.full
def test_a_retry_after_the_mirror_mirrors_nothing_twice(kept_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = mirrored(kept_lake, "register")
    asset = people("select 1 as id", write_disposition="append")
    with dying(monkeypatch):
        died = lake.materialize(asset, raise_on_error=False)
    assert not died.success
    for _ in range(2):
        lake.materialize(asset, tags=resuming(died.run_id))
    assert [row["id"] for row in shown(lake, "people")] == lake.rows("people")
    assert len(snapshots(lake)) == len({item[2] for item in snapshots(lake)})


@pytest.mark.sample(2)
@pytest.mark.full
@pytest.mark.parametrize("mode", ["register", "view", "copy"])
def test_staged_rows_are_mirrored_when_they_are_published(lake: Lake, mode: MirrorMode) -> None:
    lake = mirrored(lake, mode)
    audits = {"small": "id < 10"}
    lake.materialize(people("select 1 as id", audits=audits))
    assert shown(lake, "people") == [{"id": 1}]
    lake.failure(people("select 20 as id", audits=audits))
    assert shown(lake, "people") == [{"id": 1}]
    lake.materialize(people("select 2 as id", audits=audits))
    assert shown(lake, "people") == [{"id": 2}]
    assert len(snapshots(lake)) == 2


@pytest.mark.full
@CLASSIC
def test_a_release_and_an_undo_are_mirrored(lake: Lake) -> None:
    lake = mirrored(lake, "register")
    lake.materialize(people("select 1 as id"))
    asset = people("select 2 as id", publish="release")
    staged = lake.materialize(asset)
    assert "iceberg/mirror_state" not in metadata_of(staged, "people")
    assert shown(lake, "people") == [{"id": 1}]
    result = lake.materialize(asset, build_release("release", [asset]))
    assert metadata_of(result, "release")["iceberg/mirror_state"]["db.people"]["state"] == "current"
    assert shown(lake, "people") == [{"id": 2}]
    definitions = dg.Definitions([asset], resources=lake.resources)
    undo_run(definitions, result.run_id, report=lambda _: None)
    assert (lake.rows("people"), shown(lake, "people")) == ([1], [{"id": 1}])


@pytest.mark.full
@CLASSIC
def test_an_environment_is_mirrored_when_it_is_promoted(lake: Lake) -> None:
    production = mirrored(lake, "register")
    production.materialize(people("select 1 as id"))
    environment = mirrored(lake, "register", environment="pr_1")
    result = environment.materialize(people("select 2 as id"))
    assert "iceberg/mirror_state" not in metadata_of(result, "people")
    assert shown(production, "people") == [{"id": 1}]
    definitions = dg.Definitions([people("select 2 as id")], resources=production.resources)
    promote_environment(definitions, "pr_1", report=lambda _: None)
    assert shown(production, "people") == [{"id": 2}]


@pytest.mark.sample(2)
@pytest.mark.full
@pytest.mark.parametrize("mode", ["register", "view"])
@CLASSIC
def test_maintenance_keeps_what_the_mirror_shows_and_the_mirror_follows(lake: Lake, mode: MirrorMode) -> None:
    lake = mirrored(lake, mode)
    asset = people("select 1 as id", write_disposition="append")
    lake.materialize(asset)
    mirrored_id = lake.head("people").snapshot_id
    plain = lake.with_options()
    for _ in range(4):
        plain.materialize(asset)
    metadata = maintain(lake, asset)
    assert any("compact" in action for action in done(metadata["people"]))
    assert lake.table("people").snapshot_by_id(mirrored_id) is not None
    agrees(lake, "people")
    maintain(lake, asset)
    assert lake.table("people").snapshot_by_id(mirrored_id) is None
    agrees(lake, "people")

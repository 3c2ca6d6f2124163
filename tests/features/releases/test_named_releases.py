"""Releases with a name: a tag of all tables, set by the commits that publish them.

docs/releases.md: A name
"""

import sys
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from dagster_iceberg_spark import HadoopCatalog, build_release
from dagster_iceberg_spark.errors import ConfigurationError, IcebergSparkError
from dagster_iceberg_spark.features.releases.environments import points_diff
from dagster_iceberg_spark.features.releases.plan.branch_diff import KeyChanges
from dagster_iceberg_spark.features.releases.release_step import ReleaseStep
from tests.features.releases.test_releases import DAY, OTHER_DAY, before_release, doubled, hours, released, seen
from tests.lakes import Lake, annotation_of, error_of, metadata_of, open_lake, resuming

DAY_MS = 24 * 60 * 60 * 1000


def named(value: str = "1", name: str = "{partition}", **options: Any) -> list[Any]:
    members = [hours(value), doubled()]
    return [*members, build_release("release", members, name=name, **options)]


def tags(lake: Lake, name: str) -> dict[str, int]:
    refs = lake.table(name).metadata.refs
    return {key: ref.snapshot_id for key, ref in refs.items() if ref.snapshot_ref_type.value == "tag"}


def reader_of(lake: Lake) -> dg.AssetsDefinition:
    @dg.asset(name="newest", ins={"hours": dg.AssetIn()})
    def newest(hours: annotation_of(DataFrame, lake)) -> int:  # type: ignore[valid-type]
        return int(hours.agg({"v": "max"}).first()[0])

    return newest


@pytest.mark.spark
@pytest.mark.each_engine
def test_all_tables_get_the_tag_at_the_instant_of_the_publication(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    during: list[Any] = []
    before_release(monkeypatch, lambda: during.append([tags(lake, name) for name in ("hours", "doubled")]))
    first = lake.materialize(*named(retain="400 days"), partition_key=DAY)
    heads = {name: lake.head(name).snapshot_id for name in ("hours", "doubled")}
    lake.materialize(*named("3"), partition_key=OTHER_DAY)
    assert during == [[{}, {}]]
    assert metadata_of(first, "release")["iceberg/release"] == DAY
    moved = [lake.table(name).metadata.snapshot_log[-1].timestamp_ms for name in ("hours", "doubled")]
    assert moved[0] == moved[1], "no instant lies between the tables"
    for name in ("hours", "doubled"):
        assert tags(lake, name) == {DAY: heads[name], OTHER_DAY: lake.head(name).snapshot_id}
        assert lake.table(name).metadata.refs[DAY].max_ref_age_ms == 400 * DAY_MS
        assert lake.table(name).metadata.refs[OTHER_DAY].max_ref_age_ms is None

    @dg.asset(ins={"hours": dg.AssetIn(metadata={"iceberg/ref": DAY})})
    def reader(hours: annotation_of(DataFrame, lake)) -> int:  # type: ignore[valid-type]
        return int(hours.agg({"v": "max"}).first()[0])

    result = lake.materialize(reader, *named(), selection=[reader])
    assert result.output_for_node("reader") == 1
    by_tag = lake.materialize(reader_of(lake), *named(), selection=["newest"], tags={"iceberg/as_of_release": DAY})
    assert by_tag.output_for_node("newest") == 1
    assert lake.materialize(reader_of(lake), *named(), selection=["newest"]).output_for_node("newest") == 3


@pytest.mark.spark
def test_a_table_that_the_run_has_not_written_is_tagged_where_it_is(lake: Lake) -> None:
    lake.materialize(*named(name="weekly"), partition_key=DAY)
    before = lake.head("hours").snapshot_id
    assets = named("3", name="weekly")
    lake.materialize(*assets, selection=[assets[1], assets[2]], partition_key=DAY)
    assert tags(lake, "hours") == {"weekly": before}
    assert tags(lake, "doubled") == {"weekly": lake.head("doubled").snapshot_id}
    moved = lake.materialize(*assets, selection=[assets[0], assets[2]], partition_key=DAY)
    assert metadata_of(moved, "release")["iceberg/atomic"] is True
    assert tags(lake, "hours") == {"weekly": lake.head("hours").snapshot_id}, "a name that exists moves"


@pytest.mark.spark
def test_a_writer_that_moves_another_table_delays_the_release(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.materialize(*released(), partition_key=DAY)
    assets = named("3", name="weekly")
    before_release(monkeypatch, lambda: lake.session.sql("DELETE FROM lake.db.hours WHERE v = 1"))
    lake.materialize(*assets, selection=[assets[1], assets[2]], partition_key=DAY)
    assert tags(lake, "hours") == {"weekly": lake.head("hours").snapshot_id}
    assert seen(lake)[0] == []


@pytest.mark.spark
def test_a_release_that_is_resumed_after_its_commit_leaves_the_tags(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.materialize(*named(name="weekly"), partition_key=DAY)
    assets = named("3", name="weekly")
    with monkeypatch.context() as patched:
        patched.setattr(ReleaseStep, "_result", lambda *_, **__: sys.exit("died"))
        run = lake.materialize(*assets, selection=[assets[1], assets[2]], partition_key=DAY, raise_on_error=False)
    before = {name: tags(lake, name) for name in ("hours", "doubled")}
    lake.materialize(hours("9", **{"iceberg/publish": "step"}), partition_key=DAY)
    again = lake.materialize(*assets, selection=[assets[2]], partition_key=DAY, tags=resuming(run.run_id))
    assert again.success
    assert {name: tags(lake, name) for name in ("hours", "doubled")} == before


@pytest.mark.spark
@pytest.mark.full
def test_an_engine_tags_where_pyiceberg_cannot_commit(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("lake")
    for lake in open_lake(HadoopCatalog(warehouse=str(directory / "wh")), directory, None):
        lake.materialize(*named(name="weekly"), partition_key=DAY)
        assets = named("3", name="weekly")
        result = lake.materialize(*assets, selection=[assets[0], assets[2]], partition_key=OTHER_DAY)
        assert metadata_of(result, "release")["iceberg/atomic"] is False
        for name in ("hours", "doubled"):
            assert tags(lake, name) == {"weekly": lake.head(name).snapshot_id}


@pytest.mark.spark
def test_two_releases_are_compared(lake: Lake) -> None:
    for value, day in (("1", DAY), ("3", OTHER_DAY), ("5", DAY)):
        lake.materialize(*named(value, name=f"r{value}"), partition_key=day)
    definitions = dg.Definitions(named(), resources=lake.resources)

    def between(before: str, after: str, **options: Any) -> dict[str, Any]:
        return {str(diff.table): diff for diff in points_diff(definitions, before, after, **options)}

    added = between("release/r1", "release/r3")
    assert {table: (diff.added_rows, diff.removed_rows) for table, diff in added.items()} == {
        "db.doubled": (24, 0),
        "db.hours": (24, 0),
    }
    changed = between("release/r3", "release/r5", by_key=True)["db.hours"]
    assert (changed.added_rows, changed.removed_rows) == (24, 24)
    assert changed.keys == KeyChanges(added=24, removed=24)
    assert between("release/r5", "release/r5")["db.hours"].added_rows == 0
    for point, message in (("release/x", "release: r1, r3, r5"), ("nothing", "such as release/2026-11")):
        with pytest.raises(IcebergSparkError, match=message):
            points_diff(definitions, "release/r1", point)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "{day}"}, "expected a `name` such as `2026-11` or `{partition}`, found '{day}'"),
        ({"name": "main"}, "found 'main'"),
        ({"name": ""}, "found ''"),
        ({"name": "{"}, "and `retain` such as `400 days`"),
        ({"name": "x", "retain": "long"}, "and `retain` such as `400 days`"),
        ({"retain": "1 day"}, "expected a `name` for what is retained"),
    ],
)
def test_what_is_no_name_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build_release("release", [hours()], **options)


@pytest.mark.spark
def test_a_name_of_a_partition_needs_one(lake: Lake) -> None:
    @dg.asset(io_manager_key="iceberg", metadata={"iceberg/publish": "release"})
    def plain() -> Any:
        return lake.session.range(1)

    release = build_release("release", [plain], name="{partition}")
    result = lake.materialize(plain, release, raise_on_error=False)
    assert "expected a run of a partition, for the name of the release" in str(error_of(result))

"""Environments: a deployment writes to branches of production's tables, and production sees nothing of it.

docs/environments.md: Commands; What all branches share
"""

import json
from typing import Any

import dagster as dg
import polars as pl
import pytest
from click.testing import CliRunner

from dagster_iceberg_spark import CommitConflictError, IcebergPySparkIOManager, build_release
from dagster_iceberg_spark.cli.app import app
from dagster_iceberg_spark.features.releases.ci_environment import ci_environment
from dagster_iceberg_spark.features.releases.environments import (
    drop_environment,
    environment_branches,
    environment_diff,
    promote_environment,
    update_environment,
)
from tests.lakes import Lake, frame_asset, hours_asset, metadata_of

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")
DAY, OTHER_DAY = "2013-01-01", "2013-01-02"

pytestmark = pytest.mark.spark


def hours(value: str = "1", **options: Any) -> dg.AssetsDefinition:
    metadata = {"partition_expr": "ts", **{f"iceberg/{key}": value for key, value in options.items()}}
    return hours_asset("hours", value, partitions_def=DAYS, metadata=metadata)


@dg.asset(io_manager_key="iceberg", partitions_def=DAYS, metadata={"partition_expr": "ts"})
def doubled(hours: pl.DataFrame) -> pl.DataFrame:
    return hours.with_columns(v=pl.col("v") * 2)


def values(lake: Lake, name: str, ref: str = "main") -> list[int]:
    scan = lake.table(name).scan().use_ref(ref) if ref in lake.table(name).metadata.refs else None
    return [] if scan is None else sorted(set(scan.to_arrow().column("v").to_pylist()))


def definitions(lake: Lake, *assets: Any) -> dg.Definitions:
    return dg.Definitions(list(assets) or [hours(), doubled], resources=lake.resources)


@pytest.mark.each_engine
@pytest.mark.feature("environments")
def test_an_environment_writes_and_reads_its_own_branches(lake: Lake) -> None:
    lake.materialize(hours(), doubled, partition_key=DAY)
    review = lake.with_options(environment="pr-7")
    review.materialize(hours("3"), doubled, partition_key=DAY)
    assert (values(lake, "hours"), values(lake, "doubled")) == ([1], [2])
    assert (values(lake, "hours", "env_pr-7"), values(lake, "doubled", "env_pr-7")) == ([3], [6])
    branch = lake.table("hours").metadata.refs["env_pr-7"]
    assert branch.max_ref_age_ms == branch.max_snapshot_age_ms == 30 * 24 * 60 * 60 * 1000
    lake.materialize(hours("5"), partition_key=OTHER_DAY)
    review.materialize(hours(), doubled, partition_key=DAY, selection=[doubled])
    assert values(lake, "doubled", "env_pr-7") == [6]


def test_a_table_that_the_environment_has_not_written_is_read_from_main(lake: Lake) -> None:
    lake.materialize(hours("4"), partition_key=DAY)
    review = lake.with_options(environment="feature/x")
    review.materialize(hours(), doubled, partition_key=DAY, selection=[doubled])
    (branch,) = environment_branches(definitions(lake))
    assert (branch.branch.startswith("env_feature_x_"), branch.snapshots) == (True, 1)
    assert (values(lake, "doubled"), values(lake, "doubled", branch.branch)) == ([], [8])


@pytest.mark.full
def test_what_all_branches_share_stays_as_it_is_except_for_new_columns(lake: Lake) -> None:
    lake.materialize(hours(), partition_key=DAY)
    before = lake.table("hours")
    review = lake.with_options(environment="pr")
    changed = {"partition_by": ["month(ts)"], "table_properties": {"a": "b"}, "sort_by": ["v"], "format_version": 3}
    wider = frame_asset(
        "hours",
        "select {start} as ts, 7 as v, 'x' as new",
        partitions_def=DAYS,
        metadata={"partition_expr": "ts", **{f"iceberg/{key}": value for key, value in changed.items()}},
    )
    review.materialize(wider, partition_key=DAY)
    after = lake.table("hours")
    assert (after.spec(), after.properties, after.format_version) == (before.spec(), before.properties, 2)
    assert (after.sort_order(), after.schema().column_names) == (before.sort_order(), ["ts", "v", "new"])
    assert (values(lake, "hours"), values(lake, "hours", "env_pr")) == ([1], [7])
    error = review.failure(hours(branch="audit"), partition_key=DAY)
    assert error.class_name == "ConfigurationError"
    assert "leave `iceberg/branch` out where `environment` is set" in str(error)


@pytest.mark.parametrize(
    ("main_moves", "version"),
    [(True, 3), *(pytest.param(*item, marks=pytest.mark.full) for item in ((False, 2), (False, 3), (True, 2)))],
)
def test_an_environment_is_promoted_with_all_of_its_snapshots(lake: Lake, *, main_moves: bool, version: int) -> None:
    lake.materialize(hours(), doubled, partition_key=DAY)
    for name in ("hours", "doubled"):
        lake.session.sql(f"alter table lake.db.{name} set tblproperties ('format-version' = '{version}')")
    review = lake.with_options(environment="pr")
    for value in ("3", "4"):
        review.materialize(hours(value), doubled, partition_key=OTHER_DAY)
    if main_moves:
        lake.materialize(hours("9"), partition_key="2013-01-05")
    (release,) = promote_environment(definitions(lake), "pr", report=lambda _: None)
    assert release.is_atomic
    how = {item.member.asset: item.how for item in release.members}
    assert how == dict.fromkeys(["db.hours", "db.doubled"], "rebase" if main_moves else "fast-forward")
    assert values(lake, "hours") == ([1, 4, 9] if main_moves else [1, 4])
    assert values(lake, "doubled") == [2, 8]
    lines = [summary["dagster.partition_keys"] for summary in lake.summaries("hours")]
    assert lines.count(OTHER_DAY) == (4 if main_moves else 2)
    upstream = json.loads(lake.summaries("doubled")[-1]["dagster.upstream"])
    assert upstream[0]["snapshot_id"] == lake.head("hours").snapshot_id
    assert set(lake.table("hours").metadata.refs) == {"main"}
    lake.materialize(hours("6"), doubled, partition_key=OTHER_DAY)
    assert values(lake, "doubled") == [2, 12]


@pytest.mark.parametrize("version", [3, pytest.param(2, marks=pytest.mark.full)])
def test_an_environment_takes_what_others_have_written_to_main(lake: Lake, version: int) -> None:
    options: dict[str, Any] = {"format_version": version}
    lake.materialize(hours(**options), doubled, partition_key=DAY)
    review = lake.with_options(environment="pr")
    for value in ("3", "4"):
        review.materialize(hours(value), doubled, partition_key=OTHER_DAY)
    own = environment_diff(definitions(lake), "pr")
    assert update_environment(definitions(lake), "pr") == []
    lake.materialize(hours("9", **options), doubled, partition_key="2013-01-05")
    main = lake.head("hours").snapshot_id
    (release,) = update_environment(definitions(lake), "pr", report=lambda _: None)
    assert (len(release.members), release.is_atomic) == (2, True)
    assert (values(lake, "hours", "env_pr"), values(lake, "doubled", "env_pr")) == ([1, 4, 9], [2, 8, 18])
    assert (values(lake, "hours"), lake.head("hours").snapshot_id) == ([1, 9], main)
    assert environment_diff(definitions(lake), "pr") == own, "what the environment changes is the same"
    head: Any = lake.table("doubled").snapshot_by_name("env_pr")
    upstream = json.loads(head.summary["dagster.upstream"])
    assert upstream[0]["snapshot_id"] == lake.table("hours").metadata.refs["env_pr"].snapshot_id
    lake.materialize(hours("7", **options), partition_key=OTHER_DAY)
    with pytest.raises(CommitConflictError, match="which has added or removed some of them since"):
        update_environment(definitions(lake), "pr")
    lake.materialize(hours("8", **options), partition_key="2013-01-06")
    assert values(lake, "doubled", "env_pr") == [2, 8, 18]


@pytest.mark.full
def test_a_promotion_is_recorded(lake: Lake) -> None:
    lake.materialize(hours(), partition_key=DAY)
    lake.with_options(environment="pr").materialize(hours("3"), partition_key=OTHER_DAY)
    promote_environment(definitions(lake, hours()), "pr", instance=lake.instance, report=lambda _: None)
    (record, *_) = lake.instance.fetch_materializations(dg.AssetKey("hours"), limit=1).records
    materialization = record.asset_materialization
    assert materialization is not None
    found = {key: value.value for key, value in materialization.metadata.items()}
    assert (materialization.partition, found) == (
        OTHER_DAY,
        {"iceberg/snapshot_id": str(lake.head("hours").snapshot_id), "iceberg/promoted_from": "pr"},
    )


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"GITHUB_REF": "refs/heads/pull/7"}, None),
        ({"GITHUB_REF": "refs/pull/7/merge"}, "pr-7"),
        ({"CIRCLE_PULL_REQUEST": "https://example.com/org/repo/pull/12"}, "pr-12"),
        ({"CI_MERGE_REQUEST_IID": "3"}, "pr-3"),
        ({"DAGSTER_CLOUD_IS_BRANCH_DEPLOYMENT": "1", "DAGSTER_CLOUD_DEPLOYMENT_NAME": "0a1b"}, "0a1b"),
        ({"DAGSTER_CLOUD_IS_BRANCH_DEPLOYMENT": "0", "DAGSTER_CLOUD_DEPLOYMENT_NAME": "prod"}, None),
        ({"DAGSTER_CLOUD_IS_BRANCH_DEPLOYMENT": "1", "DAGSTER_CLOUD_PULL_REQUEST_ID": "5"}, "pr-5"),
    ],
)
def test_ci_names_the_environment(variables: dict[str, str], expected: str | None) -> None:
    assert ci_environment(variables) == expected


@pytest.mark.full
@pytest.mark.parametrize("day", [DAY, "2013-01-05"], ids=["the same day", "another day"])
def test_an_environment_outlives_the_history_of_main(lake: Lake, day: str) -> None:
    for number in (3, 4):
        lake.materialize(hours(), partition_key=f"2013-01-0{number}")
    review = lake.with_options(environment="pr")
    review.materialize(hours("3"), partition_key=DAY)
    own = environment_diff(definitions(lake), "pr")
    for value in ("7", "8", "9"):
        lake.materialize(hours(value), partition_key=day)
    lake.session.sql(
        f"call {lake.spark.catalog_description.name}.system.expire_snapshots("
        "table => 'db.hours', older_than => now(), retain_last => 1)"
    )
    assert len(list(lake.table("hours").metadata.snapshots)) == 4, "main has one, the environment three"
    assert environment_diff(definitions(lake), "pr") == own
    if day == DAY:
        with pytest.raises(CommitConflictError, match="which has added or removed some of them since"):
            promote_environment(definitions(lake), "pr")
    else:
        promote_environment(definitions(lake), "pr", report=lambda _: None)
        assert values(lake, "hours") == [1, 3, 9]


@pytest.mark.full
def test_a_partition_that_both_have_written_is_a_conflict(lake: Lake) -> None:
    lake.materialize(hours(), doubled, partition_key=DAY)
    review = lake.with_options(environment="pr")
    review.materialize(hours("3"), doubled, partition_key=DAY)
    lake.materialize(hours("9"), partition_key=DAY)
    result = CliRunner().invoke(app, ["env", "promote", "pr", "-m", "x"])
    assert result.exit_code != 0
    with pytest.raises(Exception, match="which has added or removed some of them since"):
        promote_environment(definitions(lake), "pr")
    assert (values(lake, "hours"), values(lake, "doubled")) == ([9], [2])
    assert [branch.branch for branch in drop_environment(definitions(lake), "pr")] == ["env_pr", "env_pr"]
    assert list(environment_branches(definitions(lake))) == []
    with pytest.raises(Exception, match="expected a table with the branch 'env_pr', found none"):
        drop_environment(definitions(lake), "pr")


@pytest.mark.full
def test_the_difference_is_told_by_partition_and_by_key(lake: Lake) -> None:
    merged = {"iceberg/merge_keys": ["id"]}
    rows = "select * from values (1, 'a'), (2, 'b'), (3, 'c') t(id, v)"
    lake.materialize(frame_asset("t", rows, metadata=merged), hours(), partition_key=DAY)
    review = lake.with_options(environment="pr")
    changed = "select * from values (1, 'a'), (2, 'x'), (4, 'd') t(id, v)"
    review.materialize(frame_asset("t", changed, metadata=merged), hours("2"), partition_key=DAY)
    found = environment_diff(definitions(lake, frame_asset("t", rows, metadata=merged), hours()), "pr", by_key=True)
    documents = {item["table"]: item for item in (diff.document() for diff in found)}
    assert documents["db.t"]["keys"] == {"added": 1, "removed": 1, "changed": 1}
    assert (documents["db.t"]["added_rows"], documents["db.t"]["removed_rows"]) == (3, 3)
    assert documents["db.hours"]["partitions"] == {"ts_day=2013-01-01": {"added": 24, "removed": 24}}
    assert documents["db.hours"]["keys"] == {"added": 24, "removed": 24, "changed": 0}


@pytest.mark.full
def test_audits_and_releases_publish_to_the_environment(lake: Lake) -> None:
    lake.materialize(hours(), partition_key=DAY)
    review = lake.with_options(environment="pr", publish="release")
    audited = hours("3", audits={"some": "count(*) > 0"})
    release = build_release("release", [audited, doubled])
    result = review.materialize(audited, doubled, release, partition_key=DAY)
    assert metadata_of(result, "release")["iceberg/atomic"] is True
    assert (values(lake, "hours"), values(lake, "hours", "env_pr")) == ([1], [3])
    assert values(lake, "doubled", "env_pr") == [6]
    refs = lake.table("hours").metadata.refs
    assert (set(refs), refs["env_pr"].max_ref_age_ms) == ({"main", "env_pr"}, 30 * 24 * 60 * 60 * 1000)


@pytest.mark.full
def test_an_unset_or_empty_variable_is_production(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (None, "", "pr"):
        if value is None:
            monkeypatch.delenv("LAKE_ENVIRONMENT", raising=False)
        else:
            monkeypatch.setenv("LAKE_ENVIRONMENT", value)
        io_manager = IcebergPySparkIOManager(
            spark=lake.spark, namespace="db", environment=dg.EnvVar("LAKE_ENVIRONMENT")
        )
        own = Lake(lake.spark, io_manager, lake.instance, lake.directory)
        own.materialize(frame_asset("t", f"select '{value}' as v"))
        assert ("env_pr" in lake.table("t").metadata.refs) is (value == "pr")
    assert lake.rows("t", "v") == [""]

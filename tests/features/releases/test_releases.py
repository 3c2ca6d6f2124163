"""Releases: what a run stages of several tables is published together, and nobody else sees it before.

docs/releases.md: What a run does; What blocks a release; One instant; Lineage; Partitions
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import dagster as dg
import polars as pl
import pytest

from dagster_iceberg_spark import HadoopCatalog, build_data_checks, build_release
from dagster_iceberg_spark.catalog import transaction
from dagster_iceberg_spark.features.releases import environments
from tests.lakes import Lake, error_of, frame_asset, hours_asset, metadata_of, open_lake, resuming

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")
STAGED = {"partition_expr": "ts", "iceberg/publish": "release"}
DAY, OTHER_DAY = "2013-01-01", "2013-01-02"

pytestmark = pytest.mark.spark


def hours(value: str = "1", **options: Any) -> dg.AssetsDefinition:
    """Return a staged asset with one row for each hour of its day."""
    return hours_asset("hours", value, partitions_def=DAYS, metadata={**STAGED, **options})


def doubled(**options: Any) -> dg.AssetsDefinition:
    """Return a staged asset that has twice the values of `hours`."""

    @dg.asset(io_manager_key="iceberg", partitions_def=DAYS, metadata={**STAGED, **options})
    def doubled(hours: pl.DataFrame) -> pl.DataFrame:
        return hours.with_columns(v=pl.col("v") * 2)

    return doubled


def released(value: str = "1", options: Mapping[str, Any] = MappingProxyType({})) -> list[Any]:
    """Return both assets and their release."""
    members = [hours(value, **options), doubled(**options)]
    return [*members, build_release("release", members)]


def seen(lake: Lake) -> list[list[int]]:
    """Return the values that readers of both tables see, each once."""
    tables = [lake.table(name) for name in ("hours", "doubled") if lake.exists(name)]
    return [sorted(set(table.scan().to_arrow().column("v").to_pylist())) for table in tables]


def branches(lake: Lake) -> list[set[str]]:
    return [set(lake.table(name).metadata.refs) - {"main"} for name in ("hours", "doubled")]


def upstream_id(lake: Lake) -> str:
    """Return the lineage of the newest rows of `doubled`."""
    summary = lake.head("doubled").summary
    assert summary is not None
    return str(summary.additional_properties["dagster.upstream"])


def before_release(monkeypatch: pytest.MonkeyPatch, action: Callable[[], Any]) -> None:
    """Run something once, after the release is prepared and before it is committed."""
    commit, left = getattr(transaction, "commit_tables"), [action]  # noqa: B009 - not exported

    def committed(*args: Any) -> bool:
        if left:
            left.pop()()
        done: bool = commit(*args)
        return done

    monkeypatch.setattr(transaction, "commit_tables", committed)


@pytest.mark.each_engine
@pytest.mark.feature("several tables are released")
def test_a_run_publishes_what_it_has_staged_at_one_instant(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    during: list[list[list[int]]] = []
    before_release(monkeypatch, lambda: during.append(seen(lake)))
    for value, day in (("1", DAY), ("3", OTHER_DAY)):
        result = lake.materialize(*released(value), partition_key=day)
    assert (during, seen(lake)) == ([[[], []]], [[1, 3], [2, 6]])
    staged, done = metadata_of(result, "doubled"), metadata_of(result, "release")
    assert (staged["iceberg/published"], "iceberg/publication" in staged) == (False, False)
    assert staged["iceberg/staged_branch"].startswith("dagster_")
    assert done["iceberg/atomic"] is True
    records = [record.data for record in done["iceberg/tables"].records]
    assert [(item["table"], item["partitions"], item["publication"], item["added_rows"]) for item in records] == [
        ("db.hours", OTHER_DAY, "fast-forward", 24),
        ("db.doubled", OTHER_DAY, "fast-forward", 24),
    ]
    assert str(lake.head("hours").snapshot_id) == records[0]["snapshot_after"]
    assert str(lake.head("hours").parent_snapshot_id) == records[0]["snapshot_before"]
    assert branches(lake) == [set(), set()]


@pytest.mark.full
def test_only_the_run_that_staged_rows_reads_them(lake: Lake) -> None:
    lake.materialize(*released(), partition_key=DAY)
    read: dict[str, list[int]] = {}

    @dg.asset_check(asset="hours", partitions_def=DAYS)
    def check(hours: pl.DataFrame) -> dg.AssetCheckResult:
        read["check"] = hours["v"].unique().to_list()
        return dg.AssetCheckResult(passed=True)

    @dg.asset(partitions_def=DAYS)
    def report(hours: pl.DataFrame) -> None:
        read["other run"] = hours["v"].unique().to_list()

    lake.materialize(hours("5"), doubled(), check, partition_key=DAY)
    lake.materialize(hours(), report, partition_key=DAY, selection=[report])
    assert (read, seen(lake)) == ({"check": [5], "other run": [1]}, [[1], [2]])
    definitions = dg.Definitions([hours(), doubled()], resources=lake.resources)
    waiting = list(environments.staged_branches(definitions))
    assert {(item.asset, item.partitions, item.rows) for item in waiting} == {("hours", DAY, 24), ("doubled", DAY, 24)}
    lake.materialize(hours("5"), partition_key=OTHER_DAY)
    error = lake.failure(hours(), report, partition_key=OTHER_DAY, selection=[report])
    assert error.class_name == "UpstreamMissingError"
    assert "found none published, and no rows of them in the table" in str(error)


def test_a_release_needs_every_blocking_check(lake: Lake) -> None:
    results: list[dg.AssetCheckResult] = []

    @dg.asset_check(asset="doubled", blocking=True, partitions_def=DAYS)
    def even(doubled: pl.DataFrame) -> dg.AssetCheckResult:
        return results.pop()

    members = [hours(), doubled()]
    release = build_release("release", members, checks=[even])
    everything = [*members, even, release]
    without_checks = dg.AssetSelection.assets("hours", "doubled", "release").without_checks()
    error = lake.failure(*everything, partition_key=DAY, selection=without_checks)
    assert (error.class_name, error.allow_retries) == ("UnauditedReleaseError", False)
    assert "found doubled: `even` has not been evaluated. Hint: select these checks" in str(error)
    results.append(dg.AssetCheckResult(passed=False))
    assert not lake.materialize(*everything, partition_key=DAY, raise_on_error=False).success
    assert seen(lake) == [[], []]
    results.append(dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.WARN))
    lake.materialize(*everything, partition_key=DAY)
    assert seen(lake) == [[1], [2]]


@pytest.mark.full
def test_a_release_counts_only_checks_that_have_looked_at_its_staged_rows(lake: Lake) -> None:
    passes = dg.AssetCheckResult(passed=True)

    @dg.asset_check(asset="hours", blocking=True)
    def elsewhere() -> dg.AssetCheckResult:
        return passes

    def run(value: str, *checks: dg.AssetChecksDefinition, raises: bool = True) -> dg.ExecuteInProcessResult:
        members = [hours(value, **{"iceberg/format_version": 2})]
        data = build_data_checks(members[0], not_null=["v"], row_count=(24, 24), fresh="1 hour", blocking=True)
        release = build_release("release", members)
        return lake.materialize(*members, data, *checks, release, partition_key=DAY, raise_on_error=raises)

    assert not run("CAST(NULL AS INT)", raises=False).success
    assert lake.rows("hours") == []
    staged = run("1")
    looked_at = {item.metadata["iceberg/snapshot_id"].value for item in staged.get_asset_check_evaluations()}
    assert looked_at == {metadata_of(staged, "hours")["iceberg/snapshot_id"]}
    assert not run("CAST(NULL AS INT)", raises=False).success
    assert set(lake.rows("hours", "v")) == {1}
    assert "`elsewhere` does not say which snapshot it has looked at" in str(
        error_of(run("2", elsewhere, raises=False))
    )
    assert set(lake.rows("hours", "v")) == {1}


@pytest.mark.full
def test_other_days_are_rebased_and_the_lineage_names_published_snapshots(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.materialize(*released(), partition_key=DAY)
    unstaged = {"partition_expr": "ts"}
    other = hours_asset("hours", "7", partitions_def=DAYS, metadata=unstaged)
    before_release(monkeypatch, lambda: lake.materialize(other, partition_key="2013-01-09"))
    result = lake.materialize(*released("3"), partition_key=OTHER_DAY)
    how = [record.data["publication"] for record in metadata_of(result, "release")["iceberg/tables"].records]
    assert (how, seen(lake)) == (["rebase", "rebase"], [[1, 3, 7], [2, 6]])
    assert f'"snapshot_id":{lake.head("hours").snapshot_id}' in upstream_id(lake)
    assert branches(lake) == [set(), set()]


@pytest.mark.full
def test_a_new_table_whose_source_is_rebased_names_the_published_snapshot(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = hours_asset("hours", "7", partitions_def=DAYS, metadata={"partition_expr": "ts"})
    lake.materialize(other, partition_key="2013-01-08")
    before_release(monkeypatch, lambda: lake.materialize(other, partition_key="2013-01-09"))
    lake.materialize(*released("3"), partition_key=OTHER_DAY)
    assert seen(lake) == [[3, 7], [6]]
    assert f'"snapshot_id":{lake.head("hours").snapshot_id}' in upstream_id(lake)
    lake.materialize(*released("4"), partition_key=DAY)
    assert seen(lake) == [[3, 4, 7], [6, 8]]


@pytest.mark.full
def test_rows_that_another_run_has_changed_keep_back_all_tables(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.materialize(*released(), partition_key=DAY)
    other = frame_asset(
        "doubled", "select {start} as ts, 9 as v", partitions_def=DAYS, metadata={"partition_expr": "ts"}
    )
    before_release(monkeypatch, lambda: lake.materialize(other, partition_key=DAY))
    error = lake.failure(*released("3"), partition_key=DAY)
    run = lake.summaries("doubled")[-1]["dagster.run_id"]
    assert (error.class_name, error.allow_retries) == ("CommitConflictError", True)
    assert f"of run {run} of doubled, partitions {DAY}, which has added or removed some of them since" in str(error)
    assert seen(lake) == [[1], [9]]


@pytest.mark.full
def test_a_commit_in_the_transaction_rolls_all_tables_back(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from dagster_iceberg_spark.catalog import transaction

    lake.materialize(*released(), partition_key=DAY)
    other = hours_asset("hours", "7", partitions_def=DAYS, metadata={"partition_expr": "ts"})
    move, calls = transaction._move_pointer, list[int]()

    def moving(*args: Any) -> None:
        calls.append(len(calls))
        if len(calls) == 1:  # before the database is locked
            lake.materialize(other, partition_key="2013-01-09")
            during.append(seen(lake))
        move(*args)

    during: list[list[list[int]]] = []
    monkeypatch.setattr(transaction, "_move_pointer", moving)
    files = len(list(lake.directory.rglob("*.metadata.json")))
    lake.materialize(*released("3"), partition_key=OTHER_DAY)
    assert (during, seen(lake)) == ([[[1, 7], [2]]], [[1, 3, 7], [2, 6]])
    # Two staged branches with a snapshot each, the other run, and the release: nothing is left of the rolled back one.
    assert len(list(lake.directory.rglob("*.metadata.json"))) == files + 2 * 2 + 1 + 2


@pytest.mark.full
@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
def test_a_release_that_is_interrupted_is_finished_by_the_run_that_resumes_it(
    kept_lake: Lake, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    commit = getattr(transaction, "commit_tables")  # noqa: B009 - not exported

    def interrupted(*args: Any) -> bool:
        if after:
            commit(*args)
        raise ConnectionError("gone")

    monkeypatch.setattr(transaction, "commit_tables", interrupted)
    failed = kept_lake.materialize(*released(), partition_key=DAY, raise_on_error=False)
    monkeypatch.setattr(transaction, "commit_tables", commit)
    assert (failed.success, seen(kept_lake)) == (False, [[1], [2]] if after else [[], []])
    tags = resuming(failed.run_id)
    result = kept_lake.materialize(*released(), partition_key=DAY, tags=tags, selection=["release"])
    assert (seen(kept_lake), branches(kept_lake)) == ([[1], [2]], [set(), set()])
    how = {record.data["publication"] for record in metadata_of(result, "release")["iceberg/tables"].records}
    assert how == {"by an earlier attempt" if after else "fast-forward"}
    assert len([item for item in kept_lake.summaries("hours") if item.get("dagster.run_id")]) == 1


@pytest.mark.full
def test_a_run_that_resumes_another_reads_and_publishes_what_it_staged(kept_lake: Lake) -> None:
    failing = [True]

    @dg.asset(io_manager_key="iceberg", partitions_def=DAYS, metadata=STAGED)
    def doubled(hours: pl.DataFrame) -> pl.DataFrame:
        if failing:
            raise ValueError(failing.pop())
        return hours.with_columns(v=pl.col("v") * 2)

    assets = [hours("5"), doubled, build_release("release", [hours("5"), doubled])]
    failed = kept_lake.materialize(*assets, partition_key=DAY, raise_on_error=False)
    tags = resuming(failed.run_id)
    kept_lake.materialize(*assets, partition_key=DAY, tags=tags, selection=["doubled", "release"])
    assert seen(kept_lake) == [[5], [10]]


@pytest.mark.full
def test_rows_that_were_made_from_rows_which_are_staged_again_are_not_published(kept_lake: Lake) -> None:
    failed = kept_lake.materialize(*released(), partition_key=DAY, selection=["hours", "doubled"])
    again = kept_lake.materialize(
        *released("3"),
        partition_key=DAY,
        tags=resuming(failed.run_id),
        selection=["hours", "release"],
        raise_on_error=False,
    )
    error = error_of(again)
    assert error.class_name == "UpstreamMissingError"
    assert "Cannot publish doubled: expected rows derived from the staged rows of hours" in str(error)
    assert seen(kept_lake) == [[], []]


@pytest.mark.full
def test_rows_that_were_made_from_staged_rows_are_not_published_before_them(lake: Lake) -> None:
    error = lake.failure(hours(), doubled(**{"iceberg/publish": "step"}), partition_key=DAY)
    assert error.class_name == "MetadataKeyError"
    assert "Cannot write doubled: expected `iceberg/publish`: `release`, because this step has read" in str(error)


@pytest.mark.full
def test_days_of_a_range_and_assets_without_partitions_are_released_together(lake: Lake) -> None:
    policy = dg.BackfillPolicy.single_run()
    days = hours_asset("hours", "1", partitions_def=DAYS, metadata=STAGED, backfill_policy=policy)
    whole = frame_asset("doubled", "select 2 as v", metadata={"iceberg/publish": "release"})
    release = build_release("release", [days, whole])
    assert (release.partitions_def, release.backfill_policy) == (DAYS, policy)
    result = lake.materialize_range(days, whole, release, first=DAY, last="2013-01-03")
    records = [record.data for record in metadata_of(result, "release")["iceberg/tables"].records]
    assert records[0]["partitions"] == "2013-01-01..2013-01-03 (3)"
    assert (records[0]["added_rows"], seen(lake)) == (72, [[1], [2]])


@pytest.mark.full
def test_deleted_rows_stay_deleted_if_only_the_source_is_rebased(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete files are taken over, so the lineage of the other table names the published snapshot."""
    modes = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
    merged = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["ts"], "iceberg/table_properties": modes}
    members = [hours(), doubled(**merged)]
    release = build_release("release", members)
    lake.materialize(*members, release, partition_key=DAY)
    other = hours_asset("hours", "7", partitions_def=DAYS, metadata={"partition_expr": "ts"})
    before_release(monkeypatch, lambda: lake.materialize(other, partition_key="2013-01-09"))
    again = [hours("3"), doubled(**merged)]
    result = lake.materialize(*again, build_release("release", again), partition_key=DAY)
    how = [record.data["publication"] for record in metadata_of(result, "release")["iceberg/tables"].records]
    assert how == ["rebase", "rebase"]
    assert (lake.rows("doubled", "v"), seen(lake)[0]) == ([6] * 24, [3, 7])


@pytest.mark.full
def test_an_input_that_asks_for_no_partition_waits_for_no_release(lake: Lake) -> None:
    mapping = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1, allow_nonexistent_upstream_partitions=True)

    @dg.asset(
        io_manager_key="iceberg",
        partitions_def=DAYS,
        metadata=STAGED,
        ins={"totals": dg.AssetIn(partition_mapping=mapping)},
    )
    def totals(totals: pl.DataFrame) -> pl.DataFrame:
        day = pl.datetime(2013, 1, 1, time_zone="UTC")
        return pl.select(ts=day, v=pl.lit(len(totals)))

    lake.materialize(totals, partition_key=DAY)
    lake.materialize(totals, build_release("release", [totals]), partition_key=DAY)
    assert lake.rows("totals", "v") == [0]


@pytest.mark.full
@pytest.mark.parametrize("version", [2, 3])
def test_tables_that_cannot_be_published_at_one_instant_are_published_in_order(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The second table of a release without a transaction is published by the next attempt."""
    options = {"iceberg/format_version": version}
    monkeypatch.setattr(transaction, "is_transactional", lambda _: False)
    lake.materialize(*released("1", options), partition_key=DAY)
    order: list[list[list[int]]] = []
    commit = transaction.commit_table

    def one(description: Any, ready: Any) -> bool:
        order.append(seen(lake))
        return len(order) != 2 and commit(description, ready)

    monkeypatch.setattr(transaction, "commit_table", one)
    result = lake.materialize(*released("3", options), partition_key=DAY)
    assert (order, seen(lake)) == ([[[1], [2]], [[3], [2]], [[3], [2]]], [[3], [6]])
    assert metadata_of(result, "release")["iceberg/atomic"] is False


@pytest.mark.full
def test_tables_in_a_directory_are_published_in_order(tmp_path: Any) -> None:
    for lake in open_lake(HadoopCatalog(warehouse=str(tmp_path / "wh")), tmp_path, None):
        result = lake.materialize(*released(), partition_key=DAY)
        assert (seen(lake), branches(lake)) == ([[1], [2]], [set(), set()])
        assert metadata_of(result, "release")["iceberg/atomic"] is False


@pytest.mark.full
def test_an_audit_keeps_back_the_release(lake: Lake) -> None:
    audits = {"iceberg/audits": {"small": "v < 3"}, "iceberg/on_failure": "drop"}
    lake.materialize(*released("1", audits), partition_key=DAY)
    error = lake.failure(*released("2", audits), partition_key=DAY)
    assert error.class_name == "AuditFailedError"
    assert "The staged rows are dropped." in str(error)
    assert (seen(lake), [len(names) for names in branches(lake)]) == ([[1], [2]], [1, 0])


@pytest.mark.full
def test_a_release_that_is_rejected_drops_its_branches_where_that_is_asked_for(lake: Lake) -> None:
    @dg.asset_check(asset="hours", blocking=True)
    def check() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    members = [hours(**{"iceberg/on_failure": "drop"}), doubled()]
    release = build_release("release", members, checks=[check])
    assert lake.failure(*members, release, partition_key=DAY).class_name == "UnauditedReleaseError"
    assert [len(names) for names in branches(lake)] == [0, 1]


@pytest.mark.full
def test_changes_are_read_on_after_releases(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    staged = {"iceberg/publish": "release"}

    @dg.asset(
        io_manager_key="iceberg",
        ins={"t": dg.AssetIn(metadata={"iceberg/read": "changes"})},
        metadata={**staged, "iceberg/write_disposition": "append"},
    )
    def log(t: pl.DataFrame) -> pl.DataFrame:
        read.append(len(t))
        return t

    appended = {**staged, "iceberg/write_disposition": "append"}
    assets = [frame_asset("t", "select 1 as v", metadata=appended), log]
    release = build_release("release", assets)
    lake.materialize(*assets, release)
    lake.materialize(*assets, release)
    other = frame_asset("t", "select 5 as v", metadata={"iceberg/write_disposition": "append"})
    before_release(monkeypatch, lambda: lake.materialize(other))
    error = lake.failure(*assets, release)
    assert error.class_name == "CommitConflictError"
    assert "Cannot publish log: expected no commits of others to t, whose changes it has read up to" in str(error)
    lake.materialize(*assets, release)
    assert read == [1, 1, 1, 2]
    assert (lake.rows("t", "v"), lake.rows("log", "v")) == ([1, 1, 1, 5], [1, 1, 1, 5])


@pytest.mark.full
def test_an_unfit_release_is_refused(lake: Lake) -> None:
    members = [hours_asset("hours", "1", partitions_def=DAYS, metadata={"partition_expr": "ts"})]
    error = lake.failure(*members, build_release("release", members), partition_key=DAY)
    assert error.class_name == "MetadataKeyError"
    assert "expected `iceberg/publish`: `release` on hours" in str(error)


@pytest.mark.full
def test_a_release_without_its_assets_says_what_to_do(lake: Lake) -> None:
    assets = released()
    error = lake.failure(*assets, partition_key=DAY, selection=["release"])
    assert (error.class_name, error.allow_retries) == ("UpstreamMissingError", False)
    assert "Hint: materialize the assets and the release in one run." in str(error)

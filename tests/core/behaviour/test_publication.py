"""Publishing staged rows: beside other writers, after a crash, and on tables of each kind."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from dagster_iceberg_spark import CatalogUnavailableError, CommitConflictError, HadoopCatalog, WriteFailedError
from dagster_iceberg_spark.assets import table_io_manager
from dagster_iceberg_spark.catalog import publication as metadata
from dagster_iceberg_spark.commit import staged_write as publication
from dagster_iceberg_spark.spark.write import audits, engine
from tests.lakes import Before, Lake, around_write, frame_asset, hours_asset, metadata_of, open_lake, resuming

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")
DAY = {"partition_expr": "ts"}
LOG = {"iceberg/write_disposition": "append"}
MERGED = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["ts"]}
TOUCHED = {"iceberg/write_disposition": "overwrite_partitions", "iceberg/partition_by": ["day(ts)"]}
EVERY_ROW = {"iceberg/audits": {"plausible": "v > 0"}}

pytestmark = pytest.mark.spark


def audited(value: str = "1", **options: Any) -> dg.AssetsDefinition:
    """Return an asset with one row for each hour of its day, and an audit."""
    return hours_asset("hours", value, partitions_def=DAYS, metadata={**DAY, **EVERY_ROW}, **options)


def staged_branches(lake: Lake, name: str = "hours") -> list[str]:
    return [ref for ref in lake.table(name).metadata.refs if ref != "main"]


def in_other_days(lake: Lake, value: int, *days: str, name: str = "hours") -> Callable[[], Any]:
    """Return what writes days of the table without audits."""
    asset = hours_asset(name, str(value), partitions_def=DAYS)
    return lambda: [lake.materialize(asset, partition_key=day) for day in days]


@pytest.mark.each_engine
@pytest.mark.feature("audited rows are published")
def test_a_day_that_others_have_not_touched_is_rebased(lake: Lake, before_publication: Before) -> None:
    in_other_days(lake, 1, "2013-01-01", "2013-01-02")()
    before_publication(in_other_days(lake, 3, "2013-01-02", "2013-01-03"))
    result = lake.materialize(audited("2"), partition_key="2013-01-01")
    assert metadata_of(result, "hours")["iceberg/publication"] == "rebase"
    assert lake.rows("hours", "v") == [2] * 24 + [3] * 48
    assert [row.v for row in lake.session.table("lake.db.hours").sort("v").collect()] == [2] * 24 + [3] * 48
    summary = lake.summaries("hours")[-1]
    assert (summary["dagster.partition_keys"], summary["added-records"], summary["deleted-records"]) == (
        "2013-01-01",
        "24",
        "24",
    )
    assert metadata_of(result, "hours")["iceberg/snapshot_id"] == str(lake.head("hours").snapshot_id)
    assert staged_branches(lake) == []


@pytest.mark.full
def test_a_day_that_others_have_written_meanwhile_is_written_again(lake: Lake, before_publication: Before) -> None:
    in_other_days(lake, 1, "2013-01-01")()
    before_publication(in_other_days(lake, 3, "2013-01-02"))  # empty when the run staged it
    result = lake.materialize(audited("2"), partition_key="2013-01-02")
    assert metadata_of(result, "hours")["iceberg/retries"] == 1
    assert lake.rows("hours", "v") == [1] * 24 + [2] * 24
    assert staged_branches(lake) == []


@pytest.mark.sample(5)
@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "expected", "publication"),
    [
        ({}, [1] * 24 + [2] * 24, "rebase"),
        (LOG, [1] * 24 + [2] * 24, "rebase"),
        ({**LOG, "iceberg/format_version": 3}, [1] * 24 + [2] * 24, "rebase"),
        ({"iceberg/format_version": 3}, [1] * 24 + [2] * 24, "rebase"),
        (MERGED, [1] * 24 + [2] * 24, "rebase"),
        ({"iceberg/partition_by": ["month(ts)"]}, [1] * 24 + [2] * 24, "rebase"),
        ({"iceberg/format_version": 1}, [1] * 24 + [2] * 24, "rebase"),
        ({**MERGED, "iceberg/format_version": 3}, [1] * 24 + [2] * 24, "rebase"),
        ({**TOUCHED, "iceberg/format_version": 3}, [1] * 24 + [2] * 24, "rebase"),
        (TOUCHED, [1] * 24 + [2] * 24, "rebase"),
    ],
    ids=lambda value: "" if isinstance(value, list) else None,
)
def test_each_disposition_is_published_beside_another_day(
    lake: Lake, before_publication: Before, options: dict[str, Any], expected: list[int], publication: str
) -> None:
    metadata = {**DAY, **options}
    plain = hours_asset("hours", "1", partitions_def=DAYS, metadata=metadata)
    asset = hours_asset("hours", "2", partitions_def=DAYS, metadata={**metadata, **EVERY_ROW})
    lake.materialize(plain, partition_key="2013-01-05")
    in_other_days(lake, 9, "2013-01-06")()
    before_publication(lambda: lake.materialize(plain, partition_key="2013-01-07"))
    result = lake.materialize(asset, partition_key="2013-01-06")
    assert metadata_of(result, "hours")["iceberg/publication"] == publication
    kept = [] if options.get("iceberg/write_disposition") != "append" else [9] * 24
    assert lake.rows("hours", "v") == sorted([*expected, *[1] * 24, *kept])
    assert staged_branches(lake) == []
    tokens = [summary["dagster.commit_token"] for summary in lake.summaries("hours") if summary.get("dagster.run_id")]
    assert len(tokens) == len(lake.summaries("hours"))


@pytest.mark.full
@pytest.mark.parametrize("version", [2, 3])
def test_a_new_table_is_published_by_its_first_rows_that_pass(lake: Lake, version: int) -> None:
    options = {**DAY, "iceberg/format_version": version, **EVERY_ROW}
    assert "AuditFailedError" in repr(
        lake.failure(
            hours_asset("hours", "-1", partitions_def=DAYS, metadata=options), partition_key="2013-01-01"
        ).class_name
    )
    assert lake.table("hours").current_snapshot() is None
    lake.materialize(hours_asset("hours", "1", partitions_def=DAYS, metadata=options), partition_key="2013-01-01")
    assert lake.rows("hours", "v") == [1] * 24


@pytest.mark.full
def test_compaction_meanwhile_makes_the_run_stage_its_rows_again(lake: Lake, before_publication: Before) -> None:
    in_other_days(lake, 1, "2013-01-01", "2013-01-02")()
    compact = "call lake.system.rewrite_data_files(table => 'db.hours', options => map('rewrite-all', 'true'))"
    before_publication(lambda: lake.session.sql(compact).collect())
    result = lake.materialize(audited("2"), partition_key="2013-01-01")
    assert metadata_of(result, "hours")["iceberg/publication"] == "fast-forward"
    assert lake.rows("hours", "v") == [1] * 24 + [2] * 24
    assert metadata_of(result, "hours")["dagster/partition_row_count"] == 24


@pytest.mark.full
@pytest.mark.parametrize("version", [2, 3])
def test_deleted_rows_on_other_days_stay_deleted(lake: Lake, before_publication: Before, version: int) -> None:
    in_other_days(lake, 1, "2013-01-01", "2013-01-02")()
    properties = f"'write.delete.mode' = 'merge-on-read', 'format-version' = '{version}'"
    lake.session.sql(f"alter table lake.db.hours set tblproperties ({properties})")
    delete = "delete from lake.db.hours where ts = timestamp'2013-01-02 12:00:00Z'"
    before_publication(lambda: lake.session.sql(delete))
    result = lake.materialize(audited("2"), partition_key="2013-01-01")
    assert metadata_of(result, "hours")["iceberg/publication"] == "rebase"
    assert lake.rows("hours", "v") == [1] * 23 + [2] * 24
    assert [row.v for row in lake.session.table("lake.db.hours").sort("v").collect()] == [1] * 23 + [2] * 24


@pytest.mark.each_engine
def test_rows_keep_their_ids_when_they_are_published(lake: Lake, before_publication: Before) -> None:
    """In format 3, beside another writer: the ids that the staged rows got, and that the other rows have."""
    metadata = {**DAY, "iceberg/format_version": 3}
    plain = hours_asset("hours", "1", partitions_def=DAYS, metadata=metadata)
    for day in ("2013-01-01", "2013-01-02"):
        lake.materialize(plain, partition_key=day)
    ids_of = "select ts, _row_id as id, _last_updated_sequence_number as at from lake.db.hours{} order by ts"
    staged = list[Any]()

    def meanwhile() -> None:
        (branch,) = staged_branches(lake)
        at = f" version as of '{branch}' where ts < timestamp'2013-01-02 00:00:00Z'"
        staged.extend(row.id for row in lake.session.sql(ids_of.format(at)).collect())
        lake.materialize(hours_asset("hours", "3", partitions_def=DAYS, metadata=metadata), partition_key="2013-01-03")

    before = {row.ts: row.id for row in lake.session.sql(ids_of.format("")).collect()}
    before_publication(meanwhile)
    asset = hours_asset("hours", "2", partitions_def=DAYS, metadata={**metadata, **EVERY_ROW})
    result = lake.materialize(asset, partition_key="2013-01-01")
    assert metadata_of(result, "hours")["iceberg/publication"] == "rebase"
    rows = lake.session.sql(ids_of.format("")).collect()
    assert [row.id for row in rows[:24]] == staged
    assert [row.id for row in rows[24:48]] == [before[row.ts] for row in rows[24:48]]
    assert len({row.id for row in rows}) == 72
    assert {row.at for row in rows[:24]} == {lake.head("hours").sequence_number}
    lake.materialize(plain, partition_key="2013-01-04")
    rows = lake.session.sql(ids_of.format("")).collect()
    assert len({row.id for row in rows}) == 96, "ids of later rows are new"


@pytest.mark.full
def test_files_of_an_older_spec_are_published_beside_new_ones(lake: Lake, before_publication: Before) -> None:
    in_other_days(lake, 1, "2013-01-01", "2013-01-02")()

    def evolve() -> None:
        lake.session.sql("alter table lake.db.hours add partition field bucket(2, v)")
        lake.session.sql("insert into lake.db.hours values (timestamp'2013-01-03 12:00:00Z', 1)")

    before_publication(evolve)
    result = lake.materialize(audited("2"), partition_key="2013-01-01")
    assert metadata_of(result, "hours")["iceberg/publication"] == "rebase"
    assert lake.rows("hours", "v") == [1] * 25 + [2] * 24
    assert [row.v for row in lake.session.table("lake.db.hours").sort("v").collect()] == [1] * 25 + [2] * 24


@pytest.mark.full
def test_a_file_that_others_have_rewritten_meanwhile_is_a_conflict(lake: Lake, before_publication: Before) -> None:
    coarse = {**DAY, "iceberg/partition_by": ["month(ts)"]}
    both = hours_asset(
        "hours", "1", partitions_def=DAYS, metadata=coarse, backfill_policy=dg.BackfillPolicy.single_run()
    )
    lake.materialize_range(both, first="2013-01-01", last="2013-01-02")
    other = hours_asset("hours", "3", partitions_def=DAYS, metadata=coarse)
    before_publication(lambda: lake.materialize(other, partition_key="2013-01-02"))
    asset = hours_asset("hours", "2", partitions_def=DAYS, metadata={**coarse, **EVERY_ROW})
    result = lake.materialize(asset, partition_key="2013-01-01")
    assert metadata_of(result, "hours")["iceberg/retries"] == 1
    assert lake.rows("hours", "v") == [2] * 24 + [3] * 24


@pytest.mark.full
def test_other_engines_read_a_rebased_table_and_it_goes_on_as_any(lake: Lake, before_publication: Before) -> None:
    in_other_days(lake, 1, "2013-01-01", "2013-01-02")()
    before_publication(in_other_days(lake, 3, "2013-01-02"))
    lake.materialize(audited("2"), partition_key="2013-01-01")
    expected = [2] * 24 + [3] * 24
    table = lake.table("hours")
    with_pyiceberg = pl.scan_iceberg(table, reader_override="pyiceberg")
    assert sorted(with_pyiceberg.collect()["v"].to_list()) == expected
    assert [row.v for row in lake.session.table("lake.db.hours").sort("v").collect()] == expected
    lake.session.sql("call lake.system.rewrite_data_files(table => 'db.hours', options => map('rewrite-all', 'true'))")
    lake.materialize(audited("4"), partition_key="2013-01-01")
    assert lake.rows("hours", "v") == [3] * 24 + [4] * 24


@pytest.mark.full
def test_changes_are_read_from_a_rebased_table(lake: Lake, before_publication: Before) -> None:
    log = frame_asset("log", "select 1 as v", metadata=LOG)
    read: list[list[int]] = []

    @dg.asset(ins={"log": dg.AssetIn(metadata={"iceberg/read": "changes"})}, io_manager_key="iceberg", metadata=LOG)
    def copied(log: pl.DataFrame) -> pl.DataFrame:
        read.append(sorted(log["v"].to_list()))
        return log

    lake.materialize(log, copied)
    before_publication(lambda: lake.materialize(frame_asset("log", "select 2 as v", metadata=LOG)))
    staged = frame_asset("log", "select 3 as v", metadata={**LOG, **EVERY_ROW})
    result = lake.materialize(staged, copied)
    assert metadata_of(result, "log")["iceberg/publication"] == "rebase"
    assert read == [[1], [2, 3]]


class Crash:
    """Breaks off a write at a call of these modules, as a process that dies there, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, *, after: bool) -> None:
        module = publication if hasattr(publication, name) else engine
        call, left = getattr(module, name), [True]

        def crashing(*args: Any, **kwargs: Any) -> Any:
            if after or not left:
                result = call(*args, **kwargs)
            if left:
                left.pop()
                message = "gone"
                raise WriteFailedError(message)
            return result

        monkeypatch.setattr(module, name, crashing)


@pytest.mark.sample(7)
@pytest.mark.full
@pytest.mark.parametrize("disposition", ["append", "replace", "merge"])
@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("prepare", False),
        ("prepare", True),
        ("write", True),
        ("evaluate", False),
        ("publish", False),
        ("publish", True),
        ("published_snapshot", True),
    ],
)
def test_a_crash_at_any_point_loses_and_doubles_nothing(
    kept_lake: Lake, monkeypatch: pytest.MonkeyPatch, name: str, after: bool, disposition: str
) -> None:
    metadata = {"iceberg/write_disposition": disposition, "iceberg/merge_keys": ["v"], **EVERY_ROW}
    kept_lake.materialize(frame_asset("t", "select 9 as v", metadata=metadata))
    Crash(monkeypatch, name, after=after)
    failed = kept_lake.materialize(frame_asset("t", "select 1 as v", metadata=metadata), raise_on_error=False)
    seen = kept_lake.rows("t", "v")
    assert seen in ([9], [1] if disposition == "replace" else [1, 9])
    if not failed.success:
        again = frame_asset("t", "select 1 as v", metadata=metadata)
        kept_lake.materialize(again, tags=resuming(failed.run_id))
    assert kept_lake.rows("t", "v") == ([1] if disposition == "replace" else [1, 9])
    assert staged_branches(kept_lake, "t") == []


@pytest.mark.full
@pytest.mark.parametrize(("name", "after"), [("evaluate", False), ("publish", False), ("publish", True)])
def test_a_retried_step_publishes_what_its_earlier_attempt_has_staged(
    kept_lake: Lake, monkeypatch: pytest.MonkeyPatch, name: str, after: bool
) -> None:
    Crash(monkeypatch, name, after=after)
    result = kept_lake.materialize(audited(retry_policy=dg.RetryPolicy(max_retries=1)), partition_key="2013-01-01")
    reported = metadata_of(result, "hours")
    assert (reported["iceberg/adopted"], kept_lake.rows("hours", "v")) == (True, [1] * 24)
    written = [summary for summary in kept_lake.summaries("hours") if summary.get("dagster.run_id")]
    assert (len(kept_lake.table("hours").history()), staged_branches(kept_lake)) == (1, [])
    assert len(written) == 1


@pytest.mark.full
def test_a_run_that_resumes_one_whose_audit_failed_stages_its_rows_anew(kept_lake: Lake) -> None:
    failed = kept_lake.materialize(audited("-1"), partition_key="2013-01-01", raise_on_error=False)
    (branch,) = staged_branches(kept_lake)
    tags = resuming(failed.run_id)
    again = kept_lake.materialize(audited("-2"), partition_key="2013-01-01", raise_on_error=False, tags=tags)
    assert not again.success
    assert staged_branches(kept_lake) == [branch]
    kept_lake.materialize(audited("1"), partition_key="2013-01-01", tags=tags)
    assert (kept_lake.rows("hours", "v"), staged_branches(kept_lake)) == ([1] * 24, [])


@pytest.mark.full
def test_a_day_that_another_run_publishes_first_is_a_named_conflict(lake: Lake, before_publication: Before) -> None:
    impatient = lake.with_options(commit_attempts=1)
    before_publication(in_other_days(lake, 3, "2013-01-01"))
    error = impatient.failure(audited("2"), partition_key="2013-01-01")
    assert (error.class_name, error.allow_retries) == ("CommitConflictError", True)
    run = lake.summaries("hours")[-1]["dagster.run_id"]
    assert f"of run {run} of hours, partitions 2013-01-01, which has added or removed some of them since" in str(error)
    assert (lake.rows("hours", "v"), staged_branches(lake)) == ([3] * 24, [])


@pytest.mark.full
def test_concurrent_runs_of_different_days_all_publish(lake: Lake) -> None:
    days = [f"2013-01-{number:02}" for number in range(1, 9)]
    in_other_days(lake, 1, "2013-01-20")()
    barrier = threading.Barrier(len(days))

    def run(day: str) -> Any:
        barrier.wait()
        with dg.DagsterInstance.ephemeral() as instance:
            own = Lake(lake.spark, lake.io_manager, instance, lake.directory)
            result = own.materialize(audited(day[-1]), partition_key=day)
        return metadata_of(result, "hours")["iceberg/publication"]

    with ThreadPoolExecutor(len(days)) as pool:
        how = list(pool.map(run, days))
    assert lake.rows("hours", "v") == sorted([*[1] * 24, *(number for number in range(1, 9) for _ in range(24))])
    assert staged_branches(lake) == []
    assert set(how) <= {"fast-forward", "rebase"}


@pytest.mark.full
def test_rows_of_a_table_in_a_directory_are_published_by_the_engine(tmp_path: Path, before_publication: Before) -> None:
    for lake in open_lake(HadoopCatalog(warehouse=str(tmp_path / "wh")), tmp_path, None):
        first = lake.materialize(audited(), partition_key="2013-01-01")
        before_publication(in_other_days(lake, 3, "2013-01-02"))
        second = lake.materialize(audited("2"), partition_key="2013-01-01")
        how = [metadata_of(result, "hours")["iceberg/publication"] for result in (first, second)]
        assert how == ["fast-forward", "fast-forward"]
        name = lake.spark.catalog_description.name
        assert [row.v for row in lake.session.table(f"{name}.db.hours").sort("v").collect()] == [2] * 24 + [3] * 24


@pytest.mark.full
def test_a_staged_branch_that_is_expired_during_the_write_is_staged_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_other_days(lake, 1, "2013-01-02")()
    left = [True]

    def writing(genuine: Any, _: Any) -> Any:
        if left:
            left.pop()
            (branch,) = staged_branches(lake)
            lake.session.sql(f"alter table lake.db.hours drop branch {branch}")
        return genuine()

    around_write(monkeypatch, writing)
    result = lake.materialize(audited("2"), partition_key="2013-01-01")
    assert (metadata_of(result, "hours")["iceberg/retries"], lake.rows("hours", "v")) == (1, [1] * 24 + [2] * 24)


@pytest.mark.full
def test_rows_are_published_to_the_branch_of_the_asset(lake: Lake) -> None:
    in_other_days(lake, 1, "2013-01-01", "2013-01-02")()
    metadata = {**DAY, **EVERY_ROW, "iceberg/branch": "tried"}
    for value in ("2", "3"):
        asset = hours_asset("hours", value, partitions_def=DAYS, metadata=metadata)
        lake.materialize(asset, partition_key="2013-01-01")
        tried = lake.table("hours").scan().use_ref("tried").to_arrow()["v"].to_pylist()
        assert (sorted(tried), lake.rows("hours", "v")) == ([1] * 24 + [int(value)] * 24, [1] * 48)
    assert staged_branches(lake) == ["tried"]
    failing = hours_asset("hours", "-1", partitions_def=DAYS, metadata=metadata)
    assert lake.failure(failing, partition_key="2013-01-01").class_name == "AuditFailedError"


@pytest.mark.full
def test_columns_are_dropped_and_renamed_after_the_publication(lake: Lake) -> None:
    lake.materialize(frame_asset("t", "select 1 as id, 2 as old, 3 as gone"))
    options = {"iceberg/renames": {"old": "new"}, "iceberg/schema_evolution": "full"}
    audits = {"positive": "new > 0", "sum": "sum(new) > 5", "new": {"not_null": "new"}, "least": "min(new) > 0"}
    failing = frame_asset("t", "select 1 as id, -2 as new", metadata={**options, "iceberg/audits": audits})
    error = lake.failure(failing)
    assert "`positive` (new > 0): failing rows = 1, such as (new=-2" in str(error)
    assert lake.table("t").schema().column_names == ["id", "old", "gone"]
    passing = frame_asset("t", "select 1 as id, 7 as new", metadata={**options, "iceberg/audits": audits})
    lake.materialize(passing)
    assert (lake.table("t").schema().column_names, lake.rows("t", "id", "new")) == (["id", "new"], [(1, 7)])


@pytest.mark.full
def test_rows_that_were_audited_together_are_audited_again_beside_new_ones(
    lake: Lake, before_publication: Before
) -> None:
    key = {**LOG, "iceberg/audits": {"key": {"unique": ["v"]}}}
    lake.materialize(frame_asset("log", "select 1 as v", metadata=key))
    before_publication(lambda: lake.materialize(frame_asset("log", "select 2 as v", metadata=key)))
    error = lake.failure(frame_asset("log", "select 2 as v", metadata=key))
    assert (error.class_name, lake.rows("log", "v")) == ("AuditFailedError", [1, 2])


@pytest.mark.full
def test_a_spec_may_change_during_the_publication(
    lake: Lake, before_publication: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_other_days(lake, 1, "2013-01-01", "2013-01-02")()
    before_publication(in_other_days(lake, 3, "2013-01-02"))
    choose = metadata.choose_publication

    def chosen(*args: Any) -> Any:
        how = choose(*args)
        if how == "rebase":
            lake.session.sql("alter table lake.db.hours add partition field bucket(2, v)")
        return how

    monkeypatch.setattr(metadata, "choose_publication", chosen)
    result = lake.materialize(audited("2"), partition_key="2013-01-01")
    assert metadata_of(result, "hours")["iceberg/publication"] == "rebase"
    assert lake.arrow("hours", row_filter="v = 2").num_rows == 24
    assert lake.rows("hours", "v") == [2] * 24 + [3] * 24


@pytest.mark.full
@pytest.mark.parametrize("is_followed", [True, False])
def test_a_fast_forward_whose_answer_is_lost_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_followed: bool
) -> None:
    """In a directory, by the engine's procedure: the staged branch is still there, and another writer may go on."""
    for lake in open_lake(HadoopCatalog(warehouse=str(tmp_path / "wh")), tmp_path, None):
        _lose_the_answer(lake, monkeypatch, is_followed=is_followed)


def _lose_the_answer(lake: Lake, monkeypatch: pytest.MonkeyPatch, *, is_followed: bool) -> None:
    lake.materialize(frame_asset("log", "select 1 as v", metadata=LOG))
    drop = getattr(engine, "change_branches")  # noqa: B009 - not exported
    lost = [True]

    def dropping(*args: Any) -> None:
        if lost:
            lost.pop()
            if is_followed:
                lake.session.sql("insert into lake.db.log values (3)")
            monkeypatch.setattr(engine, "fast_forward", lambda *_: False)
            raise CommitConflictError
        drop(*args)

    fast_forward = engine.fast_forward

    def forwarding(*args: Any) -> Any:
        try:
            return fast_forward(*args)
        except CommitConflictError:
            return False

    monkeypatch.setattr(engine, "change_branches", dropping)
    monkeypatch.setattr(engine, "fast_forward", forwarding)
    result = lake.materialize(frame_asset("log", "select 2 as v", metadata={**LOG, **EVERY_ROW}))
    assert metadata_of(result, "log")["iceberg/publication"] == "fast-forward"
    assert (lake.rows("log", "v"), staged_branches(lake, "log")) == ([1, 2, *([3] if is_followed else [])], [])


@pytest.mark.by_spark
@pytest.mark.full
def test_an_outage_during_the_analysis_of_audits_does_not_switch_them_off(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    analyse, left = getattr(audits, "_analyse"), [True]  # noqa: B009 - private

    def analysing(*args: Any) -> None:
        if left:
            left.pop()
            raise CatalogUnavailableError
        analyse(*args)

    monkeypatch.setattr(audits, "_analyse", analysing)
    assert lake.failure(audited("-1"), partition_key="2013-01-01").class_name == "AuditFailedError"
    left.append(True)
    result = lake.materialize(audited("1"), partition_key="2013-01-01")
    assert (metadata_of(result, "hours")["iceberg/retries"], lake.rows("hours", "v")) == (1, [1] * 24)


@pytest.mark.full
def test_a_run_that_died_after_renaming_the_partition_column_is_resumed(
    kept_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_other_days(kept_lake, 1, "2013-01-01")()
    rows = "select explode(sequence({start}, {end} - interval 1 second, interval 1 hour)) as at, 2 as v"
    options = {"partition_expr": "at", "iceberg/renames": {"ts": "at"}, "iceberg/audits": {"mean": "avg(v) > 0"}}
    asset = frame_asset("hours", rows, partitions_def=DAYS, metadata=options)
    with monkeypatch.context() as patches:
        patches.setattr(table_io_manager, "report_commit", lambda *_, **__: 1 / 0)
        failed = kept_lake.materialize(asset, partition_key="2013-01-01", raise_on_error=False)
    assert not failed.success
    again = kept_lake.materialize(asset, partition_key="2013-01-01", tags=resuming(failed.run_id))
    assert metadata_of(again, "hours")["iceberg/adopted"] is True
    assert (kept_lake.table("hours").schema().column_names, kept_lake.rows("hours", "v")) == (["at", "v"], [2] * 24)


@pytest.mark.full
def test_a_staged_snapshot_without_its_files_is_staged_again(kept_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    in_other_days(kept_lake, 1, "2013-01-01")()
    evaluated, left = getattr(publication, "evaluate"), [True]  # noqa: B009 - not exported

    def without_files(*args: Any) -> Any:
        if left:
            left.pop()
            (branch,) = staged_branches(kept_lake)
            for file in kept_lake.table("hours").scan().use_ref(branch).plan_files():
                Path(file.file.file_path.removeprefix("file:")).unlink()
            raise WriteFailedError
        return evaluated(*args)

    monkeypatch.setattr(publication, "evaluate", without_files)
    retried = audited("2", retry_policy=dg.RetryPolicy(max_retries=1))
    assert kept_lake.materialize(retried, partition_key="2013-01-01").success
    assert (kept_lake.rows("hours", "v"), staged_branches(kept_lake)) == ([2] * 24, [])

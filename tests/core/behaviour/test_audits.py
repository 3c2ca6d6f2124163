"""Audits: rows are staged, checked and published, and nobody sees rows that fail."""

from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark import build_audit_checks
from dagster_iceberg_spark.features.releases import environments
from tests.lakes import Lake, frame_asset, hours_asset, metadata_of

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")
DAY = {"partition_expr": "ts"}

pytestmark = pytest.mark.spark


def audited(value: str = "1", *, name: str = "hours", **audits: Any) -> dg.AssetsDefinition:
    """Return an asset with one row for each hour of its day, and audits."""
    metadata = {**DAY, "iceberg/audits": audits or {"plausible": "min(v) > 0"}}
    return hours_asset(name, value, partitions_def=DAYS, metadata=metadata)


def evaluations(lake: Lake) -> dict[str, bool]:
    """Return whether each check passed when it was last evaluated."""
    records = lake.instance.event_log_storage.get_event_records(
        dg.EventRecordsFilter(dg.DagsterEventType.ASSET_CHECK_EVALUATION), ascending=True
    )
    events = [record.event_log_entry.dagster_event for record in records]
    found = [event.asset_check_evaluation_data for event in events if event is not None]
    return {item.check_name: item.passed for item in found}


def staged_branches_of(lake: Lake, name: str = "hours") -> list[str]:
    return [ref for ref in lake.table(name).metadata.refs if ref != "main"]


@pytest.mark.each_engine("quick")
@pytest.mark.feature("audited rows are published")
def test_rows_that_pass_are_published_in_one_snapshot(lake: Lake) -> None:
    first = lake.materialize(audited(), partition_key="2013-01-01")
    assert (evaluations(lake), staged_branches_of(lake)) == ({"plausible": True}, [])
    second = lake.materialize(audited("2"), partition_key="2013-01-02")
    how = [metadata_of(result, "hours")["iceberg/publication"] for result in (first, second)]
    assert (how, lake.rows("hours", "v")) == (["fast-forward", "fast-forward"], [1] * 24 + [2] * 24)
    published = [metadata_of(result, "hours")["iceberg/snapshot_id"] for result in (first, second)]
    assert [str(entry.snapshot_id) for entry in lake.table("hours").history()] == published
    empty, *others = lake.summaries("hours")
    assert (empty["total-records"], len(others)) == ("0", 2)


@pytest.mark.each_engine
@pytest.mark.feature("audited rows are published")
def test_rows_that_fail_are_seen_by_nobody(lake: Lake) -> None:
    lake.materialize(audited(), partition_key="2013-01-01")
    before = lake.head("hours")
    error = lake.failure(audited("-5", plausible="v > 0", many="count(*) > 1"), partition_key="2013-01-01")
    assert (error.class_name, error.allow_retries) == ("AuditFailedError", False)
    (branch,) = staged_branches_of(lake)
    assert lake.table("hours").metadata.refs[branch].max_ref_age_ms == 7 * 24 * 60 * 60 * 1000
    assert "found `plausible` (v > 0): failing rows = 24, such as (ts=2013-01-01" in str(error)
    assert f"SELECT * FROM lake.db.hours.branch_{branch} WHERE ((`ts` >= " in str(error)
    assert str(error).endswith(" AND (NOT (v > 0))")
    assert (lake.head("hours"), lake.rows("hours", "v")) == (before, [1] * 24)
    assert evaluations(lake) == {"plausible": False, "many": True}
    assert lake.table("hours").scan().use_ref(branch).to_arrow().column("v").to_pylist() == [-5] * 24


def checked(lake: Lake, *definitions: Any, **kwargs: Any) -> dict[str, tuple[bool, str]]:
    """Return whether each check passed, and how it was evaluated."""
    result = lake.materialize(*definitions, **kwargs)
    return {
        item.check_name: (item.passed, str(item.metadata["iceberg/evaluated_by"].value))
        for item in result.get_asset_check_evaluations()
    }


@pytest.mark.full
def test_the_checks_show_what_the_step_found_and_run_alone_what_is_published(lake: Lake) -> None:
    audits: dict[str, Any] = {
        "plausible": "min(v) > 0",
        "some": "count(*) > 0",
        "hours": {"unique": ["ts"], "severity": "warn"},
    }
    asset = audited("1", **audits)
    checks = build_audit_checks([asset])
    in_run = checked(lake, asset, *checks, partition_key="2013-01-01")
    assert in_run == {"plausible": (True, "metadata"), "some": (True, "metadata"), "hours": (True, "scan")}
    selection = dg.AssetSelection.checks(*checks)
    lake.session.sql(f"insert into {lake.spark.catalog_description.name}.db.hours values (timestamp'2013-01-20', -7)")
    alone = checked(lake, asset, *checks, selection=selection)
    assert alone == {"plausible": (False, "scan"), "some": (True, "metadata"), "hours": (True, "scan")}


@pytest.mark.full
@pytest.mark.parametrize("version", [2, 3])
def test_the_command_line_lists_and_drops_staged_branches(lake: Lake, version: int) -> None:
    metadata = {**DAY, "iceberg/audits": {"plausible": "v > 0"}, "iceberg/format_version": version}
    asset = hours_asset("hours", "-1", partitions_def=DAYS, metadata=metadata)
    lake.materialize(asset, partition_key="2013-01-01", raise_on_error=False)
    definitions = dg.Definitions([asset], resources=lake.resources)
    (branch,) = environments.staged_branches(definitions)
    assert (branch.asset, branch.partitions, branch.rows) == ("hours", "2013-01-01", 24)
    assert [branch.name] == staged_branches_of(lake)
    assert list(environments.staged_branches(definitions, drop=["other"])) == [branch]
    assert list(environments.staged_branches(definitions, drop=[branch.name])) == [branch]
    assert list(environments.staged_branches(definitions)) == []


@pytest.mark.each_engine
@pytest.mark.sample(3)
@pytest.mark.full
@pytest.mark.parametrize(
    "rule",
    [
        "missing > 0",
        "sum(v) >",
        "v > 0;",
        "count(*) - count(distinct v)",
        {"unique": ["missing"]},
        {"not_null": ["missing"]},
        "v",
        "v > 0 and count(*) > 0",
    ],
    ids=str,
)
def test_an_audit_that_cannot_be_evaluated_fails_before_anything_is_written(lake: Lake, rule: Any) -> None:
    error = lake.failure(audited("1", some="count(*) > 0", amiss=rule), partition_key="2013-01-01")
    assert (error.class_name, error.allow_retries) == ("MetadataKeyError", False)
    assert "Cannot use `iceberg/audits` of db.hours: expected a condition in 'amiss' on the columns ts, v" in str(error)
    assert not lake.exists("hours")


@pytest.mark.full
def test_a_warning_is_published_and_recorded(lake: Lake) -> None:
    rule = {"condition": "v > 5", "severity": "warn"}
    lake.materialize(audited("1", large=rule), partition_key="2013-01-01")
    assert (lake.rows("hours", "v"), evaluations(lake)) == ([1] * 24, {"large": False})


@pytest.mark.sample(3)
@pytest.mark.each_engine
@pytest.mark.full
@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("max(v) < 0", "max(v) = 1"),
        ("avg(v) < 0 and max(v) = 1 -- a comment", "avg(v) = 1.0, max(v) = 1"),
        ({"not_null": ["w"]}, "NULL in w = 24, such as (ts="),
        ("every(v < 0)", "Hint: "),
        ("v IN (2, 3)", "failing rows = 24, such as (ts="),
        ("NOT (v = 1) AND `v` < 3", "failing rows = 24, such as (ts="),
        ({"unique": ["v"]}, "repeated rows = 23, such as (v=1, number of rows=24)"),
        ("percentile_approx(v, 0.5) < 0", "percentile_approx(v, 0.5) = 1"),
    ],
    ids=str,
)
def test_what_was_found_is_in_the_message(lake: Lake, rule: Any, found: str) -> None:
    query = (
        "select explode(sequence({start}, {end} - interval 1 second, interval 1 hour)) as ts, 1 as v, int(null) as w"
    )
    metadata = {**DAY, "iceberg/audits": {"amiss": rule}}
    asset = frame_asset("hours", query, partitions_def=DAYS, metadata=metadata)
    error = lake.failure(asset, partition_key="2013-01-01")
    assert error.class_name == "AuditFailedError", error
    assert found in str(error)


@pytest.mark.full
@pytest.mark.parametrize("disposition", ["append", "merge"])
def test_audits_apply_to_all_rows_of_the_partition(lake: Lake, disposition: str) -> None:
    options = {"iceberg/write_disposition": disposition, "iceberg/merge_keys": ["ts"]}
    first = hours_asset("hours", "1", partitions_def=DAYS, metadata={**DAY, **options})
    for day in ("2013-01-01", "2013-01-02"):
        lake.materialize(first, partition_key=day)
    rows = 48 if disposition == "append" else 24
    audits = {"rows": f"count(*) = {rows}", "nulls": {"not_null": "v"}, "spread": "max(v) - min(v) < 2"}
    second = hours_asset("hours", "2", partitions_def=DAYS, metadata={**DAY, **options, "iceberg/audits": audits})
    lake.materialize(second, partition_key="2013-01-02")
    assert evaluations(lake) == {"rows": True, "nulls": True, "spread": True}


@pytest.mark.full
def test_a_check_that_runs_alone_knows_columns_by_their_new_names(lake: Lake) -> None:
    lake.materialize(frame_asset("t", "select 1 as id, 2 as old"))
    metadata = {
        "iceberg/renames": {"old": "new"},
        "iceberg/audits": {"key": {"unique": ["new"]}, "sum": "sum(new) > 0"},
    }
    asset = frame_asset("t", "select 1 as id, 7 as new", metadata=metadata)
    checks = build_audit_checks([asset])
    lake.materialize(asset)
    alone = checked(lake, asset, *checks, selection=dg.AssetSelection.checks(*checks))
    assert alone == {"key": (True, "scan"), "sum": (True, "scan")}
    lake.session.sql("alter table lake.db.t add column late int")
    newer = frame_asset("t", "select 1", metadata={"iceberg/audits": {"late": "sum(late) IS NULL"}})
    checks = build_audit_checks([newer])
    alone = checked(lake, newer, *checks, selection=dg.AssetSelection.checks(*checks))
    assert alone == {"late": (True, "scan")}


@pytest.mark.full
def test_a_renamed_field_of_a_struct_is_audited_by_its_new_name(lake: Lake) -> None:
    lake.materialize(frame_asset("t", "select named_struct('zip', 1, 'city', 'x') as address"))
    metadata = {
        "iceberg/renames": {"address.zip": "code"},
        "iceberg/audits": {"each": "address.code > 0", "all": "max(address.code) < 9"},
    }

    def asset(code: int) -> dg.AssetsDefinition:
        return frame_asset("t", f"select named_struct('code', {code}, 'city', 'x') as address", metadata=metadata)

    error = lake.failure(asset(-5))
    assert "found `each` (address.code > 0): failing rows = 1, such as (address={-5, x})" in str(error)
    assert lake.rows("t", "address") == [{"zip": 1, "city": "x"}]
    lake.materialize(asset(5))
    assert lake.rows("t", "address") == [{"code": 5, "city": "x"}]


@pytest.mark.full
def test_a_key_may_have_any_name(lake: Lake) -> None:
    metadata = {"iceberg/audits": {"key": {"unique": ["rows"]}}}
    query = "select 1 as rows from range(2)"
    assert lake.failure(frame_asset("t", query, metadata=metadata)).class_name == "AuditFailedError"


@pytest.mark.full
def test_a_sample_has_only_the_columns_that_tell_which_rows_fail(lake: Lake) -> None:
    metadata = {
        "iceberg/write_disposition": "merge",
        "iceberg/merge_keys": ["id"],
        "iceberg/audits": {"positive": "v > 5"},
    }
    asset = frame_asset("people", "select 7 as id, 1 as v, 'ssn 123' as secret", metadata=metadata)
    assert "failing rows = 1, such as (id=7, v=1)" in str(lake.failure(asset))
    error = str(lake.with_options(audit_samples=0).failure(asset))
    assert "failing rows = 1. Hint:" in error
    assert "WHERE NOT (v > 5)" in error


@pytest.mark.full
def test_an_audit_that_cannot_be_computed_fails_alone(lake: Lake) -> None:
    audits = {"ratio": "10 / v > 1", "known": "v >= 0 OR v IS NULL", "positive": "v > 5"}
    asset = frame_asset("t", "select 0 as v", metadata={"iceberg/audits": audits})
    error = str(lake.failure(asset))
    assert "`ratio` (10 / v > 1): error = [DIVIDE_BY_ZERO] Division by zero" in error
    assert "`positive` (v > 5): failing rows = 1, such as (v=0)" in error
    assert "known" not in error
    warned = {name: {"condition": rule, "severity": "warn"} for name, rule in audits.items()}
    asset = frame_asset("t", "select 0 as v", metadata={"iceberg/audits": warned})
    lake.materialize(asset)
    assert lake.rows("t", "v") == [0]

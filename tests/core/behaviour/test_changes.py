"""`iceberg/read`: what is new in an upstream table since the asset has last read it, exactly once."""

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pyiceberg.table
import pytest
from pyspark.sql import DataFrame

from dagster_iceberg_spark.commit import attempts
from dagster_iceberg_spark.spark.columns import functions_of
from tests.core.behaviour.test_loads import as_arrow
from tests.lakes import Lake, StepError, annotation_of, around_write, arrow_of, frame_asset, resuming

pytestmark = pytest.mark.spark

APPEND = {"iceberg/write_disposition": "append"}
CHANGES = {"iceberg/read": "changes"}
WAYS = pytest.mark.parametrize("annotation", [DataFrame, pa.Table], ids=["spark", "arrow"])
DAYS = dg.StaticPartitionsDefinition(["a", "b", "c"])
BY_DAY = {"partition_expr": "day"}
EXPIRE = "call lake.system.expire_snapshots(table => 'lake.db.{}', older_than => now(), retain_last => 1)"


def events(values: str, **kwargs: Any) -> dg.AssetsDefinition:
    """An upstream asset that appends rows of one column."""
    return frame_asset(
        "events", f"select /*+ coalesce(1) */ * from values {values} as t(id)", metadata=APPEND, **kwargs
    )


def copy_of(
    annotation: Any,
    metadata: dict[str, Any] | None = None,
    *,
    asked: dict[str, Any] | None = None,
    change: Callable[[Any], Any] = lambda rows: rows,
    mapping: dg.PartitionMapping | None = None,
    **kwargs: Any,
) -> dg.AssetsDefinition:
    """An asset that stores what is new in `events`."""

    def body(events: Any) -> Any:
        return change(events)

    body.__annotations__["events"] = annotation
    ins = {"events": dg.AssetIn("events", metadata={**CHANGES, **(asked or {})}, partition_mapping=mapping)}
    asset: dg.AssetsDefinition = dg.asset(
        name="copied", ins=ins, io_manager_key="iceberg", metadata={**APPEND, **(metadata or {})}, **kwargs
    )(body)
    return asset


def read_on(lake: Lake, reader: dg.AssetsDefinition, **kwargs: Any) -> dg.ExecuteInProcessResult:
    return lake.materialize(reader, events("(0)").to_source_asset(), selection=[reader], **kwargs)


def refused(lake: Lake, reader: dg.AssetsDefinition, **kwargs: Any) -> StepError:
    return lake.failure(reader, events("(0)").to_source_asset(), selection=[reader], **kwargs)


def consumed(lake: Lake, name: str = "copied") -> dict[str, Any]:
    (read,) = json.loads(lake.summaries(name)[-1]["dagster.upstream"])
    assert isinstance(read, dict)
    return read


@pytest.mark.each_engine
@pytest.mark.feature("incremental reads")
@WAYS
def test_each_row_is_read_once_and_the_range_is_in_the_lineage(lake: Lake, annotation: Any) -> None:
    reader = copy_of(annotation_of(annotation, lake))
    lake.materialize(events("(1), (2)"))
    first = lake.head("events").snapshot_id
    read_on(lake, reader)
    assert (consumed(lake)["since"], consumed(lake)["snapshot_id"]) == (None, first)
    read_on(lake, reader)
    assert (consumed(lake)["since"], consumed(lake)["snapshot_id"]) == (first, first)
    lake.materialize(events("(3)"))
    lake.materialize(events("(4), (5)"))
    last = lake.head("events").snapshot_id
    read_on(lake, reader)
    assert consumed(lake) == {
        "asset": "events",
        "table": "db.events",
        "snapshot_id": last,
        "scope": None,
        "read": "changes",
        "since": first,
        "partitions": consumed(lake)["partitions"],
        "input": "events",
    }
    assert lake.rows("copied") == [1, 2, 3, 4, 5]
    assert [item.get("added-records", "0") for item in lake.summaries("copied")] == ["2", "0", "3"]


@pytest.mark.full
@pytest.mark.parametrize("annotation", [pa.RecordBatchReader, pd.DataFrame, pl.DataFrame, pl.LazyFrame])
def test_other_types_of_rows_take_what_is_new(lake: Lake, annotation: Any) -> None:
    reader = copy_of(annotation, asked={"columns": ["id"], "iceberg/row_filter": "id <> 4"})
    lake.materialize(events("(1)"))
    read_on(lake, reader)
    lake.materialize(events("(2), (4)"))
    read_on(lake, reader)
    assert lake.rows("copied") == [1, 2]


def test_a_scan_cannot_be_what_is_new(lake: Lake) -> None:
    lake.materialize(events("(1)"))
    error = refused(lake, copy_of(pyiceberg.table.DataScan))
    assert (error.class_name, error.allow_retries) == ("ConfigurationError", False)
    assert "expected a type of rows, for what is new" in str(error)
    assert not lake.exists("copied")


@pytest.mark.full
@WAYS
def test_compaction_and_changes_of_columns_add_no_rows(lake: Lake, annotation: Any) -> None:
    reader = copy_of(annotation)
    lake.materialize(events("(1)"))
    read_on(lake, reader)
    lake.materialize(events("(2)"))
    lake.session.sql(
        "call lake.system.rewrite_data_files(table => 'lake.db.events', options => map('rewrite-all', 'true'))"
    )
    assert lake.summaries("events")[-1]["operation"] == "replace"
    lake.session.sql("alter table lake.db.events rename column id to number")
    lake.session.sql("alter table lake.db.events add column more string")
    lake.session.sql("insert into lake.db.events values (3, 'x')")
    asked = copy_of(annotation, asked={"columns": ["number"]}, change=_as_id)
    read_on(lake, asked)
    assert lake.rows("copied") == [1, 2, 3]


def _as_id(rows: Any) -> Any:
    return rows.withColumnRenamed("number", "id") if isinstance(rows, DataFrame) else rows.rename_columns(["id"])


@pytest.mark.sample(2)
@pytest.mark.full
@WAYS
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_rows_that_went_are_an_error_or_a_full_read_as_asked(lake: Lake, annotation: Any, mode: str) -> None:
    lake.materialize(events("(1), (2)"))
    read_on(lake, copy_of(annotation))
    lake.session.sql(f"alter table lake.db.events set tblproperties ('write.delete.mode' = '{mode}')")
    lake.session.sql("delete from lake.db.events where id = 1")
    lake.materialize(events("(3)"))
    before = lake.head("copied").snapshot_id
    error = refused(lake, copy_of(annotation))
    assert (error.class_name, error.allow_retries) == ("ChangesUnknownError", False)
    assert "which removed or rewrote rows that the input reads" in str(error)
    assert "iceberg/changes_fallback" in str(error)
    full = {"iceberg/changes_fallback": "partitions"}
    assert lake.head("copied").snapshot_id == before
    merging = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}
    read_on(lake, copy_of(annotation, merging, asked=full))
    assert (lake.rows("copied"), consumed(lake)["since"]) == ([1, 2, 3], None)
    lake.materialize(events("(4)"))
    read_on(lake, copy_of(annotation))
    assert lake.rows("copied") == [1, 2, 3, 4]


@pytest.mark.full
@WAYS
def test_an_overwrite_that_only_adds_rows_is_what_is_new(lake: Lake, annotation: Any) -> None:
    """That is how an asset with partitions writes each of them for the first time; also beside old delete files."""
    lake.materialize(events("(1), (2)"))
    lake.session.sql("alter table lake.db.events set tblproperties ('write.delete.mode' = 'merge-on-read')")
    reader = copy_of(annotation)
    read_on(lake, reader)
    lake.session.range(3, 5).writeTo("lake.db.events").overwrite(_column(lake.session, "id > 2"))
    lake.materialize(events("(5)"))
    read_on(lake, reader)
    assert lake.rows("copied") == [1, 2, 3, 4, 5]
    lake.session.sql("delete from lake.db.events where id = 1")
    merging = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}
    read_on(lake, copy_of(annotation, merging, asked={"iceberg/changes_fallback": "partitions"}))
    lake.session.range(6, 8).writeTo("lake.db.events").overwrite(_column(lake.session, "id > 5"))
    assert lake.summaries("events")[-1]["operation"] == "overwrite"
    assert lake.summaries("events")[-1]["total-delete-files"] == "1"
    read_on(lake, reader)
    assert lake.rows("copied") == [1, 2, 3, 4, 5, 6, 7]


def _column(session: Any, condition: str) -> Any:
    return functions_of(session).expr(condition)


@pytest.mark.full
@WAYS
def test_expired_and_rolled_back_snapshots_are_an_error_or_a_full_read(lake: Lake, annotation: Any) -> None:
    lake.materialize(events("(1)"))
    first = lake.head("events").snapshot_id
    lake.materialize(events("(2)"))
    read_on(lake, copy_of(annotation))
    lake.session.sql(f"call lake.system.rollback_to_snapshot('lake.db.events', {first})")
    error = refused(lake, copy_of(annotation))
    assert error.class_name == "ChangesUnknownError"
    assert "it has expired, was rolled back" in str(error)
    lake.materialize(events("(3)"))
    lake.materialize(events("(4)"))
    lake.session.sql(
        "call lake.system.expire_snapshots(table => 'lake.db.events', older_than => now(), retain_last => 1)"
    )
    assert "it has expired, was rolled back" in str(refused(lake, copy_of(annotation)))
    merging = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}
    read_on(lake, copy_of(annotation, merging, asked={"iceberg/changes_fallback": "partitions"}))
    assert lake.rows("copied") == [1, 2, 3, 4]
    lake.materialize(events("(5)"))
    read_on(lake, copy_of(annotation))
    assert lake.rows("copied") == [1, 2, 3, 4, 5]


@pytest.mark.full
def test_a_table_that_is_made_anew_is_not_read_on(lake: Lake) -> None:
    lake.materialize(events("(1)"))
    read_on(lake, copy_of(DataFrame))
    lake.session.sql("drop table lake.db.events purge")
    lake.materialize(events("(1)"))
    assert refused(lake, copy_of(DataFrame)).class_name == "ChangesUnknownError"


@pytest.mark.full
def test_what_is_rolled_back_downstream_is_read_again(lake: Lake) -> None:
    reader = copy_of(DataFrame)
    lake.materialize(events("(1)"))
    read_on(lake, reader)
    first = lake.head("copied").snapshot_id
    lake.materialize(events("(2)"))
    read_on(lake, reader)
    lake.session.sql(f"call lake.system.rollback_to_snapshot('lake.db.copied', {first})")
    lake.materialize(events("(3)"))
    read_on(lake, reader)
    assert lake.rows("copied") == [1, 2, 3]


@pytest.mark.full
def test_a_lost_table_is_made_of_everything_again(lake: Lake) -> None:
    reader = copy_of(DataFrame)
    lake.materialize(events("(1)"))
    read_on(lake, reader)
    lake.session.sql("drop table lake.db.copied purge")
    lake.materialize(events("(2)"))
    read_on(lake, reader)
    assert lake.rows("copied") == [1, 2]


@pytest.mark.full
def test_an_own_history_that_has_expired_is_unclear_only_where_it_is_needed(lake: Lake) -> None:
    reader = copy_of(DataFrame)
    lake.materialize(events("(1)"))
    read_on(lake, reader)
    read_on(lake, reader)
    lake.session.sql(EXPIRE.format("copied"))
    lake.materialize(events("(2)"))
    read_on(lake, reader)
    assert lake.rows("copied") == [1, 2]
    lake.session.sql("insert into lake.db.copied values (100)")
    lake.session.sql(EXPIRE.format("copied"))
    lake.materialize(events("(3)"))
    read_on(lake, reader)
    assert lake.rows("copied") == [1, 2, 3, 100]
    lake.session.sql("insert into lake.db.copied values (101)")
    lake.session.sql(EXPIRE.format("copied"))
    with dg.DagsterInstance.ephemeral() as other:
        error = refused(Lake(lake.spark, lake.io_manager, other, lake.directory), reader)
    assert error.class_name == "ChangesUnknownError"
    assert "a history of the asset's own table that begins with snapshot" in str(error)


def test_what_would_replace_the_rows_of_earlier_changes_is_refused(lake: Lake) -> None:
    lake.materialize(events("(1)"))
    error = refused(lake, copy_of(DataFrame, {"iceberg/write_disposition": "replace"}))
    assert (error.class_name, error.allow_retries) == ("ConfigurationError", False)
    assert "removes what was derived from earlier ones" in str(error)
    assert not lake.exists("copied")


@pytest.mark.full
def test_an_asset_that_reads_its_own_table_too_may_replace_it(lake: Lake) -> None:
    """Dagster lets an asset read itself by time partitions alone: others read its table under another name."""
    lake.materialize(events("(1)"))
    lake.session.sql("create table lake.db.sums (n long) using iceberg")
    before = dg.AssetSpec("old_sums", metadata={"iceberg/table": "db.sums", "dagster/io_manager_key": "iceberg"})

    @dg.asset(
        io_manager_key="iceberg",
        ins={"events": dg.AssetIn(metadata=CHANGES), "old_sums": dg.AssetIn("old_sums")},
        metadata={"iceberg/table": "db.sums"},
    )
    def sums(events: pa.Table, old_sums: pa.Table) -> pa.Table:
        return pa.table({"n": [sum(old_sums.column("n").to_pylist()) + sum(events.column("id").to_pylist())]})

    for values in ("(10), (100)", "(1000)"):
        lake.materialize(sums, before, events("(0)").to_source_asset(), selection=[sums])
        lake.materialize(events(values))
    lake.materialize(sums, before, events("(0)").to_source_asset(), selection=[sums])
    assert lake.rows("sums") == [1111]


@pytest.mark.full
def test_of_two_runs_that_read_the_same_changes_one_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the other commits before the look, or in the moment between look and commit."""
    lake.materialize(events("(1)"))
    reader = copy_of(DataFrame)
    read_on(lake, reader)
    for is_first_at, number in (("look", 2), ("write", 3)):
        lake.materialize(events(f"({number})"))
        look, state = getattr(attempts, "look"), {"done": False}  # noqa: B009 - not exported

        def first_the_other(_state: Any = state) -> None:
            if not _state["done"]:
                _state["done"] = True
                read_on(lake, reader)

        def looking(*args: Any, _first: Any = first_the_other, _look: Any = look, **kwargs: Any) -> Any:
            _first()
            return _look(*args, **kwargs)

        def writing(genuine: Any, _: Any, _first: Any = first_the_other) -> Any:
            _first()
            return genuine()

        with monkeypatch.context() as patched:
            if is_first_at == "look":
                patched.setattr(attempts, "look", looking)
            else:
                around_write(patched, writing)
            error = refused(lake, reader)
        assert (error.class_name, error.allow_retries) == ("ChangesConsumedError", True)
        assert "of the same asset, which has read them too" in str(error)
        assert lake.rows("copied") == list(range(1, number + 1))
        read_on(lake, reader)
        assert lake.rows("copied") == list(range(1, number + 1))


@pytest.mark.full
def test_a_retry_reads_on_where_the_other_run_has_ended(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.materialize(events("(1)"))
    plain, retried = copy_of(DataFrame), copy_of(DataFrame, retry_policy=dg.RetryPolicy(max_retries=1))
    state = {"done": False}

    def first_the_other(genuine: Any, _: Any) -> Any:
        if not state["done"]:
            state["done"] = True
            read_on(lake, plain)
            lake.materialize(events("(2)"))
        return genuine()

    around_write(monkeypatch, first_the_other)
    assert read_on(lake, retried).success
    assert lake.rows("copied") == [1, 2]


@pytest.mark.full
def test_a_resumed_run_takes_its_own_commit_over_and_reads_the_same_again(
    lake: Lake, kept_instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two outputs one was written: the other has to be made of the same changes."""
    kept = Lake(lake.spark, lake.io_manager, kept_instance, lake.directory)
    seen: list[list[int]] = []

    @dg.multi_asset(
        ins={"events": dg.AssetIn(metadata=CHANGES)},
        outs={name: dg.AssetOut(io_manager_key="iceberg", metadata=APPEND) for name in ("left", "right")},
    )
    def both(events: pa.Table) -> tuple[pa.Table, pa.Table]:
        seen.append(events.column("id").to_pylist())
        return events, events

    def run(**kwargs: Any) -> dg.ExecuteInProcessResult:
        return kept.materialize(both, events("(0)").to_source_asset(), selection=[both], **kwargs)

    kept.materialize(events("(1)"))
    run()
    kept.materialize(events("(2)"))

    def fails_for_right(genuine: Any, plan: Any) -> Any:
        if plan.identifier.name == "right":
            message = "no"
            raise RuntimeError(message)
        return genuine()

    with monkeypatch.context() as patched:
        around_write(patched, fails_for_right)
        failed = run(raise_on_error=False)
    assert not failed.success
    kept.materialize(events("(3)"))
    error = kept.failure(both, events("(0)").to_source_asset(), selection=[both])
    assert "parts of which have not read equally far" in str(error)
    assert run(tags=resuming(failed.run_id)).success
    assert seen == [[1], [2], [2]]
    run()
    assert (kept.rows("left"), kept.rows("right")) == ([1, 2, 3], [1, 2, 3])


@pytest.mark.full
@WAYS
def test_each_partition_reads_its_own_changes(lake: Lake, annotation: Any) -> None:
    """Another partition's replacement is none of its business; its own is."""
    upstream = frame_asset("events", "select 1 as id, '{key}' as day", partitions_def=DAYS, metadata=BY_DAY)
    reader = copy_of(annotation, BY_DAY, partitions_def=DAYS)

    def run(key: str) -> None:
        lake.materialize(reader, upstream.to_source_asset(), selection=[reader], partition_key=key)

    for key in ("a", "b"):
        lake.materialize(upstream, partition_key=key)
    run("a")
    lake.materialize(upstream, partition_key="b")
    lake.session.sql("insert into lake.db.events values (2, 'a'), (2, 'b')")
    run("a")
    run("b")
    run("a")
    assert lake.rows("copied", "day", "id") == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    lake.materialize(upstream, partition_key="a")
    error = lake.failure(reader, upstream.to_source_asset(), selection=[reader], partition_key="a")
    assert "removed or rewrote rows that the input reads" in str(error)
    run("b")
    assert lake.rows("copied", "day", "id") == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


@pytest.mark.full
def test_partitions_read_together_have_read_equally_far(lake: Lake) -> None:
    upstream = frame_asset("events", "select 1 as id, '{key}' as day", partitions_def=DAYS, metadata=BY_DAY)
    reader = copy_of(DataFrame, BY_DAY, partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
    for key in DAYS.get_partition_keys():
        lake.materialize(upstream, partition_key=key)
    one: dict[str, Any] = {"selection": [reader]}
    source = upstream.to_source_asset()
    lake.materialize_range(reader, source, first="a", last="b", **one)
    lake.session.sql("insert into lake.db.events values (2, 'a'), (2, 'b'), (2, 'c')")
    lake.materialize(reader, source, partition_key="a", **one)
    lake.materialize(reader, source, partition_key="c", **one)
    tags = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "b"}
    error = lake.failure(reader, source, tags=tags, **one)
    assert error.class_name == "ChangesUnknownError"
    assert "only some of the rows that the input reads now" in str(error)
    lake.materialize(reader, source, partition_key="b", **one)
    expected = [(key, number) for key in "abc" for number in (1, 2)]
    assert lake.rows("copied", "day", "id") == expected


@pytest.mark.full
def test_all_partitions_are_the_whole_table_also_tomorrow(lake: Lake) -> None:
    """A partition that comes to be is new, although the input asks for other partitions than before."""
    days = dg.DynamicPartitionsDefinition(name="days")
    upstream = frame_asset("events", "select 1 as id, '{key}' as day", partitions_def=days, metadata=BY_DAY)
    reader = copy_of(DataFrame)
    for key in ("a", "b"):
        lake.instance.add_dynamic_partitions("days", [key])
        lake.materialize(upstream, partition_key=key)
        read_on_of(lake, reader, upstream)
    assert lake.rows("copied", "day") == ["a", "b"]


def read_on_of(lake: Lake, reader: dg.AssetsDefinition, upstream: dg.AssetsDefinition) -> None:
    lake.materialize(reader, upstream.to_source_asset(), selection=[reader])


@pytest.mark.full
def test_the_newest_partition_alone_is_read_whole_and_then_on(lake: Lake) -> None:
    days = dg.DynamicPartitionsDefinition(name="days")
    upstream = frame_asset("events", "select 1 as id, '{key}' as day", partitions_def=days, metadata=BY_DAY)
    ins = {"events": dg.AssetIn("events", metadata=CHANGES, partition_mapping=dg.LastPartitionMapping())}

    @dg.asset(ins=ins, io_manager_key="iceberg", metadata=APPEND)
    def copied(events: DataFrame) -> DataFrame:
        return events

    for key in ("a", "b"):
        lake.instance.add_dynamic_partitions("days", [key])
        lake.materialize(upstream, partition_key=key)
        read_on_of(lake, copied, upstream)
        lake.session.sql(f"insert into lake.db.events values (2, '{key}'), (3, 'elsewhere')")
        read_on_of(lake, copied, upstream)
        read_on_of(lake, copied, upstream)
    assert lake.rows("copied", "day", "id") == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


@pytest.mark.full
@WAYS
def test_an_asset_that_is_stored_elsewhere_reads_on_by_the_event_log(lake: Lake, annotation: Any) -> None:
    seen: list[list[int]] = []

    def body(events: Any) -> None:
        table = arrow_of(events) if isinstance(events, DataFrame) else events
        seen.append(sorted(table.column("id").to_pylist()))
        if seen[-1] == [2]:
            message = "before it is done"
            raise RuntimeError(message)

    body.__annotations__["events"] = annotation
    sender = dg.asset(name="sender", ins={"events": dg.AssetIn(metadata=CHANGES)})(body)
    for values in ("(1)", "(2)", "(3)", None):
        if values:
            lake.materialize(events(values))
        read_on(lake, sender, raise_on_error=False)
    assert seen == [[1], [2], [2, 3], []]


@pytest.mark.full
def test_what_is_stored_elsewhere_goes_on_from_the_run_that_has_read_furthest(lake: Lake) -> None:
    """Of two that overlap, the one that has read less is recorded last."""
    seen: list[list[int]] = []

    @dg.asset(ins={"events": dg.AssetIn(metadata=CHANGES)})
    def sender(events: pa.Table) -> None:
        seen.append(sorted(events.column("id").to_pylist()))
        if seen == [[1]]:
            lake.materialize(events_of_two)
            read_on(lake, sender)

    events_of_two = events("(2)")
    lake.materialize(events("(1)"))
    read_on(lake, sender)
    lake.materialize(events("(3)"))
    read_on(lake, sender)
    read_on(lake, sender)
    assert seen == [[1], [1, 2], [3], []]


@pytest.mark.full
def test_the_changes_that_a_run_has_read_are_read_again_after_a_roll_back(lake: Lake) -> None:
    reader = copy_of(DataFrame)
    lake.materialize(events("(1)"))
    read_on(lake, reader)
    first = lake.head("copied").snapshot_id
    lake.materialize(events("(2)"))
    run_id = read_on(lake, reader).run_id
    lake.materialize(events("(3)"))
    tags = {"iceberg/as_of_run": run_id}
    error = refused(lake, reader, tags=tags)
    assert error.class_name == "ChangesUnknownError"
    assert "roll the asset's table back" in str(error)
    lake.session.sql(f"call lake.system.rollback_to_snapshot('lake.db.copied', {first})")
    read_on(lake, reader, tags=tags)
    assert lake.rows("copied") == [1, 2]
    read_on(lake, reader)
    assert lake.rows("copied") == [1, 2, 3]


@pytest.mark.full
def test_changes_end_at_an_instant_and_never_go_back(lake: Lake) -> None:
    reader = copy_of(DataFrame)
    lake.materialize(events("(1)"))
    instant = dt.datetime.now(dt.timezone.utc).isoformat()
    lake.materialize(events("(2)"))
    read_on(lake, reader, tags={"iceberg/as_of": instant})
    assert lake.rows("copied") == [1]
    read_on(lake, reader)
    assert lake.rows("copied") == [1, 2]
    error = refused(lake, reader, tags={"iceberg/as_of": instant})
    assert error.class_name == "UpstreamMissingError"
    assert "a snapshot that is not older than" in str(error)


@pytest.mark.full
def test_a_changelog_says_what_came_and_what_went(lake: Lake) -> None:
    """Without the rows that a commit has written as they were. All rows are insertions at first."""
    columns = ["id", "_change_type", "_change_ordinal", "_commit_snapshot_id"]
    seen: list[list[tuple[Any, ...]]] = []

    def note(rows: DataFrame) -> DataFrame:
        assert rows.columns == columns
        seen.append(sorted(tuple(row) for row in rows.collect()))
        return rows

    reader = copy_of(DataFrame, asked={"iceberg/read": "changelog"}, change=note)
    lake.materialize(events("(1), (2), (3)"))
    read_on(lake, reader)
    first = lake.head("events").snapshot_id
    lake.session.sql("delete from lake.db.events where id = 1")
    second = lake.head("events").snapshot_id
    lake.materialize(events("(4)"))
    third = lake.head("events").snapshot_id
    read_on(lake, reader)
    read_on(lake, reader)
    assert seen == [
        [(number, "INSERT", 0, first) for number in (1, 2, 3)],
        [(1, "DELETE", 0, second), (4, "INSERT", 1, third)],
        [],
    ]
    assert lake.rows("copied", "id", "_change_type")[-1] == (4, "INSERT")


@pytest.mark.full
@pytest.mark.parametrize("annotation", [pa.Table, pa.RecordBatchReader, pd.DataFrame, pl.DataFrame, pl.LazyFrame])
def test_a_changelog_is_the_same_in_every_type_of_rows(lake: Lake, annotation: Any) -> None:
    """In the types of any other read: instants are of UTC, whatever the session's time zone."""
    query = "select id, timestamp '2024-01-01T00:00:00Z' + make_interval(0, 0, 0, id) as at, array(id) as ids from {}"
    seen: list[pa.Table] = []

    def note(rows: Any) -> Any:
        seen.append(as_arrow(rows, None))
        return pa.table({"n": [1]})

    asked = {"iceberg/read": "changelog", "columns": ["at", "id", "ids"], "iceberg/row_filter": "id <> 3"}
    reader = copy_of(annotation, asked=asked, change=note)
    lake.materialize(frame_asset("events", query.format("range(1, 5)"), metadata=APPEND))
    read_on(lake, reader)
    lake.session.sql("delete from lake.db.events where id = 1")
    read_on(lake, reader)
    read_on(lake, reader)
    day = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
    for rows, expected in zip(seen, ([1, 2, 4], [1], []), strict=True):
        assert rows.column_names == ["at", "id", "ids", "_change_type", "_change_ordinal", "_commit_snapshot_id"]
        assert sorted(rows.column("id").to_pylist()) == expected
        assert sorted(rows.column("at").to_pylist()) == [day + dt.timedelta(days=number) for number in expected]
        assert [list(ids) for ids in rows.column("ids").to_pylist()] == [[i] for i in rows.column("id").to_pylist()]
    assert set(seen[1].column("_change_type").to_pylist()) == {"DELETE"}
    assert seen[1].column("_commit_snapshot_id").to_pylist() == [lake.head("events").snapshot_id]


@pytest.mark.full
def test_a_changelog_of_some_columns_and_rows_is_merged_into_a_copy(lake: Lake) -> None:
    """The last change of each key decides; what went is deleted."""
    upstream = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}
    keyed = ["(1, 'a'), (2, 'b'), (3, 'c')", "(2, 'B'), (4, 'd')", "(2, 'BB')"]

    def last_of_each_key(rows: DataFrame) -> DataFrame:
        order = "named_struct('n', _change_ordinal, 'is_there', _change_type = 'INSERT')"
        last = rows.groupBy("id").agg(
            _column(rows.sparkSession, f"max_by(v, {order})").alias("v"),
            _column(rows.sparkSession, f"max_by(_change_type, {order})").alias("last"),
        )
        return last.selectExpr("id", "v", "last = 'DELETE' as gone")

    merging = {
        "iceberg/write_disposition": "merge",
        "iceberg/merge_keys": ["id"],
        "iceberg/merge": {"hard_delete": "gone"},
    }
    asked = {"iceberg/read": "changelog", "columns": ["v", "id"], "iceberg/row_filter": "id <> 4"}
    reader = copy_of(DataFrame, merging, asked=asked, change=last_of_each_key)
    for values in keyed:
        lake.materialize(frame_asset("events", f"select * from values {values} as t(id, v)", metadata=upstream))
        if "BB" not in values:
            read_on(lake, reader)
    lake.session.sql("delete from lake.db.events where id = 3")
    read_on(lake, reader)
    assert lake.rows("copied", "id", "v") == [(1, "a"), (2, "BB")]


@pytest.mark.full
def test_a_changelog_over_delete_files_is_an_error_or_a_full_read(lake: Lake) -> None:
    lake.materialize(events("(1), (2)"))
    asked = {"iceberg/read": "changelog"}
    merging = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["id"]}

    def inserted(rows: DataFrame) -> DataFrame:
        return rows.where("_change_type = 'INSERT'").select("id")

    read_on(lake, copy_of(DataFrame, merging, asked=asked, change=inserted))
    lake.session.sql("alter table lake.db.events set tblproperties ('write.delete.mode' = 'merge-on-read')")
    lake.session.sql("delete from lake.db.events where id = 1")
    error = refused(lake, copy_of(DataFrame, merging, asked=asked, change=inserted))
    assert "has delete files, which Iceberg's changelog does not support" in str(error)
    lake.materialize(events("(3)"))
    asked["iceberg/changes_fallback"] = "partitions"
    read_on(lake, copy_of(DataFrame, merging, asked=asked, change=inserted))
    assert lake.rows("copied") == [1, 2, 3]


@pytest.mark.full
def test_changes_begin_after_a_read_of_all_rows_alone(lake: Lake) -> None:
    """Rows that a limit left out have not been read, those of an older snapshot all have."""
    seen: list[int] = []

    def note(rows: pa.Table) -> pa.Table:
        seen[:] = sorted(rows.column("id").to_pylist())
        return rows

    def sink(asked: dict[str, Any]) -> dg.AssetsDefinition:
        def body(events: pa.Table) -> None:
            note(events)

        asset: dg.AssetsDefinition = dg.asset(name="sink", ins={"events": dg.AssetIn(metadata=asked)})(body)
        return asset

    lake.materialize(events("(1), (2)"))
    pinned = {"iceberg/read": "snapshot", "iceberg/snapshot_id": lake.head("events").snapshot_id}
    lake.materialize(events("(3)"))
    limited = {"iceberg/read": "snapshot", "iceberg/limit": 1}
    for asset, after in ((copy_of(pa.Table, asked=limited), copy_of(pa.Table)), (sink(limited), sink(CHANGES))):
        read_on(lake, asset)
        assert refused(lake, after).class_name == "ChangesUnknownError"
    own = copy_of(pa.Table, asked=pinned), copy_of(pa.Table, change=note)
    for asset, after in (own, (sink(pinned), sink(CHANGES))):
        read_on(lake, asset)
        read_on(lake, after)
        assert seen == [3]


@pytest.mark.full
def test_partitions_one_by_one_take_what_is_new_of_each(lake: Lake) -> None:
    """Of some of them: of all there may be more tomorrow."""
    upstream = frame_asset("events", "select 1 as id, '{key}' as day", partitions_def=DAYS, metadata=BY_DAY)
    for key in DAYS.get_partition_keys():
        lake.materialize(upstream, partition_key=key)
    seen: list[dict[str, list[int]]] = []

    def note(parts: dict[str, pa.Table]) -> pa.Table:
        seen.append({key: part.column("id").to_pylist() for key, part in parts.items()})
        return pa.concat_tables(parts.values())

    error = lake.failure(copy_of(dict[str, pa.Table]), upstream.to_source_asset(), selection=["copied"])
    assert "expected a mapping to some of the partitions" in str(error)
    some = dg.SpecificPartitionsPartitionMapping(["a", "b"])
    reader = copy_of(dict[str, pa.Table], change=note, mapping=some)
    read_on_of(lake, reader, upstream)
    lake.session.sql("insert into lake.db.events values (2, 'b'), (2, 'c')")
    read_on_of(lake, reader, upstream)
    assert seen == [{"a": [1], "b": [1]}, {"a": [], "b": [2]}]


@pytest.mark.full
def test_added_files_are_read_as_they_were_before_they_were_compacted(lake: Lake) -> None:
    """Beside delete files, which Iceberg's own scan of insertions does not take."""
    lake.materialize(events("(1), (2)"))
    lake.session.sql("alter table lake.db.events set tblproperties ('write.delete.mode' = 'merge-on-read')")
    lake.session.sql("delete from lake.db.events where id = 1")
    reader = copy_of(DataFrame)
    read_on(lake, reader)
    lake.session.range(3, 5).writeTo("lake.db.events").overwrite(_column(lake.session, "id > 2"))
    lake.session.sql("alter table lake.db.events rename column id to number")
    lake.session.sql("insert into lake.db.events values (5)")
    lake.session.sql(
        "call lake.system.rewrite_data_files(table => 'lake.db.events', options => map('rewrite-all', 'true'))"
    )
    lake.session.sql("alter table lake.db.events rename column number to id")
    read_on(lake, reader)
    assert lake.rows("copied") == [2, 3, 4, 5]


@pytest.mark.full
def test_all_rows_replace_where_it_is_unclear_what_was_read(lake: Lake) -> None:
    lake.materialize(events("(1)"))
    full = copy_of(DataFrame, asked={"iceberg/changes_fallback": "partitions"})
    read_on(lake, full)
    lake.session.sql("insert into lake.db.copied values (100)")
    lake.session.sql(EXPIRE.format("copied"))
    with dg.DagsterInstance.ephemeral() as other:
        read_on(Lake(lake.spark, lake.io_manager, other, lake.directory), full)
    assert lake.rows("copied") == [1]


@pytest.mark.full
def test_where_own_snapshots_have_expired_dagster_s_event_log_tells(lake: Lake) -> None:
    upstream = frame_asset("events", "select 1 as id, '{key}' as day", partitions_def=DAYS, metadata=BY_DAY)
    reader = copy_of(DataFrame, BY_DAY, partitions_def=DAYS)
    source = upstream.to_source_asset()
    for key in DAYS.get_partition_keys():
        lake.materialize(upstream, partition_key=key)
    for key in ("a", "b"):
        lake.materialize(reader, source, selection=[reader], partition_key=key)
    lake.session.sql(EXPIRE.format("copied"))
    lake.session.sql("insert into lake.db.events values (2, 'a')")
    for key in ("a", "c"):
        lake.materialize(reader, source, selection=[reader], partition_key=key)
    assert lake.rows("copied", "day", "id") == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]
    lake.session.sql(EXPIRE.format("copied"))
    with dg.DagsterInstance.ephemeral() as instance:
        other = Lake(lake.spark, lake.io_manager, instance, lake.directory)
        error = other.failure(reader, source, selection=[reader], partition_key="a")
    assert "older ones have expired" in str(error)


@pytest.mark.full
def test_an_upstream_table_that_was_gone_for_a_run_is_not_read_again(lake: Lake) -> None:
    reader = copy_of(
        pa.Table | None, change=lambda rows: pa.table({"id": pa.array([], pa.int32())}) if rows is None else rows
    )
    lake.materialize(events("(1)"))
    read_on(lake, reader)
    location = lake.table("events").metadata_location
    lake.session.sql("drop table lake.db.events")
    read_on(lake, reader)
    assert lake.rows("copied") == [1]
    lake.session.sql(f"call lake.system.register_table('lake.db.events', '{location}')")
    lake.materialize(events("(2)"))
    read_on(lake, reader)
    assert lake.rows("copied") == [1, 2]


def test_assets_of_one_run_read_on_by_themselves(lake: Lake) -> None:
    """Both have an input of the same name, and are stored elsewhere; one of them comes late."""
    seen: dict[str, list[list[int]]] = {"early": [], "late": []}

    def sink(name: str, **kwargs: Any) -> dg.AssetsDefinition:
        def body(events: pa.Table) -> None:
            seen[name].append(sorted(events.column("id").to_pylist()))
            if name == "early":
                lake.session.sql("insert into lake.db.events values (2)")

        asset: dg.AssetsDefinition = dg.asset(name=name, ins={"events": dg.AssetIn(metadata=CHANGES)}, **kwargs)(body)
        return asset

    early, late = sink("early"), sink("late", deps=["early"])
    lake.materialize(events("(1)"))
    source = events("(0)").to_source_asset()
    lake.materialize(early, late, source, selection=[early, late])
    lake.materialize(early, late, source, selection=[early, late])
    assert seen == {"early": [[1], [2]], "late": [[1, 2], [2]]}


@pytest.mark.full
def test_a_function_that_stores_nothing_reads_on_by_the_event_log(lake: Lake) -> None:
    seen: list[list[int]] = []

    @dg.asset(ins={"events": dg.AssetIn(metadata=CHANGES)}, io_manager_key="iceberg")
    def told(events: pa.Table) -> dg.MaterializeResult[Any]:
        seen.append(events.column("id").to_pylist())
        return dg.MaterializeResult(metadata={"sent": events.num_rows})

    for values in ("(1)", "(2)"):
        lake.materialize(events(values))
        read_on(lake, told)
    assert seen == [[1], [2]]


@pytest.mark.full
def test_a_table_that_takes_the_place_of_another_store_has_all_rows(lake: Lake) -> None:
    """What the other store had was derived from whole reads, and is not in the table."""
    lake.materialize(events("(1)"))

    @dg.asset(name="copied")
    def elsewhere(events: pa.Table) -> pa.Table:
        return events

    for reader in (elsewhere, copy_of(pa.Table)):
        read_on(lake, reader)
    assert lake.rows("copied") == [1]

"""`iceberg/changes_fallback: partitions`: rows that were replaced upstream replace what was derived from them."""

import datetime as dt
from collections import Counter
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from tests.core.behaviour.test_changes import WAYS, consumed, copy_of, events, read_on
from tests.lakes import Lake, annotation_of, dying, frame_asset, resuming

HOURS = dg.HourlyPartitionsDefinition("2013-01-01-00:00", end_date="2013-01-04-00:00")
pytestmark = pytest.mark.spark


def two_of_an_hour(value: int) -> dg.AssetsDefinition:
    """An upstream asset of hours that replaces its partitions."""
    return frame_asset(
        "events",
        f"select {{start}} as ts, {value} as v union all select {{start}} + interval 1 minute, {value}",
        partitions_def=HOURS,
        metadata={"partition_expr": "ts"},
    )


@WAYS
@pytest.mark.full
def test_replaced_rows_are_read_anew_and_replace_the_partitions_that_were_made_of_them(
    lake: Lake, annotation: Any
) -> None:
    days = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-01-04")
    mapping = dg.TimeWindowPartitionMapping()
    asked = {"iceberg/changes_fallback": "partitions", "iceberg/missing": "empty"}
    loaded = annotation_of(annotation, lake)
    reader = copy_of(loaded, {"partition_expr": "ts"}, asked=asked, mapping=mapping, partitions_def=days)

    def write(hour: str, value: int) -> None:
        lake.materialize(two_of_an_hour(value), partition_key=hour)

    def read(day: str) -> str:
        lake.materialize(reader, two_of_an_hour(0), selection=[reader], partition_key=day)
        return lake.summaries("copied")[-1]["dagster.write_disposition"]

    def copied() -> Counter[tuple[dt.date, int]]:
        return Counter((ts.date(), v) for ts, v in lake.rows("copied", "ts", "v"))

    first, second = dt.date(2013, 1, 1), dt.date(2013, 1, 2)
    write("2013-01-01-00:00", 1)
    write("2013-01-02-00:00", 1)
    assert [read("2013-01-01"), read("2013-01-02")] == ["append", "append"]
    write("2013-01-01-05:00", 2)
    assert read("2013-01-01") == "append"
    assert copied() == {(first, 1): 2, (first, 2): 2, (second, 1): 2}
    write("2013-01-01-00:00", 3)
    assert read("2013-01-01") == "replace"
    assert consumed(lake)["repeated"]
    assert copied() == {(first, 3): 2, (first, 2): 2, (second, 1): 2}
    assert read("2013-01-02") == "append", "of another day, rows were replaced"
    write("2013-01-01-07:00", 4)
    assert read("2013-01-01") == "append"
    assert copied() == {(first, 3): 2, (first, 2): 2, (first, 4): 2, (second, 1): 2}


@pytest.mark.full
def test_an_asset_without_partitions_is_replaced_as_a_whole(lake: Lake) -> None:
    reader = copy_of(pa.Table, asked={"iceberg/changes_fallback": "partitions"})
    lake.materialize(events("(1), (2)"))
    read_on(lake, reader)
    lake.session.sql("delete from lake.db.events where id = 1")
    lake.materialize(events("(3)"))
    read_on(lake, reader)
    assert lake.rows("copied") == [2, 3]
    lake.materialize(events("(4)"))
    read_on(lake, reader)
    assert lake.rows("copied") == [2, 3, 4]


@pytest.mark.full
def test_a_replacement_that_died_after_its_commit_is_adopted(kept_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = kept_lake
    reader = copy_of(pa.Table, asked={"iceberg/changes_fallback": "partitions"})
    lake.materialize(events("(1), (2)"))
    read_on(lake, reader)
    lake.session.sql("delete from lake.db.events where id = 1")
    with dying(monkeypatch):
        failed = read_on(lake, reader, raise_on_error=False)
    lake.materialize(events("(3)"))
    snapshots = len(lake.table("copied").snapshots())
    assert read_on(lake, reader, tags=resuming(failed.run_id)).success
    assert (lake.rows("copied"), len(lake.table("copied").snapshots())) == ([2], snapshots)
    read_on(lake, reader)
    assert lake.rows("copied") == [2, 3]

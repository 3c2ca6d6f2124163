"""Writes without a JVM: the same promises as those of Spark."""

import _thread
import datetime as dt
import re
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitStateUnknownException

from dagster_iceberg_spark.arrow.write import files
from dagster_iceberg_spark.catalog import data_commit, transaction
from tests.core.arrow.writing import DAYS, ArrowLake, metadata_of

if TYPE_CHECKING:
    from tests.lakes import Lake

DAY = {"partition_expr": "at"}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[ArrowLake]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield ArrowLake(tmp_path, instance)


def day(number: int, *values: int, hour: int = 0) -> pa.Table:
    """Rows of a day of January 2024."""
    at = dt.datetime(2024, 1, number, hour, tzinfo=dt.timezone.utc)
    return pa.table({"at": pa.array([at] * len(values), pa.timestamp("us", "UTC")), "v": pa.array(values, pa.int64())})


def days(first: int, last: int) -> pa.Table:
    return pa.concat_tables(day(number, number) for number in range(first, last + 1))


def write_day(lake: ArrowLake, number: int, *values: int, **metadata: Any) -> dg.ExecuteInProcessResult:
    key = f"2024-01-{number:02d}"
    return lake.write(day(number, *values), key=key, partitions_def=DAYS, metadata={**DAY, **metadata})


def failure(lake: ArrowLake, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(dg.Failure) as caught:
        lake.write(*args, **kwargs)
    return str(caught.value.description)


@pytest.mark.parametrize(
    "rows",
    [
        pd.DataFrame({"v": [1, 2]}),
        pl.DataFrame({"v": [1, 2]}),
        pl.LazyFrame({"v": [1, 2]}),
        pa.table({"v": [1, 2]}),
        lambda: pa.RecordBatchReader.from_batches(
            pa.schema({"v": pa.int64()}), iter([pa.record_batch({"v": [1]}), pa.record_batch({"v": [2]})])
        ),
    ],
    ids=["pandas", "polars", "lazy", "arrow", "stream"],
)
def test_rows_of_any_library_are_one_snapshot(lake: ArrowLake, rows: Any) -> None:
    reported = metadata_of(lake.write(rows))
    assert (lake.rows("v"), lake.operations()) == ([1, 2], ["overwrite"])
    assert (reported["dagster/row_count"], reported["iceberg/operation"]) == (2, "overwrite")
    assert reported["iceberg/snapshot_id"] == str(lake.table().metadata.current_snapshot_id)


def test_a_partition_is_replaced_exactly(lake: ArrowLake) -> None:
    for number, values in ((1, (1, 1)), (2, (2,)), (1, (3,)), (1, ())):
        write_day(lake, number, *values)
        assert lake.rows("v").count(number) == len(values) or values == (3,)
    assert lake.rows("v") == [2]
    assert lake.operations() == ["overwrite", "overwrite", "overwrite", "delete"]
    assert [str(field.transform) for field in lake.table().spec().fields] == ["day"]


def test_many_days_in_one_run_are_one_snapshot_with_a_file_for_each(lake: ArrowLake) -> None:
    lake.write_days(days(1, 5), "2024-01-01", "2024-01-05")
    counts = {
        item.partition: item.metadata["dagster/partition_row_count"].value
        for item in lake.write_days(days(2, 4), "2024-01-02", "2024-01-04").asset_materializations_for_node("t")
    }
    assert counts == dict.fromkeys(["2024-01-02", "2024-01-03", "2024-01-04"], 1)
    assert (lake.rows("v"), len(lake.files()), len(lake.operations())) == ([1, 2, 3, 4, 5], 5, 2)


def test_rows_of_other_partitions_in_the_same_file_are_carried_over(lake: ArrowLake) -> None:
    """In a table without partition fields, one file has several days."""
    flat = {**DAY, "iceberg/partition_by": []}
    lake.write_days(days(1, 5), "2024-01-01", "2024-01-05", **flat)
    unknown = pa.table({"at": pa.nulls(1, pa.timestamp("us", "UTC")), "v": [-1]})
    lake.write(unknown, metadata={**flat, "iceberg/write_disposition": "append"})
    reported = metadata_of(write_day(lake, 3, 30, 31, **flat))
    assert (lake.rows("v"), lake.operations()[-1]) == ([-1, 1, 2, 4, 5, 30, 31], "overwrite")
    assert (reported["iceberg/carried_over_rows"], reported["iceberg/retries"]) == (4, 0)
    assert len(lake.operations()) == 3


def test_carried_rows_that_another_writer_changes_are_planned_again(
    lake: ArrowLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    flat = {**DAY, "iceberg/partition_by": []}
    lake.write_days(days(1, 3), "2024-01-01", "2024-01-03", **flat)
    other = ArrowLake(lake.directory, lake.instance)
    once(monkeypatch, data_commit, "commit_table", before=lambda: write_day(other, 1, 10, **flat))
    reported = metadata_of(write_day(lake, 3, 30, **flat))
    assert (lake.rows("v"), reported["iceberg/retries"]) == ([2, 10, 30], 1)


@pytest.mark.parametrize("transform", ["bucket(4, k)", "truncate(3, k)"])
def test_rows_of_other_buckets_in_files_of_an_older_spec_are_carried_over(lake: ArrowLake, transform: str) -> None:
    everything = pa.table({"k": [*range(20), None], "v": range(21)})
    lake.write(everything, name="by_bucket", metadata={"iceberg/partition_by": [transform]})
    of_bucket = [
        set(pq.read_table(file.file_path.removeprefix("file:"))["v"].to_pylist()) for file in lake.files("by_bucket")
    ]
    lake.write(everything)
    touched = {"iceberg/write_disposition": "overwrite_partitions", "iceberg/partition_by": [transform]}
    lake.write(pa.table({"k": [3], "v": [100]}), metadata=touched)
    (replaced,) = (values for values in of_bucket if 3 in values)
    assert lake.rows("v") == sorted({*range(21), 100} - replaced)


def test_an_interrupted_write_commits_nothing_and_leaves_no_files(
    lake: ArrowLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = list[str]()
    write_day(lake, 1, 1)
    monkeypatch.setattr(dg.DagsterLogManager, "info", lambda _, line: lines.append(line))
    once(monkeypatch, files.DataFiles, "write", after=_thread.interrupt_main)
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        write_day(lake, 1, 2)
    assert "Interrupted: the write of db.t is stopped, nothing is committed." in lines
    assert (lake.rows("v"), len(list(lake.directory.glob("**/*.parquet")))) == ([1], 1)


@pytest.mark.parametrize(
    "rows", [pa.array([2932897, -719529], pa.int32()).cast(pa.date32()), pa.array([b"\xff"]).view(pa.string())]
)
def test_values_that_python_does_not_have_are_left_to_spark(lake: ArrowLake, rows: pa.Array) -> None:
    write_day(lake, 1, 1)
    assert "pyiceberg cannot compute the bounds of a data file" in failure(lake, pa.table({"odd": rows}))
    assert len(list(lake.directory.glob("**/*.parquet"))) == 1


def test_the_other_dispositions(lake: ArrowLake) -> None:
    append = {"iceberg/write_disposition": "append"}
    write_day(lake, 1, 1)
    write_day(lake, 1, 2, **append)
    assert (lake.rows("v"), lake.operations()[-1]) == ([1, 2], "append")
    touched = {"iceberg/write_disposition": "overwrite_partitions", "iceberg/partition_by": ["day(at)"]}
    lake.write(days(2, 3), metadata=touched)
    lake.write(day(2, 20), metadata=touched)
    lake.write(day(2), metadata=touched)
    assert lake.rows("v") == [1, 2, 3, 20]
    write_day(lake, 3, **append)
    assert lake.rows("v") == [1, 2, 3, 20]
    assert len(lake.operations()) == 6


def test_replace_where_removes_whole_files(lake: ArrowLake) -> None:
    where = {"iceberg/write_disposition": "merge", "iceberg/partition_by": ["v"]}
    merge = {"strategy": "replace_where", "where": "v = 1"}
    lake.write(pa.table({"v": [1, 2], "w": [1, 1]}), metadata={"iceberg/partition_by": ["v"]})
    lake.write(pa.table({"v": [1], "w": [5]}), metadata={**where, "iceberg/merge": merge})
    assert lake.rows() == [(1, 5), (2, 1)]


def test_keys_and_several_dimensions(lake: ArrowLake) -> None:
    both = dg.MultiPartitionsDefinition({"day": DAYS, "place": dg.StaticPartitionsDefinition(["a", "b"])})
    for number, place, value in ((1, "a", 1), (1, "b", 2), (2, "a", 3), (1, "a", 4)):
        rows = day(number, value).append_column("place", pa.array([place]))
        key = dg.MultiPartitionKey({"day": f"2024-01-{number:02d}", "place": place})
        lake.write(rows, key=key, partitions_def=both, metadata={"partition_expr": {"day": "at", "place": "place"}})
    assert lake.rows("v") == [2, 3, 4]


def test_rows_outside_of_the_partition_are_refused_or_dropped(lake: ArrowLake) -> None:
    asked: Any = {"key": "2024-01-01", "partitions_def": DAYS}
    found = failure(lake, days(1, 2), metadata=DAY, **asked)
    assert "a row with at=2024-01-02T00:00:00+00:00 in the run of" in found
    assert "Nothing was committed; what stays: the table was created and is empty" in found
    assert not list((lake.directory / "wh" / "db" / "t" / "data").rglob("*.parquet"))
    nothing = pa.table({"at": pa.nulls(1, pa.timestamp("us", "UTC")), "v": [9]})
    assert "at=NULL" in failure(lake, nothing, metadata=DAY, **asked)
    rows = pa.concat_tables([days(1, 2), nothing])
    dropped = lake.write(rows, metadata={**DAY, "iceberg/rows_outside_partition": "drop"}, **asked)
    assert (lake.rows("v"), metadata_of(dropped)["iceberg/dropped_rows"]) == ([1], 2)


def test_values_and_types_do_not_change(lake: ArrowLake) -> None:
    instant = dt.datetime(1, 1, 1, tzinfo=dt.timezone.utc)
    inner = pa.struct([("a b", pa.int64()), ("l", pa.list_(pa.struct([("x.y", pa.int32())])))])
    rows = pa.table(
        {
            "it's": [1, 2],
            "s.t": pa.array([{"a b": 1, "l": [{"x.y": 1}, None]}, None], inner),
            "m": pa.array([[("k", {"z": 2})], []], pa.map_(pa.string(), pa.struct([("z", pa.int32())]))),
            "f": [float("nan"), -0.0],
            "d": pa.array([Decimal("-1.23"), None], pa.decimal128(30, 2)),
            "small": pa.array([Decimal("1.5"), None], pa.decimal128(5, 1)),
            "ts": pa.array([dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)], pa.timestamp("us")),  # noqa: DTZ001
            "tz": pa.array([instant, None], pa.timestamp("us", "UTC")),
            "b": [b"\0\xff", None],
            "o": [True, None],
            "day": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
            "long": ["x" * 40, "é" * 30],
        }
    )
    lake.write(rows)
    stored = lake.table().scan().to_arrow()
    assert stored.column_names == rows.column_names
    assert str(stored.column("f")[1]) == "-0.0"
    assert [row | {"f": None} for row in stored.to_pylist()] == [row | {"f": None} for row in rows.to_pylist()]
    [file] = lake.files()
    schema = lake.table().schema()
    assert file.nan_value_counts[schema.find_field("f").field_id] == 1
    assert file.lower_bounds[schema.find_field("long").field_id] == b"x" * 16


def test_the_columns_of_a_table_evolve(lake: ArrowLake) -> None:
    lake.write(pa.table({"a": pa.array([1], pa.int32()), "s": [{"x": 1}]}))
    lake.write(
        pa.table({"s": [{"y": 2}], "a": [2**40], "new": ["n"]}), metadata={"iceberg/write_disposition": "append"}
    )
    stored = sorted(lake.table().scan().to_arrow().to_pylist(), key=lambda row: row["a"])
    assert stored == [
        {"a": 1, "s": {"x": 1, "y": None}, "new": None},
        {"a": 2**40, "s": {"x": None, "y": 2}, "new": "n"},
    ]
    found = failure(lake, pa.table({"a": [2**40], "new": [None]}), metadata={"iceberg/required_columns": ["new"]})
    assert "NULL in the column 'new'" in found
    assert "expected the column 'a' of type long" in failure(lake, pa.table({"a": ["text"]}))


def test_a_table_follows_its_definition(lake: ArrowLake) -> None:
    metadata = {
        "iceberg/partition_by": ["bucket(4, v) as part"],
        "iceberg/sort_by": ["w desc"],
        "iceberg/identifier_fields": ["v"],
        "iceberg/table_properties": {
            "write.parquet.compression-codec": "snappy",
            "write.parquet.compression-level": "3",
            "color": "red",
        },
        "iceberg/write_options": {"target-file-size-bytes": "1"},
    }
    lake.write(pa.table({"v": [1, 1, 1], "w": [2, 3, 1]}), metadata=metadata)
    table = lake.table()
    assert ([field.name for field in table.spec().fields], table.properties["color"]) == (["part"], "red")
    assert (table.schema().identifier_field_ids, len(table.sort_order().fields)) == ([1], 1)
    assert table.scan().to_arrow().column("w").to_pylist() == [3, 2, 1]
    changed = {**metadata, "iceberg/partition_by": ["v", "truncate(10, w)"], "iceberg/sort_by": []}
    lake.write(pa.table({"v": [1], "w": [2]}), metadata={**changed, "iceberg/write_disposition": "append"})
    table = lake.table()
    assert [str(field.transform) for field in table.spec().fields] == ["identity", "truncate[10]"]
    assert (len(table.sort_order().fields), lake.rows("w")) == (0, [1, 2, 2, 3])


def test_a_stream_is_spilled_and_gives_one_file_for_each_partition(
    lake: ArrowLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster_iceberg_spark.arrow.write.rows.CHUNK_BYTES", 64)
    lake.options["arrow_bytes"] = 100
    batches = [batch for _ in range(20) for batch in days(1, 4).to_batches()]
    rows = pa.RecordBatchReader.from_batches(batches[0].schema, iter(batches))
    lake.write_days(rows, "2024-01-01", "2024-01-04")
    assert (len(lake.rows("v")), sorted(file.record_count for file in lake.files())) == (80, [20] * 4)


def test_an_error_of_the_asset_s_own_stream_is_raised_as_it_is(lake: ArrowLake) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"v": [1]})
        raise ConnectionError("the source is gone")

    with pytest.raises(ConnectionError, match="the source is gone"):
        lake.write(lambda: pa.RecordBatchReader.from_batches(pa.schema({"v": pa.int64()}), broken()))
    assert not lake.spark.pyiceberg_catalog.table_exists(("db", "t"))


def test_a_dataframe_of_spark_is_refused_by_arrow(lake: ArrowLake) -> None:
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.classic.dataframe"})
    assert "that the asset has returned a DataFrame of Spark" in failure(lake, frame)


AUDITS = {
    "positive": "v > 0 or v is null",
    "known": {"not_null": ["w"]},
    "once": {"unique": ["v"]},
    "enough": "count(*) >= 2",
}


def test_audits_hold_rows_back_or_publish_them(lake: ArrowLake) -> None:
    metadata = {"iceberg/audits": AUDITS}
    result = lake.write(pa.table({"v": [1, 2, None], "w": ["a", "b", "c"]}), metadata=metadata)
    assert metadata_of(result)["iceberg/publication"] == "fast-forward"
    assert list(lake.table().refs()) == ["main"]
    found = failure(lake, pa.table({"v": [-1, 5, 5, -2], "w": ["a", None, "c", "d"]}), metadata=metadata)
    for expected in (
        "`positive` (v > 0 or v is null): failing rows = 2, such as (v=-1) and (v=-2)",
        "`known` (not null w): NULL in w = 1, such as (w=NULL)",
        "`once` (unique v): repeated rows = 1, such as (v=5, number of rows=2)",
        "To look at them: SELECT * FROM lake.db.t.branch_dagster_",
    ):
        assert expected in found
    assert lake.rows("w") == ["a", "b", "c"]
    assert "`enough`" in failure(lake, pa.table({"v": [1], "w": ["a"]}), metadata=metadata)


def test_a_branch_begins_at_the_head_of_main(lake: ArrowLake) -> None:
    write_day(lake, 1, 1)
    write_day(lake, 2, 2, **{"iceberg/branch": "review"})
    branch = lake.table().scan().use_ref("review").to_arrow()
    assert (lake.rows("v"), sorted(branch.column("v").to_pylist())) == ([1], [1, 2])


def test_rows_are_staged_for_a_release(lake: ArrowLake) -> None:
    reported = metadata_of(lake.write(pa.table({"v": [1]}), metadata={"iceberg/publish": "release"}))
    branch = reported["iceberg/staged_branch"]
    assert [row["v"] for row in lake.table().scan().use_ref(branch).to_arrow().to_pylist()] == [1]
    assert list(lake.table().refs()) == [branch]


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"iceberg/format_version": 3}, "format version 3"),
        ({"iceberg/partition_by": ["truncate(1, b)"]}, "does not truncate binary values"),
        ({"iceberg/table_properties": {"write.format.default": "orc"}}, "in the format orc"),
        ({"iceberg/table_properties": {"write.parquet.bloom-filter-enabled.column.v": "true"}}, "bloom-filter"),
        ({"iceberg/write_options": {"isolation-level": "snapshot"}}, "isolation-level is Spark's"),
        ({"iceberg/audits": {"typical": "avg(v) < 10"}}, "the audit 'typical'"),
    ],
)
def test_what_needs_spark_is_refused_by_name_before_anything_is_written(
    lake: ArrowLake, metadata: dict[str, Any], reason: str
) -> None:
    found = failure(lake, pa.table({"v": [1], "b": [b"b"]}), metadata=metadata)
    assert re.search(f"Cannot write db.t by Arrow: expected a write that needs no Spark, found that .*{reason}", found)
    assert not lake.spark.pyiceberg_catalog.table_exists(("db", "t"))


def once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, before: Any = None, after: Any = None) -> None:
    original, left = getattr(owner, name), [True]

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        is_first = bool(left) and bool(left.pop())
        if is_first and before is not None:
            before()
        result = original(*args, **kwargs)
        if is_first and after is not None:
            after()
        return result

    monkeypatch.setattr(owner, name, wrapped)


def lost() -> None:
    raise CommitStateUnknownException("no answer")


def test_a_commit_whose_answer_is_lost_is_found_by_its_token(lake: ArrowLake, monkeypatch: pytest.MonkeyPatch) -> None:
    once(monkeypatch, transaction, "_commit_by_sql", after=lost)
    reported = metadata_of(lake.write(pa.table({"v": [1]})))
    assert (lake.rows("v"), len(lake.operations()), reported["iceberg/retries"]) == ([1], 1, 0)


def test_a_commit_whose_outcome_stays_unknown_is_not_made_again(
    lake: ArrowLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster_iceberg_spark.commit.outcome.SETTLING_SECONDS", (0.0, 0.0))
    lake.write(pa.table({"v": [1]}))
    once(monkeypatch, transaction, "_commit_by_sql", before=lost)
    found = failure(lake, pa.table({"v": [2]}))
    assert "expected a snapshot with `dagster.commit_token`" in found
    assert lake.rows("v") == [1]


def test_another_writer_s_commit_of_other_rows_is_no_conflict(lake: ArrowLake, monkeypatch: pytest.MonkeyPatch) -> None:
    write_day(lake, 1, 1)
    other = ArrowLake(lake.directory, lake.instance)
    once(monkeypatch, data_commit, "commit_table", before=lambda: write_day(other, 2, 2))
    reported = metadata_of(write_day(lake, 1, 3))
    assert (lake.rows("v"), reported["iceberg/retries"]) == ([2, 3], 0)
    once(monkeypatch, data_commit, "commit_table", before=lambda: write_day(other, 1, 4))
    write_day(lake, 1, 5)
    assert lake.rows("v") == [2, 5]


def test_a_spec_that_another_writer_changes_is_kept(lake: ArrowLake, monkeypatch: pytest.MonkeyPatch) -> None:
    write_day(lake, 1, 1)

    def evolve() -> None:
        with lake.table().update_spec() as spec:
            spec.add_identity("v")

    once(monkeypatch, data_commit, "commit_table", before=evolve)
    write_day(lake, 2, 2)
    write_day(lake, 1, 3)
    assert (lake.rows("v"), len(lake.table().spec().fields)) == ([2, 3], 2)


def test_old_metadata_files_are_deleted_and_manifests_are_merged(lake: ArrowLake) -> None:
    properties = {"write.metadata.previous-versions-max": "2", "commit.manifest.min-count-to-merge": "3"}
    for number in range(1, 7):
        write_day(lake, number, number, **{"iceberg/table_properties": properties})
    metadata = list((lake.directory / "wh" / "db" / "t" / "metadata").glob("*.metadata.json"))
    assert len(metadata) == 3
    snapshot = lake.table().current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(lake.table().io)) <= 3
    assert lake.rows("v") == [1, 2, 3, 4, 5, 6]


def test_a_run_without_pyspark_writes_and_reads(tmp_path: Path) -> None:
    script = tmp_path / "quick_start.py"
    script.write_text(_WITHOUT_PYSPARK)
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[2, 4] False"


_WITHOUT_PYSPARK = """
import sys
import dagster as dg
import pandas as pd

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refuse())
from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog

spark = IcebergSparkResource(catalog=SqlCatalog(uri="sqlite:///catalog.db", warehouse="wh"))

@dg.asset(io_manager_key="iceberg")
def numbers():
    return pd.DataFrame({"v": [1, 2]})

@dg.asset(io_manager_key="iceberg")
def doubled(numbers: pd.DataFrame):
    return numbers * 2

dg.materialize([numbers, doubled], resources={"iceberg": IcebergPySparkIOManager(spark=spark, namespace="db")})
rows = spark.pyiceberg_catalog.load_table("db.doubled").scan().to_arrow()
print(rows["v"].to_pylist(), "pyspark" in sys.modules)
"""


@pytest.mark.spark
@pytest.mark.full
def test_rows_that_are_deleted_while_they_are_carried_over_stay_deleted(
    classic_lake: "Lake", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark writes a file of deleted rows, and leaves the data file that is being rewritten as it is."""
    properties = {"write.delete.mode": "merge-on-read"}
    flat = {**DAY, "iceberg/partition_by": [], "iceberg/table_properties": properties}
    lake = classic_lake.with_options(engine="arrow")

    def write(rows: pa.Table, first: str, last: str) -> dg.ExecuteInProcessResult:
        policy = dg.BackfillPolicy.single_run()
        asset: dg.AssetsDefinition = dg.asset(
            name="t", io_manager_key="iceberg", partitions_def=DAYS, metadata=flat, backfill_policy=policy
        )(lambda: rows)
        return lake.materialize_range(asset, first=first, last=last)

    write(days(1, 3), "2024-01-01", "2024-01-03")
    delete = "delete from lake.db.t where v = 1"
    once(monkeypatch, data_commit, "commit_table", before=lambda: lake.session.sql(delete))
    write(day(3, 30), "2024-01-03", "2024-01-03")
    assert lake.rows("t", "v") == [2, 30]
    write(day(2, 20), "2024-01-02", "2024-01-02")
    assert lake.rows("t", "v") == [20, 30]

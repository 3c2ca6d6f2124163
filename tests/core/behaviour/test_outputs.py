"""Assets that return rows as other libraries have them: written through the same path, with the same promises."""

import datetime as dt
import logging
import tempfile
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from dagster_iceberg_spark.arrow import outputs
from dagster_iceberg_spark.spark.read import frames
from tests.core.behaviour.test_loads import DAYS, MATRIX, capture, plain
from tests.lakes import Lake, arrow_of, error_of, frame_asset

pytestmark = pytest.mark.spark

UTC = dt.timezone.utc
BATCH = pa.RecordBatch.from_pylist([{"id": 1, "s": "a"}, {"id": 2, "s": None}])
ROWS = [(1, "a"), (2, None)]
FORMS: dict[str, Callable[[], Any]] = {
    "pyarrow.Table": lambda: pa.Table.from_batches([BATCH]),
    "pyarrow.RecordBatch": lambda: BATCH,
    "pyarrow.RecordBatchReader": lambda: pa.RecordBatchReader.from_batches(BATCH.schema, [BATCH]),
    "pandas.DataFrame": BATCH.to_pandas,
    "polars.DataFrame": lambda: pl.DataFrame(BATCH),
    "polars.LazyFrame": lambda: pl.LazyFrame({"id": [1, 2], "s": ["a", None]}),
    "duckdb": lambda: duckdb.from_arrow(pa.Table.from_batches([BATCH])),
    "ibis": lambda: ibis.memtable(pa.Table.from_batches([BATCH])),
    "iterator of batches": lambda: iter([BATCH[:1], BATCH[1:]]),
    "iterator of tables": lambda: iter([pa.Table.from_batches([BATCH])]),
}


def returning(make: Callable[[], Any], name: str = "t", **kwargs: Any) -> dg.AssetsDefinition:
    """An asset that returns what the function makes."""

    def body() -> Any:
        return make()

    asset: dg.AssetsDefinition = dg.asset(name=name, io_manager_key="iceberg", **kwargs)(body)
    return asset


def streaming(make: Callable[[], Iterator[Any]]) -> dg.AssetsDefinition:
    """An asset that returns a generator: Dagster takes a bare one for its own events."""

    @dg.asset(io_manager_key="iceberg")
    def t() -> dg.Output[Any]:
        return dg.Output(make())

    return t


@pytest.mark.each_engine("quick", "all")
@pytest.mark.feature("rows of PyArrow, pandas, polars")
@pytest.mark.parametrize("make", FORMS.values(), ids=list(FORMS))
def test_rows_of_every_library_are_written(lake: Lake, make: Callable[[], Any]) -> None:
    lake.materialize(returning(make))
    assert lake.arrow("t").sort_by("id").to_pylist() == [{"id": id_, "s": text} for id_, text in ROWS]
    (summary,) = lake.summaries("t")
    assert (summary["added-records"], summary["dagster.asset_key"]) == ("2", "t")


@pytest.mark.each_engine
def test_all_types_are_written_as_they_are(lake: Lake) -> None:
    """Rows that Spark has written, read as Arrow, and written again, are the same rows of the same types."""
    upstream = frame_asset("first", MATRIX)
    lake.materialize(upstream)
    first = capture(lake, upstream, pa.Table)
    lake.materialize(returning(lambda: first, "second"))
    schemas = [lake.session.table(f"lake.db.{name}").schema.simpleString() for name in ("first", "second")]
    assert schemas[0] == schemas[1]
    tables = [arrow_of(lake.session.table(f"lake.db.{name}").orderBy("i")).to_pylist() for name in ("first", "second")]
    assert plain(tables[0]) == plain(tables[1])


WIDENED: dict[str, tuple[pa.Array, str, list[Any]]] = {
    "uint8": (pa.array([255], pa.uint8()), "int", [255]),
    "uint32": (pa.array([2**32 - 1], pa.uint32()), "long", [2**32 - 1]),
    "uint64": (pa.array([2**64 - 1], pa.uint64()), "decimal(20, 0)", [Decimal(2**64 - 1)]),
    "float16": (pa.array(np.array([0.5], np.float16)), "float", [0.5]),
    "dictionary": (pa.array(["a"]).dictionary_encode(), "string", ["a"]),
    "large_string": (pa.array(["a"], pa.large_string()), "string", ["a"]),
    "string_view": (pa.array(["a"], pa.string_view()), "string", ["a"]),
    "fixed binary": (pa.array([b"ab"], pa.binary(2)), "binary", [b"ab"]),
    "uuid": (pa.array([uuid.UUID(int=1).bytes], pa.uuid()), "string", [str(uuid.UUID(int=1))]),
    "nanoseconds": (pa.array([1000], pa.timestamp("ns")), "timestamp", [dt.datetime(1970, 1, 1, 0, 0, 0, 1)]),  # noqa: DTZ001
    "zone": (pa.array([0], pa.timestamp("s", "Asia/Tokyo")), "timestamptz", [dt.datetime(1970, 1, 1, tzinfo=UTC)]),
    "wall clock": (pa.array([0], pa.timestamp("s")), "timestamp", [dt.datetime(1970, 1, 1)]),  # noqa: DTZ001
    "date64": (pa.array([86400000], pa.date64()), "date", [dt.date(1970, 1, 2)]),
    "list of categories": (pa.array([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))), "list<string>", [["a"]]),
    "fixed list": (pa.array([[1, 2]], pa.list_(pa.int32(), 2)), "list<int>", [[1, 2]]),
}


@pytest.mark.sample(5)
@pytest.mark.each_engine
@pytest.mark.parametrize(("column", "expected_type", "values"), WIDENED.values(), ids=list(WIDENED))
def test_a_type_that_iceberg_lacks_becomes_one_that_holds_its_values(
    lake: Lake, column: pa.Array, expected_type: str, values: list[Any]
) -> None:
    lake.materialize(returning(lambda: pa.table({"c": column})))
    assert str(lake.table("t").schema().find_field("c").field_type) == expected_type
    assert lake.rows("t", "c") == values


@pytest.mark.full
def test_categories_are_their_texts(lake: Lake) -> None:
    frame = pl.DataFrame(
        {
            "c": pl.Series(["a", None, "b"], dtype=pl.Categorical),
            "e": pl.Series(["x", "y", None], dtype=pl.Enum(["x", "y"])),
        }
    )
    lake.materialize(returning(lambda: frame))
    assert lake.arrow("t").to_pylist() == [{"c": "a", "e": "x"}, {"c": None, "e": "y"}, {"c": "b", "e": None}]
    lake.materialize(returning(lambda: pd.DataFrame({"c": pd.Categorical(["a"]), "e": ["x"]})))
    assert lake.arrow("t").to_pylist() == [{"c": "a", "e": "x"}]


@pytest.mark.each_engine
def test_a_value_that_would_change_is_refused(lake: Lake) -> None:
    error = lake.failure(returning(lambda: pa.table({"c": pa.array([1001], pa.timestamp("ns"))})))
    assert (error.class_name, error.allow_retries) == ("OutputTypeError", False)
    assert "values of 'c' that the type timestamp[us] holds" in str(error)
    assert not lake.exists("t")


@pytest.mark.full
def test_the_index_of_pandas_is_a_column_where_it_has_a_name(lake: Lake) -> None:
    frame = pd.DataFrame({"day": ["a", "a", "b"], "v": [1, 2, 3]})
    lake.materialize(returning(lambda: frame.groupby("day").sum(), "sums"))
    lake.materialize(returning(lambda: frame[frame.v > 1], "kept"))
    assert lake.arrow("sums").sort_by("day").to_pylist() == [{"day": "a", "v": 3}, {"day": "b", "v": 3}]
    assert lake.arrow("kept").column_names == ["day", "v"]


@pytest.mark.full
def test_partitions_and_merges_hold_for_rows_too(lake: Lake) -> None:
    def rows(*days: int) -> pa.Table:
        return pa.table({"day": [dt.date(2013, 1, day) for day in days], "v": list(days)})

    metadata = {"partition_expr": "day"}
    day = returning(lambda: rows(1), "by_day", partitions_def=DAYS, metadata=metadata)
    lake.materialize(day, partition_key="2013-01-01")
    stray = returning(lambda: rows(1, 2), "by_day", partitions_def=DAYS, metadata=metadata)
    assert lake.failure(stray, partition_key="2013-01-01").class_name == "RowsOutsidePartitionError"
    assert lake.rows("by_day", "v") == [1]
    merged = {"iceberg/write_disposition": "merge", "iceberg/merge_keys": ["v"]}
    for days in ((1, 2), (2, 3)):
        lake.materialize(returning(partial(rows, *days), "merged", metadata=merged))
    assert lake.rows("merged", "v") == [1, 2, 3]


def test_no_rows_are_a_snapshot_and_keep_the_columns(lake: Lake) -> None:
    lake.materialize(returning(lambda: BATCH))
    lake.materialize(returning(lambda: BATCH[:0]))
    assert lake.arrow("t").num_rows == 0
    assert len(lake.summaries("t")) == 2


def test_what_spark_makes_of_nested_columns_without_elements_is_written(lake: Lake) -> None:
    """pyarrow measures it by a read of offsets that are not there, which ends the process (SPARK-55056)."""
    query = "select 1 as id, cast(null as map<int, array<string>>) as m, cast(array() as array<map<int, string>>) as l"
    rows = arrow_of(lake.session.sql(query))
    lake.materialize(returning(lambda: rows))
    assert lake.arrow("t").to_pylist() == [{"id": 1, "m": None, "l": []}]


@pytest.mark.full
def test_a_column_of_nothing_but_null_fits_one_that_is_there(lake: Lake) -> None:
    lake.materialize(returning(lambda: BATCH))
    lake.materialize(returning(lambda: pa.table({"s": pa.nulls(2), "id": [7, 8]})))
    assert lake.arrow("t").to_pylist() == [{"id": 7, "s": None}, {"id": 8, "s": None}]
    lake.materialize(returning(lambda: pa.table({"s": pa.nulls(3), "id": pa.nulls(3)})))
    assert lake.arrow("t").to_pylist() == [{"id": None, "s": None}] * 3


@pytest.mark.by_spark
@pytest.mark.full
def test_batches_are_written_as_they_come(lake: Lake, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The iterator is asked for the next batch when the one before has gone: to a file, or in a chunk to a server."""
    rows = 250_000 if engine == "classic" else 50_000
    monkeypatch.setattr(frames, "CHUNK_BYTES", 2_000_000)
    monkeypatch.setattr(frames, "SENT_BYTES", 1_500_000)
    alive: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        before = pa.total_allocated_bytes()
        for number in range(40):
            alive.append(pa.total_allocated_bytes() - before)
            yield pa.RecordBatch.from_arrays([pa.array(range(number * rows, (number + 1) * rows))], ["id"])

    lake.with_options(engine="spark").materialize(streaming(batches))
    assert lake.summaries("t")[0]["added-records"] == str(40 * rows)
    ids = lake.arrow("t").column("id")
    assert (pc.min(ids).as_py(), pc.max(ids).as_py(), pc.count_distinct(ids).as_py()) == (0, 40 * rows - 1, 40 * rows)
    assert max(alive) < 12_000_000 < 40 * rows * 8


def test_an_iterator_that_breaks_leaves_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def batches() -> Iterator[pa.RecordBatch]:
        yield BATCH
        message = "the source is gone"
        raise ConnectionError(message)

    result = lake.materialize(streaming(batches), raise_on_error=False)
    assert "the source is gone" in str(error_of(result))
    assert not lake.exists("t")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("dagster-iceberg-")]


def test_no_file_is_left_after_a_write(lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lake.materialize(returning(lambda: BATCH))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("dagster-iceberg-")]


def long_stream() -> Iterator[pa.RecordBatch]:
    for number in range(6):
        ids = pa.array(range(number * 100, number * 100 + 100))
        yield pa.record_batch({"id": ids, "s": ["x" * 1000] * 100})


def staged_files(lake: Lake) -> list[Path]:
    return list((lake.directory / "wh").glob(f"{outputs.PREFIX}*"))


class OnlyHere(PyArrowFileIO):
    """A store that no Hadoop file system opens."""

    def new_output(self, location: str) -> Any:
        return super().new_output(location.replace("onlyhere:", "file:"))

    def delete(self, location: Any) -> None:
        super().delete(str(location).replace("onlyhere:", "file:"))


@pytest.mark.each_engine("all")
@pytest.mark.parametrize("engine", ["connect"], indirect=True)
@pytest.mark.parametrize("way", ["by the warehouse", "in messages, because Spark does not know the store"])
def test_a_long_stream_reaches_a_server(
    lake: Lake, way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(frames, "SENT_BYTES", 150_000)
    if way != "by the warehouse":
        properties = {"py-io-impl": f"{__name__}.{OnlyHere.__name__}"}
        store = outputs.Store(f"onlyhere://{lake.directory}/wh", properties)
        monkeypatch.setattr(frames, "warehouse_of", lambda _: store)
    seen: list[list[Path]] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in long_stream():
            seen.append(staged_files(lake))
            yield batch

    with caplog.at_level(logging.DEBUG, logger=frames.__name__):
        lake.with_options(engine="spark").materialize(streaming(batches))
    assert lake.rows("t", "id") == list(range(600))
    assert any(seen) == (way == "by the warehouse")
    assert ("Sending the rows" in caplog.text) == (way != "by the warehouse")
    assert not staged_files(lake)


@pytest.mark.each_engine("all")
@pytest.mark.parametrize("engine", ["connect"], indirect=True)
def test_a_long_stream_that_breaks_leaves_no_staged_file(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "SENT_BYTES", 150_000)
    seen: list[bool] = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield from long_stream()
        seen.append(bool(staged_files(lake)))
        message = "the source is gone"
        raise ConnectionError(message)

    result = lake.with_options(engine="spark").materialize(streaming(batches), raise_on_error=False)
    assert "the source is gone" in str(error_of(result))
    assert seen == [True]
    assert not lake.exists("t")
    assert not staged_files(lake)

"""An asset's return value as Arrow batches."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dagster_iceberg_spark.arrow.outputs import arrow_rows
from dagster_iceberg_spark.errors import OutputTypeError

BATCH = pa.record_batch({"id": [1]})
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "time": (
        lambda: pa.table({"c": pa.array([1], pa.time64("us"))}),
        "columns of types that Iceberg has, found 'c' of type time64[us]",
    ),
    "duration": (lambda: pa.table({"c": pa.array([1], pa.duration("us"))}), "found 'c' of type duration[us]"),
    "nanosecond": (
        lambda: pa.table({"c": pa.array([1001], pa.timestamp("ns"))}),
        "values of 'c' that the type timestamp[us] holds, found Casting from timestamp[ns] to timestamp[us] would lose",
    ),
    "no batches": (lambda: iter([]), "at least one Arrow batch, which has the columns, found an iterator that yields"),
    "other things": (
        lambda: iter([BATCH, 3]),
        "an iterator of pyarrow.RecordBatch or pyarrow.Table, found builtins.int among what it yields",
    ),
    "other columns": (
        lambda: iter([BATCH, BATCH.rename_columns(["n"])]),
        "the columns of the first batch in all of them: id int64, found n int64",
    ),
    "objects": (lambda: pl.DataFrame({"c": pl.Series([object()], dtype=pl.Object)}), "found 'c' of type Object"),
    "periods": (
        lambda: pd.DataFrame({"c": pd.period_range("2024-01", periods=1, freq="M")}),
        "found 'c' of type extension<pandas.period",
    ),
    "times as index": (
        lambda: pd.DataFrame({"c": [1]}, index=pd.to_datetime(["2024-01-01"])),
        " without a name. Hint: name it by `rename_axis`",
    ),
    "mixed": (
        lambda: pd.DataFrame({"c": [1, "a"]}),
        "rows that Arrow can hold, found pandas.DataFrame: (\"Could not convert 'a' with type str",
    ),
    "a series": (lambda: pl.Series([1]), "rows that Arrow can hold, found polars.series.series.Series"),
    "names twice": (
        lambda: pa.Table.from_arrays([pa.array([1])] * 2, ["c", "c"]),
        "each column's name once, found c more than once",
    ),
    "no name": (lambda: pd.DataFrame({"": [1], "b": [2]}), "a name for each column, found a column without one"),
    "lists of nothing": (lambda: pa.table({"c": [[]]}), "found 'c' of type nothing but NULL inside"),
}


class OwnError(Exception):
    """An error class of the user."""


@pytest.mark.parametrize("error", [ValueError("bad row"), TypeError("x"), pa.ArrowInvalid("x"), OwnError("x")])
@pytest.mark.parametrize("batches_before", [0, 1])
def test_errors_of_the_user_s_code_are_not_translated(error: Exception, batches_before: int) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from [BATCH] * batches_before
        raise error

    with pytest.raises(type(error)) as caught:
        list(arrow_rows(batches(), subject="t") or ())
    assert caught.value is error


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=list(REFUSED))
def test_rows_that_cannot_be_written_as_they_are_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(OutputTypeError) as caught:
        list(arrow_rows(make(), subject="t") or ())
    assert str(caught.value).startswith("Cannot write t: expected ")
    assert message in str(caught.value)


@pytest.mark.parametrize("value", [None, [1], [{"id": 1}], "text"])
def test_an_object_without_rows_is_none(value: Any) -> None:
    assert arrow_rows(value, subject="t") is None


def test_uuids_become_texts_as_spark_has_them() -> None:
    known = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
    stored = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([known.bytes, None], pa.binary(16)))
    for given in (pa.table({"u": stored}), pd.DataFrame({"u": [known, None]})):
        rows = arrow_rows(given, subject="t")
        assert rows is not None
        assert rows.read_all().to_pydict() == {"u": [str(known), None]}

"""An asset's return value as a DataFrame to write."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from dagster_iceberg_spark.errors import OutputTypeError, WriteFailedError
from dagster_iceberg_spark.spark.read import frames

HELD: Any = SimpleNamespace(spark=None, is_case_sensitive=False, catalog=SimpleNamespace(redact=str))


def batches(error: Exception | None = None) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"id": [1]})
    if error is not None:
        raise error


def test_spark_errors_in_the_user_s_generator_are_not_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    own, engine_s = AnalysisException("theirs"), AnalysisException("the engine's")

    @contextmanager
    def frame_of(_: Any, rows: pa.RecordBatchReader) -> Iterator[Any]:
        rows.read_all()
        raise engine_s
        yield

    monkeypatch.setattr(frames, "frame_of", frame_of)
    with pytest.raises(AnalysisException) as caught, frames.frame_to_write(batches(own), lambda: HELD, subject="t"):
        pass
    assert caught.value is own
    with (
        pytest.raises(WriteFailedError, match="the engine's"),
        frames.frame_to_write(batches(), lambda: HELD, subject="t"),
    ):
        pass


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "found None. Hint: annotate the asset `-> None` if it never returns rows"),
        ([1], "found builtins.list. Hint: return one of these, or give the asset another IO manager"),
        ([{"id": 1}], "found builtins.list"),
        ("text", "found builtins.str"),
    ],
    ids=["none", "list", "dicts", "text"],
)
def test_an_output_that_is_no_frame_is_refused(value: Any, message: str) -> None:
    with pytest.raises(OutputTypeError) as caught, frames.frame_to_write(value, lambda: HELD, subject="t"):
        pass
    assert str(caught.value).startswith("Cannot write t: expected a pyspark.sql.DataFrame, pyarrow.Table, ")
    assert message in str(caught.value)


def test_names_that_differ_in_case_alone_are_refused_unless_the_session_tells_them_apart() -> None:
    with (
        pytest.raises(OutputTypeError, match="differ in more than their case, found A, a"),
        frames.frame_to_write(pa.table({"A": [1], "b": [1], "a": [2]}), lambda: HELD, subject="t"),
    ):
        pass

"""An asset's return value as Arrow batches."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from dagster_iceberg_spark.arrow.outputs import arrow_rows

BATCH = pa.record_batch({"id": [1]})


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

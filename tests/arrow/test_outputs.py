"""What an asset returns, as Arrow batches."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from dagster_iceberg_spark.arrow.outputs import arrow_rows

BATCH = pa.record_batch({"id": [1]})


class OwnError(Exception):
    """One of the user's."""


@pytest.mark.parametrize("error", [ValueError("bad row"), TypeError("x"), pa.ArrowInvalid("x"), OwnError("x")])
@pytest.mark.parametrize("batches_before", [0, 1])
def test_what_the_user_s_own_code_raises_stays_what_it_is(error: Exception, batches_before: int) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from [BATCH] * batches_before
        raise error

    with pytest.raises(type(error)) as caught:
        list(arrow_rows(batches(), subject="t") or ())
    assert caught.value is error

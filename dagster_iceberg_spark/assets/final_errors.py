"""Tells Dagster which errors no retry can fix."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from dagster_iceberg_spark.errors import IcebergSparkError


@contextmanager
def final_errors(*, is_in_step: bool = True) -> Iterator[None]:
    """Raise errors that no retry can fix as a `Failure` without retries; outside a step, raise them as they are."""
    try:
        yield
    except IcebergSparkError as error:
        if error.allows_retries or not is_in_step:
            raise
        raise dg.Failure(
            description=str(error), metadata={"error": type(error).__name__}, allow_retries=False
        ) from error

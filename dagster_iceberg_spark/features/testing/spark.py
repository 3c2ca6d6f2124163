"""Errors as Iceberg raises them in Spark, and the rows of DataFrames."""

from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException

from dagster_iceberg_spark.spark.versions import version_of


class CommitStateUnknownException(PySparkException):
    """The catalog did not answer a commit (Iceberg's exception of this name)."""


class CommitFailedException(PySparkException):
    """Another writer committed first (Iceberg's exception of this name)."""


def rows_of_frame(frame: Any) -> pa.Table:
    """Return the rows of a DataFrame."""
    return version_of(frame.sparkSession).arrow_of(frame)

"""Asserts that rows are equal, whatever library holds them."""

from collections.abc import Sequence
from typing import Any

from dagster_iceberg_spark.features.testing.row_difference import Row, RowComparison


def assert_rows(
    actual: Any, expected: Any, *, ignore_order: bool = True, tolerance: float = 0.0, partial: bool = False
) -> None:
    """Assert that rows are equal. The message shows the rows that differ, as a table.

    Numbers of different types are equal by their value, and NaN equals NaN. A column that an expected row does not have
    is NULL in it.

    Args:
        actual: The rows: a list of mappings, such as `lake.rows` returns; or a DataFrame of Spark, pandas, polars,
            DuckDB, ibis or Arrow.
        expected: The expected rows, in the same forms.
        ignore_order: Whether the order of the rows does not matter.
        tolerance: The largest difference between two numbers, or in seconds between two times, that counts as none.
        partial: Whether only the columns of the expected rows are compared.

    Raises:
        AssertionError: The rows differ.
    """
    __tracebackhide__ = True
    comparison = RowComparison(ignore_order=ignore_order, tolerance=tolerance, partial=partial)
    difference = comparison.difference(_rows_of(actual), _rows_of(expected))
    if difference is not None:
        raise AssertionError(difference)


def _rows_of(rows: Any) -> Sequence[Row]:
    if isinstance(rows, list | tuple):
        return rows
    if hasattr(rows, "sparkSession"):
        from dagster_iceberg_spark.features.testing.spark import rows_of_frame

        rows = rows_of_frame(rows)
    from dagster_iceberg_spark.arrow.outputs import arrow_rows, type_name

    reader = arrow_rows(rows, subject="the rows")
    if reader is None:
        message = f"expected a list of mappings or a DataFrame, found {type_name(rows)}"
        raise TypeError(message)
    return reader.read_all().to_pylist()  # type: ignore[no-any-return]

"""Spark's types as Iceberg's."""

import pytest
from pyspark.sql import types

from dagster_iceberg_spark.errors import SchemaMismatchError
from dagster_iceberg_spark.spark.columns import iceberg_type


def test_a_type_that_iceberg_lacks_is_refused_with_the_column_s_path() -> None:
    nested = types.StructType([types.StructField("a", types.ArrayType(types.DayTimeIntervalType()))])
    with pytest.raises(SchemaMismatchError) as caught:
        iceberg_type(nested, ("s",), "t")
    expected = (
        "Cannot write t: expected a type that Iceberg has for the column 's.a.element', found interval day to second"
    )
    assert str(caught.value) == f"{expected}. Hint: cast 's.a.element', for example to string or to a number."

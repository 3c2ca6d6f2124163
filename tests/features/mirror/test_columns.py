"""The columns of a DuckLake table that shows an Iceberg schema.

docs/mirror.md: Limits
"""

from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.mirror.ducklake_columns import (
    bound_text,
    field_ids,
    mirror_columns,
    statistics_paths,
)
from dagster_iceberg_spark.features.mirror.plan import Column

NESTED = (
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "s", StructType(NestedField(3, "x", IntegerType()), NestedField(4, 'a "b"', StringType()))),
    NestedField(5, "tags", ListType(6, StringType(), element_required=False)),
    NestedField(7, "m", MapType(8, StringType(), 9, StructType(NestedField(10, "y", DoubleType())))),
)


def test_parts_follow_their_columns_with_the_field_ids_of_iceberg() -> None:
    assert mirror_columns(Schema(*NESTED), table="t") == (
        Column(1, "id", "int64", is_nullable=False),
        Column(2, "s", "struct"),
        Column(3, "x", "int32", 2),
        Column(4, 'a "b"', "varchar", 2),
        Column(5, "tags", "list"),
        Column(6, "element", "varchar", 5),
        Column(7, "m", "map"),
        Column(8, "key", "varchar", 7, is_nullable=False),
        Column(9, "value", "struct", 7, is_nullable=False),
        Column(10, "y", "float64", 9),
    )


def test_initial_defaults_are_texts() -> None:
    fields = (
        NestedField(1, "day", DateType(), initial_default=16000),
        NestedField(2, "flag", BooleanType(), initial_default=True),
        NestedField(3, "n", IntegerType(), initial_default=5),
    )
    columns = mirror_columns(Schema(*fields), table="t")
    assert [column.initial_default for column in columns] == ["2013-10-22", "True", "5"]


def test_a_type_that_ducklake_lacks_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"Cannot mirror db\.t: expected columns whose types DuckLake has, found"
    ):
        mirror_columns(Schema(NestedField(1, "at", TimestampNanoType())), table="db.t")


def test_duckdb_writes_the_field_ids_of_parts_too() -> None:
    assert field_ids(NESTED) == (
        "{'id': 1, 's': {__duckdb_field_id: 2, 'x': 3, 'a \"b\"': 4}, 'tags': {__duckdb_field_id: 5, 'element': 6}, "
        "'m': {__duckdb_field_id: 7, 'key': 8, 'value': {__duckdb_field_id: 9, 'y': 10}}}"
    )


def test_statistics_are_found_by_the_paths_of_duckdb() -> None:
    assert {path: field.field_id for path, field in statistics_paths(NESTED)} == {
        '"id"': 1,
        '"s"."x"': 3,
        '"s"."a ""b"""': 4,
        '"tags"."element"': 6,
        '"m"."key"': 8,
        '"m"."value"."y"': 10,
    }


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (5, IntegerType(), "5"),
        (True, BooleanType(), "1"),
        (False, BooleanType(), "0"),
        (0.1, DoubleType(), "0.1"),
        (float("inf"), DoubleType(), "inf"),
        (Decimal("1.50"), DecimalType(9, 2), "1.50"),
        (Decimal("1E+3"), DecimalType(9, 0), "1000"),
        (-1, DateType(), "1969-12-31"),
        (2**31 - 1, DateType(), None),
        (3_600_000_000, TimeType(), "01:00:00"),
        (1, TimestampType(), "1970-01-01 00:00:00.000001"),
        (-1_000_000, TimestamptzType(), "1969-12-31 23:59:59+00"),
        (2**62, TimestampType(), None),
        ("text", StringType(), "text"),
        ("a\0b", StringType(), None),
        (b"\xff", BinaryType(), None),
        (b"\xff", FixedType(1), None),
        ("79b4b4ab-5e1c-4bd2-a5f1-12a1b0c5e7c0", UUIDType(), "79b4b4ab-5e1c-4bd2-a5f1-12a1b0c5e7c0"),
    ],
)
def test_bounds_are_texts_that_duckdb_casts(value: Any, kind: IcebergType, text: str | None) -> None:
    assert bound_text(value, kind) == text

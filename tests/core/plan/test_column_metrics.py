"""Which columns need full bounds in the metadata of files, and the advice if they have none."""

import pytest

from dagster_iceberg_spark.plan.partitions.binding import bind_scope
from dagster_iceberg_spark.plan.write.definition import advice, whole_bounds
from dagster_iceberg_spark.table.schema import Schema
from tests.core.table.samples import TABLE, daily, keyed, schema

MANY = Schema((*schema(**{f"c{n}": "int" for n in range(100)}), *schema(ts="timestamptz", carrier="string")))
FEW = schema(ts="timestamptz", carrier="string")
COLUMN = "write.metadata.metrics.column.carrier"
DEFAULT = "write.metadata.metrics.default"
LONG = "a carrier of more than 16 characters"


def test_full_column_bounds_are_a_table_property() -> None:
    assert whole_bounds(["ts", "carrier"]) == {"write.metadata.metrics.column.ts": "full", COLUMN: "full"}


@pytest.mark.parametrize(
    ("columns", "key", "properties", "is_advised"),
    [
        (FEW, "AA", {}, False),
        (FEW, LONG, {}, True),
        (FEW, LONG, {COLUMN: "full"}, False),
        (FEW, LONG, {COLUMN: "truncate(100)"}, False),
        (FEW, LONG, {DEFAULT: "full"}, False),
        (FEW, "AA", {DEFAULT: "counts"}, True),
        (FEW, "AA", {COLUMN: "none"}, True),
        (FEW, "AA", {DEFAULT: "none", COLUMN: "truncate(2)"}, False),
        (MANY, "AA", {}, True),
        (MANY, "AA", {"write.metadata.metrics.max-inferred-column-defaults": "200"}, False),
        (MANY, "AA", {COLUMN: "full"}, False),
    ],
)
def test_truncated_or_missing_bounds_cause_advice(
    columns: Schema, key: str, properties: dict[str, str], is_advised: bool
) -> None:
    owned = bind_scope(keyed(key), columns, subject="nyc.flights")
    found = advice(owned, columns, properties, TABLE)
    assert (found is not None) == is_advised
    assert found is None or f"`{COLUMN}` = `full`" in found


def test_bounds_of_timestamps_are_never_truncated() -> None:
    owned = bind_scope(daily("2024-01-02"), FEW, subject="nyc.flights")
    assert advice(owned, FEW, {DEFAULT: "truncate(1)"}, TABLE) is None

"""Which partitions of an asset are older than its retention.

docs/maintenance.md: What is done, and when
"""

import datetime as dt

import dagster as dg
import pytest

from dagster_iceberg_spark.errors import MetadataKeyError
from dagster_iceberg_spark.features.maintenance.retention import retention_of
from tests.core.table.samples import utc

MONTH = dt.timedelta(days=30)
KEYS = dg.StaticPartitionsDefinition(["a", "b"])


def spec(partitions_def: dg.PartitionsDefinition | None) -> dg.AssetSpec:
    return dg.AssetSpec("t", partitions_def=partitions_def, metadata={"partition_expr": "ts"})


def test_partitions_that_ended_before_the_retention_are_deleted() -> None:
    days = dg.DailyPartitionsDefinition("2024-01-01")
    found = retention_of(spec(days), MONTH, utc(2024, 2, 2, 12))
    assert found is not None
    ((window,),) = ((part.window for part in parts) for parts in found.scope.partitions)
    assert window is not None
    assert (window.start, window.end) == (utc(2024, 1, 1), utc(2024, 1, 3))
    assert retention_of(spec(days), MONTH, utc(2024, 1, 20)) is None


@pytest.mark.parametrize("partitions_def", [None, KEYS, dg.MultiPartitionsDefinition({"a": KEYS, "b": KEYS})], ids=repr)
def test_an_asset_without_time_partitions_cannot_retain(partitions_def: dg.PartitionsDefinition | None) -> None:
    with pytest.raises(MetadataKeyError) as caught:
        retention_of(spec(partitions_def), MONTH, utc(2024, 2, 2))
    found = f"found {partitions_def}"
    assert f"Cannot use `iceberg/retain` of t: expected an asset with time partitions, {found}" in str(caught.value)
